"""What happened in a run, in plain sentences.

A sentence is a list of parts: texts of ours, and ``{"text": ...}`` for names that come from
elsewhere, which a page sets apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curation.record import Change
from curation.review.runs.facts import TEST, leading_metric, score_intervals
from curation.review.runs.reading import FinishedRun

Sentence = list[str | dict[str, str]]

DONE = {
    "remove": "removed {}",
    "replace_caption": "replaced {}",
    "replace_image": "replaced the photo of {}",
    "down_weight": "gave less weight to {}",
    "mask_words": "masked words of {}",
    "set_bucket": "told apart, by a begin token of their own, {}",
}


def lead(run: FinishedRun, changes: Sequence[Change]) -> list[Sentence]:
    """The sentences, the most important first; those of missing parts are left out."""
    sentences = [_trained(run), _scored(run), _began(run), _validated(run), _learned(run)]
    sentences += [_curated(run, changes), _hit(run, changes), _left_out(run)]
    return [sentence for sentence in sentences if sentence]


def _trained(run: FinishedRun) -> Sentence:
    model, data = run.run.setting("model.name"), run.run.setting("data.name")
    epochs = num_epochs(run)
    parts: Sentence = [{"text": model or "A model"}, " was trained"]
    parts += [" on ", {"text": data}] if data else []
    parts.append(f" for {counted(epochs, 'epoch')}" if epochs else "")
    if run.train is not None:
        photos = len(run.train.rows_by_image)
        parts.append(f", on {len(run.train):,} captions of {photos:,} photos")
    seconds = sum(float(entry.get("seconds", 0)) for entry in run.run.timing)
    parts.append(f", in {duration(seconds)}" if seconds else "")
    return [*parts, f" (seed {run.seed})."]


def _scored(run: FinishedRun) -> Sentence:
    metric = leading_metric(run.run)
    if metric is None:
        return ["It has no test scores."]
    value = run.run.scores(TEST, "corpus")[metric]
    ends = score_intervals(run.run).get(metric)
    spread = "" if ends is None else f" (95% interval over photos: {ends[0]:.3f} to {ends[1]:.3f})"
    number = len(run.run.scores(TEST, "per_image"))
    return [f"On {number:,} test photos it reaches {metric} {value:.3f}{spread}."]


def _validated(run: FinishedRun) -> Sentence:
    scores = {e["epoch"]: e["CIDEr-D"] for e in run.history if "CIDEr-D" in e}
    if len(scores) < 2:
        return []
    best = max(scores, key=lambda epoch: scores[epoch])
    late = " and was still rising at the end" if best == max(scores) else ""
    return [f"Validation CIDEr-D was highest in epoch {best} ({scores[best]:.3f}){late}."]


def _began(run: FinishedRun) -> Sentence:
    if "CIDEr-D" not in run.start:
        return []
    last = [entry["CIDEr-D"] for entry in run.history if "CIDEr-D" in entry]
    ended = f", and {last[-1]:.3f} after the last epoch" if last else ""
    name = run.run.setting("start_from") or run.run.setting("model.pretrained") or "the captioner"
    score = f"{run.start['CIDEr-D']:.3f}"
    return ["Before training, ", {"text": name}, f" had validation CIDEr-D {score}{ended}."]


def _learned(run: FinishedRun) -> Sentence:
    losses = [loss for _, loss in run.losses]
    if len(losses) < 2:
        return []
    width = max(1, len(losses) // 20)
    first, last = np.mean(losses[:width]), np.mean(losses[-width:])
    return [f"The training loss went from {first:.2f} to {last:.2f}."]


def _curated(run: FinishedRun, changes: Sequence[Change]) -> Sentence:
    if run.record is None:
        return ["No caption was curated."]
    if not changes:
        return ["Curation recorded the losses and changed nothing."]
    counts = Counter(change.edit.action for change in changes)
    done = [DONE.get(a, "edited {}").format(counted(n, "caption")) for a, n in counts.items()]
    total, left = len(run.record.view.roster), len(run.record.view.samples())
    share = len({change.edit.sample_id for change in changes}) / total
    return [
        f"Curation {' and '.join(done)}, {share:.1%} of all",
        f"; {left:,} of {total:,} captions were left." if left < total else ".",
    ]


def _hit(run: FinishedRun, changes: Sequence[Change]) -> Sentence:
    if run.record is None or not run.record.truth or not changes:
        return []
    hits = sum(bool(change.fault) for change in changes) / len(changes)
    chance = len(run.record.truth) / len(run.record.view.roster)
    return [f"{hits:.0%} of the edits hit a planted fault; by chance it would be {chance:.0%}."]


def _left_out(run: FinishedRun) -> Sentence:
    number = sum(map(len, run.dropped.values()))
    return [f"{counted(number, 'item')} of the data could not be used."] if number else []


def num_epochs(run: FinishedRun) -> int:
    """Epochs that were trained; 0 where nothing tells it."""
    of_losses = 0 if run.record is None else len(run.record.epochs)
    return len(run.run.timing) or of_losses or len(run.history)


def counted(number: int, thing: str) -> str:
    """Such as ``1 epoch`` and ``2 epochs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Such as ``4.3 min``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def tiles(run: FinishedRun, changes: Sequence[Change]) -> list[dict[str, str]]:
    """The main numbers, each with its name and a kind for its colour."""
    metric = leading_metric(run.run)
    corpus: Mapping[str, Any] = run.run.scores(TEST, "corpus")
    shown = [] if metric is None else [(f"{corpus[metric]:.3f}", f"{metric}, test", "cool")]
    shown.append((str(num_epochs(run)), "epochs", ""))
    if run.train is not None:
        shown.append((f"{len(run.train):,}", "training captions", ""))
    if run.record is not None:
        share = len({change.edit.sample_id for change in changes}) / len(run.record.view.roster)
        shown.append((f"{share:.1%}", "of them edited", "warm"))
    seconds = sum(float(entry.get("seconds", 0)) for entry in run.run.timing)
    shown += [(duration(seconds), "of training", "")] if seconds else []
    return [{"value": value, "name": name, "kind": kind} for value, name, kind in shown]
