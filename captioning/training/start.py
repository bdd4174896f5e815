"""Captioner that a training starts from: of a run, an export, or the package."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.inference.bundle import (
    FEATURES_PREFIX,
    is_bundle,
    read_bundle,
    transformers_folder,
)
from captioning.inference.loading import shipped_captioner
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.results.checkpoints import load_checkpoint
from captioning.results.run_folder import RunFolder
from captioning.text.control_tokens import CONTROL_TOKENS
from captioning.text.tokenizers.restore import restored
from captioning.text.tokenizers.words import WordTokenizer

log = logging.getLogger(__name__)

SHIPPED = "shipped"  # the captioner in the package, by ``start_from``
BACKBONE = "backbone."  # of a captioner that is trained with its backbone


@dataclass(frozen=True, kw_only=True)
class Start:
    """Trained captioner that a training starts from.

    Attributes:
        name: the name as requested.
        captioner: class and tokenizer, as stored in checkpoints.
        weights: weights of the model, by name.
        features: name of the features that the captioner was trained on.
        backbone: weights of the backbone of these features, by name, if an export holds them.
    """

    name: str
    captioner: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    features: str
    backbone: Mapping[str, Tensor] = field(default_factory=dict)

    def tokenizer(
        self, captions: Iterable[str] = (), *, new_words: int | None = None
    ) -> AbstractTokenizer:
        """The captioner's tokenizer, plus words that occur ``new_words`` times in ``captions``.

        Raises:
            ValueError: ``new_words`` is set, but the tokenizer has sub-words, or ends with control
                tokens, after which no words may be added.
        """
        tokenizer = restored(self.captioner["tokenizer"])
        if new_words is None:
            return tokenizer
        if not isinstance(tokenizer, WordTokenizer):
            raise ValueError(
                f"new_words={new_words}: the captioner of start_from={self.name} reads captions by "
                f"sub-words and needs no new words: leave new_words out"
            )
        if tokenizer.words[-1] == CONTROL_TOKENS[-1]:
            raise ValueError(
                f"new_words={new_words}: the vocabulary of start_from={self.name} ends with "
                "control tokens, after which no words can be added: leave new_words out"
            )
        return tokenizer.with_words(captions, min_count=new_words)

    def begin(self, model: AbstractCaptioner[Any]) -> None:
        """Copy these weights to a new model with `tokenizer`; new words keep their initial values.

        If only one of the two captioners has a backbone, the model keeps its own backbone, or takes
        the export's.

        Raises:
            ValueError: the models differ in kind or size.
        """
        tokenizer, first = model.tokenizer, model.state_dict()
        known = len(restored(self.captioner["tokenizer"]))
        weights = _with_backbone(self.weights, first, self.backbone)
        if len(tokenizer) > known:
            for name in weights.keys() & first.keys():
                weights[name] = _grown(
                    weights[name], first[name], known, len(tokenizer), model.extra_rows
                )
        captioner = {**self.captioner, "tokenizer": tokenizer.state()}
        try:
            model.on_load_checkpoint({"captioner": captioner})
            model.load_state_dict(weights)
        except (ValueError, RuntimeError) as error:
            # PyTorch names all weights that do not fit, behind a title.
            reason = (str(error).split("\n\t")[1:2] or [str(error)])[0].strip().rstrip(".")
            raise ValueError(
                f"start_from={self.name}: {reason}; choose the model= and features= of that run"
            ) from error


def load_start(name: str | None, *, features: str) -> Start | None:
    """Load the captioner that ``start_from`` names; None: train from new weights.

    Args:
        name: name of a run, an export, or `SHIPPED`.
        features: name of the features of the new run.

    Raises:
        FileNotFoundError: no such run, export or shipped captioner, or no checkpoint in the run.
        ValueError: a file is damaged, or the export is a model of transformers.
    """
    if not name:
        return None
    folder = start_folder(name)
    start = _of_bundle(name, folder) if is_bundle(folder) else _of_run(name, folder)
    if start.features != features:
        log.warning(
            f"start_from={name}: its captioner was trained on features={start.features}, but this "
            f"run has features={features}: unless both come from the same backbone, it must learn "
            "to read photos again"
        )
    return start


def start_folder(name: str) -> Path:
    """Folder that ``start_from`` names.

    Raises:
        FileNotFoundError: the folder does not exist, or this version ships no captioner.
        ValueError: a file of the shipped captioner has changed.
    """
    if name != SHIPPED:
        if not Path(name).is_dir():
            raise FileNotFoundError(
                f"no such folder; give a run, an export, or {SHIPPED}, the captioner in the package"
            )
        return Path(name)
    return shipped_captioner(instead="name a run or an export with start_from=FOLDER")


def check_start(name: str | None, *, new_words: int | None = None) -> None:
    """Raise an error if ``start_from`` is missing, or is a run without a usable checkpoint.

    Raises:
        FileNotFoundError, ValueError: see `load_start`; ``new_words`` without ``start_from``.
    """
    if name is None:
        if new_words is not None:
            raise ValueError(
                "new_words: adds words to the vocabulary of start_from, which is null: leave it "
                "out, or set tokenizer.min_count"
            )
        return
    try:
        folder = start_folder(name)
        if not is_bundle(folder):
            run = RunFolder(folder)
            run.tested_checkpoint(run.config().monitor)
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(f"start_from={name}: {error}") from error


def _of_run(name: str, folder: Path) -> Start:
    run = RunFolder(folder)
    config = run.config()
    content = load_checkpoint(run.tested_checkpoint(config.monitor))
    captioner, weights = content["captioner"], content["state_dict"]
    features = str(config.features.name)
    return Start(name=name, captioner=captioner, weights=weights, features=features)


def _of_bundle(name: str, folder: Path) -> Start:
    bundle = read_bundle(folder)
    if bundle.weights is None:
        raise ValueError(
            f"start_from={name} is a model of transformers, which model= loads: set "
            f"model.pretrained={transformers_folder(folder)} instead"
        )
    weights, backbone = dict[str, Tensor](), dict[str, Tensor]()
    for key, tensor in bundle.weights.items():
        if key.startswith(FEATURES_PREFIX):
            backbone[key.removeprefix(FEATURES_PREFIX)] = tensor
        else:
            weights[key] = tensor
    return Start(
        name=name,
        captioner=bundle.captioner,
        weights=weights,
        features=str(bundle.config.features.get("name")),
        backbone=backbone,
    )


def _with_backbone(
    weights: Mapping[str, Tensor], first: Mapping[str, Tensor], backbone: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Weights with a backbone if the new model has one, and without a backbone otherwise.

    Args:
        weights: weights of the captioner to start from.
        first: weights of the new model.
        backbone: backbone of the features that ``weights`` were trained on; empty if unknown.
    """
    own = {name: tensor for name, tensor in first.items() if name.startswith(BACKBONE)}
    trained = {name for name in weights if name.startswith(BACKBONE)}
    if own and not trained:
        exported = {f"{BACKBONE}{name}": tensor for name, tensor in backbone.items()}
        return {**weights, **(exported or own)}
    if trained and not own:
        return {name: tensor for name, tensor in weights.items() if name not in trained}
    return dict(weights)


def _grown(weight: Tensor, first: Tensor, known: int, size: int, extra: int) -> Tensor:
    """Weight with a row per word, extended by the initial rows of new words.

    Rows after the words' rows stay after them.

    Args:
        weight: weight of the captioner to start from.
        first: weight of the new model.
        known: number of words of the captioner to start from.
        size: number of words of the new model.
        extra: see `AbstractCaptioner.extra_rows`.
    """
    rows = weight.shape[0] if weight.dim() else 0
    grows = weight.shape[1:] == first.shape[1:] and first.shape[:1] == (rows + size - known,)
    if rows - known not in (0, extra) or not grows:
        return weight
    return torch.cat([weight[:known].to(first), first[known:size], weight[known:].to(first)])
