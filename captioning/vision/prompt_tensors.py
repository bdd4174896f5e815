"""Convert photos and a prompt to input tensors of an image-to-text model, and batch them.

A processor of transformers returns tensors of four kinds. A tensor *by token* has a position for
each token of the text. A tensor *by photo* has one row per photo, a tensor *by row* as many rows as
a photo needs (tiles, patches). An *index* holds numbers of such rows, counted over all photos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from captioning.runtime.processors import (
    PHOTOS_ALONE,
    image_text_folder,
    load_processor,
    model_kind,
)
from captioning.text.prompts import ChatQuestion, chat_template, prompt_format
from captioning.vision.photos import RefusedPhoto, load_rgb, refusals_named

PREFIX = "prompt."
COUNTS = ".counts"  # rows of each photo, beside each tensor of photos
CAPTION = ".caption"  # what a caption's token has there, beside each tensor by token
# Outputs for training with the library's own loop, or for people.
NOT_READ = ("labels", "num_crops", "num_image_tokens", "image_flags", "offset_mapping")
# Values of an answer's tokens, if the processor gives only the prompt's values.
OF_ANSWERS = {"paligemma": {"token_type_ids": 1}}
# Row numbers in another tensor, counted over the photos of a call; negative numbers mean none.
# The number of rows is the product of the named dimensions.
INDICES = {"molmo2": {"image_token_pooling": ("pixel_values", 1)}}
# Tensors whose rows are concatenated along the last dimension.
IN_LAST: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("minicpmv4_6", "minicpmv4_7", "minicpm_ocr"), ("pixel_values",)
)
# Numbers by photo that the network expects as a list.
AS_LISTS = {"unlimited_ocr": ("num_local_patches", "patches_grid")}
# Call options without which a processor leaves out inputs of its network.
ASKED = {"cosmos3_edge": {"return_mm_token_type_ids": True}}
# Tensors with one row per photo of which the network reads only the number of tiles.
OF_TILES = {"perception_lm": ("pixel_values",)}
PHOTO_KEYS = "photo.keys"
"""Name of ``(I,) int64`` in a batch: identifies its photos across batches."""
# Two photo sizes, of which processors tile the larger.
PROBES = ((64, 48), (1024, 640))
PROBE_TEXT = " a dog runs on the grass"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLayout:
    """Layout of a processor's output tensors.

    Attributes:
        by_text: names of tensors whose second dimension grows with the text.
        captions: value of a caption's token, ``(1, 1, ...)``, for tensors with a value per token;
            None: the value of the prompt's last token.
    """

    by_text: frozenset[str]
    captions: Mapping[str, Tensor | None]


class PromptedProcessor:
    """Convert photos and one prompt to the input tensors of an image-to-text model.

    Tensors have the processor's names with the prefix `PREFIX`. Tensors by token, such as
    ``prompt.input_ids (I, P)``, are padded on the left; except for the ids, each has a companion
    ``prompt.NAME.caption (I, 1)`` with the value of caption tokens. Each tensor of photos has a
    companion ``prompt.NAME.counts (I,)`` with the number of rows per photo.

    Trial calls with photos and texts of two sizes reveal the kind of each tensor. Batched photos
    are compared with the processor's own call for both photos.

    Args:
        pretrained: hub name or folder of the model.
        prompt: see `captioning.text.prompts.prompt_format`.
        options: options of the processor's call, such as ``{size: {height: 224, width: 224}}``.
        template: options of the chat template.

    Raises:
        FileNotFoundError, ConnectionError: the model does not exist.
        ValueError: an unsuitable processor, or a tensor of an unknown kind.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = image_text_folder(pretrained)
        self.kind = model_kind(self.folder)
        self.processor = load_processor(self.folder)
        self.format = prompt_format(self.processor, self.folder, prompt, template)
        self._options = {**ASKED.get(self.kind, {}), **(options or {})}
        self.layout = self._understood()

    def read_photo(self, photo: Image.Image, text: str | None = None) -> dict[str, Tensor]:
        """Return the processor's tensors of one photo, without those that `joined` adds.

        Args:
            photo: RGB, of any size.
            text: text to use instead of the prompt, in the form of `PromptFormat.text`.

        Raises:
            RefusedPhoto: the processor rejects the photo, the text or its options.
        """
        return self._called([photo], [self.format.text if text is None else text])

    def read_file(self, path: Path) -> dict[str, Tensor]:
        """Read a photo file; otherwise as `read_photo`.

        Raises:
            FileNotFoundError: the photo does not exist.
            ValueError: the photo cannot be opened, or the processor rejects it.
        """
        photo = load_rgb(path)
        with refusals_named([path], [photo]):
            return self.read_photo(photo)

    def _called(self, photos: list[Image.Image], texts: list[str]) -> dict[str, Tensor]:
        """Call the processor once."""
        words: dict[str, Any] = {} if self.kind in PHOTOS_ALONE else {"text": texts}
        if len(photos) > 1 and words:
            words |= {"padding": True, "padding_side": "left"}
        if words and self.format.question and self.format.question.has_start:
            words["add_special_tokens"] = False
        try:
            outputs = self._outputs(photos, words)
        except Exception as error:  # each processor has its own types
            reason = " ".join(str(error).split())[:200]
            name = type(self.processor).__name__
            options = f", features.reader.options={self._options}" if self._options else ""
            raise RefusedPhoto(
                f"{name} rejects it at {photos[0].width}x{photos[0].height} pixels: {reason} "
                f"(the prompt is {texts[0]!r}{options})",
                photos[0],
            ) from error
        named = {name: value for name, value in outputs.items() if name not in NOT_READ}
        return {f"{PREFIX}{name}": self._tensor(name, value) for name, value in named.items()}

    def _tensor(self, name: str, value: Any) -> Tensor:
        """Convert an output of the processor to a tensor; some outputs are lists of numbers."""
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{type(self.processor).__name__}: output {name!r} is a "
                f"{type(value).__name__}, not a tensor, and models of kind {self.kind} are not "
                "supported; use another model"
            ) from error

    def _outputs(self, photos: list[Image.Image], words: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(photos) == 1:
            return self.processor(images=photos, return_tensors="pt", **words, **self._options)
        # Some processors expect one list of photos per text, others a flat list.
        nested: list[Any] = [[photo] for photo in photos] if words else photos
        try:
            return self.processor(images=nested, return_tensors="pt", **words, **self._options)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError):
            return self.processor(images=photos, return_tensors="pt", **words, **self._options)

    def _understood(self) -> PromptLayout:
        """Infer the tensors' layout from calls with photos and texts of two sizes.

        Raises:
            ValueError: batched photos differ from the processor's own result for both.
        """
        rng = np.random.default_rng(0)
        photos = [
            Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
            for width, height in PROBES
        ]
        small, large = self._read_probes(photos)
        self._check_chat(photos[0], small)
        if self.kind in PHOTOS_ALONE:
            return PromptLayout(by_text=frozenset(), captions={})
        longer = self._longer(photos[0])
        ids = f"{PREFIX}input_ids"
        if ids not in small:
            raise ValueError(f"{type(self.processor).__name__} returns no input_ids for a text")
        number = longer[ids].shape[1] - small[ids].shape[1]
        by_text, captions = set[str](), dict[str, Tensor | None]()
        for name, value in small.items():
            if value.dim() < 2 or longer[name].shape[1] == value.shape[1]:
                continue
            by_text.add(name)
            is_by_token = value.shape[:2] == small[ids].shape
            if is_by_token and name != ids:
                captions[name] = self._of_caption(name, value, longer[name], number)
        layout = PromptLayout(by_text=frozenset(by_text), captions=captions)
        return self._checked(layout, photos, [small, large])

    def _read_probes(self, photos: Sequence[Image.Image]) -> list[dict[str, Tensor]]:
        """Read each trial photo alone; a rejection here is not the photo's fault."""
        try:
            return [self.read_photo(photo) for photo in photos]
        except RefusedPhoto as error:
            hint = ""
            if chat_template(self.processor) is None and self.kind not in PHOTOS_ALONE:
                hint = (
                    "; without a chat template: if the model chats, save chat_template.jinja, "
                    "or write a photo's marks into the prompt"
                )
            raise ValueError(f"{self.folder}: a trial photo fails: {error}{hint}") from error

    def _check_chat(self, photo: Image.Image, read: Mapping[str, Tensor]) -> None:
        """Raise an error if the prompt's tokens differ from those of the processor's chat call.

        Args:
            photo: the photo that was read.
            read: tensors of photo and prompt.

        Raises:
            ValueError: the tokens differ.
        """
        question = self.format.question
        if question is None:
            return
        own = self._own_ids(photo, question)
        mine = self.read_photo(photo, question.text)[f"{PREFIX}input_ids"]
        if not torch.equal(mine, own) or read[f"{PREFIX}input_ids"][0, 0] != own[0, 0]:
            raise ValueError(
                f"{self.folder}: {type(self.processor).__name__} encodes its chat template's "
                f"text as {mine.shape[1]} tokens, first {mine[0, :4].tolist()}, but its own "
                f"apply_chat_template gives {own.shape[1]}, first {own[0, :4].tolist()}. The model "
                f"would read a wrong prompt; save the model's own processor"
            )

    def _own_ids(self, photo: Image.Image, question: ChatQuestion) -> Tensor:
        """Return token ids ``(1, P)`` of the processor's own chat call."""
        try:
            return self.processor.apply_chat_template(
                list(question.messages),
                **question.options,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                processor_kwargs={"images": [photo], **self._options},
            )["input_ids"]
        except Exception as error:  # each processor has its own types
            raise ValueError(
                f"{self.folder}: apply_chat_template of its {type(self.processor).__name__} "
                f"fails with a photo ({' '.join(str(error).split())[:200]}); save the model's own "
                "processor"
            ) from error

    def _longer(self, photo: Image.Image) -> dict[str, Tensor]:
        """Return the tensors of a longer text, which starts with the prompt if possible."""
        try:
            return self.read_photo(photo, self.format.text + PROBE_TEXT)
        except ValueError:  # a task's name, which stands alone (Florence-2)
            return self.read_photo(photo, PROBE_TEXT)

    def _of_caption(self, name: str, prompt: Tensor, value: Tensor, number: int) -> Tensor | None:
        """Return the value ``(1, 1, ...)`` of a text's last tokens; None: as in the prompt."""
        short = name.removeprefix(PREFIX)
        of_answer = OF_ANSWERS.get(self.kind, {}).get(short)
        last = value[:, -1:]
        if of_answer is not None:
            return torch.full_like(last, of_answer)
        if not (value[:, value.shape[1] - number + 1 :] == last).all():
            raise ValueError(
                f"{type(self.processor).__name__}: tensor {short!r} has values that differ "
                f"within a text, and models of kind {self.kind} are not supported: the values of "
                f"caption tokens are unknown; use another model"
            )
        return None if torch.equal(last, prompt[:, -1:]) else last.clone()

    def _checked(
        self,
        layout: PromptLayout,
        photos: list[Image.Image],
        single: Sequence[Mapping[str, Tensor]],
    ) -> PromptLayout:
        """Return the layout, if two photos batched with it equal the processor's own result."""
        if self.kind in OF_TILES:  # whose processor takes photos of one number of tiles alone
            return layout
        own = self._called(photos, [self.format.text] * len(photos))
        unlike = self._unlike(layout, single, own)
        if unlike:
            name = sorted(unlike)[0].removeprefix(PREFIX)
            raise ValueError(
                f"{type(self.processor).__name__}: tensor {name!r} of two photos is not the "
                f"concatenation of the single ones, and models of kind {self.kind} are unknown; "
                "use another model"
            )
        return layout

    def _unlike(
        self,
        layout: PromptLayout,
        single: Sequence[Mapping[str, Tensor]],
        own: Mapping[str, Tensor],
    ) -> set[str]:
        """Return the names of batched tensors that differ from the processor's own call."""
        joined = with_indices(self.kind, _joined(self.kind, self._pad_id, layout, single))
        real = own.get(f"{PREFIX}attention_mask")

        def alike(name: str, value: Tensor) -> bool:
            if name not in joined:
                return False
            mine = torch.as_tensor(joined[name])
            if mine.shape != value.shape:
                return False
            if real is not None and value.shape[:2] == real.shape and name in layout.by_text:
                mine, value = mine[real.bool()], value[real.bool()]  # padding is never read
            return torch.allclose(mine.double(), value.double(), atol=1e-4)

        return {name for name, value in own.items() if not alike(name, value)}

    @property
    def _pad_id(self) -> int:
        return self.processor.tokenizer.pad_token_id or 0

    def joined(self, photos: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Batch the tensors of I photos: prompts padded on the left, pixels concatenated."""
        return _joined(self.kind, self._pad_id, self.layout, photos)


def _joined(
    kind: str, pad_id: int, layout: PromptLayout, photos: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    joined: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for photo in photos for name in photo):
        # Some processors leave out tensors that a photo does not need, such as tiles.
        given = next(photo[name] for photo in photos if name in photo)
        values = [photo.get(name, given[:0]) for photo in photos]
        if name in layout.by_text:
            joined[name] = _left_padded(values, pad_id if name.endswith("input_ids") else 0)
            if name in layout.captions:
                caption = layout.captions[name]
                last = [value[:, -1:] if caption is None else caption for value in values]
                joined[f"{name}{CAPTION}"] = torch.cat(last)
            continue
        short = name.removeprefix(PREFIX)
        if short in OF_TILES.get(kind, ()):
            values = [value.transpose(0, 1) for value in values]
        if short in IN_LAST.get(kind, ()):
            values = [value.movedim(-1, 0) for value in values]
        joined[name] = _stacked(values)
        joined[f"{name}{COUNTS}"] = torch.tensor([len(value) for value in values])
    return joined


def is_of_pixels(name: str) -> bool:
    """Whether only the image encoder reads a processor's tensor."""
    return name.startswith("pixel_") or name == "image_patches"


def left_padding(mask: Tensor | None) -> int:
    """Return the number of padding positions before the longest prompt.

    Args:
        mask: ``(I, P)`` mask of prompts on the CPU, 0 on padding; None: no mask.
    """
    return 0 if mask is None else int(mask.any(0).int().cumsum(0).eq(0).sum())


def unpadded(tensors: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """Remove ``padding`` positions at the start of batched prompts."""
    if not padding:
        return dict(tensors)
    width = tensors[f"{PREFIX}input_ids"].shape[1]
    by_text = {
        name
        for name, value in tensors.items()
        if value.dim() > 1 and value.shape[1] == width and f"{name}{COUNTS}" not in tensors
    }
    return {n: value[:, padding:] if n in by_text else value for n, value in tensors.items()}


def rows_of(
    tensors: Mapping[str, Tensor], image_index: Tensor, host: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Return the tensors of B captions from the tensors of I photos.

    Args:
        tensors: see `PromptedProcessor.joined`.
        image_index: ``(B,)`` photo number of each caption.
        host: the same tensors on the CPU, to avoid synchronising with the device.
    """
    host = tensors if host is None else host
    places = image_index.tolist() if host is tensors else None
    rows = {}
    for name, value in tensors.items():
        counts = host.get(f"{name}{COUNTS}")
        if counts is None or bool((counts == 1).all()):
            rows[name] = value.index_select(0, image_index)
        else:
            places = image_index.tolist() if places is None else places
            parts = value.split(counts.tolist())
            rows[name] = torch.cat([parts[i] for i in places])
    return rows


def with_indices(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Convert batched tensors to the form of the processor's own call.

    Row indices of single photos become indices of the whole batch, and tensors concatenated
    along the last dimension are concatenated there.

    Args:
        kind: kind of model.
        tensors: see `PromptedProcessor.joined`.
    """
    changed: dict[str, Any] = {name: value for name, value in tensors.items() if len(value)}
    for short, (other, first) in INDICES.get(kind, {}).items():
        name, rows = f"{PREFIX}{short}", tensors[f"{PREFIX}{other}"]
        each = prod(rows.shape[1 : 1 + first])
        counts, own = tensors[f"{PREFIX}{other}{COUNTS}"], tensors[f"{name}{COUNTS}"]
        begins = (counts.cumsum(0) - counts) * each
        offsets = begins.repeat_interleave(own).view(-1, *[1] * (tensors[name].dim() - 1))
        changed[name] = torch.where(tensors[name] >= 0, tensors[name] + offsets, tensors[name])
    for short in AS_LISTS.get(kind, ()):
        changed[f"{PREFIX}{short}"] = tensors[f"{PREFIX}{short}"].tolist()
    for short in IN_LAST.get(kind, ()):
        changed[f"{PREFIX}{short}"] = tensors[f"{PREFIX}{short}"].movedim(0, -1)
    return changed


def _left_padded(rows: Sequence[Tensor], value: int) -> Tensor:
    """Pad rows ``(1, P_i, ...)`` on the left and stack them to ``(I, P, ...)``."""
    width = max(row.shape[1] for row in rows)
    padded = [
        functional.pad(row, (0, 0) * (row.dim() - 2) + (width - row.shape[1], 0), value=value)
        for row in rows
    ]
    return torch.cat(padded)


def _stacked(values: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors; pad smaller ones with zeros at the end of further dimensions."""
    sizes = [max(lengths) for lengths in zip(*(value.shape[1:] for value in values), strict=True)]
    padded = []
    for value in values:
        missing = [size - length for size, length in zip(sizes, value.shape[1:], strict=True)]
        pads = [amount for missing_here in reversed(missing) for amount in (0, missing_here)]
        padded.append(functional.pad(value, pads) if any(missing) else value)
    return torch.cat(padded)
