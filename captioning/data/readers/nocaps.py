"""Read nocaps (Agrawal et al., 2019): the COCO layout with a domain for each image."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from captioning.config.loadable import loadable
from captioning.data.json_files import Record
from captioning.data.readers.coco import coco_entries, load_annotations
from captioning.data.readers.entries import PhotoPolicy, Rules, roster_from_entries
from captioning.data.roster import Roster

Domain = Literal["in", "near", "out"]
DOMAINS = {"in-domain": "in", "near-domain": "near", "out-domain": "out"}


@loadable
def read_nocaps(
    *,
    name: str,
    annotations: str | Path,
    image_folder: str | Path | None,
    domain: Domain | None = None,
    missing_photos: PhotoPolicy = "error",
) -> Roster:
    """Read nocaps' captions of one domain or of all.

    Args:
        name: the roster's name.
        annotations: ``nocaps_val_4500_captions.json`` (the test captions are withheld).
        image_folder: folder to search for ``file_name``; None: captions alone.
        domain: ``in``, ``near`` or ``out``; None for all images.
        missing_photos: ``"error"`` or ``"drop"`` for an image without its photo.

    Raises:
        FileNotFoundError: the file or the photo folder is not there.
        ValueError: an unknown domain, or anything in the file that is not as nocaps has it.
    """
    if domain is not None and domain not in DOMAINS.values():
        raise ValueError(f"domain must be in, near, out or null: got {domain!r}")
    document = load_annotations(annotations)
    domains = _domains(document)
    entries = coco_entries([document])
    return roster_from_entries(
        name=name,
        source=str(annotations),
        entries=[entry for entry in entries if domain in (None, domains[entry.image_id])],
        known_files=[entry.file_name for entry in entries],
        image_folder=image_folder,
        rules=Rules(missing_photos=missing_photos),
    )


@loadable
def read_domains(annotations: str | Path) -> dict[str, str]:
    """Return ``in``, ``near`` or ``out`` by image id, for scores by domain.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: an image without one of the three domains.
    """
    return _domains(load_annotations(annotations))


def _domains(document: Record) -> dict[str, str]:
    domains: dict[str, str] = {}
    for record in document.records("images"):
        domain = record.text("domain")
        if domain not in DOMAINS:
            raise record.invalid("domain", f"one of {list(DOMAINS)}")
        domains[record.identifier("id")] = DOMAINS[domain]
    return domains
