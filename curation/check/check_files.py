"""Write the result files of ``captioning check``."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from captioning.data.readers.own.own import with_drawn
from captioning.data.readers.split_words import Split
from captioning.data.roster import CurationView
from captioning.runtime.files import is_taken, write_text
from curation.check.check_page import write_page
from curation.check.mend import left_unmended, mendable, shortenings
from curation.check.result import CSV_NAME, PAGE_NAME, PARQUET_NAME, POLICY, CheckResult
from curation.check.sentence_checks import NAME as SENTENCES
from curation.export.export import HOLD_PHOTOS, export
from curation.export.tool_files import Style
from curation.record import RunRecord

Mend = Literal["words", "sentences"]
HELD_OUT, SEED = 0.1, 0  # of the draw, as configs/data/own.yaml has them


def export_cleaned(
    result: CheckResult,
    folder: str | Path,
    *,
    format: str,
    photos: str | None = None,
    mend: Mend | None = None,
    seed: int = 0,
    style: Style | None = None,
    held_out: float = HELD_OUT,
    keys_folder: str | Path | None = None,
) -> int:
    """Write the captions that no check flags, and return the number of these captions.

    A folder without splits gets the splits that ``data=own`` draws, so that the same photos are
    held out of a training on the cleaned set.

    Args:
        result: a check's result.
        folder: new or empty.
        format: one of `curation.export.export.FORMATS`.
        photos: ``"copy"``, ``"link"`` or ``"none"``; None: as the format needs.
        mend: ``"words"`` keeps captions in which only one word is surely wrong, with the word
            replaced, see `curation.check.mend.mendable`; ``"sentences"`` takes sentences that do
            not fit the photo out of captions, see `curation.check.mend.shortenings`.
        seed: the check's seed, for the journal.
        style: form of a format that has several; None: the plain one.
        held_out: share of the photos in each drawn split; 0: no split is drawn.
        keys_folder: caches hashes of photos; None: they are computed each time.

    Raises:
        ValueError: every caption is flagged, the folder holds something, the format needs photos,
            or words or sentences that shall be mended were not judged.
        OSError: the folder cannot be written.
    """
    mended, left = {}, {}
    if mend == "words":
        mended, left = mendable(result), left_unmended(result)
        print(_mending_line("words replaced", len(mended), left))
    elif mend == "sentences":
        mended, left = shortenings(result)
        fate = "are left out" if SENTENCES in result.removing else "stay as they are"
        print(_mending_line("captions that lost sentences", len(mended), left, fate))
    view = CurationView(roster=result.roster).apply(result.edits(mended, left))
    record = RunRecord(policy=POLICY, seed=seed, view=view)
    chosen = photos or ("copy" if format in HOLD_PHOTOS else "none")
    style = replace(style or Style(), questions=result.questions)
    share = held_out if result.is_whole else 0
    splits, told = draw_splits(view, result.splits, share, keys_folder)
    return export(
        record, None, Path(folder), format=format, photos=chosen, splits=splits, style=style,
        about_splits=told,
    )  # fmt: skip


def draw_splits(
    view: CurationView, given: Mapping[Path, Split], held_out: float, keys_folder: str | Path | None
) -> tuple[Mapping[Path, Split], str]:
    """Return the splits of a folder's photos, drawn if none exist, and a text for the card.

    Raises:
        ValueError: the share is not between 0 and 0.5.
    """
    if not 0 <= held_out < 0.5:
        raise ValueError(f"--held-out must be at least 0 and below 0.5: got {held_out}")
    if not held_out:
        return given, ""
    splits, drawn = with_drawn(
        view.roster, given, held_out=held_out, seed=SEED, keys_folder=keys_folder
    )
    left = {splits.get(sample.image_path) for sample in view.samples()}
    if left.isdisjoint(drawn):  # none is drawn, or all that would be held out is removed
        return given, ""
    had = "no splits of its own" if not given else f"no {' and '.join(drawn)}"
    which = "Val and test were" if len(drawn) > 1 else "It was"
    return splits, (
        f"The original has {had}. {which} drawn by the content of its photos, as `data=own` draws "
        f"(seed {SEED}, share {held_out:g} each): a training on the original with these settings "
        "holds out the same photos."
    )


def _mending_line(
    done: str, count: int, left: Mapping[int, str], fate: str = "are left out"
) -> str:
    """Summarise how many captions were mended, and why other captions were not."""
    line = f"{done}: {count:,}"
    if left:
        reasons = "; ".join(dict.fromkeys(list(left.values())[:3]))
        line += f"; {len(left):,} flagged captions were not mended and {fate} ({reasons}"
        line += "; the journal has all reasons)" if fate == "are left out" else ")"
    return line


FOLDER_NAME = "folder.csv"


def check_place(folder: Path) -> None:
    """Raise an error before the checks start if the result files cannot be written.

    Raises:
        ValueError: the path is a file, or a folder with other files than a check's.
        OSError: the folder cannot be written.
    """
    if is_taken(folder) and not _is_check(folder / CSV_NAME):
        first = "a file" if folder.is_file() else f"holds {min(os.listdir(folder))} and no check"
        raise ValueError(f"{folder}: {first}; choose another --out, a new or an empty folder")
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise OSError(f"cannot write to {folder}; choose another folder with --out FOLDER")


def _is_check(table: Path) -> bool:
    if not table.is_file():
        return False
    with table.open("rb") as file:
        head = file.readline(4096)
    return b"sample_id" in head and b"suspicion" in head


def write_result(result: CheckResult, folder: str | Path, *, num_shown: int = 24) -> list[Path]:
    """Write the table, the page, and a Parquet table if pyarrow is installed.

    Findings on the folder as a whole have a separate table: a row a finding, or a row each of its
    files and words.

    Args:
        result: a check's result.
        folder: earlier files of the same names are replaced.
        num_shown: captions of each kind on the page.

    Returns:
        The files.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    paths = [folder / PAGE_NAME, folder / CSV_NAME]
    write_page(result, paths[0], num_shown=num_shown)
    result.issues.to_csv(paths[1])
    (folder / FOLDER_NAME).unlink(missing_ok=True)
    if result.notes:
        paths.append(folder / FOLDER_NAME)
        write_text(paths[-1], _notes(result))
    if importlib.util.find_spec("pyarrow") is not None:
        paths.append(folder / PARQUET_NAME)
        result.issues.to_parquet(paths[-1])
    return paths


def _notes(result: CheckResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["finding", "item", "said"])
    for note in result.notes:
        writer.writerows([note.name, *item] for item in note.items or (("", note.said),))
    return text.getvalue()
