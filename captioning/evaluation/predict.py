"""Generate captions with a trained run, for any dataset and any search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf

from captioning.config.build import build_part
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.pictures import FeatureReader
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.take_detections import TakeDetections
from captioning.decoding.image_constraints import ImageConstraints
from captioning.decoding.words_to_tokens import bind_search
from captioning.evaluation.rerank import check_neighbours
from captioning.evaluation.settings import EvaluationPrecision, OtherData
from captioning.inference.building import Model
from captioning.inference.bundle import is_bundle
from captioning.models.base import AbstractCaptioner
from captioning.results.checkpoints import load_checkpoint
from captioning.results.run_folder import RunFolder
from captioning.runtime.devices import chosen_device, full_precision
from captioning.text.entities import read_photo_names
from captioning.text.tokenizers.restore import restored
from captioning.training.data_checks import check_opened, tell_of_trained
from captioning.training.inputs import load_inputs, load_pictures
from captioning.training.rosters import first_images as first_photos
from captioning.training.rosters import read_roster
from captioning.training.run import build_datamodule, build_model
from captioning.training.settings import Data, DataSettings, TrainSettings
from captioning.training.speed import computing_as_tested
from captioning.training.start import SHIPPED
from captioning.types import Batch, Prediction

log = logging.getLogger(__name__)

TAKE_DETECTIONS = "take_detections"  # its key in ``steps``


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """Trained run with a split to caption.

    Attributes:
        trained: settings that the run was trained with.
        settings: settings with the requested data and search.
        model: model with its best or last weights, in evaluation mode, on the chosen device.
        datamodule: source of the split's data loaders.
        roster: the split.
        entities: settings of photos' entities that differ from the training's.
        as_tested: whether `computing` uses the training's precision; otherwise float32 without
            TF32.
    """

    trained: TrainSettings
    settings: TrainSettings
    model: AbstractCaptioner
    datamodule: CaptionDataModule
    roster: Roster
    entities: Mapping[str, Any]
    as_tested: bool = False

    def computing(self) -> AbstractContextManager[None]:
        """Context manager that sets the precision for generating captions."""
        tested = self.as_tested
        return computing_as_tested(self.trained, self.model) if tested else full_precision()


def load_run(
    folder: Path,
    data: Data | OtherData | None = None,
    split: str = "test",
    search: DictConfig | None = None,
    detections: Sequence[str] | None = None,
    imported: str | None = None,
    entities: Mapping[str, Any] | None = None,
    first_images: int | None = None,
    device: str = "auto",
    precision: EvaluationPrecision = "32-true",
    accept_changes: bool | None = None,
) -> LoadedRun:
    """Load a finished or stopped run's model, and a split; see `predict_run`."""
    place = chosen_device(device)
    run = RunFolder(Path(folder))
    config = run.config()
    trained = settings = TrainSettings.of(config)
    checkpoint = load_checkpoint(run.tested_checkpoint(trained.monitor))
    pl.seed_everything(trained.seed, workers=True, verbose=False)

    def placed(group: str, chosen: Mapping[str, Any]) -> DictConfig:
        """Place a config group in the run's config to resolve references such as ``${seed}``."""
        merged: Any = OmegaConf.merge(config, {group: None}, {group: chosen})
        return merged[group]

    other = data if data is None or isinstance(data, Data) else Data.of(placed("data", data))
    if other is not None:
        settings = replace(settings, data=other, first_images=None)
    if search is not None:
        settings = replace(settings, search=placed("search", search))
    if detections is not None:
        settings = _with_detections(settings, detections)
    if imported is not None:
        settings = _with_features(settings, imported)
    changes = entity_changes(settings.model, other, entities or {})
    roster = read_roster(settings, split)
    if data is None:
        check_opened(settings, run.path, {split: roster}, accept=accept_changes)
    else:
        tell_of_trained(settings, run.path, roster)
    if first_images is not None:
        roster = first_photos(roster, first_images)
    model, datamodule = restored_model(settings, checkpoint, roster)
    model.prepare_evaluation(_built(changes, settings.model))
    return LoadedRun(
        trained=trained,
        settings=settings,
        model=model.to(place),
        datamodule=datamodule,
        roster=roster,
        entities=changes,
        as_tested=precision == "run",
    )


def restored_model(
    settings: TrainSettings, checkpoint: Mapping[str, Any], roster: Roster
) -> tuple[AbstractCaptioner, CaptionDataModule]:
    """Captioner of a checkpoint in evaluation mode, and data loaders of a roster."""
    tokenizer = restored(checkpoint["captioner"]["tokenizer"])
    inputs = load_inputs(settings, only=roster)
    model = build_model(settings, tokenizer, inputs, horizon=1)
    model.on_load_checkpoint(dict(checkpoint))
    model.load_state_dict(checkpoint["state_dict"])
    return model.eval(), build_datamodule(settings, inputs, tokenizer)


def entity_changes(model: Model, data: Data | None, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Entity settings of a benchmark or the user that differ from a run's training.

    Args:
        model: the run's model.
        data: dataset to caption; its ``entities`` apply if the run's ``model.entities_of_data`` is
            true. None: the run's own dataset, which changes nothing.
        chosen: ``photo_names``, ``threshold``, ``num_entities`` and ``temperature``, which override
            the dataset's; None: not set.

    Raises:
        ValueError: a setting is given for a model without entities, or the list has no names.
        FileNotFoundError: the list of names does not exist.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    module = model.module
    if not module.get("entities"):
        if chosen:
            raise ValueError(
                f"entities.{next(iter(chosen))}: the run's model ({model.name}) finds no "
                "entities in photos; leave it out"
            )
        return {}
    of_data = data.entities if data is not None and model.entities_of_data else None
    published = {} if of_data is None else of_data.chosen()
    as_trained = {**module, "photo_names": model.photo_names}
    changes = {
        name: value
        for name, value in {**published, **chosen}.items()
        if value is not None and value != as_trained.get(name)
    }
    if "photo_names" in changes:  # before photos are read
        read_photo_names(changes["photo_names"])
    return changes


def _built(changes: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Changes of `entity_changes` as model arguments, with names of photos embedded."""
    arguments = {name: value for name, value in changes.items() if name != "photo_names"}
    if names := changes.get("photo_names"):
        arguments["entities"] = build_part(model.module.entities, photo_names=names)
    return arguments


def _with_features(settings: TrainSettings, folder: str) -> TrainSettings:
    """Settings with other imported features.

    Raises:
        ValueError: the run was not trained on imported features.
    """
    if not settings.features.imported:
        raise ValueError(
            f"imported={folder}: the run was trained with features={settings.features.name}, which "
            "are computed from photos; leave imported= out"
        )
    return replace(settings, features=replace(settings.features, imported=folder))


def _with_detections(settings: TrainSettings, files: Sequence[str]) -> TrainSettings:
    """Settings with other detection files; an empty list means the dataset's own boxes."""
    steps = {name: step for name, step in settings.steps.items() if name != TAKE_DETECTIONS}
    if files:
        target = f"{TakeDetections.__module__}.{TakeDetections.__qualname__}"
        steps[TAKE_DETECTIONS] = DictConfig({"_target_": target, "files": list(files)})
    return replace(settings, steps=steps)


def predict_run(
    folder: Path,
    data: Data | OtherData | None = None,
    split: str = "test",
    search: DictConfig | None = None,
    rerank: DictConfig | None = None,
    constraints: DictConfig | None = None,
    detections: Sequence[str] | None = None,
    imported: str | None = None,
    entities: Mapping[str, Any] | None = None,
    first_images: int | None = None,
    device: str = "auto",
    precision: EvaluationPrecision = "32-true",
    accept_changes: bool | None = None,
) -> tuple[list[list[Prediction]], Roster, dict[str, Any]]:
    """Caption any dataset with a finished or stopped run.

    Args:
        folder: the run's folder; its best checkpoint is used, else the last one.
        data: another dataset or its complete config; None: the run's own.
        split: key of the roster in the data config.
        search: config of another search; None: the run's own.
        rerank: config of a reranker of an image's captions, such as
            `captioning.evaluation.rerank.rerank_by_consensus`, with the run's training photos.
        constraints: words that constrained search must use, from the data set's samples, such as
            `captioning.decoding.image_constraints.constraints_from_file`.
        detections: files of boxes that replace the split's annotated boxes; None: the files that
            the run was trained with, if any; empty list: the annotated boxes.
        imported: folder of imported features of the dataset; None: the run's own.
        entities: changes in how the model finds a photo's entities, see `entity_changes`.
        first_images: number of images from the start of the split; None: all.
        device: the captioner's device; ``"auto"`` takes a GPU if there is one.
        precision: ``"32-true"``, or ``"run"``: the precision of the training's test.
        accept_changes: caption the run's own data even if they have changed since it began; None:
            no, and the caller has no such setting.

    Returns:
        The search's captions of each image, the best first, images by id; the roster with the
        references; and the settings of search and choice.
    """
    run = load_run(
        folder,
        data,
        split,
        search,
        detections,
        imported,
        entities,
        first_images,
        device,
        precision,
        accept_changes,
    )
    roster = run.roster
    requirements = None if constraints is None else build_part(constraints)(roster.samples)
    choice = None if rerank is None else _choice(rerank, roster, run.trained)
    with run.computing():
        predictions = _captioned(run.model, run.datamodule.eval_dataloader(roster), requirements)
    if choice is not None:
        predictions = choice(predictions)
    predictions.sort(key=lambda group: group[0].image_id)  # as a training's test writes them
    parts = {"search": run.settings.search, "rerank": rerank, "constraints": constraints}
    decoding = {name: part and OmegaConf.to_container(part) for name, part in parts.items()}
    if run.entities:
        decoding["entities"] = dict(run.entities)
    return predictions, roster, decoding


def predict_images(folder: Path, roster: Roster, *, device: str = "auto") -> dict[str, str]:
    """Caption a roster's images with a run as its test does; captions by image id."""
    run = RunFolder(folder)
    settings = TrainSettings.of(run.config())
    checkpoint = load_checkpoint(run.tested_checkpoint(settings.monitor))
    pl.seed_everything(settings.seed, workers=True, verbose=False)
    model, datamodule = restored_model(settings, checkpoint, roster)
    model.to(chosen_device(device))
    with computing_as_tested(settings, model):
        groups = _captioned(model, datamodule.eval_dataloader(roster), None)
    return {group[0].image_id: group[0].caption for group in groups}


def predict_photos(
    place: str,
    roster: Roster,
    *,
    search: DictConfig | None = None,
    prompt: str | None = None,
    template: Mapping[str, Any] | None = None,
    device: str = "auto",
    precision: EvaluationPrecision = "32-true",
) -> tuple[list[list[Prediction]], dict[str, Any]]:
    """Caption a roster's photos with any captioner, as ``captioning caption --model`` does.

    Args:
        place: ``"shipped"``, or see `captioning.inference.captioner.Captioner.load`.
        roster: roster of photos to caption.
        search: config of another search; None: the captioner's own.
        prompt, template, device: see `Captioner.load`.
        precision: ``"32-true"``; ``"run"``: half precision for a model of transformers on a GPU.

    Returns:
        The captions of each image, the best first, images by id; and the settings of the search.

    Raises:
        FileNotFoundError, ValueError, ConnectionError: see `Captioner.load`.
        ValueError: the captioner reads boxes, but the photos have none.
    """
    from captioning.inference.captioner import Captioner  # imports all models

    shipped, single = place == SHIPPED, precision == "32-true"
    captioner = Captioner.load(
        None if shipped else place,
        device=device,
        prompt=prompt,
        template=template,
        precision="float32" if single else None,
    )
    if (Path(place) / "config.yaml").is_file() and not is_bundle(Path(place)):
        tell_of_trained(DataSettings.of(captioner.config), Path(place), roster)
    firsts = {i: roster.samples[rows[0]] for i, rows in roster.rows_by_image.items()}
    boxes = [[region.box for region in sample.regions] for sample in firsts.values()]
    if captioner.takes_boxes and not any(boxes):
        raise ValueError(
            f"model={place} reads boxes, but {roster.name} has none: give run=FOLDER with "
            "detections=[FILE] of captioning find-objects"
        )
    if search is not None:
        captioner.model.search = bind_search(build_part(search), captioner.model.tokenizer)
    captioned = captioner.stream(
        [sample.image_path for sample in firsts.values()],
        boxes=boxes if captioner.takes_boxes else None,
    )
    groups = [
        [replace(prediction, image_id=image_id) for prediction in photo.captions]
        for image_id, photo in zip(firsts, captioned, strict=True)
    ]
    groups.sort(key=lambda group: group[0].image_id)
    own = captioner.config.search if search is None else search
    return groups, {
        "search": OmegaConf.to_container(own, resolve=True),
        "model": place,
        "prompt": prompt,
    }


def _captioned(
    model: AbstractCaptioner, batches: Iterable[Batch], requirements: ImageConstraints | None
) -> list[list[Prediction]]:
    """Captions of the batches' images, under constraints if there are any."""
    moved = (batch.to(model.device) for batch in batches)
    try:
        if requirements is None:
            return [groups for batch in moved for groups in model.candidates(batch)]
        return _constrained(model, moved, requirements)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"out of memory while captions are generated ({str(error).partition('.')[0]}): lower "
            "search.beam_size or search.num_captions, or set device=cpu"
        ) from error


def _constrained(
    model: AbstractCaptioner, batches: Iterable[Batch], requirements: ImageConstraints
) -> list[list[Prediction]]:
    tokenizer = model.tokenizer
    if missing := requirements.missing(tokenizer):
        log.info(f"{len(missing)} constraints left out, not in the vocabulary: {missing[:5]}")
    predictions, constrained = [], []
    for batch in batches:
        machines = requirements.machines(batch.image_ids, tokenizer)
        groups = model.candidates(batch, machines=machines)
        predictions += groups
        constrained += [
            g for g, machine in zip(groups, machines, strict=True) if machine.num_constraints
        ]
    num_met = sum(bool(group[0].satisfied) for group in constrained)
    num_free = len(predictions) - len(constrained)
    log.info(
        f"constraints met by captions of {num_met} of {len(constrained)} images; "
        f"{num_free} have none"
    )
    return predictions


def _choice(
    rerank: DictConfig, roster: Roster, settings: TrainSettings
) -> Callable[[list[list[Prediction]]], list[list[Prediction]]]:
    """Reranker of captions by the training photos of a run.

    It is built before captions, so that missing parts raise errors before hours of search.

    Raises:
        ValueError: the run has no cached features or too few training photos.
    """
    train = read_roster(settings, "train")
    other_samples = [
        sample for sample in train.samples if sample.image_id not in roster.rows_by_image
    ]
    train = build_roster(train.name, other_samples)
    check_neighbours(rerank.get("num_neighbours") or 0, train)
    both = build_roster("both", [*roster.samples, *other_samples])
    pictures = load_pictures(settings.features, [both]).reader
    if not isinstance(pictures, FeatureReader):
        raise ValueError("rerank needs cached features: this run has features=none")
    # Not through the config: Hydra would turn rosters, as dataclasses, into configs.
    return partial(build_part(rerank), photos=roster, train=train, store=pictures.store)
