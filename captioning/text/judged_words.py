"""Judgements of caption words by networks: log-odds, and a cache on disk."""

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
    """Probabilities of alternatives for each judged word, by caption and position.

    Attributes:
        captions: ``(Q,) int64`` caption number of each word.
        starts: ``(Q,) int64`` index of the word's first character.
        rows, meanings: ``(Q,) int64`` the written word's row and meaning in the table.
        log_probs: ``(Q, K) float32`` of each meaning of the row; minus infinity beyond the row.
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
    """Return the cached judgement, or compute it with ``judge`` and cache it.

    Args:
        folder: cache folder, with files named after their settings; None: no cache.
        settings: all settings of the judgement, as JSON; without the networks of this version.
        judge: function that computes the judgement.
        table: rows of the judged words; None: the closed rows.
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
        log.warning(f"{path}: {error}: the judgement is computed again")
    judged = judge()
    try:
        write_tensors(path, {name: torch.from_numpy(getattr(judged, name)) for name in names})
    except OSError as error:
        log.warning(f"cannot cache the judgement of words: {error}; check the cache folder")
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
    """Return log-odds ``(Q,)`` of the likeliest rival against the written meaning, and the rival.

    Args:
        log_probs: ``(Q, K)`` log-probabilities, minus infinity beyond a row.
        meanings: ``(Q,)`` written meanings.
        rivals: ``(Q, K, K) bool``: which meanings of the row exclude each other; only meanings
            that exclude the written one count. None: all meanings. Without a rival the log-odds
            are minus infinity.
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
    """Return log-odds ``(Q, K)`` as if each meaning were the written one, see `log_odds`."""
    width = log_probs.shape[1]
    columns = []
    with np.errstate(invalid="ignore"):  # beyond a row both are minus infinity
        for meaning in range(width):
            written = np.full(len(log_probs), meaning)
            columns.append(log_odds(log_probs, written, rivals)[0])
    return np.stack(columns, axis=1)
