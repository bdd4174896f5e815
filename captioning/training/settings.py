"""Typed settings of a training, with ranges; parts check their own settings in their classes.

`TrainSettings` is built once from the composed config, or from a run folder's config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Gt, Lt, MinLen
from omegaconf import DictConfig

from captioning.config.ranges import (
    AbstractSettings,
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
from captioning.inference.building import AbstractCaptionerSettings, Features
from captioning.metrics.coco import MetricName, TokenizerName

Part = DictConfig
"""Config mapping with ``_target_``, which `captioning.config.build.build_part` builds."""


# Lightning's others are for double precision, and for an engine that is no part of the project.
Precision = Literal[
    "32-true", "16-mixed", "bf16-mixed", "bf16-true", "16-true", "32", "16", "bf16", 32, 16
]


MatmulPrecision = Literal["highest", "high", "medium"]
"""Precision of ``float32`` matrix products, as torch names it."""


class OptimizerRanges(TypedDict):
    """Ranges for arguments of torch's optimisers, whose own signatures have none."""

    lr: NonNegativeFloat
    weight_decay: NonNegativeFloat
    momentum: DropRate


class TrainerRanges(TypedDict):
    """Ranges for arguments of Lightning's trainer, whose own signature has none."""

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


@dataclass(frozen=True, kw_only=True)
class Metrics(AbstractSettings):
    """The config group ``metrics``."""

    test: Annotated[Sequence[MetricName], MinLen(1)]
    val: Annotated[Sequence[MetricName], MinLen(1)]
    tokenizer: TokenizerName


@dataclass(frozen=True, kw_only=True)
class Speed(AbstractSettings):
    """The config group ``speed``; null for ``matmul_precision``: ``"highest"``."""

    matmul_precision: MatmulPrecision | None = None
    compile: bool = False
    torch_dropout: bool = False
    cuda_graphs: bool = False


@dataclass(frozen=True, kw_only=True)
class Paths(AbstractSettings):
    """The config group ``paths``: folders."""

    cache: Name
    data: Name = "data"
    runs: Name = "runs"


@dataclass(frozen=True, kw_only=True)
class NeededFile(AbstractSettings):
    """Entry of a dataset's ``files``: a file or folder that the dataset needs.

    Attributes:
        path: file or folder, relative to the data set's root.
        what: content of the file.
        source: who provides the file, and where on their pages.
        url: official address; None if people must request the file.
        sha256: digest of the file at ``url``; without a digest, no file is downloaded.
        unpack: ``url`` gives a zip archive that holds ``path``.
        photos: whether it holds photos, which imported features replace.
    """

    path: Name
    what: str
    source: str
    url: Name | None = None
    sha256: Name | None = None
    unpack: bool = False
    photos: bool = False


@dataclass(frozen=True, kw_only=True)
class Entities(AbstractSettings):
    """Settings of how a model finds a photo's entities; None: the model's default."""

    photo_names: Name | None = None
    threshold: Fraction | None = None
    num_entities: NonNegativeInt | None = None
    temperature: PositiveFloat | None = None

    def chosen(self) -> dict[str, Any]:
        """Settings that are not None, by name."""
        values = {name: getattr(self, name) for name in self.known()}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Data(AbstractSettings):
    """Config group ``data``: a dataset's splits and the settings that their readers share."""

    name: Name
    train: Part | None = None
    val: Part | None = None
    test: Part | None = None
    test_in: Part | None = None
    test_near: Part | None = None
    test_out: Part | None = None
    root: Name | None = None
    entities: Entities | None = None
    files: Sequence[NeededFile] | None = None
    accept_changes: bool = False

    @property
    def splits(self) -> dict[str, Part]:
        """Reader of each split by name; raises an error for unknown keys."""
        parts = {**vars(self), **self.further}
        return {name: part for name, part in parts.items() if isinstance(part, DictConfig)}


@dataclass(frozen=True, kw_only=True)
class Corpus(AbstractSettings):
    """Config groups ``corpus`` and ``vocabulary``: captions without photos."""

    name: Name = "none"
    train: Part | None = None
    share: Share | None = None
    share_seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class Curation(AbstractSettings):
    """The config group ``curation``."""

    name: Name
    callback: Part | None
    warmup: NonNegativeInt = 0
    keep: Name | None = None
    # Parts of the policy, which the callback refers to; there they are checked.
    score: Any = None
    select: Any = None
    schedule: Any = None
    amend: Any = None
    probe: Any = None
    budget: Any = None
    image_source: Any = None
    prompt: Any = None


@dataclass(frozen=True, kw_only=True)
class FindLr(AbstractSettings):
    """Config section ``find_lr``: a sweep of learning rates.

    Attributes:
        lowest, highest: learning rates of the first and the last update.
        num_updates: number of updates, at least 20.

    Raises:
        ValueError: the numbers give no sweep.
    """

    lowest: PositiveFloat = 1e-7
    highest: PositiveFloat = 1.0
    num_updates: Annotated[int, Ge(20)] = 100

    def __post_init__(self) -> None:
        if not 0 < self.lowest < self.highest or self.num_updates < 20:
            raise ValueError(
                "find_lr needs 0 < lowest < highest and num_updates of at least 20: got "
                f"{self.lowest}, {self.highest} and {self.num_updates}"
            )

    def rate(self, update: int) -> float:
        """Learning rate of an update, counted from 0."""
        share = update / (self.num_updates - 1)
        return self.lowest * (self.highest / self.lowest) ** share


CachedFeatures = Annotated[Features, ArgumentsOf(ensure_features)]
NO_STEPS: Mapping[str, Part] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class AbstractDataSettings(AbstractSettings):
    """Settings that select the captions and photos for a command."""

    data: Data
    paths: Paths
    seed: Seed = 0
    first_images: PositiveInt | None = None
    steps: Mapping[str, Part] = field(default_factory=dict)
    corpus: Corpus = field(default_factory=Corpus)
    features: CachedFeatures = field(default_factory=Features)


@dataclass(frozen=True, kw_only=True)
class DataSettings(AbstractDataSettings):
    """Data settings without other settings, for commands with further keys or finished runs."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings(AbstractDataSettings, AbstractCaptionerSettings):
    """All settings of a training; settings with defaults may be missing in older run folders."""

    num_epochs: PositiveInt
    monitor: Name
    run_name: Name
    run_dir: Name
    tokenizer: Part
    loader: Annotated[Mapping[str, Any], ArgumentsOf(LoaderSettings)]
    optimizer: Optimizer
    schedule: Part
    curation: Curation
    trainer: Trainer
    metrics: Metrics
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None = None
    threads: NumThreads | None = None
    resume: Name = "auto"
    start_from: Name | None = None
    new_words: PositiveInt | None = None
    branch_from: Name | None = None
    keep_every_epoch: bool = False
    checkpoint_minutes: PositiveFloat | None = None
    plugins: Sequence[Name] = ()
    report: bool = True
    start_score: bool = True
    vocabulary: Corpus = field(default_factory=Corpus)
    objective: Part | Mapping[str, Any] | None = None
    speed: Speed = field(default_factory=Speed)
    callbacks: Mapping[str, Part] | None = None
    logger: Mapping[str, Part] | None = None
    extra_metrics: Mapping[str, Part] | None = None
    find_lr: FindLr = field(default_factory=FindLr)

    @property
    def accelerator(self) -> str:
        """Value of Lightning's trainer argument ``accelerator``."""
        return str(self.trainer.get("accelerator", "auto"))

    @property
    def precision(self) -> Precision | None:
        """Value of Lightning's trainer argument ``precision``; None for its default."""
        return self.trainer.get("precision")
