"""Applies a journal's edits to the annotations of its run; needs no photos.

::

    captioning curate apply curation.jsonl captions_train2014.json [--out curated.json]
    captioning curate apply curation.jsonl dataset_flickr8k.json --split train
    captioning curate apply curation.jsonl Flickr8k.token.txt --images Flickr_8k.trainImages.txt
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from captioning.data.roster import CurationView, Roster
from captioning.files import write_lines, write_text
from captioning.types import Edit
from curation.export.annotations import read_annotations
from curation.export.card import card
from curation.export.curated_set import Picture, pictures, write_coco, write_jsonl
from curation.journal.journal import Header, find_journal, read_journal, replay


def apply(journal: str | Path, roster: Roster) -> CurationView:
    """The annotations with the journal's edits applied.

    Raises:
        FileNotFoundError, ValueError: see `curation.journal.journal.replay`; for other annotations
            than the run's, the message says how many of the edited samples they hold.
    """
    header, edits = read_journal(journal)
    try:
        header.check(roster, str(find_journal(journal)))
    except ValueError as error:
        raise ValueError(f"{error}; {_difference(header, edits, roster)}") from error
    return replay(roster, journal)


def _difference(header: Header, edits: Sequence[Edit], roster: Roster) -> str:
    names = {edit.sample_id for edit in edits}
    known = sum(name in roster.by_id for name in names)
    if known < len(names):
        return (
            f"{known} of the {len(names)} edited samples are among these {len(roster)}: is it "
            "another data set or split (--split, --images), or was the journal applied before?"
        )
    return (
        f"all {len(names)} edited samples are among these {len(roster)}, but not all captions are "
        "those of the run: more or fewer images (--split, --images), planted faults, or a journal "
        "that was applied before?"
    )


def apply_to_files(
    *,
    journal: str,
    annotations: Sequence[str],
    out: str | None = None,
    split: str | None = None,
    images: str | None = None,
) -> tuple[Path, CurationView]:
    """Write annotations with a journal's edits, and a card beside them.

    Args:
        journal: its file, or a run folder.
        annotations: COCO or Karpathy JSON, token file, or JSON Lines.
        out: ``.json`` (COCO), ``.jsonl`` or ``.token.txt``; None for a file beside the first.
        split: of a Karpathy file.
        images: list of the split's images or image ids, one a line.

    Returns:
        The file, and what stands in it.

    Raises:
        ValueError, OSError: see `apply`; or ``out`` exists, or has another ending.
    """
    path = Path(out or _default_out(Path(annotations[0])))
    write = _writer(path)
    _check_out(path, [journal, *annotations])
    view = apply(journal, read_annotations(annotations, split=split, images=images))
    header, _ = read_journal(journal)
    # the run's name for the set, not the path of the file that it was read from
    view = replace(view, roster=replace(view.roster, name=header.roster))
    write(pictures(view), path, header.roster)
    text = card(view, header, files={path.name: "the captions"})
    write_text(path.with_name(f"{path.stem}.README.md"), text)
    return path, view


def _default_out(annotations: Path) -> Path:
    suffix = annotations.suffix if annotations.suffix in (".json", ".jsonl") else ".token.txt"
    stem = annotations.name.removesuffix(".txt").removesuffix(annotations.suffix)
    return annotations.with_name(f"{stem.removesuffix('.token')}.curated{suffix}")


def _check_out(out: Path, inputs: Sequence[str]) -> None:
    if out.exists():
        is_input = any(Path(path).exists() and out.samefile(path) for path in inputs)
        problem = "is one of the inputs" if is_input else "exists already"
        raise ValueError(f"{out} {problem}; choose another --out")


def _writer(out: Path) -> Callable[[Sequence[Picture], Path, str], None]:
    if out.suffix == ".json":
        return lambda curated, path, name: write_coco(curated, path, name=name)
    if out.suffix == ".jsonl":
        return lambda curated, path, name: write_jsonl(curated, path)
    if out.suffix in (".txt", ".token"):
        return lambda curated, path, name: _write_tokens(curated, path)
    raise ValueError(f"{out}: the format is told by the name: .json (COCO), .jsonl or .token.txt")


def _write_tokens(curated: Sequence[Picture], path: Path) -> None:
    """Flickr8k's token file; the captions of a picture are numbered anew where some are gone."""
    write_lines(
        path,
        (
            f"{picture.file_name}#{number}\t{' '.join(sample.caption.split())}"
            for picture in curated
            for number, sample in enumerate(picture.samples)
        ),
    )
