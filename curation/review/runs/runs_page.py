"""Pages that show several runs side by side, or compare two runs on one test set."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.roster import Roster
from captioning.results.run_folder import FREE_KEYS, flat, is_below
from captioning.results.runs import Run, changed_settings
from captioning.results.table import DEFAULT_METRICS, Options, build_table
from captioning.results.table_formats import Cell
from captioning.runtime.files import read_json, write_text
from captioning.types import Edit
from curation.record import Change, RunRecord
from curation.review.edit_report import item
from curation.review.html_page import block, pack, short, thumbnails
from curation.review.runs.reading import FinishedRun, Notes
from curation.review.runs.run_page import (
    MAX_BYTES,
    MAX_PICTURES,
    NUM_POINTS,
    NUM_REFERENCES,
    TEST,
    Pictures,
    Sentence,
    counted,
    is_setting,
    leading_metric,
    page_of,
    photo_of,
    references,
    score_intervals,
    shown,
)

NUM_SHOWN = 12  # number of shown captions that differ most


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of one config that differ only in their seed.

    Attributes:
        key: their ``run_name``; with a folder where several groups have it.
        name: the same without what all groups share.
        runs: at least one.
    """

    key: str
    name: str
    runs: Sequence[FinishedRun]

    @property
    def records(self) -> list[RunRecord]:
        """Curation records of the runs that used curation."""
        return [run.record for run in self.runs if run.record is not None]


def groups_of(runs: Iterable[FinishedRun]) -> list[Group]:
    """Group runs by name, in order; runs of one name with different configs are separate groups."""
    by_name: dict[str, list[FinishedRun]] = defaultdict(list)
    for run in runs:
        by_name[run.name].append(run)
    members = {
        key: several for name, runs in by_name.items() for key, several in _by_config(name, runs)
    }
    names = short_names(list(members))
    return [
        Group(key=key, name=name, runs=several)
        for name, (key, several) in zip(names, members.items(), strict=True)
    ]


def _by_config(
    name: str, runs: Sequence[FinishedRun]
) -> Iterable[tuple[str, Sequence[FinishedRun]]]:
    """Group runs of one name by config; the key is the name, with a folder if names repeat."""
    if _are_seeds(runs):
        return [(name, runs)]
    by_folder: dict[Path, list[FinishedRun]] = defaultdict(list)
    for run in runs:
        by_folder[run.run.folder.parent].append(run)
    parts: dict[Path, Sequence[FinishedRun]] = {}
    for parent, several in by_folder.items():
        alone = {run.run.folder: [run] for run in several}
        parts |= {parent: several} if len(by_folder) > 1 and _are_seeds(several) else alone
    above = Path(os.path.commonpath(parts))
    names = {path: str(path.relative_to(above)) for path in parts if path != above}
    return [(f"{name} ({names.get(path, path.name)})", part) for path, part in parts.items()]


def _are_seeds(runs: Sequence[FinishedRun]) -> bool:
    """Return whether runs differ only in their seeds, and each run has another seed."""
    is_new = len({run.seed for run in runs}) == len(runs)
    first = runs[0].run.config
    return is_new and not any(changed_settings(first, run.run.config) for run in runs[1:])


def short_names(names: Sequence[str]) -> list[str]:
    """Shorten names by the words that all names share; slashes and hyphens separate words.

    They are as they were where that would leave nothing of one, or make two alike.
    """
    if len(names) < 2:
        return list(names)
    split = [re.split("[/-]", name) for name in names]
    shared = set.intersection(*map(set, split))
    short = ["-".join(word for word in words if word not in shared) for words in split]
    return short if all(short) and len(set(short)) == len(short) else list(names)


def score_table(all_groups: Sequence[Group]) -> dict[str, Any] | None:
    """Table of means and standard deviations over seeds, and differences from the first row.

    Raises:
        ValueError: runs that cannot stand in one table, see `build_table`.
    """
    data = sorted({str(run.run.setting("data.name")) for g in all_groups for run in g.runs})
    if len(data) > 1:
        raise ValueError(
            f"runs with different data ({', '.join(data)}) cannot share one table; "
            "`captioning compare` scores two runs on one test set"
        )
    runs = [_named(run.run, group.key) for group in all_groups for run in group.runs]
    metrics = [n for n in DEFAULT_METRICS if any(n in run.scores(TEST, "corpus") for run in runs)]
    if not metrics:
        return None
    first = all_groups[0].key if len(all_groups) > 1 else None
    compared = first is not None and all(run.scores(TEST, "per_image") for run in runs)
    options = Options(metrics=metrics, best=True, against=[first] if compared and first else None)
    table = build_table(runs, options)
    names = {group.key: group for group in all_groups}
    rows = []
    for row in table.rows:
        group = names[str(row.labels[0])]
        cells = [_cell(*pair, group) for pair in zip(metrics, row.cells, strict=True)]
        rows.append({"name": group.name, "num_runs": len(group.runs), "cells": cells})
    return {"metrics": metrics, "rows": rows, "against": all_groups[0].name if compared else None}


def differ_in_data(all_groups: Sequence[Group]) -> bool:
    """Return whether groups have different validation data.

    The fingerprints that runs keep of their data tell it, or else the settings of these.
    """
    runs = [group.runs[0].run for group in all_groups]
    kept = [_validated_on(run) for run in runs]
    if None in kept:
        kept = [
            {
                key: v
                for key, v in flat({"data": run.config.get("data")}).items()
                if not is_below(key, FREE_KEYS)
            }
            for run in runs
        ]
    return any(one != kept[0] for one in kept[1:])


def _validated_on(run: Run) -> Any:
    """Fingerprints of the validation captions and photos; None if unknown."""
    path = run.folder / "data.json"
    if not path.is_file():
        return None
    split = read_json(path, dict).get("splits", {}).get("val")
    return split and (split.get("text"), split.get("pictures"))


def are_apart(all_groups: Sequence[Group]) -> bool:
    """Return whether the groups' curves need separate axes because scores are not comparable."""
    try:
        score_table(all_groups)
    except ValueError:
        return True
    return differ_in_data(all_groups)


def _named(run: Run, key: str) -> Run:
    """Rename a run to its group's key, which names the run's row in the table."""
    return replace(run, config={**run.config, "run_name": key})


def _cell(metric: str, cell: Cell, group: Group) -> dict[str, Any]:
    alone = cell.spread is None and len(group.runs) == 1
    interval = score_intervals(group.runs[0].run).get(metric) if alone else None
    change = cell.difference
    return {
        "mean": cell.mean,
        "spread": cell.spread,
        "interval": interval,
        "best": cell.is_best,
        "difference": change and [change.mean, change.low, change.high, change.p_value],
    }


def loss_curve(group: Group) -> dict[str, Any] | None:
    """Mean training loss by update over the seeds, with minimum and maximum."""
    curves = [np.asarray(run.losses) for run in group.runs if len(run.losses) > 1]
    if not curves:
        return None
    start, end = max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves)
    steps = np.linspace(start, end, min(NUM_POINTS, *map(len, curves), NUM_POINTS))
    return _curve(steps, np.stack([np.interp(steps, *c.T) for c in curves]))


def validation_curve(group: Group, metric: str) -> dict[str, Any] | None:
    """Mean validation score by epoch over the seeds, with minimum and maximum."""
    by_epoch: dict[float, list[float]] = defaultdict(list)
    for entry in (entry for run in group.runs for entry in run.history):
        if metric in entry:
            by_epoch[entry["epoch"]].append(float(entry[metric]))
    full = {e: v for e, v in sorted(by_epoch.items()) if len(v) == len(group.runs)}
    return _curve(np.array(list(full)), np.array(list(full.values())).T) if full else None


def _curve(xs: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Points of the mean of ``(runs, points)``, with a band for several runs."""
    columns = (xs, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    rows = [[round(float(number), 4) for number in row] for row in zip(*columns, strict=True)]
    band = [[x, low, high] for x, _, low, high in rows] if len(values) > 1 else None
    return {"points": [row[:2] for row in rows], "band": band}


def edits_by_action(group: Group) -> dict[str, float]:
    """Mean number of edits by action over the seeds."""
    counts = Counter(edit.action for record in group.records for edit in record.view.journal)
    return {action: number / len(group.records) for action, number in counts.items()}


def edited_by_epoch(group: Group) -> dict[str, Any] | None:
    """Mean number of edits up to the end of each epoch."""
    records = [record for record in group.records if len(record.epochs)]
    epochs = sorted({int(epoch) for record in records for epoch in record.epochs})
    if not epochs:
        return None
    until = [
        [sum(edit.epoch <= epoch for edit in record.view.journal) for epoch in epochs]
        for record in records
    ]
    return _curve(np.array(epochs), np.array(until))


def edited_ids(group: Group) -> set[str]:
    """Ids of captions that were edited in at least one run of the group."""
    return {edit.sample_id for record in group.records for edit in record.view.journal}


def overlap(all_groups: Sequence[Group]) -> list[list[float]]:
    """Jaccard overlap of the captions that two groups edited."""
    ids = [edited_ids(group) for group in all_groups]
    return [[len(one & other) / len(one | other) for other in ids] for one in ids]


def most_edited(all_groups: Sequence[Group]) -> tuple[Roster | None, list[str]]:
    """Training captions edited by the most groups, then most often; and the roster."""
    records = [record for group in all_groups for record in group.records]
    if len({record.view.roster.fingerprint for record in records}) != 1:
        return None, []
    num_groups = Counter(i for group in all_groups for i in edited_ids(group))
    num_edits = Counter(edit.sample_id for record in records for edit in record.view.journal)
    order = sorted(num_groups, key=lambda i: (-num_groups[i], -num_edits[i]))
    return records[0].view.roster, order[:NUM_SHOWN]


def edited_item(
    all_groups: Sequence[Group], roster: Roster, sample_id: str, pictures: Pictures
) -> dict[str, Any]:
    """A training caption and its last edit in each group."""
    sample = roster.by_id[sample_id]
    last: list[tuple[str, Edit]] = []
    for group in all_groups:
        edits = [e for r in group.records for e in r.view.journal if e.sample_id == sample_id]
        last += [(group.name, edits[-1])] if edits else []
    return {
        "id": sample_id,
        "caption": short(sample.caption),
        "photo": pictures.get(sample.image_path, -1),
        "edits": [
            {
                "run": name,
                "epoch": edit.epoch,
                "action": edit.action,
                "after": short(edit.value or "") if edit.action == "replace_caption" else None,
            }
            for name, edit in last
        ],
    }


def image_scores(all_groups: Sequence[Group], metric: str) -> dict[str, list[float]]:
    """Mean score by group over the seeds for each test image that all runs share."""
    runs = [run.run.scores(TEST, "per_image") for group in all_groups for run in group.runs]
    shared = [i for i in runs[0] if all(metric in images.get(i, {}) for images in runs)]
    return {
        i: [
            float(np.mean([run.run.scores(TEST, "per_image")[i][metric] for run in group.runs]))
            for group in all_groups
        ]
        for i in shared
    }


def most_different(all_groups: Sequence[Group], metric: str) -> dict[str, list[float]]:
    """Test images whose scores differ most between groups, with the scores."""
    scores = image_scores(all_groups, metric)
    order = sorted(scores, key=lambda i: min(scores[i]) - max(scores[i]))
    return {i: scores[i] for i in order[:NUM_SHOWN] if max(scores[i]) > min(scores[i])}


def different_item(
    all_groups: Sequence[Group], image_id: str, scores: Sequence[float], pictures: Pictures
) -> dict[str, Any]:
    """A test image with the caption of each group's first run."""
    roster = next((r.test for g in all_groups for r in g.runs if r.test is not None), None)
    return {
        "image": image_id,
        "photo": pictures.get(photo_of(roster, image_id) or Path(), -1),
        "references": references(roster, image_id),
        "captions": [
            {
                "run": group.name,
                "caption": short(group.runs[0].predictions.get(image_id, "")),
                "score": score,
            }
            for group, score in zip(all_groups, scores, strict=True)
        ],
    }


def shared_metric(all_groups: Sequence[Group]) -> str | None:
    """Main metric that all runs have; None if a run has no test scores."""
    names = {leading_metric(run.run) for group in all_groups for run in group.runs}
    return names.pop() if len(names) == 1 else None


def different_settings(all_groups: Sequence[Group]) -> list[list[str]]:
    """Settings that differ between groups: key, and value in each group.

    Data appear only by name, unless groups with one data name differ in other data settings.
    """
    of_one_name = len({group.runs[0].name for group in all_groups}) < len(all_groups)
    configs: list[Mapping[str, Any]] = [flat(dict(g.runs[0].run.config)) for g in all_groups]
    keys = sorted({key for config in configs for key in config})
    rows = []
    for key in keys:
        values = [shown(config[key]) if key in config else "–" for config in configs]
        is_told = is_setting(key) or (of_one_name and is_below(key, ("data",)))
        if len(set(values)) > 1 and is_told and key != "seed":
            rows.append([key, *values])
    return rows


def write_runs_page(runs: Sequence[FinishedRun], path: Path) -> Sequence[str]:
    """Write the page of several runs.

    Args:
        runs: at least one; runs of one name that differ only in the seed are pooled.
        path: the HTML file.

    Returns:
        Parts that the page omits, one line each.
    """
    groups = groups_of(runs)
    notes = Notes(lines=[f"{r.run.folder}: {note}" for r in runs for note in r.notes])
    metric = shared_metric(groups)
    content = _facts(groups, metric, notes)
    compared = metric is not None and len(groups) > 1 and content["table"] is not None
    scores = most_different(groups, metric) if compared and metric is not None else {}
    roster, ids = most_edited(groups)
    test = next((run.test for run in runs if run.test is not None), None)
    photos = [photo_of(test, image_id) for image_id in scores]
    photos += [roster.by_id[i].image_path for i in ids] if roster is not None else []
    pictures = thumbnails(
        [photo for photo in photos if photo is not None],
        max_pictures=MAX_PICTURES,
        max_bytes=MAX_BYTES,
    )
    numbers = {photo: number for number, photo in enumerate(pictures)}
    content["different"] = [
        different_item(groups, image_id, by_group, numbers) for image_id, by_group in scores.items()
    ]
    content["edited"] = [edited_item(groups, roster, i, numbers) for i in ids if roster is not None]
    blocks = [block("facts", pack(content)), *(block("picture", t) for t in pictures.values())]
    title = ", ".join(group.name for group in groups[:3]) + (" and more" if groups[3:] else "")
    write_text(path, page_of("runs", f"Compared: {title}", blocks))
    return notes.lines


def _facts(groups: Sequence[Group], metric: str | None, notes: Notes) -> dict[str, Any]:
    folder = groups[0].runs[0].run.folder

    def part(name: str, make: Callable[[], Any], default: Any = None) -> Any:
        return notes.read(name, folder, make, default)

    num_notes = len(notes.lines)
    table = part("table of scores", lambda: score_table(groups))
    apart = len(notes.lines) > num_notes or part("data", lambda: differ_in_data(groups), True)
    curves = {
        "losses": part("training loss", lambda: _curves(groups, loss_curve), []),
        "validation": part("validation", lambda: _validation(groups), []),
        "edited_by_epoch": part("edits", lambda: _curves(groups, edited_by_epoch), []),
    }
    edits = [
        {
            "name": group.name,
            "actions": edits_by_action(group),
            "num_edited": len(edited_ids(group)),
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
        "settings": different_settings(groups),
        "notes": notes.lines,
    }


def _overlap(groups: Sequence[Group]) -> dict[str, Any] | None:
    editing = [group for group in groups if edited_ids(group)]
    if len(editing) < 2:
        return None
    return {"names": [group.name for group in editing], "rows": overlap(editing)}


def _curves(groups: Sequence[Group], make: Callable[[Group], Any]) -> list[Any]:
    curves = [(group.name, make(group)) for group in groups]
    return [{"name": name, **curve} for name, curve in curves if curve is not None]


def _validation(groups: Sequence[Group]) -> list[Any]:
    return _curves(groups, lambda group: validation_curve(group, "CIDEr-D"))


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


@dataclass(frozen=True, kw_only=True)
class DemoPart:
    """Additional content of the demo's comparison page.

    Attributes:
        heading: the page's heading.
        about: a line below it.
        removed: captions that curation removed, those shown.
        summary: number of removed captions, and number of correct removals.
        cut: a generated caption of an image in pieces, of which every second one is a wrong word.
    """

    heading: str
    about: Sentence
    removed: Sequence[Change]
    summary: str
    cut: Callable[[str, str], list[str]]


def write_compared_page(
    compared: Mapping[str, Any],
    photos: Mapping[str, Path],
    path: Path,
    demo: DemoPart | None = None,
) -> None:
    """Write the page that compares two runs.

    Args:
        compared: the result of `captioning.evaluation.compare`, as plain values.
        photos: paths of the photos that changed most, by image id.
        path: the HTML file.
        demo: what the demo shows in addition.
    """
    removed = [] if demo is None else demo.removed
    shown_photos = [*photos.values(), *(change.before.image_path for change in removed)]
    pictures = thumbnails(shown_photos, max_pictures=MAX_PICTURES, max_bytes=MAX_BYTES)
    numbers = {photo: number for number, photo in enumerate(pictures)}
    groups = [
        {
            "name": f"{group['name']} ({group['number']:,})",
            "items": [_changed_item(entry, photos, numbers, demo) for entry in group["items"]],
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
    title = f"Compared: {' and '.join(compared['names'])}"
    if demo is not None:
        title = demo.heading
        content |= {"heading": demo.heading, "about": demo.about, "summary": demo.summary}
        content["removed"] = [item(change, numbers) for change in removed]
    blocks = [block("facts", pack(content)), *(block("picture", t) for t in pictures.values())]
    write_text(path, page_of("compared", title, blocks))


def _all_runs(compared: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [run for side in compared["runs"] for run in side["seeds"]]


def _changed_item(
    entry: Mapping[str, Any],
    photos: Mapping[str, Path],
    numbers: Mapping[Path, int],
    demo: DemoPart | None,
) -> dict[str, Any]:
    """A photo with the caption from each side's first seed, split into pieces."""
    captions = [short(texts[0]) for texts in entry["captions"]]
    return {
        "image": entry["image"],
        "photo": numbers.get(photos[entry["image"]], -1),
        "captions": [
            [text] if demo is None else demo.cut(text, entry["image"]) for text in captions
        ],
        "scores": entry["scores"],
        "references": [short(text) for text in entry["references"][:NUM_REFERENCES]],
    }
