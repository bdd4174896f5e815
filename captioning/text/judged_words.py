"""The networks' judgements of row words in captions, and their storage on disk."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.text.row_tables import RowTable
from captioning.text.word_rows import closed_rows

log = logging.getLogger(__name__)

_VERSION = 3  # of the networks and of what they read: raised where they judge otherwise


@dataclass(frozen=True, kw_only=True)
class JudgedWords:
    """Words of rows, by caption and place.

    Attributes:
        captions: ``(Q,) int64`` number of the caption.
        starts: ``(Q,) int64`` index of the word's first character.
        rows, meanings: ``(Q,) int64`` what is written, of the table that was judged by.
        log_probs: ``(Q, K) float32`` of the row's meanings; minus infinity beyond the row.
    """

    captions: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    meanings: np.ndarray
    log_probs: np.ndarray


def kept_judgement(
    folder: Path | None,
    settings: Mapping[str, Any],
    judge: Callable[[], JudgedWords],
    *,
    table: RowTable | None = None,
) -> JudgedWords:
    """The result of ``judge``, from the folder if it is there.

    Args:
        folder: folder of judgements, in files named after their settings; None keeps nothing.
        settings: all that the judgement depends on beside this version's networks, as JSON.
        judge: makes it.
        table: rows of the words; None for the closed ones.
    """
    if folder is None:
        return judge()
    path = folder / f"{_key(settings, table or closed_rows())}.safetensors"
    names = [field.name for field in fields(JudgedWords)]
    try:
        if path.is_file():
            arrays, _ = read_tensors(path)
            return JudgedWords(**{name: arrays[name].numpy() for name in names})
    except (ValueError, KeyError, OSError) as error:
        log.warning(f"{path}: {error}: it is computed again")
    judged = judge()
    try:
        write_tensors(path, {name: torch.from_numpy(getattr(judged, name)) for name in names})
    except OSError as error:
        log.warning(f"judgements of words cannot be cached for later starts: {error}")
    return judged


def _key(settings: Mapping[str, Any], table: RowTable) -> str:
    rows = [[row.name, row.meanings] for row in table.rows]
    whole = {"version": _VERSION, "rows": rows, **settings}
    if table is not closed_rows():
        whole["table"] = table.content_hash
    content = json.dumps(whole, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def log_odds(
    log_probs: np.ndarray, meanings: np.ndarray, rivals: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds ``(Q,)`` of the likeliest other meaning against the written one, and that meaning.

    Args:
        log_probs: ``(Q, K)``, minus infinity beyond a row.
        meanings: ``(Q,)`` what is written.
        rivals: ``(Q, K, K) bool``: which meanings of the word's row exclude each other; those that
            do not count for the written one. None: all do. Without a rival the log-odds are minus
            infinity.
    """
    each = np.arange(len(meanings))
    if not len(meanings):
        return np.zeros(0), np.zeros(0, np.int64)
    others = log_probs.copy()
    own = log_probs[each, meanings]
    if rivals is not None:
        others = np.where(rivals[each, meanings], others, -np.inf)
        agreeing = np.where(rivals[each, meanings], -np.inf, log_probs)
        own = np.logaddexp.reduce(agreeing, axis=1)
    others[each, meanings] = -np.inf
    best = others.argmax(1)
    return others[each, best] - own, best


def odds_of_each(log_probs: np.ndarray, rivals: np.ndarray | None = None) -> np.ndarray:
    """``(Q, K)`` log-odds that each meaning would have if it were written, see `log_odds`."""
    width = log_probs.shape[1]
    columns = []
    with np.errstate(invalid="ignore"):  # beyond a row both are minus infinity
        for meaning in range(width):
            written = np.full(len(log_probs), meaning)
            columns.append(log_odds(log_probs, written, rivals)[0])
    return np.stack(columns, axis=1)
