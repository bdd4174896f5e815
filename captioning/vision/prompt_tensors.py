"""Photos and a prompt as tensors of an image-to-text model, joined to batches.

A processor of transformers gives tensors of four kinds. A tensor *by token* has a place for each
token of the text. A tensor *by photo* has one row a photo, one *by row* as many as the photo needs
(tiles, patches). An *index* holds numbers of such rows, counted over all photos of a call.
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
# Made for training by the library's own loop, or for people.
NOT_READ = ("labels", "num_crops", "num_image_tokens", "image_flags", "offset_mapping")
# What the token of an answer has where the processor tells only of a prompt's.
OF_ANSWERS = {"paligemma": {"token_type_ids": 1}}
# Numbers of the rows of another tensor, counted over a call's photos; negative ones stand for none.
# Each row has as many as the product of the named dimensions.
INDICES = {"molmo2": {"image_token_pooling": ("pixel_values", 1)}}
# Tensors whose rows stand side by side in the last dimension.
IN_LAST: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("minicpmv4_6", "minicpmv4_7", "minicpm_ocr"), ("pixel_values",)
)
# Numbers by photo that the network wants as a list.
AS_LISTS = {"unlimited_ocr": ("num_local_patches", "patches_grid")}
# Options of a processor's call without which it leaves out what its network needs.
ASKED = {"cosmos3_edge": {"return_mm_token_type_ids": True}}
# Tensors with one row a photo whose tiles the network counts by their number alone.
OF_TILES = {"perception_lm": ("pixel_values",)}
PHOTO_KEYS = "photo.keys"
"""Name of ``(I,) int64`` in a batch: identifies its photos between batches."""
# Two sizes, of which processors tile the larger.
PROBES = ((64, 48), (1024, 640))
PROBE_TEXT = " a dog runs on the grass"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLayout:
    """The layout of a processor's tensors.

    Attributes:
        by_text: names of tensors whose second dimension grows with the text.
        captions: for tensors with a value for each token, ``(1, 1, ...)`` the value of a caption's
            token; None: the value of the prompt's last token.
    """

    by_text: frozenset[str]
    captions: Mapping[str, Tensor | None]


class PromptedProcessor:
    """Photos and one prompt as the tensors of an image-to-text model.

    Tensors have the processor's names with `PREFIX` before them. Tensors by token, such as
    ``prompt.input_ids (I, P)``, are padded at the left; beside each of them but the ids,
    ``prompt.NAME.caption (I, 1)`` is the value of a caption's tokens. Beside each tensor of photos,
    ``prompt.NAME.counts (I,)`` says how many rows are of each photo.

    Calls with photos and texts of two sizes show the kind of each tensor. Joined photos are held
    against the processor's own call for both.

    Args:
        pretrained: hub name or folder of the model.
        prompt: see `captioning.text.prompts.prompt_format`.
        options: options of the processor's call, such as ``{size: {height: 224, width: 224}}``.
        template: options of the chat template.

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: its processor does not fit, or gives a tensor that is not understood.
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
        """The processor's tensors of one photo, without those that `joined` adds.

        Args:
            photo: RGB, of any size.
            text: text in place of the prompt's, in the form of `PromptFormat.text`.

        Raises:
            RefusedPhoto: the processor refuses the photo, the text or its options.
        """
        return self._called([photo], [self.format.text if text is None else text])

    def read_file(self, path: Path) -> dict[str, Tensor]:
        """As `read_photo`, of a file.

        Raises:
            FileNotFoundError: the photo does not exist.
            ValueError: a photo that cannot be opened, or that the processor refuses; names it.
        """
        photo = load_rgb(path)
        with refusals_named([path], [photo]):
            return self.read_photo(photo)

    def _called(self, photos: list[Image.Image], texts: list[str]) -> dict[str, Tensor]:
        """One call of the processor."""
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
                f"refused by {name} at {photos[0].width}x{photos[0].height} pixels: {reason} "
                f"(the prompt is {texts[0]!r}{options})",
                photos[0],
            ) from error
        named = {name: value for name, value in outputs.items() if name not in NOT_READ}
        return {f"{PREFIX}{name}": self._tensor(name, value) for name, value in named.items()}

    def _tensor(self, name: str, value: Any) -> Tensor:
        """An output of the processor; some give numbers as lists."""
        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{type(self.processor).__name__}: its output {name!r} is a "
                f"{type(value).__name__}, not a tensor, and {self.kind} is not known to the "
                "framework; use another model"
            ) from error

    def _outputs(self, photos: list[Image.Image], words: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(photos) == 1:
            return self.processor(images=photos, return_tensors="pt", **words, **self._options)
        # Some want the photos of each text in a list, some all in one.
        nested: list[Any] = [[photo] for photo in photos] if words else photos
        try:
            return self.processor(images=nested, return_tensors="pt", **words, **self._options)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError):
            return self.processor(images=photos, return_tensors="pt", **words, **self._options)

    def _understood(self) -> PromptLayout:
        """What the tensors are, by calls with photos and texts of two sizes.

        Raises:
            ValueError: joined photos are not what the processor makes of both.
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
        """Each by itself; what is refused here is no fault of a photo."""
        try:
            return [self.read_photo(photo) for photo in photos]
        except RefusedPhoto as error:
            hint = ""
            if chat_template(self.processor) is None and self.kind not in PHOTOS_ALONE:
                hint = (
                    "; without a chat template: if the model chats, save chat_template.jinja, "
                    "or write a photo's marks into the prompt"
                )
            raise ValueError(f"{self.folder}: a photo is {error}{hint}") from error

    def _check_chat(self, photo: Image.Image, read: Mapping[str, Tensor]) -> None:
        """Refuse a prompt whose tokens are not those of the processor's own call for chats.

        Args:
            photo: that was read.
            read: its tensors and the prompt's.

        Raises:
            ValueError: such a prompt.
        """
        question = self.format.question
        if question is None:
            return
        own = self._own_ids(photo, question)
        mine = self.read_photo(photo, question.text)[f"{PREFIX}input_ids"]
        if not torch.equal(mine, own) or read[f"{PREFIX}input_ids"][0, 0] != own[0, 0]:
            raise ValueError(
                f"{self.folder}: {type(self.processor).__name__} reads what its chat template "
                f"writes as {mine.shape[1]} tokens, first {mine[0, :4].tolist()}; its own "
                f"apply_chat_template gives {own.shape[1]}, first {own[0, :4].tolist()}. The model "
                f"would read a prompt of unknown form; save the model's own processor"
            )

    def _own_ids(self, photo: Image.Image, question: ChatQuestion) -> Tensor:
        """``(1, P)`` by the processor's own call for chats."""
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
        """The tensors of a longer text than the prompt, which it begins with where it can."""
        try:
            return self.read_photo(photo, self.format.text + PROBE_TEXT)
        except ValueError:  # a task's name, which stands alone (Florence-2)
            return self.read_photo(photo, PROBE_TEXT)

    def _of_caption(self, name: str, prompt: Tensor, value: Tensor, number: int) -> Tensor | None:
        """``(1, 1, ...)`` what each of a text's last ``number`` tokens has; None: as the prompt."""
        short = name.removeprefix(PREFIX)
        of_answer = OF_ANSWERS.get(self.kind, {}).get(short)
        last = value[:, -1:]
        if of_answer is not None:
            return torch.full_like(last, of_answer)
        if not (value[:, value.shape[1] - number + 1 :] == last).all():
            raise ValueError(
                f"{type(self.processor).__name__}: its tensor {short!r} has values by token that "
                f"differ within a text, and {self.kind} is not known to the framework: the values "
                f"of a caption's tokens are unknown"
            )
        return None if torch.equal(last, prompt[:, -1:]) else last.clone()

    def _checked(
        self,
        layout: PromptLayout,
        photos: list[Image.Image],
        single: Sequence[Mapping[str, Tensor]],
    ) -> PromptLayout:
        """The layout, if with it two joined photos are what the processor makes of both."""
        if self.kind in OF_TILES:  # whose processor takes photos of one number of tiles alone
            return layout
        own = self._called(photos, [self.format.text] * len(photos))
        unlike = self._unlike(layout, single, own)
        if unlike:
            name = sorted(unlike)[0].removeprefix(PREFIX)
            raise ValueError(
                f"{type(self.processor).__name__}: its tensor {name!r} of two photos is none of "
                f"those of each, side by side, and {self.kind} is not known to the framework; use "
                "another model"
            )
        return layout

    def _unlike(
        self,
        layout: PromptLayout,
        single: Sequence[Mapping[str, Tensor]],
        own: Mapping[str, Tensor],
    ) -> set[str]:
        """Names of tensors that differ when joined from those of the processor's own call."""
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
        """The tensors of I photos: prompts padded at the left, pixels side by side."""
        return _joined(self.kind, self._pad_id, self.layout, photos)


def _joined(
    kind: str, pad_id: int, layout: PromptLayout, photos: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    joined: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for photo in photos for name in photo):
        # Some processors leave out what a photo has none of, such as its tiles.
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
    """Whether a processor's tensor is read by the image encoder alone."""
    return name.startswith("pixel_") or name == "image_patches"


def left_padding(mask: Tensor | None) -> int:
    """Places before the first token of the longest prompt.

    Args:
        mask: ``(I, P)`` of prompts on the host, 0 on padding; None: there is none.
    """
    return 0 if mask is None else int(mask.any(0).int().cumsum(0).eq(0).sum())


def unpadded(tensors: Mapping[str, Tensor], padding: int) -> dict[str, Tensor]:
    """Joined tensors whose prompts begin ``padding`` places later."""
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
    """The tensors of B captions from the tensors of I photos.

    Args:
        tensors: see `PromptedProcessor.joined`.
        image_index: ``(B,)`` the photo of each caption.
        host: the same tensors on the host, so that the device need not be asked.
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
    """Joined tensors as the processor's own call gives them.

    Indices of each photo's rows become those of the whole batch's, and tensors that are joined
    along the last dimension are joined there.

    Args:
        kind: the model's kind.
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
    """``(I, P, ...)`` of rows ``(1, P_i, ...)``."""
    width = max(row.shape[1] for row in rows)
    padded = [
        functional.pad(row, (0, 0) * (row.dim() - 2) + (width - row.shape[1], 0), value=value)
        for row in rows
    ]
    return torch.cat(padded)


def _stacked(values: Sequence[Tensor]) -> Tensor:
    """Tensors side by side; smaller ones get zeros at the end of each further dimension."""
    sizes = [max(lengths) for lengths in zip(*(value.shape[1:] for value in values), strict=True)]
    padded = []
    for value in values:
        missing = [size - length for size, length in zip(sizes, value.shape[1:], strict=True)]
        pads = [amount for missing_here in reversed(missing) for amount in (0, missing_here)]
        padded.append(functional.pad(value, pads) if any(missing) else value)
    return torch.cat(padded)
