"""The keys of ``train.yaml`` with their types and ranges; those of parts stand at their classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from annotated_types import Ge, Gt, Lt, MinLen

from captioning.config.ranges import (
    AlsoTakes,
    ArgumentsOf,
    DropRate,
    Fraction,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
)
from captioning.data.batches.settings import LoaderSettings
from captioning.data.features.build import ensure_features
from captioning.metrics.coco import MetricName, TokenizerName

Part = Callable[..., Any]
"""A mapping with ``_target_``, which is built."""


# Lightning's others are for double precision, and for an engine that is no part of the project.
Precision = Literal[
    "32-true", "16-mixed", "bf16-mixed", "bf16-true", "16-true", "32", "16", "bf16", 32, 16
]


class OptimizerRanges(TypedDict):
    """Ranges of torch's optimisers, whose own signatures have none."""

    lr: NonNegativeFloat
    weight_decay: NonNegativeFloat
    momentum: DropRate


class TrainerRanges(TypedDict):
    """Ranges of Lightning's trainer, whose own signature has none."""

    precision: Precision | None
    num_nodes: PositiveInt
    accumulate_grad_batches: PositiveInt
    gradient_clip_val: NonNegativeFloat | None
    gradient_clip_algorithm: Literal["norm", "value"] | None
    num_sanity_val_steps: Annotated[int, Ge(-1)] | None
    log_every_n_steps: NonNegativeInt
    check_val_every_n_epoch: PositiveInt | None
    limit_train_batches: PositiveFloat | None
    limit_val_batches: NonNegativeFloat | None
    limit_test_batches: NonNegativeFloat | None


Optimizer = Annotated[Part, AlsoTakes(OptimizerRanges)]
Trainer = Annotated[Part, AlsoTakes(TrainerRanges)]


class Metrics(TypedDict):
    """The config group ``metrics``."""

    test: Annotated[Sequence[MetricName], MinLen(1)]
    val: Annotated[Sequence[MetricName], MinLen(1)]
    tokenizer: TokenizerName


class Speed(TypedDict):
    """The config group ``speed``."""

    matmul_precision: Literal["highest", "high", "medium"] | None
    compile: bool
    torch_dropout: NotRequired[bool]
    cuda_graphs: NotRequired[bool]


class Paths(TypedDict):
    """The config group ``paths``: folders."""

    data: Name
    cache: Name
    runs: Name


class File(TypedDict):
    """An entry of ``data.files``, see `captioning.training.prepare.NeededFile`."""

    path: Name
    what: str
    source: str
    url: NotRequired[Name | None]
    sha256: NotRequired[Name | None]
    unpack: NotRequired[bool]
    photos: NotRequired[bool]


class Entities(TypedDict):
    """How a model finds a photo's entities; None: as the model says."""

    photo_names: NotRequired[Name | None]
    threshold: NotRequired[Fraction | None]
    num_entities: NotRequired[NonNegativeInt | None]
    temperature: NotRequired[PositiveFloat | None]


class Data(TypedDict):
    """The config group ``data``: its splits, and what their readers share."""

    name: Name
    train: NotRequired[Part | None]
    val: NotRequired[Part | None]
    test: NotRequired[Part | None]
    test_in: NotRequired[Part | None]
    test_near: NotRequired[Part | None]
    test_out: NotRequired[Part | None]
    root: NotRequired[Name | None]
    entities: NotRequired[Entities | None]
    files: NotRequired[Sequence[File] | None]
    accept_changes: NotRequired[bool]


class Corpus(TypedDict):
    """The config groups ``corpus`` and ``vocabulary``: captions without photos."""

    name: Name
    train: Part | None
    share: NotRequired[Share | None]
    share_seed: NotRequired[Seed]


class Features(TypedDict):
    """The config group ``features``; its other keys are arguments of `ensure_features`."""

    name: Name
    kind: NotRequired[Literal["grid", "regions"] | None]
    backbone: NotRequired[Part | None]
    encoder: NotRequired[Part | None]
    imported: NotRequired[Name | None]
    reader: NotRequired[Part | None]


class LowRank(TypedDict):
    """``model.lora``."""

    rank: PositiveInt
    alpha: PositiveFloat
    dropout: DropRate
    modules: NotRequired[Annotated[Sequence[str], MinLen(1)] | None]
    within: NotRequired[Name | None]


class Model(TypedDict):
    """The config group ``model``."""

    name: Name
    module: Part
    word_vectors: NotRequired[Part | None]
    texts: NotRequired[Part | None]
    readers: NotRequired[Mapping[str, Part | None] | None]
    checkpointing: NotRequired[bool]
    photo_names: NotRequired[Name | None]
    entities_of_data: NotRequired[bool]
    lora: NotRequired[LowRank | None]
    frozen: NotRequired[Sequence[str] | None]


class Curation(TypedDict):
    """The config group ``curation``."""

    name: Name
    callback: Part | None
    warmup: NotRequired[NonNegativeInt]
    keep: NotRequired[Name | None]
    # Parts of the policy, which the callback refers to; there they are checked.
    score: NotRequired[Any]
    select: NotRequired[Any]
    schedule: NotRequired[Any]
    amend: NotRequired[Any]
    probe: NotRequired[Any]
    budget: NotRequired[Any]
    image_source: NotRequired[Any]
    prompt: NotRequired[Any]


class FindLr(TypedDict, total=False):
    """``find_lr``, see `captioning.training.find_lr.SweepSettings`."""

    lowest: PositiveFloat
    highest: PositiveFloat
    num_updates: Annotated[int, Ge(20)]


class TrainSettings(TypedDict):
    """All keys of a training."""

    seed: Seed
    num_epochs: PositiveInt
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None
    monitor: Name
    first_images: PositiveInt | None
    threads: NumThreads | None
    resume: Name
    start_from: Name | None
    new_words: NotRequired[PositiveInt | None]
    branch_from: Name | None
    keep_every_epoch: bool
    checkpoint_minutes: PositiveFloat | None
    run_name: Name
    run_dir: Name
    plugins: NotRequired[Sequence[Name]]
    report: NotRequired[bool]
    start_score: NotRequired[bool]
    paths: Paths
    data: Data
    corpus: Corpus
    vocabulary: Corpus
    steps: Mapping[str, Part]
    features: Annotated[Features, ArgumentsOf(ensure_features)]
    tokenizer: Part
    loader: Annotated[Mapping[str, Any], ArgumentsOf(LoaderSettings)]
    model: Model
    control: NotRequired[Part | None]
    search: Part
    optimizer: Optimizer
    schedule: Part
    objective: NotRequired[Part | Mapping[str, Any]]
    curation: Curation
    trainer: Trainer
    speed: NotRequired[Speed]
    callbacks: NotRequired[Mapping[str, Part] | None]
    logger: NotRequired[Mapping[str, Part] | None]
    metrics: Metrics
    extra_metrics: NotRequired[Mapping[str, Part] | None]
    find_lr: NotRequired[FindLr]
