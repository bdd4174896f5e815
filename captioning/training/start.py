"""The captioner that a training begins with: of a run, of an export, or the one in the package."""

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
    """A trained captioner.

    Attributes:
        name: the name as requested.
        captioner: class and tokenizer, as in checkpoints.
        weights: weights of the model, by name.
        features: name of the features that it was trained on.
        backbone: weights of the backbone that made them, by name, where an export holds them.
    """

    name: str
    captioner: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    features: str
    backbone: Mapping[str, Tensor] = field(default_factory=dict)

    def tokenizer(
        self, captions: Iterable[str] = (), *, new_words: int | None = None
    ) -> AbstractTokenizer:
        """Its tokenizer, with the words that occur at least ``new_words`` times in ``captions``.

        Raises:
            ValueError: ``new_words`` is set, and the tokenizer is not one of words, or ends with
                control tokens, behind which no words may stand.
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
        """Give a new model, with `tokenizer`, these weights; new words keep their first values.

        If one of the two used cached features and the other trains a backbone, the model keeps its
        own backbone, or takes the export's.

        Raises:
            ValueError: the model is another one, or of other sizes.
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
    """The captioner that ``start_from`` names; None: new weights.

    Args:
        name: name of a run, an export, or `SHIPPED`.
        features: name of those of the run that begins with it.

    Raises:
        FileNotFoundError: no run, export or shipped captioner, or a run without checkpoint.
        ValueError: damaged files, or an export of a model of transformers.
    """
    if not name:
        return None
    folder = start_folder(name)
    start = _of_bundle(name, folder) if is_bundle(folder) else _of_run(name, folder)
    if start.features != features:
        log.warning(
            f"start_from={name}: its captioner was trained on features={start.features}, this run "
            f"has features={features}: unless both come from the same backbone, it must learn to "
            f"read photos again"
        )
    return start


def start_folder(name: str) -> Path:
    """The folder that ``start_from`` names.

    Raises:
        FileNotFoundError: no such folder, or this version ships no captioner.
        ValueError: a file of the shipped captioner has changed.
    """
    if name != SHIPPED:
        if not Path(name).is_dir():
            raise FileNotFoundError(
                f"no such folder; give a run, an export, or {SHIPPED}, the captioner in the package"
            )
        return Path(name)
    return shipped_captioner(instead="name a run or an export by start_from=FOLDER")


def check_start(name: str | None, *, new_words: int | None = None) -> None:
    """Refuse to start from a missing folder, or from a run without a usable checkpoint.

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
            f"start_from={name}: a model of transformers, which model= loads: set "
            f"model.pretrained={transformers_folder(folder)} in its place"
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
    """Weights with a backbone where the model has one, and without where it has none.

    Args:
        weights: weights of the captioner to begin with.
        first: the new model's.
        backbone: backbone of the features that ``weights`` were trained on; empty: not known.
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
    """A weight with a row a word, with the first values of the rows of new words.

    Rows behind those of the words stay behind them.

    Args:
        weight: weight of the captioner to begin with.
        first: the new model's.
        known: words of the former.
        size: words of the latter.
        extra: see `AbstractCaptioner.extra_rows`.
    """
    rows = weight.shape[0] if weight.dim() else 0
    grows = weight.shape[1:] == first.shape[1:] and first.shape[:1] == (rows + size - known,)
    if rows - known not in (0, extra) or not grows:
        return weight
    return torch.cat([weight[:known].to(first), first[known:size], weight[known:].to(first)])
