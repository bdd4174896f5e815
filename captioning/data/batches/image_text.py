"""Batch reader for image-to-text models: photos and prompts prepared by transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.data.data_record import shown
from captioning.types import Sample
from captioning.vision.photo_keys import NUM_THREADS
from captioning.vision.photos import photo_sizes
from captioning.vision.prompt_tensors import PHOTO_KEYS, PromptedProcessor

Size = tuple[int, int]
# Widest, tallest, smallest, largest. Processors bound the sides, their ratio and the number of
# pixels, so that a form between those that pass passes, too.
ORDERS: tuple[Callable[[Size], float], ...] = (
    lambda size: size[0] / size[1],
    lambda size: -size[0] / size[1],
    lambda size: -min(size),
    lambda size: size[0] * size[1],
)
MARGIN = 2  # forms of an order that must pass before the others are taken to pass


def refused_photos(paths: Iterable[Path], problem: Callable[[Path], str]) -> dict[Path, str]:
    """Return the photos that a reader rejects, with reasons.

    Sizes are read from the files' headers. One photo of each form is tried, starting with the most
    extreme ones of each order, until some pass. A photo whose header cannot be read is tried, too.

    Args:
        paths: paths of photos; repeats are read once.
        problem: why a photo cannot be read; empty if it can.
    """
    unique = list(dict.fromkeys(paths))
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        sizes = list(pool.map(_size, unique))
    forms: dict[Size, list[Path]] = {}
    refused: dict[Path, str] = {}
    for path, size in zip(unique, sizes, strict=True):
        if size is not None:
            forms.setdefault(size, []).append(path)
        elif reason := problem(path):
            refused[path] = reason
    reasons: dict[Size, str] = {}
    for order in ORDERS:
        passed = 0
        for size in sorted(forms, key=order, reverse=True):
            if size not in reasons:
                reasons[size] = problem(forms[size][0])
            passed += not reasons[size]
            if passed == MARGIN:
                break
    for size, reason in reasons.items():
        if reason:
            refused |= dict.fromkeys(forms[size], reason)
    return refused


def _size(path: Path) -> Size | None:
    """Return width and height of a photo as shown; None if its header is unreadable."""
    try:
        return photo_sizes(path)[1]
    except (OSError, ValueError):
        return None


class ImageTextReader(AbstractBatchReader):
    """Batch reader that adds the processor's output for photos and prompt to ``Batch.extras``.

    `captioning.vision.prompt_tensors.PromptedProcessor` says which tensors these are.

    Args:
        pretrained: hub name or folder of the model.
        prompt, template: see `captioning.text.prompts.prompt_format`.
        options: options of the processor's call, such as ``{size: {height: 224, width: 224}}``.

    Attributes:
        known: tensors of photos that need not be read again, by the photos' keys (`PHOTO_KEYS`).

    Raises:
        FileNotFoundError, ConnectionError: no such model.
        ValueError: its processor does not fit.
    """

    known: Mapping[int, Mapping[str, Tensor]] | None = None

    def __init__(
        self,
        *,
        pretrained: str,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        self.processor = PromptedProcessor(
            pretrained=pretrained, prompt=prompt, options=options, template=template
        )

    @property
    def pictures(self) -> str:
        """Form of the pictures: ``"pixels"``."""
        return "pixels"

    def check_photos(self, paths: Iterable[Path]) -> None:
        """Try photos with extreme shapes, which some processors reject.

        Raises:
            ValueError: refused photos; names the first ones.
        """
        refused = refused_photos(paths, self._problem)
        if refused:
            first, *others = refused
            more = f"; so are {len(others)} more: {shown(map(str, others))}" if others else ""
            raise ValueError(f"{refused[first]}{more}")

    def _problem(self, path: Path) -> str:
        try:
            self.processor.read_file(path)
        except (OSError, ValueError) as error:
            return str(error)
        return ""

    def open(self, epoch: Epoch) -> Read | None:
        """Return a function that reads photos again, except `known` photos in training."""
        known = None if epoch.stage == "eval" else self.known
        return partial(_read, self.processor, known) if epoch.has_photos else None


def _read(
    processor: PromptedProcessor,
    known: Mapping[int, Mapping[str, Tensor]] | None,
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
) -> Tensors:
    paths = [photo.image_path for photo in photos]
    if known is None:
        return processor.joined([processor.read_file(path) for path in paths])
    keys = [_key(path) for path in paths]
    read = [
        known[key] if key in known else processor.read_file(path)
        for key, path in zip(keys, paths, strict=True)
    ]
    return {**processor.joined(read), PHOTO_KEYS: torch.tensor(keys)}


def _key(path: Path) -> int:
    """Return a key of a photo's file in its current state."""
    state = path.stat() if path.is_file() else None  # of an archive a photo stays as it is
    text = f"{path}" if state is None else f"{path} {state.st_mtime_ns} {state.st_size}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1
