"""Apply a journal's edits to the annotations of its run.

::

    captioning curate apply curation.jsonl captions_train2014.json [--out curated.json]
    captioning curate apply curation.jsonl dataset_flickr8k.json --split train
    captioning curate apply curation.jsonl Flickr8k.token.txt --images Flickr_8k.trainImages.txt
    captioning curate apply curation.jsonl captions.csv
    captioning curate apply curation.jsonl FOLDER --format parquet --out NEW

COCO's and Karpathy's JSON, token files and JSON Lines are read without photos, and one file is
written. Everything else that ``data=own`` reads is read as there: tables become a table, and
folders a new folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from captioning.data.readers import imagefolder
from captioning.data.readers.arrow_files import SUFFIXES
from captioning.data.readers.coco import read_coco
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.readers.jsonl import read_jsonl
from captioning.data.readers.karpathy import read_karpathy
from captioning.data.readers.own.kinds import Kind
from captioning.data.readers.own.layout import recognise
from captioning.data.readers.own.marks import splits_by_id
from captioning.data.readers.own.own import read_own
from captioning.data.readers.packed import Part
from captioning.data.readers.split_words import Split
from captioning.data.roster import CurationView, Roster, build_roster
from captioning.runtime.files import is_taken, write_lines, write_text
from captioning.runtime.model_folder import data_folder
from captioning.types import Edit, Sample
from curation.check.check_files import HELD_OUT, draw_splits
from curation.check.folder_check import LENIENT, read_questions, read_splits
from curation.export.curated_set import Picture, of_splits, pictures, write_coco, write_jsonl
from curation.export.export import HOLD_PHOTOS, export
from curation.export.set_card import card
from curation.export.tool_files import Style, write_csv, write_karpathy
from curation.journal.journal import Header, find_journal, read_journal, replay
from curation.record import RunRecord

# Format of a new folder by layout, if the format stores ids; JSON Lines for other layouts.
FORMAT_OF: dict[Kind, str] = {
    "imagefolder": "imagefolder", "token_file": "jsonl", "karpathy": "karpathy", "coco": "coco",
    "jsonl": "jsonl", "table": "csv", "arrow": "parquet", "webdataset": "webdataset",
    "concepts": "imagefolder", "text_files": "imagefolder", "file_names": "imagefolder",
}  # fmt: skip
PACKED = (*SUFFIXES, ".tar")
ENDINGS = (".json", ".jsonl", ".csv", ".txt", ".token")
# Reader arguments that also help to recognise the layout.
OF_LAYOUT = {
    "layout": "kind", "annotations": "annotations", "file_column": "file_column",
    "caption_columns": "caption_columns",
}  # fmt: skip
MISSING = "photo missing"  # the rule name under which readers drop such captions
HELD_BACK: tuple[Split, ...] = ("val", "test")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Settings for reading folders and tables as the journal's run or check read them.

    Attributes:
        options: arguments of `captioning.data.readers.own.own.read_own`, such as ``layout``.
        held_out: share of the photos in a drawn split; 0: no split is drawn.
        seed: seed of the draw of the journal's run.
        keys_folder: caches hashes of photos; None: they are computed each time.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    held_out: float = HELD_OUT
    seed: int = 0
    keys_folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Edited:
    """A dataset with the edits of a journal applied.

    Attributes:
        view: view of the part that the journal is of.
        kind: kind of the set's layout.
        splits: splits by path as the dataset names them, for a journal of the whole dataset.
        beside: the other splits, for a journal of the training split.
        has_photos: whether the photos were looked for and found.
        questions: questions of the set, by sample id.
    """

    view: CurationView
    kind: Kind
    splits: Mapping[Path, Split] = field(default_factory=dict)
    beside: Mapping[Split, Roster] = field(default_factory=dict)
    has_photos: bool = False
    questions: Mapping[str, str] = field(default_factory=dict)


def apply(journal: str | Path, roster: Roster) -> CurationView:
    """Return the annotations with the journal's edits applied.

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
            "another dataset or split (--split, --images), or was the journal applied before?"
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
    split: Split | None = None,
    images: str | None = None,
    format: str | None = None,
    photos: str | None = None,
    reading: Reading | None = None,
) -> tuple[Path, CurationView, str, int]:
    """Write annotations with a journal's edits applied, and a dataset card.

    Args:
        journal: its file, or a run folder.
        annotations: COCO or Karpathy JSON, token file, JSON Lines, table; or a folder in any layout
            of `captioning.data.readers.own.own.read_own`.
        out: ``.json`` (COCO, or Karpathy's of such a file), ``.jsonl``, ``.csv`` or ``.token.txt``;
            of a folder, and with ``format``, a folder. None: beside the first, or named after it.
        split: the journal's split of a Karpathy file or a folder.
        images: list of the split's images or image ids, one per line.
        format: one of `curation.export.export.FORMATS`, of a new folder.
        photos: one of `curation.export.export.PHOTOS`, of a new folder.
        reading: reading of folders and tables.

    Returns:
        The file or folder, the outcome for the journal's part, the format (empty for a file), and
        the number of captions written in all splits.

    Raises:
        ValueError, OSError: see `apply`; or ``out`` exists, or has another ending.
    """
    first, reading = Path(annotations[0]), reading or Reading()
    is_plain = _is_plain(first, len(annotations))
    if format is not None or _is_folder(first):
        if images is not None or len(annotations) > 1:
            raise ValueError(
                f"{first}: --images and several input files work only without --format and "
                "without folders: remove --format, and name only files"
            )
        return _apply_to_folder(journal, first, out, split, format, photos, reading)
    if photos is not None:
        raise ValueError("--photos applies only to a new folder: choose a folder with --format")
    path = Path(out or _default_out(first))
    if path.suffix not in ENDINGS:
        raise ValueError(
            f"{path}: the suffix sets the format: .json (COCO), .jsonl, .csv or .token.txt; "
            "--format writes a folder"
        )
    _check_out(path, [journal, *annotations])
    if is_plain:
        edited = _read_plain(journal, annotations, split, images, reading)
    elif images is not None:
        raise ValueError(f"{first}: --images works only with COCO JSON and token files: remove it")
    else:
        edited = _read_set(journal, first, split, reading)
    header, _ = read_journal(journal)
    count = _write_file(edited, path, header.roster)
    text = card(edited.view, header, files={path.name: "the captions"})
    write_text(path.with_name(f"{path.stem}.README.md"), text)
    return path, edited.view, "", count


def _is_folder(first: Path) -> bool:
    """Return whether to read a whole dataset and not only one of its files."""
    is_hub = "@" in str(first) and not first.exists()
    return first.is_dir() or is_hub or first.name in (imagefolder.LINES, imagefolder.TABLE)


def _is_plain(first: Path, number: int) -> bool:
    """Return whether `read_annotations` can read a file."""
    if str(first).startswith("pycocoevalcap:") or number > 1:
        return True
    if _is_folder(first):
        return False
    if not first.is_file():
        return True  # whose message explains the problem
    if first.suffix in PACKED:
        raise ValueError(
            f"{first}: shards, Parquet and Arrow files are read by folder: give {first.parent}"
        )
    with first.open("rb") as file:
        head = file.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if first.suffix in (".json", ".jsonl"):
        return not head.startswith(b"[")
    return b"#0\t" in head


def _read_plain(
    journal: str,
    annotations: Sequence[str],
    split: Split | None,
    images: str | None,
    reading: Reading,
) -> Edited:
    """Read a file without its photos; if it does not match the journal, read it as a dataset."""
    try:
        view = apply(journal, read_annotations(annotations, split=split, images=images))
    except ValueError as error:
        if split is not None or images is not None or len(annotations) > 1:
            raise
        try:
            return _read_set(journal, Path(annotations[0]), "all", reading)
        except (ValueError, OSError):
            raise error from None
    first = Path(annotations[0])
    splits: dict[Path, Split] = {}
    if first.suffix in (".json", ".jsonl") and len(annotations) == 1 and split is None:
        said = splits_by_id(first)
        splits = {s.image_path: said[s.image_id] for s in view.roster.samples if said}
    return Edited(view=_named(view, journal), kind="coco", splits=splits)


def _read_set(journal: str, first: Path, part: Part | None, reading: Reading) -> Edited:
    """Read a folder, or the folder of a file, and apply the journal's edits.

    Raises:
        ValueError, OSError: the dataset is unreadable, or does not match the journal.
    """
    folder, options = first, dict(reading.options)
    if not first.is_dir() and "@" not in str(first):
        folder, options["annotations"] = first.parent, first.name
    header, edits = read_journal(journal)
    problems: list[Exception] = []
    is_whole = False
    for rules in _ways(part, reading):
        if is_whole and rules["missing_photos"] == "keep":  # would give the same result
            continue
        try:
            roster = read_own(name=header.roster, folder=folder, **options, **rules)
        except (ValueError, OSError) as error:
            problems.append(error)
            continue
        if roster.fingerprint == header.fingerprint:
            return _edited(journal, folder, roster, options, rules)
        problems.append(_mismatch(journal, header, edits, roster))
        is_whole = not any(item.rule == MISSING for item in roster.dropped)
    raise problems[0]


def _ways(part: Part | None, reading: Reading) -> Iterator[dict[str, Any]]:
    """Yield reading options that the journal's run or check may have used, likeliest first.

    A check reads all photos; a run reads training photos, with or without drawn splits. Photos may
    be missing by now.
    """
    draw = {"held_out": reading.held_out or HELD_OUT, "seed": reading.seed}
    draw["keys_folder"] = reading.keys_folder
    parts: Sequence[Part] = ("all", "train") if part is None else (part,)
    for chosen in parts:
        by: Sequence[str] = ("content",) if chosen == "all" else ("content", "name")
        for split_by in by:
            for missing in ("drop", "keep"):
                rules = {**LENIENT, "missing_photos": missing}
                yield {"part": chosen, "split_by": split_by, **draw, **rules}


def _mismatch(journal: str, header: Header, edits: Sequence[Edit], roster: Roster) -> ValueError:
    try:
        header.check(roster, str(find_journal(journal)))
    except ValueError as error:
        return ValueError(f"{error}; {_difference(header, edits, roster)}")
    raise AssertionError("the fingerprints are equal")


def _edited(
    journal: str,
    folder: Path,
    roster: Roster,
    options: Mapping[str, Any],
    rules: Mapping[str, Any],
) -> Edited:
    view, part = replay(roster, journal), rules["part"]
    given = {OF_LAYOUT[key]: value for key, value in options.items() if key in OF_LAYOUT}
    splits: Mapping[Path, Split] = {}
    beside: dict[Split, Roster] = {}
    missing = rules["missing_photos"]
    if part == "all":
        splits = read_splits(folder, **{**options, "missing_photos": missing})
    elif part == "train":
        for split in HELD_BACK:
            rules = {**rules, "part": split}
            beside[split] = read_own(name=split, folder=folder, **options, **rules)
    layout = recognise(data_folder(folder), **given)
    return Edited(
        view=view,
        kind=layout.kind,
        splits=splits,
        beside=beside,
        has_photos=missing == "drop",
        questions=read_questions(folder, roster, **options),
    )


def _named(view: CurationView, journal: str) -> CurationView:
    """Rename a roster to the name in the journal; files would otherwise be named by their path."""
    header, _ = read_journal(journal)
    return replace(view, roster=replace(view.roster, name=header.roster))


def _apply_to_folder(
    journal: str,
    first: Path,
    out: str | None,
    split: Split | None,
    format: str | None,
    photos: str | None,
    reading: Reading,
) -> tuple[Path, CurationView, str, int]:
    """Apply edits to a folder and write a new folder, see `apply_to_files`."""
    name = first.parent.resolve().name if first.is_file() else first.resolve().name
    path = Path(out or f"{name.partition('@')[0]}-curated")
    if is_taken(path):
        raise ValueError(f"{path} exists and is not empty; choose another --out")
    edited = _read_set(journal, first, split, reading)
    format = format or _format_of(edited)
    header, _ = read_journal(journal)
    splits, told = edited.splits, ""
    if not edited.beside and split is None:
        splits, told = draw_splits(edited.view, splits, reading.held_out, reading.keys_folder)
    count = export(
        RunRecord(policy="", seed=header.seed, view=edited.view),
        None,
        path,
        format=format,
        photos=photos or ("copy" if format in HOLD_PHOTOS else "none"),
        splits=splits,
        style=Style(questions=edited.questions),
        about_splits=told,
        beside=edited.beside,
    )
    return path, edited.view, format, count


def _format_of(edited: Edited) -> str:
    """Choose the format closest to the layout that stores ids and needs no missing photos."""
    if edited.questions:
        return "messages"
    format = FORMAT_OF.get(edited.kind, "jsonl")
    return "jsonl" if format in HOLD_PHOTOS and not edited.has_photos else format


def _default_out(annotations: Path) -> Path:
    suffix = ".token.txt"
    if annotations.suffix in (".json", ".jsonl"):
        suffix = annotations.suffix
    elif not _is_plain(annotations, 1):
        suffix = ".csv"
    stem = annotations.name.removesuffix(".txt").removesuffix(annotations.suffix)
    return annotations.with_name(f"{stem.removesuffix('.token')}.curated{suffix}")


def _check_out(out: Path, inputs: Sequence[str]) -> None:
    if out.exists():
        is_input = any(Path(path).exists() and out.samefile(path) for path in inputs)
        problem = "is one of the inputs" if is_input else "exists already"
        raise ValueError(f"{out} {problem}; choose another --out")


def _write_file(edited: Edited, path: Path, name: str) -> int:
    """Write one file in the format of its suffix, and return its number of captions.

    Raises:
        ValueError: the dataset has several splits, but the format stores only one.
    """
    curated = pictures(edited.view, edited.splits, edited.beside)
    splits = [split for split, _ in of_splits(curated)]
    if path.suffix == ".csv":
        write_csv(curated, path)
    elif path.suffix == ".json" and edited.kind == "karpathy":
        write_karpathy(curated, path, name=name)
    elif len(splits) > 1 and path.suffix not in (".json", ".jsonl"):
        raise ValueError(
            f"{path}: a file of this format holds one split, but the dataset has "
            f"{', '.join(map(str, splits))}: choose --format, which writes a folder with all, or "
            "give --out FILE.csv"
        )
    elif path.suffix == ".json":
        write_coco(curated, path, name=name)
    elif path.suffix == ".jsonl":
        write_jsonl(curated, path)
    else:
        _write_tokens(curated, path)
    return sum(len(picture.samples) for picture in curated)


def _write_tokens(curated: Sequence[Picture], path: Path) -> None:
    """Write Flickr8k's token file; renumber the captions of an image if some were removed."""
    write_lines(
        path,
        (
            f"{picture.file_name}#{number}\t{' '.join(sample.caption.split())}"
            for picture in curated
            for number, sample in enumerate(picture.samples)
        ),
    )


ROSTER_FIELDS = ("sample_id", "image_id", "image_path", "caption")
HEAD_BYTES = 1 << 16  # bytes to read from a file's start to recognise its format


def read_annotations(
    paths: Sequence[str | Path], *, split: str | None = None, images: str | Path | None = None
) -> Roster:
    """Read the captions of a split as a run reads them.

    Args:
        paths: COCO captions JSON (several are read as one), a Karpathy ``dataset_*.json``,
            Flickr8k's token file, or JSON Lines: of captions by image, or of samples with
            `ROSTER_FIELDS`.
        split: split of a Karpathy file: ``train``, ``val`` or ``test``.
        images: list of the split's images (Flickr8k) or image ids (COCO), one per line.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the format is unknown, or ``split`` does not apply to it.
    """
    first = Path(paths[0])
    text = str(first)
    if not text.startswith("pycocoevalcap:") and not first.is_file():
        raise FileNotFoundError(f"{first} does not exist: name an annotation file")
    kind = _kind(first)
    if kind != "COCO captions" and len(paths) > 1:
        raise ValueError(
            f"{first} holds {kind}, which can only be read as a single file: give one file"
        )
    if (kind == "Karpathy's JSON") != (split is not None):
        remedy = "say which with --split" if split is None else "it has no splits: remove --split"
        raise ValueError(f"{first} was read as {kind}; {remedy}")
    if images is not None and kind not in ("COCO captions", "a token file"):
        raise ValueError(f"{first} was read as {kind}: remove --images")
    if kind == "Karpathy's JSON":
        options: dict[str, Any] = {"image_folder": None, "split": split}
        return read_karpathy(name=text, annotations=first, **options)
    if kind == "COCO captions":
        return read_coco(
            name=text,
            annotations=list(paths),
            image_folder=None,
            image_ids=images,
            missing_captions="drop",
        )
    if kind == "a token file":
        return read_flickr8k(name=text, token_file=first, image_folder=None, split_file=images)
    if kind == "samples as JSON Lines":
        return read_samples(first)
    return read_jsonl(name=text, annotations=first, image_folder=None)


def _kind(path: Path) -> str:
    if str(path).startswith("pycocoevalcap:"):
        return "COCO captions"
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if path.suffix == ".jsonl":
        line = head.split(b"\n")[0]
        return "samples as JSON Lines" if b'"sample_id"' in line else "JSON Lines"
    if path.suffix == ".json":
        return "Karpathy's JSON" if b'"sentences"' in head else "COCO captions"
    return "a token file"


def read_samples(path: str | Path) -> Roster:
    """Read a roster from JSON Lines with one sample on each line.

    Raises:
        ValueError: a line is not an object with the four text fields, or an id repeats.
    """
    samples = []
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save the file as UTF-8") from error
    for number, line in enumerate(lines, start=1):
        if line:
            samples.append(_sample(line, f"{path} line {number}"))
    return build_roster(str(path), samples)


def _sample(line: str, where: str) -> Sample:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error})") from error
    if not isinstance(record, dict) or not all(
        isinstance(record.get(name), str) for name in ROSTER_FIELDS
    ):
        raise ValueError(f"{where} must be an object with the texts {', '.join(ROSTER_FIELDS)}")
    return Sample(
        row=0,
        sample_id=record["sample_id"],
        image_id=record["image_id"],
        image_path=Path(record["image_path"]),
        caption=record["caption"],
    )
