"""Content of a run's page as plain values, part by part; None where a run has no such part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.roster import Roster
from captioning.metrics.bootstrap import Bootstrap, intervals, pooled_mean
from captioning.results.run_folder import FREE_KEYS, NAME_KEYS, flat, is_below
from captioning.results.runs import Run, as_number
from captioning.results.significance import has_means
from curation.record import Change, RunRecord
from curation.review.edits.edit_list import item, short
from curation.review.edits.facts import count_actions, histograms, loss_curves, truth_facts
from curation.review.runs.reading import FinishedRun

TEST = "test"
METRICS = ("CIDEr-D", "SPICE", "METEOR", "ROUGE-L", "BLEU-4")  # the first that a run has leads
NUM_POINTS = 300  # of a loss curve
NUM_EXAMPLES = 8  # best, worst and random captions each
NUM_BEFORE_AFTER = 6  # cards of each epoch
NUM_REFERENCES = 5
NUM_BINS = 40
SEPARATES = 0.95  # of the captions above a threshold were edited, or there is none

Pictures = Mapping[Path, int]


def training_curve(losses: Sequence[tuple[float, float]]) -> list[list[float]] | None:
    """Loss by update: means of at most `NUM_POINTS` stretches."""
    if len(losses) < 2:
        return None
    stretches = np.array_split(np.asarray(losses), min(NUM_POINTS, len(losses)))
    return [
        [round(float(x), 1), round(float(y), 4)] for x, y in (s.mean(axis=0) for s in stretches)
    ]


def validation(
    history: Sequence[Mapping[str, Any]], start: Mapping[str, float]
) -> dict[str, Any] | None:
    """Scores by epoch and those before the first, `METRICS` alone where there are some."""
    names = [name for name in METRICS if any(name in entry for entry in history)]
    if not names:
        return None
    return {
        "epochs": [entry["epoch"] for entry in history],
        "series": [
            {"name": name, "values": [as_number(entry.get(name)) for entry in history]}
            for name in names
        ],
        "start": [[name, start[name]] for name in names if name in start],
    }


def leading_metric(run: Run) -> str | None:
    """The metric that a run is judged by: the first of `METRICS` that its test has."""
    return next((name for name in METRICS if name in run.scores(TEST, "corpus")), None)


def corpus_scores(run: Run) -> dict[str, Any] | None:
    """Corpus scores with their intervals, and how they were made."""
    corpus = run.scores(TEST, "corpus")
    if not corpus:
        return None
    ends, settings = score_intervals(run), run.scores(TEST, "settings")
    rows = [
        {"name": name, "score": value, "interval": ends.get(name)} for name, value in corpus.items()
    ]
    return {
        "rows": rows,
        "num_images": settings.get("num_images") or len(run.scores(TEST, "per_image")),
        "tokenizer": settings.get("tokenizer"),
        "distribution": _distribution(run),
    }


def score_intervals(run: Run) -> dict[str, Sequence[float]]:
    """95% intervals over images by metric: those that the test left, or those of means of images.

    Earlier versions left none. The corpus scores of BLEU and METEOR are no means, so such a run has
    no interval of theirs.
    """
    kept = run.scores(TEST, "intervals")
    if kept:
        return {name: [float(end) for end in ends] for name, ends in kept.items()}
    images = list(run.scores(TEST, "per_image").values())
    names = [n for n in run.scores(TEST, "corpus") if has_means(n) and n != "METEOR"]
    columns = {name: [scores.get(name) for scores in images] for name in names}
    whole = {name: column for name, column in columns.items() if column and None not in column}
    return dict(intervals([pooled_mean(*pair) for pair in whole.items()], Bootstrap()))


def _distribution(run: Run) -> dict[str, Any] | None:
    """Number of images by score of the leading metric."""
    metric = leading_metric(run)
    images = run.scores(TEST, "per_image").values()
    values = [scores[metric] for scores in images if metric in scores]
    if not values:
        return None
    edges = np.linspace(min(0.0, *values), max(*values, 0.1), NUM_BINS + 1)
    counts = np.histogram(values, edges)[0].tolist()
    edges = [round(float(edge), 4) for edge in edges]
    return {"metric": metric, "edges": edges, "counts": counts, "median": float(np.median(values))}


def example_ids(run: Run) -> dict[str, list[str]]:
    """Images with the best, the worst and random captions, by score of the leading metric."""
    metric, images = leading_metric(run), run.scores(TEST, "per_image")
    scored = sorted((i for i in images if metric in images[i]), key=lambda i: -images[i][metric])
    middle = scored[NUM_EXAMPLES:-NUM_EXAMPLES]
    generator = np.random.default_rng(0)
    drawn = generator.choice(len(middle), min(NUM_EXAMPLES, len(middle)), replace=False)
    return {
        "best": scored[:NUM_EXAMPLES],
        "worst": scored[::-1][:NUM_EXAMPLES],
        "random": [middle[place] for place in drawn],
    }


def references(roster: Roster | None, image_id: str) -> list[str]:
    """The first captions that people gave a photo."""
    rows = () if roster is None else roster.rows_by_image.get(image_id, ())
    samples = () if roster is None else roster.samples
    return [short(samples[row].caption) for row in rows[:NUM_REFERENCES]]


def photo_of(roster: Roster | None, image_id: str) -> Path | None:
    """Where a photo lies."""
    rows = [] if roster is None else list(roster.rows_by_image.get(image_id, ()))
    return roster.samples[rows[0]].image_path if roster is not None and rows else None


def examples(run: FinishedRun, pictures: Pictures) -> list[dict[str, Any]] | None:
    """Captions of the test beside photos and references, in groups."""
    metric, images = leading_metric(run.run), run.run.scores(TEST, "per_image")
    groups = [
        {"name": name, "items": [_example(run, i, images[i][metric], pictures) for i in ids]}
        for name, ids in example_ids(run.run).items()
        if metric is not None
    ]
    groups = [group for group in groups if group["items"]]
    return groups if groups and run.predictions else None


def _example(run: FinishedRun, image_id: str, score: float, pictures: Pictures) -> dict[str, Any]:
    return {
        "image": image_id,
        "photo": pictures.get(photo_of(run.test, image_id) or Path(), -1),
        "caption": short(run.predictions.get(image_id, "")),
        "score": score,
        "references": references(run.test, image_id),
    }


def before_after(changes: Sequence[Change]) -> list[Change]:
    """The first edits of each epoch: a policy writes the worst first."""
    taken: Counter[int] = Counter()
    shown = []
    for change in changes:
        taken[change.edit.epoch] += 1
        if taken[change.edit.epoch] <= NUM_BEFORE_AFTER:
            shown.append(change)
    return shown


def curation(
    run: FinishedRun, changes: Sequence[Change], pictures: Pictures
) -> dict[str, Any] | None:
    """What was changed and why, with the losses that it was decided by."""
    record = run.record
    if record is None:
        return None
    bars = histograms(record, changes)
    for entry in [] if bars is None else bars["epochs"]:
        entry["threshold"] = threshold(record, changes, entry["epoch"])
    return {
        "policy": record.policy,
        "num_samples": len(record.view.roster),
        "num_left": len(record.view.samples()),
        "num_edited": len({change.edit.sample_id for change in changes}),
        "unit": run.unit,
        "actions": count_actions(changes),
        "curves": loss_curves(record, changes),
        "histograms": bars,
        "rules": rules(record, changes),
        "truth": truth_facts(record, changes),
        "shown": [item(change, pictures) for change in before_after(changes)],
    }


def _edited_losses(
    record: RunRecord, changes: Iterable[Change], epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Losses of an epoch: of the captions edited then, and of the others."""
    if epoch not in record.epochs:
        return np.empty(0), np.empty(0)
    losses = record.history[list(record.epochs).index(epoch)]
    by_id = record.view.roster.by_id
    edited = np.zeros(len(losses), dtype=bool)
    edited[[by_id[c.edit.sample_id].row for c in changes if c.edit.epoch == epoch]] = True
    seen = np.isfinite(losses)
    return losses[seen & edited], losses[seen & ~edited]


def threshold(record: RunRecord, changes: Sequence[Change], epoch: int) -> float | None:
    """The loss above which nearly all captions of an epoch were edited; None: there is none."""
    edited, others = _edited_losses(record, changes, epoch)
    if not len(edited):
        return None
    lowest = float(edited.min())
    above = int((others >= lowest).sum())
    return round(lowest, 4) if len(edited) / (len(edited) + above) >= SEPARATES else None


def rules(record: RunRecord, changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Edits by epoch, policy and action, with their losses and the first one's reason."""
    groups: dict[tuple[int, str, str], list[Change]] = defaultdict(list)
    for change in changes:
        groups[change.edit.epoch, change.edit.policy, change.edit.action].append(change)
    rows = []
    for (epoch, policy, action), members in sorted(groups.items()):
        losses, _ = _edited_losses(record, members, epoch)
        ends = (
            [round(float(end), 3) for end in (losses.min(), losses.max())] if len(losses) else None
        )
        reason = short(members[0].edit.reason)
        row = {"epoch": epoch, "policy": policy, "action": action, "count": len(members)}
        rows.append({**row, "losses": ends, "reason": reason})
    return rows


def changed_settings(
    config: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """Settings that are not as a plain ``captioning train`` has them: key, value and default.

    Of the data the name alone is given, and nothing of how a run is carried out.
    """
    own, known = flat(config), flat(defaults)
    return [
        (key, shown(value), shown(known[key]) if key in known else "–")
        for key, value in sorted(own.items())
        if is_setting(key) and (key not in known or known[key] != value)
    ]


def is_setting(key: str) -> bool:
    """Whether a key may change results; of the data the name alone counts."""
    in_data = is_below(key, ("data",)) and key != "data.name"
    return not in_data and not is_below(key, (*FREE_KEYS, *NAME_KEYS))


def shown(value: Any) -> str:
    """A setting's value as YAML has it, in short."""
    words = {None: "null", True: "true", False: "false"}
    is_word = value is None or isinstance(value, bool)
    return words[value] if is_word else short(str(value))


def dropped(run: FinishedRun) -> list[dict[str, Any]]:
    """Number of items that each roster leaves out, by rule, with some of them."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for roster, entries in run.dropped.items():
        for entry in entries:
            groups[roster, entry["rule"]].append(entry["item"])
    return [
        {"roster": roster, "rule": short(rule), "count": len(items), "items": items[:5]}
        for (roster, rule), items in groups.items()
    ]
