"""Inputs that a run reads before it starts: rosters, readers of batches, a backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from captioning.config.build import build_part
from captioning.data.batches.base import AbstractBatchReader
from captioning.data.batches.pictures import FeatureReader
from captioning.data.batches.settings import Splits
from captioning.data.features.build import Elsewhere, ensure_features
from captioning.data.features.store import FeatureStore
from captioning.data.readers.read_once import files_kept
from captioning.data.roster import Roster
from captioning.data.steps.base import StepContext
from captioning.inference.building import Features, Pictures, further_readers
from captioning.training.rosters import read_roster, read_train, trains_on_text
from captioning.training.settings import AbstractDataSettings, TrainSettings
from captioning.types import Sample
from captioning.vision.backbones import Backbone


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a run.

    Attributes:
        splits: samples of each split.
        pictures: see `Pictures`.
        readers: readers of a batch's contents other than tokens, by name, in order.
        steps: context after the data steps of the training set; empty without a training set.
    """

    splits: Splits
    pictures: Pictures
    readers: Mapping[str, AbstractBatchReader]
    steps: StepContext


def load_inputs(
    settings: TrainSettings,
    *,
    only: Roster | None = None,
    check: Callable[[Splits], None] | None = None,
) -> Inputs:
    """Read all inputs that the settings name.

    Args:
        settings: the run's settings.
        only: roster for evaluation, which replaces all splits; no data step is applied.
        check: called with the splits before anything is computed from their photos.
    """
    cache = Path(settings.paths.cache)
    steps = StepContext(split="eval", seed=settings.seed, cache_folder=cache)
    if only is not None:
        splits = Splits(train=only, val=only, test=only)
    else:
        splits, steps = read_splits(settings)
    if check is not None:
        check(splits)
    first = {} if splits.train_has_photos else {"texts": _text_reader(settings)}
    controlled = bool(settings.control)
    pictures = load_pictures(settings.features, splits.pictured, whole_first=controlled)
    readers = {**first, "pictures": pictures.reader, **further_readers(settings)}
    return Inputs(splits=splits, pictures=pictures, readers=readers, steps=steps)


def read_splits(settings: AbstractDataSettings) -> tuple[Splits, StepContext]:
    """Read all splits, opening each annotation file once."""
    with files_kept():
        train, steps = read_train(settings)
        splits = Splits(
            train=train,
            val=read_roster(settings, "val"),
            test=read_roster(settings, "test") if settings.data.test else None,
            left_out=steps.left_out,
            words=steps.words,
            uncounted=steps.uncounted,
            train_has_photos=not trains_on_text(settings),
        )
    return splits, steps


def _text_reader(settings: TrainSettings) -> AbstractBatchReader:
    """Build the model's reader of captions without photos."""
    if not settings.model.texts:
        raise ValueError(
            f"corpus={settings.corpus.name} has captions without photos, from which "
            f"model={settings.model.name} cannot learn: choose model=viecap or corpus=none"
        )
    return build_part(settings.model.texts)


def load_pictures(
    chosen: Features, rosters: Sequence[Roster], *, whole_first: bool = False
) -> Pictures:
    """Build the reader of the rosters' photos; compute missing features.

    Args:
        chosen: the config group ``features``.
        rosters: rosters whose photos are checked.
        whole_first: see `FeatureReader`.

    Raises:
        ValueError: the group does not say how photos are read.
    """
    if chosen.imported:
        store = FeatureStore.open(chosen.imported)
        check_imported(store, rosters)
        reader = FeatureReader(store=store, whole_first=whole_first)
        return Pictures(reader=reader, feature_size=store.dim)
    backbone = build_part(chosen.backbone) if chosen.backbone else None
    if chosen.reader:
        built = {} if backbone is None else {"backbone": backbone}
        size = 0 if backbone is None else backbone.dim
        reader = build_part(chosen.reader, **built)
        reader.check_photos(sample.image_path for roster in rosters for sample in roster.samples)
        return Pictures(reader=reader, feature_size=size, backbone=backbone)
    if backbone is None:
        raise ValueError(f"features={chosen.name} needs one of backbone, reader and imported")
    samples = {s.image_path: s for roster in rosters for s in roster.samples}
    store = cached_features(chosen, backbone, samples)
    # no bars: they would meet those of the training under way
    extend = partial(cached_features, chosen, backbone, progress=False)
    reader = FeatureReader(store=store, samples=samples, extend=extend)
    return Pictures(reader=reader, feature_size=store.dim)


def check_imported(store: FeatureStore, rosters: Sequence[Roster]) -> None:
    """Raise an error if imported features do not fit the images of the rosters.

    Raises:
        ValueError: an image lacks features, or shows another image's photo.
    """
    for roster in rosters:
        store.positions_of_ids(list(roster.rows_by_image))
        ids: dict[Path, str] = {}
        last = None
        for sample in roster.samples:
            if last and sample.image_path is last.image_path and sample.image_id is last.image_id:
                continue  # the next caption of an image
            last = sample
            if ids.setdefault(sample.image_path, sample.image_id) != sample.image_id:
                raise ValueError(
                    f"{roster.name}: sample {sample.sample_id} has the photo of image "
                    f"{ids[sample.image_path]}, but imported features are found by image id: "
                    "choose features= with a backbone, or leave out the step that exchanges photos"
                )


def cached_features(
    chosen: Features,
    backbone: Backbone,
    samples: Mapping[Path, Sample],
    *,
    progress: bool = True,
    elsewhere: Elsewhere | None = None,
) -> FeatureStore:
    """Features of photos from the cache; compute missing features.

    Args:
        chosen: the config group ``features``.
        backbone: the backbone of these features.
        samples: a sample of each photo, for its boxes.
        progress: whether to show a progress bar.
        elsewhere: see `ensure_features`.
    """
    boxes = None
    if chosen.kind == "regions":
        boxes = [[region.box for region in sample.regions] for sample in samples.values()]
    return ensure_features(
        list(samples),
        backbone=backbone,
        boxes=boxes,
        progress=progress,
        elsewhere=elsewhere,
        **{"kind": chosen.kind, **chosen.further},
    )
