"""Build the model of a captioner and its batch readers from the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import MinLen
from omegaconf import DictConfig
from torch import nn

from captioning.config.build import build_part
from captioning.config.plugins import check_loadable
from captioning.config.ranges import (
    AbstractSettings,
    DropRate,
    Name,
    PositiveFloat,
    PositiveInt,
)
from captioning.data.batches.base import AbstractBatchReader
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner


@dataclass(frozen=True, kw_only=True)
class Features(AbstractSettings):
    """The config group ``features``; its further keys are arguments of `ensure_features`."""

    name: Name = "none"
    kind: Literal["grid", "regions"] | None = None
    backbone: DictConfig | None = None
    encoder: DictConfig | None = None
    imported: Name | None = None
    reader: DictConfig | None = None

    @property
    def own_backbone(self) -> DictConfig:
        """Return the config of the features' backbone.

        Raises:
            ValueError: the features have no backbone.
        """
        if self.backbone is None:
            raise ValueError(f"features={self.name} has no backbone: choose other features")
        return self.backbone


@dataclass(frozen=True, kw_only=True)
class LowRank(AbstractSettings):
    """The config group ``model.lora``: settings of LoRA (low-rank adaptation)."""

    rank: PositiveInt
    alpha: PositiveFloat
    dropout: DropRate
    kind: Literal["lora", "rslora", "dora"] | None = None
    modules: Annotated[Sequence[str], MinLen(1)] | None = None
    within: Name | None = None


@dataclass(frozen=True, kw_only=True)
class Model(AbstractSettings):
    """The config group ``model``."""

    name: Name
    module: DictConfig
    word_vectors: DictConfig | None = None
    texts: DictConfig | None = None
    readers: Mapping[str, DictConfig | None] | None = None
    checkpointing: bool | None = None
    photo_names: Name | None = None
    entities_of_data: bool = False
    lora: LowRank | None = None
    frozen: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class AbstractCaptionerSettings(AbstractSettings):
    """Settings of the parts of a captioner; mappings with ``_target_`` are parts to build."""

    model: Model
    search: DictConfig
    features: Features = field(default_factory=Features)
    control: DictConfig | None = None


@dataclass(frozen=True, kw_only=True)
class CaptionerSettings(AbstractCaptionerSettings):
    """Settings that a captioner needs to caption photos, read from a run or an export."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Picture input of a captioner: reader, feature size and backbone.

    Attributes:
        reader: adds the pictures to each batch.
        feature_size: feature dimension D of the features or backbone; 0 without either.
        backbone: backbone for end-to-end training; None: cached features, or a model with its own
            backbone.
    """

    reader: AbstractBatchReader
    feature_size: int = 0
    backbone: nn.Module | None = None


def further_readers(
    settings: AbstractCaptionerSettings,
) -> dict[str, AbstractBatchReader]:
    """Return the reader of controls and the model's readers, except the picture reader."""
    chosen = {"control": settings.control, **(settings.model.readers or {})}
    return {name: build_part(part) for name, part in chosen.items() if part}


def build_model(
    settings: AbstractCaptionerSettings,
    tokenizer: AbstractTokenizer,
    pictures: Pictures,
    *,
    training: Mapping[str, Any] | None = None,
) -> AbstractCaptioner[Any]:
    """Build the captioning model with tokenizer, backbone and search.

    Args:
        settings: the run's settings.
        tokenizer: tokenizer of the captions.
        pictures: picture input, see `Pictures`.
        training: optimizer, schedule and number of updates; None: the model is not trained.
    """
    parts: dict[str, Any] = {}
    chosen = settings.model
    if chosen.word_vectors:
        parts["word_vectors"] = build_part(chosen.word_vectors, words=_words(tokenizer))
    if pictures.backbone is not None:
        parts["backbone"] = pictures.backbone
    if training is not None:
        parts |= training
    else:  # which a folder of strangers may not fill with anything either
        check_loadable({key: settings.further.get(key) for key in ("optimizer", "schedule")})
    model = build_part(
        chosen.module,
        tokenizer=tokenizer,
        feature_size=pictures.feature_size,
        search=build_part(settings.search),
        **parts,
    )
    kind = getattr(model, "quantize", None)
    if kind and not chosen.lora and training is not None:
        raise ValueError(
            f"model.quantize={kind}: quantized weights cannot be trained, and this run has no "
            f"LoRA weights; choose experiment=vlm/low_rank (model.lora), or set "
            f"model.quantize=null"
        )
    if chosen.lora or chosen.frozen:
        from captioning.models.adapt import add_low_rank, freeze

        if lora := chosen.lora:
            chosen_layers = {"modules": lora.modules, "within": lora.within}
            sizes = {"rank": lora.rank, "alpha": lora.alpha, "dropout": lora.dropout}
            add_low_rank(model, kind=lora.kind, **sizes, **chosen_layers)
        if chosen.frozen:
            freeze(model, chosen.frozen)
    return model


def _words(tokenizer: AbstractTokenizer) -> tuple[str, ...]:
    """Return the vocabulary of a word tokenizer.

    Raises:
        ValueError: the tokens are not words.
    """
    if tokenizer.words is None:
        raise ValueError(
            "model.word_vectors needs one token per word (tokenizer=words), got "
            f"{type(tokenizer).__name__}; choose tokenizer=words, or model.word_vectors=null"
        )
    return tokenizer.words
