"""The keep-list: samples that people reviewed and that no policy may edit (``curation.keep=FILE``).

The page of ``captioning report`` writes it, as JSON with the keys of `KeepList`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.data.roster import Roster
from captioning.runtime.files import read_json, write_json

FILE_NAME = "keep.json"
FORMAT = "curation-keep"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepList:
    """Samples that a reviewer protected from all edits.

    Attributes:
        roster: name of the dataset and split.
        fingerprint: `Roster.fingerprint` of the reviewed annotations.
        sample_ids: never edited.
        accepted: edits that a reviewer approved; kept so that a review can resume.
    """

    roster: str
    fingerprint: str
    sample_ids: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()

    def check(self, roster: Roster, where: str) -> None:
        """Raise ValueError if the roster comes from other annotations or lacks an id.

        Raises:
            ValueError: the fingerprints differ, or an id is unknown.
        """
        unknown = [sample_id for sample_id in self.sample_ids if sample_id not in roster.by_id]
        if self.fingerprint != roster.fingerprint or unknown:
            missing = (
                f"; it lacks {len(unknown)} samples, such as {unknown[0]!r}" if unknown else ""
            )
            raise ValueError(
                f"{where} is a keep-list for {self.roster!r} with fingerprint {self.fingerprint}, "
                f"but {roster.name!r} has {roster.fingerprint}{missing}: use the annotations (same "
                "files, same filters, same planted faults) of the reviewed run"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that the file stores."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "roster": self.roster,
            "fingerprint": self.fingerprint,
            "sample_ids": list(self.sample_ids),
            "accepted": list(self.accepted),
        }


def write_keep(keep: KeepList, path: str | Path) -> None:
    """Write a keep-list as JSON."""
    write_json(path, keep.to_dict())


def read_keep(path: str | Path) -> KeepList:
    """Read a keep-list from its file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a keep-list; the message names file and key.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path} does not exist; save a keep-list from the page of captioning report, or set "
            "curation.keep=null"
        )
    record = read_json(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{path} is not a keep-list (format must be {FORMAT!r})")
    if record.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {record.get('version')!r}, but this program reads {VERSION}"
        )
    return KeepList(
        roster=_text(record, "roster", path),
        fingerprint=_text(record, "fingerprint", path),
        sample_ids=_ids(record, "sample_ids", path),
        accepted=_ids(record, "accepted", path),
    )


def _text(record: dict[str, Any], key: str, path: str | Path) -> str:
    if not isinstance(record.get(key), str):
        raise ValueError(f"{path}: {key!r} must be a text: got {record.get(key)!r}")
    return record[key]


def _ids(record: dict[str, Any], key: str, path: str | Path) -> tuple[str, ...]:
    values = record.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{path}: {key!r} must be a list of sample ids")
    return tuple(dict.fromkeys(values))
