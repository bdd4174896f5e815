"""The journal ``curation.jsonl``: edits with their reasons, which can be replayed and undone.

The first line names the roster, every further line holds one edit. Commands::

    captioning curate journal show   RUN_OR_FILE
    captioning curate journal undo   RUN_OR_FILE --sample-ids ID ... --epochs 1 2 --policy NAME
    captioning curate journal repair RUN_OR_FILE

`curation.export.apply` makes the edits to the annotations again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from captioning.config.plugins import data_folders
from captioning.data.roster import ACTIONS, CurationView, Roster
from captioning.runtime.files import write_lines
from captioning.types import Edit

FORMAT = "curation-journal"
VERSION = 1
FILE_NAME = "curation.jsonl"
_QUOTED = json.encoder.encode_basestring  # JSON text without escaped non-ASCII
FIELDS = ("sample_id", "action", "value", "origin", "reason", "policy", "epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line of a journal: the annotations that the journal belongs to.

    Attributes:
        roster: name of the dataset and split.
        fingerprint: `Roster.fingerprint`.
        seed: seed of the run that made the edits.
    """

    roster: str
    fingerprint: str
    seed: int = 0

    def line(self) -> str:
        """First line of the file, without the line break."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)})

    def check(self, roster: Roster, where: str) -> None:
        """Raise ValueError if the roster comes from other annotations.

        Raises:
            ValueError: the fingerprints differ.
        """
        if self.fingerprint != roster.fingerprint:
            raise ValueError(
                f"{where} was made for {self.roster!r} with fingerprint {self.fingerprint}, but "
                f"{roster.name!r} has {roster.fingerprint}: use the annotations (same files, same "
                "filters, same planted faults) that the run was started with"
            )


def encode(edit: Edit) -> str:
    """Encode an edit as one JSON line, without the line break."""
    # written by hand, because the standard library's encoder takes three times as long
    value = "null" if edit.value is None else _QUOTED(edit.value)
    return (
        f'{{"sample_id": {_QUOTED(edit.sample_id)}, "action": {_QUOTED(edit.action)}, '
        f'"value": {value}, "origin": {_QUOTED(edit.origin)}, "reason": {_QUOTED(edit.reason)}, '
        f'"policy": {_QUOTED(edit.policy)}, "epoch": {edit.epoch}}}'
    )


def decode(line: str, where: str) -> Edit:
    """Decode an edit from a JSON line.

    Raises:
        ValueError: the line is not JSON or not an edit; the message starts with ``where``.
    """
    record = _object(line, where)
    if record.get("format") == FORMAT:
        raise ValueError(
            f"{where}: the journal has a second header, perhaps because another journal was "
            "appended"
        )
    unknown, missing = record.keys() - set(FIELDS), {"sample_id", "action"} - record.keys()
    if unknown or missing:
        raise ValueError(
            f"{where}: an edit has the keys {', '.join(FIELDS)}: "
            f"unknown {sorted(unknown)}, missing {sorted(missing)}"
        )
    for name, value in record.items():
        expected_type = int if name == "epoch" else str
        if not (isinstance(value, expected_type) or (name == "value" and value is None)):
            raise ValueError(f"{where}: {name} must be a {expected_type.__name__}: got {value!r}")
    if record["action"] not in ACTIONS:
        raise ValueError(f"{where}: action must be one of {ACTIONS}: got {record['action']!r}")
    return Edit(**record)


def write_journal(path: str | Path, header: Header, lines: Iterable[str]) -> None:
    """Write a complete journal; the file is replaced atomically."""
    write_lines(path, (header.line(), *lines))


def append_lines(path: str | Path, lines: Sequence[str]) -> None:
    """Append an epoch's edits in one write, and flush them to disk.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    if not lines:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = "free space and resume the run, which writes its journal again"
        raise OSError(error.errno, f"{error.strerror}; {remedy}", str(path)) from error


def find_journal(path: str | Path) -> Path:
    """Find the journal's file from its path or from the path of its run folder.

    Raises:
        FileNotFoundError: the journal does not exist.
    """
    path = Path(path)
    journal = path / FILE_NAME if path.is_dir() else path
    if not journal.is_file():
        raise FileNotFoundError(
            f"{journal} does not exist; was the run trained with a curation policy?"
        )
    return journal


def read_journal(path: str | Path) -> tuple[Header, list[Edit]]:
    """Read the header and the edits of a journal.

    Raises:
        FileNotFoundError: the journal does not exist.
        ValueError: an empty or foreign file, a line cut off, a line that is not an edit, or a
            duplicate edit; the message names the file, the line and the remedy.
    """
    path = find_journal(path)
    lines = _decoded(path.read_bytes(), path).split("\n")
    if lines.pop():
        raise ValueError(
            f"{path} line {len(lines) + 1} is cut off, as when a run is killed while "
            f"writing; drop it with: captioning curate journal repair {path}"
        )
    header = _header(lines[0] if lines else "", f"{path} line 1")
    edits = [decode(line, f"{path} line {n}") for n, line in enumerate(lines[1:], start=2)]
    _check_once(edits, path)
    return header, edits


def _check_once(edits: Sequence[Edit], path: Path) -> None:
    """Raise ValueError if one sample has two equal kinds of edit in one epoch."""
    first: dict[tuple[str, str, str, int], int] = {}
    for number, edit in enumerate(edits, start=2):
        key = (edit.sample_id, edit.action, edit.policy, edit.epoch)
        earlier = first.setdefault(key, number)
        if earlier == number:
            continue
        where = f"{path} line {number}: {edit.action} of {edit.sample_id!r} in epoch {edit.epoch}"
        if edit == edits[earlier - 2]:
            remedy = f"remove it with: captioning curate journal repair {path}"
        else:
            remedy = "resume the run, which writes its journal again, or remove one of the lines"
        raise ValueError(
            f"{where} is in line {earlier} already, as when two programs write one journal; "
            f"{remedy}"
        )


def replay(roster: Roster, path: str | Path) -> CurationView:
    """Return the roster with a journal's edits applied.

    Raises:
        ValueError: the journal is damaged, belongs to other annotations, names unknown samples, or
            holds an edit of a removed one.
    """
    return made_edits(roster, find_journal(path), *read_journal(path))


def made_edits(roster: Roster, path: Path, header: Header, edits: Sequence[Edit]) -> CurationView:
    """Apply the edits of a journal that was already read from the file ``path``.

    Pictures that it names must lie in its folder, where the roster's photos are, or in the user's
    data folders.
    """
    header.check(roster, str(path))
    try:
        view = CurationView(roster=roster, image_root=path.parent, confined=data_folders())
        return view.apply(edits)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """Result of an undo: the remaining journal and the edits that were undone.

    Attributes:
        journal: the edits that stay, in order.
        undone: the requested edits.
        followed: later edits of the same samples: they judged the result of an undone edit, so they
            are undone with it.
    """

    journal: tuple[Edit, ...]
    undone: tuple[Edit, ...]
    followed: tuple[Edit, ...]


def undo(
    journal: Sequence[Edit],
    *,
    sample_ids: Collection[str] | None = None,
    epochs: Collection[int] | None = None,
    policy: str | None = None,
) -> Undone:
    """Undo the edits that match all criteria, and later edits that depend on them.

    Raises:
        ValueError: no criterion is given, or no edit matches.
    """
    if sample_ids is None and epochs is None and policy is None:
        raise ValueError("choose the edits to undo with sample_ids, epochs or policy")
    remaining: list[Edit] = []
    undone: list[Edit] = []
    followed: list[Edit] = []
    touched: set[str] = set()
    for edit in journal:
        if (
            (sample_ids is None or edit.sample_id in sample_ids)
            and (epochs is None or edit.epoch in epochs)
            and (policy is None or edit.policy == policy)
        ):
            undone.append(edit)
            touched.add(edit.sample_id)
        elif edit.sample_id in touched:
            followed.append(edit)
        else:
            remaining.append(edit)
    if not undone:
        raise ValueError(
            f"no edit matches sample_ids={sample_ids}, epochs={epochs}, policy={policy!r}; "
            "look at the journal with: captioning curate journal show"
        )
    return Undone(journal=tuple(remaining), undone=tuple(undone), followed=tuple(followed))


def edit_counts(edits: Iterable[Edit]) -> list[tuple[tuple[int, str, str], int]]:
    """Count the edits of each ``(epoch, policy, action)``, in this order."""
    return sorted(Counter((edit.epoch, edit.policy, edit.action) for edit in edits).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """Lines that `repair` dropped from a journal.

    Attributes:
        cut: the last line, where it was cut off.
        doubles: line numbers of edits that stood in an earlier line, word for word.
    """

    cut: str | None
    doubles: tuple[int, ...]


def repair(path: str | Path) -> Repaired:
    """Drop an incomplete last line, and lines that occur twice.

    Raises:
        FileNotFoundError: the journal does not exist.
        ValueError: the file has other damage; the file is not changed.
    """
    path = find_journal(path)
    # bytes, not text: the last line may end within a character
    complete, _, rest = path.read_bytes().rpartition(b"\n")
    lines = _decoded(complete, path).split("\n")
    header = _header(lines[0], f"{path} line 1")
    first: dict[str, int] = {}
    numbered = enumerate(lines[1:], start=2)
    doubles = tuple(n for n, line in numbered if first.setdefault(line, n) != n)
    if rest or doubles:
        write_journal(path, header, first)
    return Repaired(cut=rest.decode("utf-8", errors="replace") or None, doubles=doubles)


def _header(line: str, where: str) -> Header:
    record = _object(line, where) if line else {}
    if record.get("format") != FORMAT:
        raise ValueError(f"{where} is not a curation journal (no header with format {FORMAT!r})")
    if record.get("version") != VERSION:
        raise ValueError(
            f"{where} has version {record.get('version')!r}, but this program reads {VERSION}"
        )
    try:
        return Header(
            roster=str(record["roster"]),
            fingerprint=str(record["fingerprint"]),
            seed=int(record.get("seed", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: the header has no valid {error}") from error


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}): {line[:80]!r}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where} must be a JSON object: got {line[:80]!r}")
    return record


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path} line {number} is not UTF-8; for the last line, run: captioning curate journal "
            f"repair {path}; else resume the run to write the journal again"
        ) from error
