"""The keys of the smaller commands' configs, with their types and ranges.

Configs are held to them before a command begins. Training, evaluation and augmentation check their
own, as they are called from Python too; parts have their ranges beside their constructors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Gt, Lt, MinLen

from captioning.commands.asset_settings import (
    Autoencoder,
    Diffusion,
    FineTuning,
    JointSpace,
)
from captioning.commands.common_settings import AbstractCommon, AbstractMaking
from captioning.config.ranges import (
    ArgumentsOf,
    Fraction,
    Name,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.evaluation.settings import EvaluationPrecision
from captioning.export.energy import CardFacts
from captioning.metrics.coco import MetricName
from captioning.training.settings import (
    Corpus,
    Data,
    FindObjectsSettings,
    Metrics,
    Part,
    PrepareSettings,
)
from curation.capfilt.settings import CapFiltSettings


class Detect(AbstractCommon, total=False):
    """``curate detect``."""

    run: Name
    scores: Annotated[Mapping[str, Part], MinLen(1)]
    spread: Part


class Score(AbstractCommon, total=False):
    """``curate score``."""

    data: Data
    pairs: Part
    steps: Mapping[str, Part]
    split: Name
    spread: Part


class Export(AbstractCommon, total=False):
    """``export``."""

    run: Name
    to: Name
    onnx: bool
    card: Annotated[Mapping[str, Any], ArgumentsOf(CardFacts)]


class AbstractOfRun(AbstractCommon, total=False):
    """Keys of what asks a finished run for captions."""

    run: Name
    split: Name
    search: Part | None
    out: Name | None


class Random(TypedDict, total=False):
    """``controllability random``; what holds between them is checked where they are drawn."""

    controls: NonNegativeInt
    best: PositiveInt
    shortest: PositiveInt
    longest: PositiveInt
    regions: Literal["caption", "any"]
    seed: Seed


class Controllability(AbstractOfRun, total=False):
    """``controllability``."""

    precision: EvaluationPrecision
    data: Data | None
    metrics: Metrics | None
    parser: Part
    word_vectors: Part
    well_formedness: Part | None
    gruen: Part | None
    standard_by_batches: PositiveInt | None
    max_images: PositiveInt | None
    generated: Name | None
    nouns: Literal["phrases", "labels"]
    exactly_five: bool
    random: Random


class DiverseCaptions(AbstractOfRun, total=False):
    """``diverse-captions``."""

    precision: EvaluationPrecision
    data: Data | None
    metrics: Metrics
    rerank: Part | None
    numbers: Annotated[Sequence[PositiveInt], MinLen(1)]
    first_images: PositiveInt | None
    oracle: Annotated[Sequence[MetricName], MinLen(1)]
    num_best: PositiveInt


class ImageDistance(AbstractCommon, total=False):
    """``image-distance``."""

    real: Name
    other: Name
    paired: bool
    inception: bool
    inception_weights: Name | None
    batch_size: PositiveInt
    out: Name | None


class Captioned(AbstractOfRun, total=False):
    """``augment captioned``."""

    metrics: Metrics
    data: Data
    augmented: Data
    num_pictures: PositiveInt | None
    num_shown: NonNegativeInt
    max_captions: PositiveInt
    detections: Sequence[Name]
    augmented_detections: Sequence[Name]


class Figure(TypedDict, total=False):
    """``figure`` of ``augment compare``."""

    ratios: Sequence[PositiveFloat]
    num_target: PositiveInt


class Compare(AbstractCommon, total=False):
    """``augment compare``."""

    data: Data
    corpus: Corpus
    target: Corpus
    tagger: Part
    similarity: Mapping[str, Part]
    cache_folder: Name
    figure: Figure
    out: Name


class Teach(AbstractMaking, total=False):
    """``augment teach``."""

    data: Data
    name: Name
    corpus: Corpus
    tagger: Part
    prompts: Part
    full_template_share: Fraction
    num_epochs: PositiveFloat
    val_share: Annotated[float, Gt(0), Lt(1)]


class Pictures(TypedDict, total=False):
    """``curation`` of ``augment round-trip``."""

    image_source: Part | None
    prompt: Part | None


class MakeAhead(AbstractCommon, total=False):
    """``augment pictures``."""

    data: Data
    steps: Mapping[str, Part]
    split: Name
    curation: Pictures
    spread: Part


class RoundTrip(AbstractCommon, total=False):
    """``augment round-trip``."""

    data: Data
    captioner: Name | None
    split: Name
    per: Literal["photo", "caption"]
    metrics: Metrics
    curation: Pictures
    generator: Name
    prompt: Name
    out: Name
    spread: Part


SETTINGS: Mapping[str, type] = {
    "curate detect": Detect,
    "curate score": Score,
    "curate capfilt": CapFiltSettings,
    "export": Export,
    "find-objects": FindObjectsSettings,
    "prepare": PrepareSettings,
    "controllability": Controllability,
    "diverse-captions": DiverseCaptions,
    "image-distance": ImageDistance,
    "augment captioned": Captioned,
    "augment compare": Compare,
    "augment teach": Teach,
    "augment pictures": MakeAhead,
    "augment round-trip": RoundTrip,
    "train-space": JointSpace,
    "assets autoencoder": Autoencoder,
    "assets diffusion": Diffusion,
    "augment fine-tune": FineTuning,
}
"""By the command's name."""
