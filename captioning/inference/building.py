"""A captioner's model and the readers of its batches, built from the settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig
from torch import nn

from captioning.config.build import build_part
from captioning.config.plugins import check_loadable
from captioning.data.batches.base import AbstractBatchReader
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """How batches get their pictures.

    Attributes:
        reader: gives a batch its pictures.
        feature_size: D of the features or of the backbone; 0 where there is neither.
        backbone: for end-to-end training; None: features are cached, or the model has its own.
    """

    reader: AbstractBatchReader
    feature_size: int = 0
    backbone: nn.Module | None = None


def further_readers(config: DictConfig) -> dict[str, AbstractBatchReader]:
    """The reader of controls, then those that the model lists beside pictures."""
    chosen = {"control": config.get("control"), **(config.model.get("readers") or {})}
    return {name: build_part(part) for name, part in chosen.items() if part}


def build_model(
    config: DictConfig,
    tokenizer: AbstractTokenizer,
    pictures: Pictures,
    *,
    horizon: int | None = None,
) -> AbstractCaptioner[Any]:
    """The captioner, with its parts bound.

    Args:
        config: of the run.
        tokenizer: of its captions.
        pictures: see there.
        horizon: updates of its training; None: it is not trained, and neither optimizer nor
            schedule is built.
    """
    parts: dict[str, Any] = {}
    if config.model.get("word_vectors"):
        parts["word_vectors"] = build_part(config.model.word_vectors, words=_words(tokenizer))
    if pictures.backbone is not None:
        parts["backbone"] = pictures.backbone
    trained = {name: config.get(name) for name in ("optimizer", "schedule")}
    if horizon is None:
        check_loadable(trained)  # which a folder of strangers may not fill with anything either
    else:
        parts |= {name: build_part(part) for name, part in trained.items()} | {"horizon": horizon}
    model = build_part(
        config.model.module,
        tokenizer=tokenizer,
        feature_size=pictures.feature_size,
        search=build_part(config.search),
        **parts,
    )
    if config.model.get("lora") or config.model.get("frozen"):
        from captioning.models.adapt import adapt

        adapt(model, config.model)
    return model


def _words(tokenizer: AbstractTokenizer) -> tuple[str, ...]:
    """The vocabulary of a tokenizer of words.

    Raises:
        ValueError: its tokens are no words.
    """
    if tokenizer.words is None:
        raise ValueError(
            "model.word_vectors needs one token a word (tokenizer=words): got "
            f"{type(tokenizer).__name__}; choose tokenizer=words, or model.word_vectors=null"
        )
    return tokenizer.words
