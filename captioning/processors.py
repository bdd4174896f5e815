"""Processors of transformers' image-to-text models, and what they put around a caption."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from captioning.files import read_json
from captioning.model_folder import damage_named, model_folder

FILES = ("*.json", "*.txt", "*.model", "*.jinja")
CAPTION_MARK = "§caption§"
# These end captions with their separator; the end token of their configs is another one.
ENDS_WITH_SEPARATOR = ("blip", "git")
NO_HUB = "a folder of another model, or model=updown_small"
PREFIX = "prompt."
COUNTS = ".counts"
# Made for training by the library's own loop, which is not used here.
NOT_READ = ("labels",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFormat:
    """What stands around a caption.

    Attributes:
        text: what the processor is called with, beside a photo.
        before: text between the prompt and the caption, such as a space.
        end_id: token that ends a caption.
    """

    text: str
    before: str
    end_id: int


def image_text_folder(name: str, *, weights: bool = False) -> Path:
    """The folder of an image-to-text model.

    Args:
        name: hub name or folder.
        weights: whether its weights are needed.

    Raises:
        FileNotFoundError: no such folder, no model in it, or no weights where they are needed.
        ConnectionError: the hub cannot be reached.
    """
    files = (*FILES, "*.safetensors") if weights else FILES
    folder = model_folder(name, instead=NO_HUB, files=files)
    if weights and not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{name}: no model.safetensors in it; other files of weights may hold programs and "
            "are not read: save the model with safetensors"
        )
    return folder


@lru_cache(maxsize=4)
def load_processor(folder: Path) -> Any:
    """The processor of a model; its tokenizer pads before the prompts.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: it cannot be read, or belongs to another kind of model.
        ModuleNotFoundError: it needs a package that is not installed.
    """
    transformers: Any = importlib.import_module("transformers")  # slow, and needed here only
    if (
        not (folder / "processor_config.json").is_file()
        and not (folder / "preprocessor_config.json").is_file()
    ):
        raise FileNotFoundError(
            f"{folder}: no processor_config.json or preprocessor_config.json in it; save the "
            "model's processor beside it: AutoProcessor.from_pretrained(NAME).save_pretrained(it)"
        )
    try:
        processor = transformers.AutoProcessor.from_pretrained(folder, local_files_only=True)
    except ImportError as error:
        raise ModuleNotFoundError(f"{folder}: its processor needs a package: {error}") from error
    except Exception as error:  # tokenizers raises that class itself
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{folder}: its processor cannot be read ({reason})") from error
    _check_kind(processor, folder)
    return processor


def _check_kind(processor: Any, folder: Path) -> None:
    """Refuse a processor that belongs to another kind of model, or that has no tokenizer."""
    auto: Any = importlib.import_module("transformers.models.auto.processing_auto")
    kind = _kind(folder)
    expected = auto.PROCESSOR_MAPPING_NAMES.get(kind)
    name = type(processor).__name__
    if expected is not None and name != expected:
        raise ValueError(
            f"{folder}: {name} does not fit its model of kind {kind!r}, which wants {expected}; "
            "save the processor that belongs to the weights"
        )
    if getattr(getattr(processor, "tokenizer", None), "backend_tokenizer", None) is None:
        raise ValueError(
            f"{folder}: {name} has no fast tokenizer (tokenizer.json); save the model with one"
        )


def prompt_format(processor: Any, folder: Path, prompt: str) -> PromptFormat:
    """How a processor's model is asked for a caption, and where the caption goes.

    Models with a chat template are asked by a user's message of the photo and the prompt, and
    answer as their template has it; others read the prompt as it is.

    Args:
        processor: see `load_processor`.
        folder: of the model.
        prompt: such as ``"Describe the image."`` or ``"a photo of"``; may be empty.

    Raises:
        ValueError: the model names no token that ends its texts.
    """
    if not getattr(processor, "chat_template", None):
        gap = " " if prompt and not prompt[-1].isspace() and _continues(folder) else ""
        mark = "<image>" if _kind(folder) == "paligemma" else ""  # others add the photo's place
        end_id = _end_id(processor, folder)
        return PromptFormat(text=f"{mark}{prompt}", before=gap, end_id=end_id)
    picture: dict[str, str] = {"type": "image"}
    question = {"role": "user", "content": [picture, {"type": "text", "text": prompt}]}
    answer = {"role": "assistant", "content": [{"type": "text", "text": CAPTION_MARK}]}
    text = processor.apply_chat_template([question], add_generation_prompt=True)
    whole = processor.apply_chat_template([question, answer])
    before, after = "", ""
    if whole.startswith(text) and CAPTION_MARK in whole:
        before, _, after = whole[len(text) :].partition(CAPTION_MARK)
    # Templates write the token that begins texts, and so does the tokenizer.
    first = processor.tokenizer.bos_token or ""
    text = text.removeprefix(first) if _adds_start(processor) else text
    return PromptFormat(text=text, before=before, end_id=_end_id(processor, folder, after))


def _continues(folder: Path) -> bool:
    """Whether a caption goes on in the prompt's own text; else it is a text of its own."""
    config = read_json(folder / "config.json")
    text = config.get("text_config") or {}
    is_own = config.get("is_encoder_decoder") or text.get("is_encoder_decoder")
    return not (is_own or text.get("model_type") == "t5" or config.get("model_type") == "paligemma")


def _kind(folder: Path) -> str:
    """The kind of model, such as ``"git"``."""
    with damage_named(str(folder)):
        return read_json(folder / "config.json").get("model_type", "")


def _adds_start(processor: Any) -> bool:
    tokenizer = processor.tokenizer
    start = tokenizer.bos_token_id
    return start is not None and tokenizer("a").input_ids[:1] == [start]


def _end_id(processor: Any, folder: Path, after: str = "") -> int:
    """The token that ends a caption: of the chat, of the generation's settings, or the text's."""
    tokenizer = processor.tokenizer
    first = tokenizer(after, add_special_tokens=False).input_ids[:1] if after else []
    if first and first[0] in tokenizer.all_special_ids:
        return first[0]
    if _kind(folder) in ENDS_WITH_SEPARATOR:
        return tokenizer.sep_token_id
    settings = folder / "generation_config.json"
    configured = read_json(settings).get("eos_token_id") if settings.is_file() else None
    ends = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
    for end in ends:
        if isinstance(end, int):
            return end
    raise ValueError(
        f"{folder}: neither generation_config.json nor the tokenizer names an eos_token, with "
        "which captions end; add eos_token_id to generation_config.json"
    )


class PromptedProcessor:
    """Photos and one prompt as the tensors of an image-to-text model.

    Tensors have the processor's names with `PREFIX` before them: token ids
    ``prompt.input_ids (I, P)`` with their masks, padded at the left, and pixels. Where a photo
    takes several rows of a tensor (patches of Qwen-VL), ``prompt.NAME.counts (I,)`` says how many.

    Args:
        pretrained: hub name or folder of the model.
        prompt: see `prompt_format`.
        options: of the processor's call, such as ``{size: {height: 224, width: 224}}``.

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: its processor does not fit.
    """

    def __init__(
        self, *, pretrained: str, prompt: str = "", options: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = image_text_folder(pretrained)
        self.processor = load_processor(self.folder)
        self.format = prompt_format(self.processor, self.folder, prompt)
        self._options = dict(options or {})
        probe = self.read_photo(Image.new("RGB", (64, 48), "grey"))
        self._in_rows = frozenset(name for name, value in probe.items() if len(value) != 1)

    def read_photo(self, photo: Image.Image, text: str | None = None) -> dict[str, Tensor]:
        """The processor's tensors of one photo.

        Args:
            photo: RGB, of any size.
            text: in place of the prompt's, as `PromptFormat.text` has it.

        Raises:
            ValueError: the processor refuses its options, or gives no token ids.
        """
        text = self.format.text if text is None else text
        try:
            outputs = self.processor(
                images=[photo], text=[text], return_tensors="pt", **self._options
            )
        except (TypeError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            name = type(self.processor).__name__
            raise ValueError(
                f"{name} cannot prepare a photo with the prompt {text!r} and "
                f"features.reader.options={self._options}: {reason}"
            ) from error
        return {
            f"{PREFIX}{name}": value
            for name, value in outputs.items()
            if name not in NOT_READ and isinstance(value, Tensor)
        }

    def joined(self, photos: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors of I photos: prompts padded at the left, pixels side by side."""
        pad_id = self.processor.tokenizer.pad_token_id or 0
        joined: dict[str, Tensor] = {}
        for name, first in photos[0].items():
            values = [photo[name] for photo in photos]
            if name in self._in_rows:
                joined[name] = torch.cat(values)
                joined[f"{name}{COUNTS}"] = torch.tensor([len(value) for value in values])
            elif first.dim() == 2:
                joined[name] = _left_padded(values, pad_id if name.endswith("input_ids") else 0)
            else:
                joined[name] = _stacked(values)
        return joined


def _left_padded(rows: Sequence[Tensor], value: int) -> Tensor:
    """``(I, P)`` of rows ``(1, P_i)``."""
    width = max(row.shape[1] for row in rows)
    return torch.cat([functional.pad(row, (width - row.shape[1], 0), value=value) for row in rows])


def _stacked(values: Sequence[Tensor]) -> Tensor:
    """Tensors ``(1, ...)`` side by side; smaller ones get zeros at the end of each dimension."""
    sizes = [max(lengths) for lengths in zip(*(value.shape[1:] for value in values), strict=True)]
    padded = []
    for value in values:
        missing = [size - length for size, length in zip(sizes, value.shape[1:], strict=True)]
        pads = [amount for missing_here in reversed(missing) for amount in (0, missing_here)]
        padded.append(functional.pad(value, pads) if any(missing) else value)
    return torch.cat(padded)
