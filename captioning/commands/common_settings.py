"""Keys that the configs of several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from annotated_types import Gt, Lt, MinLen

from captioning.config.ranges import (
    ArgumentsOf,
    Device,
    DropRate,
    Fraction,
    Name,
    NonNegativeFloat,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.data.features.build import ensure_features
from captioning.training.settings import Features, Paths

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
