"""Captioners of photos outside any data set: a finished run, or a model of transformers."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.roster import Roster, build_roster
from captioning.decoding.search import AbstractSearch
from captioning.evaluation.predict import restored_model
from captioning.models.base import AbstractCaptioner
from captioning.ranges import Device, PositiveInt
from captioning.results.run_folder import RunFolder
from captioning.training.run import load_checkpoint
from captioning.types import Sample
from captioning.vision.placement import chosen_device

PLACEHOLDER = "a photo"


class AbstractPhotoCaptioner:
    """A captioner of ours with its loaders, loaded when it is first needed.

    Args:
        search: finds captions; it decides how many a photo gets.
        batch_size: photos at once.
        device: ``"auto"`` takes a GPU if there is one.
    """

    def __init__(self, *, search: AbstractSearch, batch_size: int, device: str) -> None:
        self._search, self._batch_size = search, batch_size
        self._device = chosen_device(device)
        self._loaded: tuple[AbstractCaptioner, CaptionDataModule] | None = None

    @property
    def batch_size(self) -> int:
        """Photos at once."""
        return self._batch_size

    @abstractmethod
    def _load(self, roster: Roster) -> tuple[AbstractCaptioner, CaptionDataModule]:
        """The captioner, and loaders for the photos of a roster and any others."""

    @torch.inference_mode()
    def write_captions(self, photos: Sequence[Path], *, keys: Sequence[str]) -> list[list[str]]:
        """Captions of each photo; see `PhotoCaptioner`."""
        roster = _roster(photos, keys)
        if self._loaded is None:
            # Building a network draws random numbers, which a training under way must not miss.
            with torch.inference_mode(False), torch.random.fork_rng():
                model, datamodule = self._load(roster)
            self._loaded = model.eval(), datamodule
        model, datamodule = self._loaded
        model.to(self._device)
        dataset = datamodule.dataset(roster.samples, "eval")
        batch = dataset[list(range(len(roster)))].to(self._device)
        found = model.candidates(batch, search=self._search)
        captions = dict(zip(batch.image_ids, found, strict=True))
        return [[prediction.caption for prediction in captions[key]] for key in keys]

    def release(self) -> None:
        """Leave the device; the next call comes back."""
        if self._loaded is not None:
            self._loaded[0].to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def __getstate__(self) -> dict[str, Any]:
        # settings travel to other processes, weights are read there
        return {**self.__dict__, "_loaded": None}


class RunCaptioner(AbstractPhotoCaptioner):
    """A finished run of this project.

    Args:
        run: its folder; the best checkpoint is used, or the last one.
        search: see `AbstractPhotoCaptioner`.
        batch_size: photos at once.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError: no run folder, or one without a checkpoint.
    """

    def __init__(
        self,
        *,
        run: str,
        search: AbstractSearch,
        batch_size: PositiveInt = 32,
        device: Device = "auto",
    ) -> None:
        super().__init__(search=search, batch_size=batch_size, device=device)
        self._folder = Path(run)
        self._config = RunFolder(self._folder).config()
        self._checkpoint = RunFolder(self._folder).tested_checkpoint(self._config.monitor)

    @cached_property
    def name(self) -> str:
        """The model's name, and eight digits of the checkpoint's hash."""
        return f"{self._config.model.name}@{self._digest[:8]}"

    @cached_property
    def identity(self) -> str:
        """Hash of the checkpoint, and the search."""
        return f"run {self._digest} {self._search!r}"

    @cached_property
    def _digest(self) -> str:
        with self._checkpoint.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]

    def _load(self, roster: Roster) -> tuple[AbstractCaptioner, CaptionDataModule]:
        config = self._config.copy()
        OmegaConf.update(config, "steps", {}, merge=False)
        return restored_model(config, load_checkpoint(self._checkpoint), roster)


def _roster(photos: Sequence[Path], keys: Sequence[str]) -> Roster:
    samples = [
        Sample(row=row, sample_id=key, image_id=key, image_path=path, caption=PLACEHOLDER)
        for row, (path, key) in enumerate(zip(photos, keys, strict=True))
    ]
    return build_roster("photos to caption", samples)
