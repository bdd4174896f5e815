"""Captioners for photos outside any dataset: a finished run, or a model of transformers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from PIL import Image

from captioning.config.ranges import Device, PositiveInt
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.roster import Roster, build_roster
from captioning.decoding.search import AbstractSearch
from captioning.decoding.words_to_tokens import beginning_tokens, bind_search, find_captions
from captioning.evaluation.predict import restored_model
from captioning.inference.loading import brought_to, has_own_type
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.image_text_parts import ImageTextParts
from captioning.models.layers.speaker import SpeakerState
from captioning.results.checkpoints import load_checkpoint
from captioning.results.run_folder import RunFolder
from captioning.runtime.devices import Precision, chosen_device, chosen_dtype, computing, leave
from captioning.runtime.model_folder import weights_identity
from captioning.runtime.processors import (
    WeightType,
    image_text_folder,
    load_image_text,
    load_processor,
)
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.training.settings import TrainSettings
from captioning.types import Prediction, Sample
from captioning.vision.photo_keys import read_ahead
from captioning.vision.photos import load_rgb, refusals_named
from captioning.vision.prompt_tensors import PromptedProcessor

PLACEHOLDER = "a photo"


class RunCaptioner:
    """Finished run of this project as a `CaptionWriter`, loaded when first needed.

    Args:
        run: the run's folder; its best checkpoint is used, else the last one.
        search: search for captions; it sets the number of captions per photo.
        precision: precision of its networks; ``"auto"``: half precision on a GPU. None: float32.
        batch_size: photos per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError: the run folder or its checkpoint does not exist.
    """

    def __init__(
        self,
        *,
        run: str,
        search: AbstractSearch,
        precision: Precision | None = None,
        batch_size: PositiveInt = 32,
        device: Device = "auto",
    ) -> None:
        self._search, self.batch_size = search, batch_size
        self._device = chosen_device(device)
        self._wanted = None if precision is None else chosen_dtype(precision, self._device)
        self._dtype = torch.float32  # known once it is loaded
        folder = RunFolder(Path(run))
        self._settings = TrainSettings.of(folder.config())
        self._checkpoint = folder.tested_checkpoint(self._settings.monitor)
        self._loaded: tuple[AbstractCaptioner, CaptionDataModule] | None = None

    @cached_property
    def name(self) -> str:
        """Model name and eight digits of the checkpoint's hash."""
        return f"{self._settings.model.name}@{self._digest[:8]}"

    @cached_property
    def identity(self) -> str:
        """Hash of checkpoint, search, and the precision if it differs from the weights'."""
        is_plain = self._wanted == torch.float32 and not has_own_type(self._settings.model)
        other = "" if self._wanted is None or is_plain else f" {self._wanted}".replace("torch.", "")
        return f"run {self._digest} {self._search!r}{other}"

    @cached_property
    def _digest(self) -> str:
        with self._checkpoint.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]

    @torch.inference_mode()
    def prepare_photos(self, photos: Sequence[Path], *, keys: Sequence[str]) -> None:
        """Compute the features of all photos at once, not batch by batch."""
        roster = _roster(photos, keys)
        _, datamodule = self._at_hand(roster)
        datamodule.dataset(roster.samples, "eval")

    @torch.inference_mode()
    def write_captions(
        self,
        photos: Sequence[Path],
        *,
        keys: Sequence[str],
        beginnings: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Caption each photo; photos with beginnings are captioned singly, see `CaptionWriter`."""
        roster = _roster(photos, keys)
        model, datamodule = self._at_hand(roster)
        model.to(self._device)
        dataset = datamodule.dataset(roster.samples, "eval")
        captions: dict[str, list[Prediction]] = {}
        for rows, beginning in _calls(len(roster), beginnings):
            batch = dataset[rows].to(self._device)
            with computing(self._dtype, self._device):  # captions are kept
                found = model.candidates(batch, search=self._search, beginning=beginning)
            captions |= zip(batch.image_ids, found, strict=True)
        return [[prediction.caption for prediction in captions[key]] for key in keys]

    def _at_hand(self, roster: Roster) -> tuple[AbstractCaptioner, CaptionDataModule]:
        if self._loaded is None:
            self._loaded = self._load(roster)
        return self._loaded

    def _load(self, roster: Roster) -> tuple[AbstractCaptioner, CaptionDataModule]:
        settings = replace(self._settings, steps={})
        # Building a network draws random numbers, which a training under way must not miss.
        with torch.inference_mode(False), torch.random.fork_rng():
            model, datamodule = restored_model(settings, load_checkpoint(self._checkpoint), roster)
        self._dtype = brought_to(self._wanted, model, settings.model)
        return model, datamodule

    def release(self) -> None:
        """Move the captioner off its device; the next call moves it back."""
        if self._loaded is not None:
            leave(self._loaded[0], self._device)


class ImageTextCaptioner:
    """Image-to-text model of transformers as a `CaptionWriter`, loaded when first needed.

    Args:
        name: hub name or folder.
        search: search for captions; it sets the number of captions per photo.
        prompt, template: see `captioning.text.prompts.prompt_format`.
        options: options of the processor's call.
        precision: ``"auto"``: half precision on a GPU.
        batch_size: photos per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError, ConnectionError: the model does not exist.
        ValueError: the processor does not fit the model.
    """

    def __init__(
        self,
        *,
        name: str,
        search: AbstractSearch,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
        precision: Precision = "auto",
        batch_size: PositiveInt = 16,
        device: Device = "auto",
    ) -> None:
        self._model, self._search, self.batch_size = name, search, batch_size
        self._prompt, self._options = prompt, dict(options or {})
        self._template = dict(template or {})
        self._device = chosen_device(device)
        self._dtype = str(chosen_dtype(precision, self._device)).removeprefix("torch.")
        load_processor(image_text_folder(name))
        self._folder = image_text_folder(name, weights=True)
        self._captioner: PhotoCaptioner | None = None

    @cached_property
    def name(self) -> str:
        """Last part of the model's name, and eight digits of its weights' hash."""
        return f"{Path(self._model).name}@{self._digest[:8]}"

    @cached_property
    def identity(self) -> str:
        """Hash of the weights and of all settings that affect captions."""
        template = f" {self._template}" if self._template else ""
        asked = f"{self._prompt!r} {self._options}{template}"
        return f"{self._digest} {self._dtype} {asked} {self._search!r}"

    @cached_property
    def _digest(self) -> str:
        return weights_identity(self._folder)

    def prepare_photos(self, photos: Sequence[Path], *, keys: Sequence[str]) -> None:
        """Do nothing, as photos are read batch by batch."""

    def write_captions(
        self,
        photos: Sequence[Path],
        *,
        keys: Sequence[str],
        beginnings: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Caption each photo; photos with beginnings are captioned singly, see `CaptionWriter`."""
        _, opened = next(read_ahead(photos, len(photos), load_rgb))
        if self._captioner is None:
            with torch.random.fork_rng():
                self._captioner = self._load()
        self._captioner.parts.network.to(self._device)
        with refusals_named(photos, opened):
            results = [
                result
                for rows, beginning in _calls(len(opened), beginnings)
                for result in self._captioner.captions(
                    [opened[row] for row in rows],
                    keys=[keys[row] for row in rows],
                    beginning=beginning,
                )
            ]
        return [[prediction.caption for prediction in captions] for captions in results]

    def _load(self) -> PhotoCaptioner:
        return PhotoCaptioner(
            pretrained=self._model,
            search=self._search,
            prompt=self._prompt,
            options=self._options,
            template=self._template,
            batch_size=self.batch_size,
            device=str(self._device),
            weights=cast(WeightType, self._dtype),
        )

    def release(self) -> None:
        """Move the captioner off its device; the next call moves it back."""
        if self._captioner is not None:
            leave(self._captioner.parts.network, self._device)


def _calls(number: int, beginnings: Sequence[str] | None) -> list[tuple[list[int], str]]:
    """Rows of each call, and the beginning that the call's captions share."""
    if beginnings is None:
        return [(list(range(number)), "")]
    return [([row], beginnings[row]) for row in range(number)]


def _roster(photos: Sequence[Path], keys: Sequence[str]) -> Roster:
    samples = [
        Sample(row=row, sample_id=key, image_id=key, image_path=path, caption=PLACEHOLDER)
        for row, (path, key) in enumerate(zip(photos, keys, strict=True))
    ]
    return build_roster("photos to caption", samples)


class PhotoCaptioner:
    """An image-to-text model that writes captions.

    Args:
        pretrained: hub name or folder of the model.
        search: search for captions; `captioning.decoding.generate.GenerateSearch` is the default.
        prompt, template: see `captioning.text.prompts.prompt_format`.
        options: options of the processor's call.
        batch_size: photos per batch.
        device: ``"auto"`` takes an accelerator if there is one.
        weights: type of the weights; half precision is for accelerators.

    Raises:
        FileNotFoundError, ConnectionError: the model does not exist.
        ValueError: weights are missing, or the processor does not fit.
    """

    def __init__(
        self,
        *,
        pretrained: str,
        search: AbstractSearch,
        prompt: str = "",
        options: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
        batch_size: PositiveInt = 16,
        device: Device = "auto",
        weights: WeightType = "float32",
    ) -> None:
        self.processor = PromptedProcessor(
            pretrained=pretrained, prompt=prompt, options=options, template=template
        )
        self.tokenizer = ImageTextTokenizer.of_model(
            name=pretrained, prompt=prompt, template=template
        )
        self.search = bind_search(search, self.tokenizer)
        self.batch_size = batch_size
        self.device = chosen_device(device)
        network = load_image_text(pretrained, dtype=getattr(torch, weights)).to(self.device)
        self.parts = ImageTextParts(network)

    @torch.inference_mode()
    def captions(
        self,
        photos: Sequence[Image.Image],
        *,
        keys: Sequence[str] | None = None,
        beginning: str = "",
    ) -> list[list[Prediction]]:
        """Captions of each photo, best first or in the order of sampling.

        Args:
            photos: RGB, of any size.
            keys: keys of the photos, for random draws and as ``image_id``; None: their positions.
            beginning: whole sentences that all captions continue; the result lacks them.

        Raises:
            ValueError: the model or its search cannot continue the beginning.
        """
        begun = beginning_tokens(beginning, self.tokenizer) if beginning else ()
        names = [str(number) for number in range(len(photos))] if keys is None else list(keys)
        results: list[list[Prediction]] = []
        for first in range(0, len(photos), self.batch_size):
            part = slice(first, first + self.batch_size)
            results += find_captions(
                self.search,
                self._start(photos[part]),
                stepper=self.parts.speaker,
                tokenizer=self.tokenizer,
                image_ids=names[part],
                beginning=begun,
                device=self.device,
            )
        return results

    def _start(self, photos: Sequence[Image.Image]) -> SpeakerState:
        return self.parts.start(
            self.processor.joined([self.processor.read_photo(photo) for photo in photos])
        )
