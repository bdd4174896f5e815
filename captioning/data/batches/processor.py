"""Batch reader of photos prepared by a transformers processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, Tensors
from captioning.runtime.model_folder import damage_named, model_folder
from captioning.types import Sample
from captioning.vision.photos import load_rgb

IMAGES = {"pixel_values": "images"}


class ProcessorReader(AbstractBatchReader):
    """Batch reader of the tensors that transformers' ``AutoProcessor`` computes from photos.

    Args:
        pretrained: a hub name, or a folder with ``preprocessor_config.json``.
        names: names in batches of the processor's tensors; others keep their names and go into
            ``Batch.extras``. By default ``pixel_values`` is ``Batch.images``, which models of this
            project read.
        **options: options of the processor's call, such as ``do_rescale``.

    Raises:
        FileNotFoundError: no such folder, or no processor in it.
        ConnectionError: the hub cannot be reached.
    """

    def __init__(
        self, *, pretrained: str, names: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        from transformers import AutoProcessor  # slow, and needed here only

        folder = model_folder(
            pretrained,
            instead="features=none",
            marker="preprocessor_config.json",
            files=("*.json", "*.txt", "*.model"),
        )
        with damage_named(pretrained):
            self._processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
        self._names = IMAGES if names is None else dict(names)
        self._options = options

    @property
    def pictures(self) -> str:
        """Form of the pictures: ``"pixels"``."""
        return "pixels"

    def open(self, epoch: Epoch) -> Read | None:
        """Return a function that reads each photo again."""
        if not epoch.has_photos:
            return None
        return partial(_process, self._processor, self._names, self._options)


def _process(
    processor: Any,
    names: Mapping[str, str],
    options: Mapping[str, Any],
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
) -> Tensors:
    images = [load_rgb(photo.image_path) for photo in photos]
    outputs = processor(images=images, return_tensors="pt", **options)
    return {names.get(name, name): tensor for name, tensor in outputs.items()}
