"""A journal's edits made to the annotations that they were decided on; no photos are needed.

::

    captioning curate apply curation.jsonl captions_train2014.json [--out curated.json]
    captioning curate apply curation.jsonl dataset_flickr8k.json --split train
    captioning curate apply curation.jsonl Flickr8k.token.txt --images Flickr_8k.trainImages.txt
"""

from __future__ import annotations

import argparse
import sys
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
    """The annotations with the journal's edits made to them.

    Raises:
        FileNotFoundError, ValueError: see `curation.journal.journal.replay`; where the annotations
            are others, the message says how many of the edits' samples they know.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; errors of the user's making are one line on stderr and status 2."""
    options = _parser().parse_args(arguments)
    first = Path(options.annotations[0])
    out = Path(options.out or _beside(first))
    try:
        write = _writer(out)
        _check_out(out, [options.journal, *options.annotations])
        roster = read_annotations(options.annotations, split=options.split, images=options.images)
        view = apply(options.journal, roster)
        header, _ = read_journal(options.journal)
        # the run's name for the set, not the path of the file that it was read from
        view = replace(view, roster=replace(roster, name=header.roster))
        write(pictures(view), out, header.roster)
        told = card(view, header, files={out.name: "the captions"})
        write_text(out.with_name(f"{out.stem}.README.md"), told)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{out}: {len(view.samples())} of {len(roster)} captions, {len(view.journal)} edits made")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="captioning curate apply")
    parser.add_argument("journal", help="journal, or a run folder")
    parser.add_argument("annotations", nargs="+", help="COCO or Karpathy JSON, token file, JSONL")
    parser.add_argument("--out", help=".json (COCO), .jsonl or .token.txt; default beside them")
    parser.add_argument("--split", help="of a Karpathy file")
    parser.add_argument("--images", help="list of the split's images or image ids, one a line")
    return parser


def _beside(annotations: Path) -> Path:
    suffix = annotations.suffix if annotations.suffix in (".json", ".jsonl") else ".token.txt"
    stem = annotations.name.removesuffix(".txt").removesuffix(annotations.suffix)
    return annotations.with_name(f"{stem.removesuffix('.token')}.curated{suffix}")


def _check_out(out: Path, inputs: Sequence[str]) -> None:
    if out.exists():
        same = any(Path(one).exists() and out.samefile(one) for one in inputs)
        what = "is one of the inputs" if same else "exists already"
        raise ValueError(f"{out} {what}; choose another --out")


def _writer(out: Path) -> Callable[[Sequence[Picture], Path, str], None]:
    if out.suffix == ".json":
        return lambda found, path, name: write_coco(found, path, name=name)
    if out.suffix == ".jsonl":
        return lambda found, path, name: write_jsonl(found, path)
    if out.suffix in (".txt", ".token"):
        return lambda found, path, name: _write_tokens(found, path)
    raise ValueError(f"{out}: the format is told by the name: .json (COCO), .jsonl or .token.txt")


def _write_tokens(found: Sequence[Picture], path: Path) -> None:
    """Flickr8k's token file; the captions of a picture are numbered anew where some are gone."""
    write_lines(
        path,
        (
            f"{one.file_name}#{number}\t{' '.join(sample.caption.split())}"
            for one in found
            for number, sample in enumerate(one.samples)
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())
