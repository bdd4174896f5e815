"""The folder of an augmented dataset; it refuses runs that have other settings or data."""

from __future__ import annotations

import hashlib
import json
import os.path
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from captioning.data.roster import Roster
from captioning.runtime.files import read_json, write_json
from captioning.types import Sample

CARD = "card.json"  # of a set, or of trained weights


def claim_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Record in ``settings.json`` which dataset a folder holds.

    Args:
        folder: new, empty, or of the same set.
        settings: plain values that the set depends on.

    Raises:
        ValueError: the folder holds another set, or something else.
        OSError: the folder cannot be written.
    """
    path, plain = folder / "settings.json", json.loads(json.dumps(settings))
    if path.is_file():
        recorded = read_json(path)
        if recorded != plain:
            raise ValueError(
                f"{folder} holds a dataset with other settings or data (settings.json differs in "
                f"{_differing(recorded, plain)}): choose another out=, or delete the folder"
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no dataset: choose another out=")
    write_json(path, plain)


def _differing(recorded: Any, requested: dict[str, Any]) -> str:
    if not isinstance(recorded, dict):
        return "all"
    keys = sorted({*recorded, *requested})
    return ", ".join(key for key in keys if recorded.get(key) != requested.get(key))


def file_identity(settings: Any, key: str = "") -> dict[str, str]:
    """Hashes of the files that settings name, for `claim_folder`, because contents can change.

    Args:
        settings: plain values, at any depth; text that is the path of a file counts as a file.
        key: key of the settings themselves.

    Returns:
        By dotted key, 16 hex digits of a SHA-256; folders are passed over.

    Raises:
        OSError: a file cannot be read.
    """
    if isinstance(settings, dict | list):
        parts = settings.items() if isinstance(settings, dict) else enumerate(settings)
        identities = (file_identity(value, f"{key}.{name}".lstrip(".")) for name, value in parts)
        return {name: digest for identity in identities for name, digest in identity.items()}
    # not Path.is_file, which refuses text that is too long for a name
    if not isinstance(settings, str) or not os.path.isfile(settings):
        return {}
    with Path(settings).open("rb") as file:
        return {key: hashlib.file_digest(file, "sha256").hexdigest()[:16]}


def data_identity(roster: Roster) -> dict[str, str]:
    """Identity of the source data, including boxes, as a setting for `claim_folder`.

    `Roster.fingerprint` covers ids and captions alone, as journals do not depend on boxes; sets do.

    Args:
        roster: roster with the same regions in all samples of an image.

    Returns:
        ``roster``, its name; ``fingerprint``; and ``boxes``, 16 hex digits of a SHA-256 of regions
        and phrases.
    """
    digest = hashlib.sha256()
    for rows in roster.rows_by_image.values():
        for value in _boxes([roster.samples[row] for row in rows]):
            digest.update(json.dumps(value).encode() + b"\n")
    boxes = digest.hexdigest()[:16]
    return {"roster": roster.name, "fingerprint": roster.fingerprint, "boxes": boxes}


def _boxes(samples: list[Sample]) -> Iterator[list[Any]]:
    """Regions of an image and phrases of its captions, as plain values."""
    yield [(*region.box, region.label, region.score) for region in samples[0].regions]
    for sample in samples:
        # not by dataclasses.astuple, which takes half a minute for COCO
        yield [(p.start, p.text, p.chain_id, p.kinds, p.regions) for p in sample.phrases]
