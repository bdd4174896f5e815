"""The keys of the configs of ``captioning assets``, with their types and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Gt, Le, MinLen

from captioning.commands.common_settings import AbstractMaking, Sizes
from captioning.config.ranges import DropRate, Fraction, Name, NonNegativeFloat, PositiveInt
from captioning.training.settings import Data, Part


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
