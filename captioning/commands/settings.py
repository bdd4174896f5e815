"""The keys of the smaller commands' configs, with their types and ranges.

Configs are held to them before a command begins. Training, evaluation and augmentation check their
own, as they are called from Python too; parts have their ranges beside their constructors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Gt, Le, Lt, MinLen

from captioning.config.ranges import (
    ArgumentsOf,
    Device,
    DropRate,
    Fraction,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.data.features.build import ensure_features
from captioning.evaluation.settings import EvaluationPrecision
from captioning.export.energy import CardFacts
from captioning.metrics.coco import MetricName
from captioning.training.settings import (
    Corpus,
    Data,
    Features,
    FindObjectsSettings,
    Metrics,
    Part,
    Paths,
    PrepareSettings,
)

Sizes = Annotated[Sequence[PositiveInt], MinLen(1)]


class AbstractCommon(TypedDict, total=False):
    """Keys of many commands."""

    paths: Paths
    plugins: Sequence[Name]
    seed: Seed
    threads: NumThreads | None
    device: Device
    first_images: PositiveInt | None
    features: Annotated[Features, ArgumentsOf(ensure_features)]


class Training(TypedDict, total=False):
    """``training``: settings of the loops that make and teach small models."""

    num_steps: PositiveInt | None
    num_epochs: PositiveInt
    batch_size: PositiveInt
    captions_per_image: PositiveInt
    accumulate: PositiveInt
    lr: NonNegativeFloat
    weight_decay: NonNegativeFloat
    dropout: DropRate
    warmup: Fraction
    floor: Fraction
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None
    clip: PositiveFloat
    log_every: PositiveInt
    val_every: PositiveInt
    checkpoint_every: PositiveInt
    lower_case: Fraction
    without_full_stop: Fraction
    decoder_only: bool
    objects: NonNegativeFloat
    edges: NonNegativeFloat
    spread: NonNegativeFloat
    features: NonNegativeFloat
    labels: NonNegativeFloat
    latent_noise: NonNegativeFloat


class AbstractMaking(AbstractCommon, total=False):
    """Keys of what trains a small model."""

    size: PositiveInt
    half: bool
    start: Name | None
    training: Training
    snr_cap: PositiveFloat | None
    precision: Literal["float32", "bf16-mixed"]
    val_batches: PositiveInt
    out: Name
    checkpoint: Name


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


class Heads(TypedDict, total=False):
    """``heads`` of the joint space."""

    width: PositiveInt
    size: PositiveInt
    dropout: DropRate
    input_dropout: DropRate
    pooling: Literal["mean", "mean_max"]


class JointSpace(AbstractMaking, total=False):
    """``train-space``."""

    data: Data
    more: Data | None
    num_more: PositiveInt
    limit_captions: PositiveInt | None
    sentences: Part
    heads: Heads


class Autoencoder(AbstractMaking, total=False):
    """``assets autoencoder``."""

    data: Data
    num_val: PositiveInt
    backbone: Part
    model: Mapping[str, PositiveInt | Sizes]


class Prompts(TypedDict, total=False):
    """``prompts`` of what trains generators."""

    single: Fraction
    empty: Fraction
    cut: bool


class Sheet(TypedDict, total=False):
    """``sheet`` of ``assets diffusion``."""

    folder: Name
    number: PositiveInt
    steps: PositiveInt
    guidance: NonNegativeFloat


class Diffusion(AbstractMaking, total=False):
    """``assets diffusion``."""

    data: Data
    autoencoder: Name
    vocabulary: Annotated[int, Ge(512)]
    max_length: PositiveInt
    text: Mapping[str, PositiveInt]
    unet: Mapping[str, Any]
    noise: Mapping[str, Any]
    objects: NonNegativeFloat
    labels: NonNegativeFloat
    channels: NonNegativeFloat
    prompts: Prompts
    sheet: Sheet


class LowRank(TypedDict, total=False):
    """``lora`` of ``augment fine-tune``."""

    rank: PositiveInt
    alpha: Annotated[float, Gt(0), Le(2**20)]
    modules: Annotated[Sequence[Name], MinLen(1)]


class FineTuning(AbstractMaking, total=False):
    """``augment fine-tune``."""

    data: Data
    generator: Name
    tuning: Literal["lora", "full"]
    lora: LowRank
    text_encoder: bool
    gradient_checkpointing: bool
    prompts: Prompts


SETTINGS: Mapping[str, type] = {
    "export": Export,
    "find-objects": FindObjectsSettings,
    "prepare": PrepareSettings,
    "controllability": Controllability,
    "diverse-captions": DiverseCaptions,
    "image-distance": ImageDistance,
    "augment captioned": Captioned,
    "augment teach": Teach,
    "augment round-trip": RoundTrip,
    "train-space": JointSpace,
    "assets autoencoder": Autoencoder,
    "assets diffusion": Diffusion,
    "augment fine-tune": FineTuning,
}
"""By the command's name."""
