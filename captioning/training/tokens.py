"""The vocabulary and the tokens of a run, kept under ``paths.cache`` for later starts and runs.

Files are named by all that their content depends on, so that none is ever out of date. All
processes of a run, and other runs, share them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf

from captioning.config.build import build_part
from captioning.data.roster import Roster, build_roster
from captioning.data.token_table import TokenTable, id_type
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.file_lock import locked
from captioning.runtime.files import read_json, write_json
from captioning.text.tokenizers.restore import restored
from captioning.text.tokenizers.treebank import SplitCaptions
from captioning.training.settings import Part

log = logging.getLogger(__name__)

COUNTED = "captioning.text.tokenizers.words.WordTokenizer.build"
MIN_CAPTIONS = 20_000  # of fewer the tokens are made anew in no time
FORMAT = 1  # another one wherever this project turns captions into other tokens
PACKAGES = ("nltk", "tokenizers")  # and where these do

Value = TypeVar("Value")


def build_tokenizer(
    chosen: Part,
    train: Roster,
    further: Sequence[Roster] = (),
    uncounted: Collection[str] = (),
    *,
    cache: str,
) -> AbstractTokenizer:
    """The tokenizer of a run; a vocabulary that was counted before is read.

    Args:
        chosen: the tokenizer's class and settings.
        train: captions of the vocabulary.
        further: captions of the vocabulary that are not trained on.
        uncounted: origins of captions of ``train`` that the vocabulary leaves out.
        cache: folder of what later starts and runs may use.
    """
    counted = _without(train, uncounted)
    rosters = [counted, *further]
    build = build_part(chosen)
    if chosen._target_ != COUNTED or sum(map(len, rosters)) < MIN_CAPTIONS:
        return build(_captions(rosters))
    settings = OmegaConf.to_container(chosen, resolve=True)
    path = _path(cache, [settings, *(roster.fingerprint for roster in rosters)], ".json")

    split: list[SplitCaptions] = []

    def make() -> AbstractTokenizer:
        split[:] = [SplitCaptions(_captions(rosters), max_words=chosen.max_words)]
        return build(split[0])

    def save(tokenizer: AbstractTokenizer) -> None:
        write_json(path, tokenizer.state(), indent=None)
        if counted is not train:
            return
        # the words are at hand: `tokens_of` need not split the captions again
        ids, ends = split[0].encode(tokenizer, len(train))
        table = TokenTable(ids=ids.astype(id_type(tokenizer)), ends=ends)
        table.save(_table_path(cache, train, tokenizer))

    return _kept(path, subject="the vocabulary", read=lambda: _restored(path), make=make, save=save)


def tokens_of(roster: Roster, tokenizer: AbstractTokenizer, *, cache: str) -> TokenTable:
    """Tokens of all captions of a roster; those that were made before are mapped into memory.

    Args:
        roster: of N captions.
        tokenizer: of the run.
        cache: folder of what later starts and runs may use.
    """

    def make() -> TokenTable:
        return TokenTable.encode((sample.caption for sample in roster.samples), tokenizer)

    if len(roster) < MIN_CAPTIONS:
        return make()
    path = _table_path(cache, roster, tokenizer)
    table = _kept(
        path,
        subject=f"the tokens of {roster.name}",
        read=lambda: TokenTable.open(path, number=len(roster)),
        make=make,
        save=lambda table: table.save(path),
    )
    return TokenTable.open(path, number=len(roster)) if path.is_file() else table


def _without(train: Roster, origins: Collection[str]) -> Roster:
    """The roster without samples of such origins; itself where it has none."""
    samples = [sample for sample in train.samples if sample.origin not in origins]
    return train if len(samples) == len(train) else build_roster(train.name, samples)


def _captions(rosters: list[Roster]) -> Iterator[str]:
    return (sample.caption for roster in rosters for sample in roster.samples)


def _table_path(cache: str, roster: Roster, tokenizer: AbstractTokenizer) -> Path:
    content = [type(tokenizer).__name__, tokenizer.state(), roster.fingerprint]
    return _path(cache, content, ".bin")


def _path(cache: str, content: list[Any], suffix: str) -> Path:
    """The file of something that depends on ``content`` and on versions."""
    text = json.dumps([*content, FORMAT, *map(version, PACKAGES)], sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    return Path(cache) / "tokens" / f"{name}{suffix}"


def _restored(path: Path) -> AbstractTokenizer:
    try:
        return restored(read_json(path))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({error})") from error


def _kept(
    path: Path,
    *,
    subject: str,
    read: Callable[[], Value],
    make: Callable[[], Value],
    save: Callable[[Value], object],
) -> Value:
    """What a file holds; where there is none, or a damaged one, it is made and saved.

    One process makes it, others wait. A folder that cannot be written, or has no locks, costs time
    alone: each process makes its own.
    """
    value = _read(path, read)
    if value is not None:
        return value
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock")
        with locked(lock, subject=subject, notify=log.info) as waited:
            value = _read(path, read) if waited else None
            if value is None:
                value = make()
                save(value)
    except OSError as error:
        log.warning(f"{subject} cannot be kept for later starts: {error}")
    return make() if value is None else value


def _read(path: Path, read: Callable[[], Value]) -> Value | None:
    """What a file holds; None where there is no good one."""
    if not path.is_file():
        return None
    try:
        return read()
    except (ValueError, OSError) as error:
        log.warning(f"{error}: it is made anew")
        return None
