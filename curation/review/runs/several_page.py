"""The pages of several runs side by side, and of two that were compared on one test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_text
from curation.review.edits.edit_list import pack, short
from curation.review.edits.report import block
from curation.review.runs import several
from curation.review.runs.facts import NUM_REFERENCES, shown
from curation.review.runs.lead import Sentence, counted
from curation.review.runs.page import MAX_BYTES, MAX_PICTURES, page_of
from curation.review.runs.reading import FinishedRun, Notes
from curation.review.runs.several import Group
from curation.review.thumbnails import thumbnails


def write_runs_page(runs: Sequence[FinishedRun], path: Path) -> Sequence[str]:
    """Write the page.

    Args:
        runs: at least one; those of one name that differ in the seed alone are pooled.
        path: the HTML file.

    Returns:
        What is left out of it, a line each.
    """
    groups = several.groups(runs)
    notes = Notes(lines=[f"{r.run.folder}: {note}" for r in runs for note in r.notes])
    metric = several.shared_metric(groups)
    content = _facts(groups, metric, notes)
    compared = metric is not None and len(groups) > 1 and content["table"] is not None
    scores = several.most_different(groups, metric) if compared and metric is not None else {}
    roster, ids = several.most_edited(groups)
    test = next((run.test for run in runs if run.test is not None), None)
    photos = [several.photo_of(test, image_id) for image_id in scores]
    photos += [roster.by_id[i].image_path for i in ids] if roster is not None else []
    pictures = thumbnails(
        [photo for photo in photos if photo is not None],
        max_pictures=MAX_PICTURES,
        max_bytes=MAX_BYTES,
    )
    numbers = {photo: number for number, photo in enumerate(pictures)}
    content["different"] = [
        several.different_item(groups, image_id, by_group, numbers)
        for image_id, by_group in scores.items()
    ]
    content["edited"] = [
        several.edited_item(groups, roster, i, numbers) for i in ids if roster is not None
    ]
    blocks = [block("facts", pack(content)), *(block("picture", t) for t in pictures.values())]
    title = ", ".join(group.name for group in groups[:3]) + (" and more" if groups[3:] else "")
    write_text(path, page_of("runs", f"Compared: {title}", blocks))
    return notes.lines


def _facts(groups: Sequence[Group], metric: str | None, notes: Notes) -> dict[str, Any]:
    folder = groups[0].runs[0].run.folder

    def part(name: str, make: Callable[[], Any], default: Any = None) -> Any:
        return notes.read(name, folder, make, default)

    num_notes = len(notes.lines)
    table = part("table of scores", lambda: several.score_table(groups))
    apart = len(notes.lines) > num_notes or part(
        "data", lambda: several.differ_in_data(groups), True
    )
    curves = {
        "losses": part("training loss", lambda: _curves(groups, several.loss_curve), []),
        "validation": part("validation", lambda: _validation(groups), []),
        "edited_by_epoch": part("edits", lambda: _curves(groups, several.edited_by_epoch), []),
    }
    edits = [
        {
            "name": group.name,
            "actions": several.edits_by_action(group),
            "num_edited": len(several.edited_ids(group)),
            "num_samples": len(group.records[0].view.roster),
        }
        for group in groups
        if group.records
    ]
    return {
        "names": [group.name for group in groups],
        "num_runs": sum(len(group.runs) for group in groups),
        "metric": metric,
        "lead": _lead(groups, metric, table, apart=apart),
        "apart": apart,
        "tiles": [],
        "table": table,
        **curves,
        "edits": edits,
        "overlap": _overlap(groups),
        "full_names": [group.key for group in groups],
        "settings": several.different_settings(groups),
        "notes": notes.lines,
    }


def _overlap(groups: Sequence[Group]) -> dict[str, Any] | None:
    editing = [group for group in groups if several.edited_ids(group)]
    if len(editing) < 2:
        return None
    return {"names": [group.name for group in editing], "rows": several.overlap(editing)}


def _curves(groups: Sequence[Group], make: Callable[[Group], Any]) -> list[Any]:
    curves = [(group.name, make(group)) for group in groups]
    return [{"name": name, **curve} for name, curve in curves if curve is not None]


def _validation(groups: Sequence[Group]) -> list[Any]:
    return _curves(groups, lambda group: several.validation_curve(group, "CIDEr-D"))


def _lead(
    groups: Sequence[Group], metric: str | None, table: Mapping[str, Any] | None, *, apart: bool
) -> list[Sentence]:
    number = sum(len(group.runs) for group in groups)
    sentences: list[Sentence] = [
        [f"{counted(number, 'run')} of {counted(len(groups), 'config')} side by side."]
    ]
    if len({group.runs[0].name for group in groups}) < len(groups):
        sentences.append(["Runs of one name that share a seed or differ in settings stand apart."])
    if apart:
        sentences.append(
            [
                "Their data or the way they were scored differ, so validation scores and losses "
                "say nothing of which is better, and each has axes of its own; captioning compare "
                "A B scores two of them on one test set."
            ]
        )
    if table is None or metric not in table["metrics"]:
        return sentences
    column = table["metrics"].index(metric)
    cells = {row["name"]: row["cells"][column] for row in table["rows"]}
    known = {name: cell for name, cell in cells.items() if cell["mean"] is not None}
    best = max(known, key=lambda name: known[name]["mean"])
    sentences.append([f"{metric} is highest for ", {"text": best}, f": {_mean(known[best])}."])
    for name, cell in known.items():
        if cell["difference"] is not None:
            mean, low, high, _ = cell["difference"]
            clear = "" if low > 0 or high < 0 else ", which may be chance"
            sentences.append(
                [
                    {"text": name},
                    f" differs by {mean:+.3f} from ",
                    {"text": groups[0].name},
                    f" (95% interval over photos: {low:+.3f} to {high:+.3f}){clear}.",
                ]
            )
    return sentences


def _mean(cell: Mapping[str, Any]) -> str:
    spread = "" if cell["spread"] is None else f" ± {cell['spread']:.3f} over seeds"
    return f"{cell['mean']:.3f}{spread}"


def write_compared_page(
    compared: Mapping[str, Any], photos: Mapping[str, Path], path: Path
) -> None:
    """Write the page of two runs that were compared.

    Args:
        compared: what `captioning.evaluation.compare` found, as plain values.
        photos: where the photos lie that changed most, by image id.
        path: the HTML file.
    """
    pictures = thumbnails(photos.values(), max_pictures=MAX_PICTURES, max_bytes=MAX_BYTES)
    numbers = {photo: number for number, photo in enumerate(pictures)}
    groups = [
        {
            "name": f"{group['name']} ({group['number']:,})",
            "items": [_changed_item(entry, photos, numbers) for entry in group["items"]],
        }
        for group in compared["changed"]
        if group["items"]
    ]
    content = {key: compared[key] for key in ("names", "num_photos", "scores")}
    content |= {
        "lead": [[{"text": sentence}] for sentence in compared["sentences"]],
        "notes": compared["notes"],
        "tiles": [],
        "groups": groups,
        "runs": [[run["folder"], run["seed"], run["checkpoint"]] for run in _all_runs(compared)],
        "settings": [[key, *map(shown, values)] for key, *values in compared["settings"]],
    }
    blocks = [block("facts", pack(content)), *(block("picture", t) for t in pictures.values())]
    title = f"Compared: {' and '.join(compared['names'])}"
    write_text(path, page_of("compared", title, blocks))


def _all_runs(compared: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [run for side in compared["runs"] for run in side["seeds"]]


def _changed_item(
    entry: Mapping[str, Any], photos: Mapping[str, Path], numbers: Mapping[Path, int]
) -> dict[str, Any]:
    """A photo with the caption of each side's first seed."""
    return {
        "image": entry["image"],
        "photo": numbers.get(photos[entry["image"]], -1),
        "captions": [short(texts[0]) for texts in entry["captions"]],
        "scores": entry["scores"],
        "references": [short(text) for text in entry["references"][:NUM_REFERENCES]],
    }
