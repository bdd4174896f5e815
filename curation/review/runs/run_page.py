"""Write ``report.html``, which shows a run on one page and needs no network."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.roster import Roster
from captioning.metrics.bootstrap import Bootstrap, intervals, pooled_mean
from captioning.results.run_folder import FREE_KEYS, NAME_KEYS, flat, is_below
from captioning.results.runs import Run, as_number
from captioning.results.significance import has_means
from captioning.runtime.files import write_text
from curation.record import Change, RunRecord, changes
from curation.review.edit_report import count_actions, histograms, item, loss_curves, truth_facts
from curation.review.html_page import block, build_page, pack, short, thumbnails
from curation.review.runs.reading import FinishedRun, Notes

TEST = "test"
METRICS = ("CIDEr-D", "SPICE", "METEOR", "ROUGE-L", "BLEU-4")  # the first existing one is main
NUM_POINTS = 300  # maximum points of a loss curve
NUM_EXAMPLES = 8  # number of best, worst and random captions
NUM_BEFORE_AFTER = 6  # number of cards for each epoch
NUM_REFERENCES = 5
NUM_BINS = 40
SEPARATES = 0.95  # share of edited captions above the threshold, without which none is shown

Pictures = Mapping[Path, int]


def training_curve(losses: Sequence[tuple[float, float]]) -> list[list[float]] | None:
    """Training loss by update, averaged over at most `NUM_POINTS` intervals."""
    if len(losses) < 2:
        return None
    stretches = np.array_split(np.asarray(losses), min(NUM_POINTS, len(losses)))
    return [
        [round(float(x), 1), round(float(y), 4)] for x, y in (s.mean(axis=0) for s in stretches)
    ]


def validation(
    history: Sequence[Mapping[str, Any]], start: Mapping[str, float]
) -> dict[str, Any] | None:
    """Validation scores by epoch, including scores before training; only `METRICS` if any exist."""
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
    """Main metric of a run: the first metric of `METRICS` that its test has."""
    return next((name for name in METRICS if name in run.scores(TEST, "corpus")), None)


def corpus_scores(run: Run) -> dict[str, Any] | None:
    """Corpus scores with confidence intervals, and a description of the intervals."""
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
    """95% intervals over images by metric, from the test's files or from image means.

    Earlier versions left none. The corpus scores of BLEU and METEOR are not means, so such a run
    has no interval for them.
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
    """Number of images by score of the main metric."""
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
    """Images with the best, worst and random captions by the main metric."""
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
    """First human captions of a photo."""
    rows = () if roster is None else roster.rows_by_image.get(image_id, ())
    samples = () if roster is None else roster.samples
    return [short(samples[row].caption) for row in rows[:NUM_REFERENCES]]


def photo_of(roster: Roster | None, image_id: str) -> Path | None:
    """Path of a photo in the run's dataset."""
    rows = [] if roster is None else list(roster.rows_by_image.get(image_id, ()))
    return roster.samples[rows[0]].image_path if roster is not None and rows else None


def examples(run: FinishedRun, pictures: Pictures) -> list[dict[str, Any]] | None:
    """Groups of generated test captions with their photos and references."""
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
    """First edits of each epoch, which concern the worst samples."""
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
    """Edits and their reasons, with the losses behind the decisions."""
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
    """Losses of an epoch for edited captions and for all other captions."""
    if epoch not in record.epochs:
        return np.empty(0), np.empty(0)
    losses = record.history[list(record.epochs).index(epoch)]
    by_id = record.view.roster.by_id
    edited = np.zeros(len(losses), dtype=bool)
    edited[[by_id[c.edit.sample_id].row for c in changes if c.edit.epoch == epoch]] = True
    seen = np.isfinite(losses)
    return losses[seen & edited], losses[seen & ~edited]


def threshold(record: RunRecord, changes: Sequence[Change], epoch: int) -> float | None:
    """Loss above which nearly all captions of an epoch were edited; None without such a loss."""
    edited, others = _edited_losses(record, changes, epoch)
    if not len(edited):
        return None
    lowest = float(edited.min())
    above = int((others >= lowest).sum())
    return round(lowest, 4) if len(edited) / (len(edited) + above) >= SEPARATES else None


def rules(record: RunRecord, changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Edits by epoch, policy and action, with their losses and the first edit's reason."""
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
    """Settings that differ from ``captioning train``: key, value and default.

    Data appear by name alone; settings that only affect execution are left out.
    """
    own, known = flat(config), flat(defaults)
    return [
        (key, shown(value), shown(known[key]) if key in known else "–")
        for key, value in sorted(own.items())
        if is_setting(key) and (key not in known or known[key] != value)
    ]


def is_setting(key: str) -> bool:
    """Return whether a config key may change results; of the data, only the name counts."""
    in_data = is_below(key, ("data",)) and key != "data.name"
    return not in_data and not is_below(key, (*FREE_KEYS, *NAME_KEYS))


def shown(value: Any) -> str:
    """Format a setting's value as short YAML."""
    words = {None: "null", True: "true", False: "false"}
    is_word = value is None or isinstance(value, bool)
    return words[value] if is_word else short(str(value))


def dropped(run: FinishedRun) -> list[dict[str, Any]]:
    """Number of dropped items of each roster by rule, with examples."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for roster, entries in run.dropped.items():
        for entry in entries:
            groups[roster, entry["rule"]].append(entry["item"])
    return [
        {"roster": roster, "rule": short(rule), "count": len(items), "items": items[:5]}
        for (roster, rule), items in groups.items()
    ]


# Fixed texts, and ``{"text": ...}`` for names from the data, which the page isolates.
Sentence = list[str | dict[str, str]]

DONE = {
    "remove": "removed {}",
    "replace_caption": "replaced {}",
    "replace_image": "replaced the photo of {}",
    "down_weight": "gave less weight to {}",
    "mask_words": "masked words of {}",
    "set_bucket": "marked {} with a begin token of their own",
}


def lead(run: FinishedRun, changes: Sequence[Change]) -> list[Sentence]:
    """Summary sentences of the page, most important first, without missing parts."""
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


def title(run: FinishedRun) -> Sentence:
    """Title of the page: model and data."""
    model, data = run.run.setting("model.name"), run.run.setting("data.name")
    return [{"text": model or "A model"}, *([" on ", {"text": data}] if data else [])]


def initialised(run: FinishedRun) -> Sentence:
    """Initial model of a run and its validation score; empty for random weights."""
    name = run.run.setting("start_from") or run.run.setting("model.pretrained")
    if not name:
        return []
    text = "the shipped captioner" if name == "shipped" else name
    score = run.start.get("CIDEr-D")
    before = "" if score is None else f" (CIDEr-D {score:.2f} before training)"
    return ["initialised from ", {"text": text}, before]


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
        f"Curation {listed(done)}, {share:.1%} of all",
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
    """Number of trained epochs; 0 if unknown."""
    of_losses = 0 if run.record is None else len(run.record.epochs)
    return len(run.run.timing) or of_losses or len(run.history)


def listed(things: Sequence[str]) -> str:
    """Join names to a list such as ``a, b and c``."""
    return " and ".join([", ".join(things[:-1])] * (len(things) > 1) + [*things[-1:]])


def counted(number: int, thing: str) -> str:
    """Format a count such as ``1 epoch`` or ``2 epochs``."""
    return f"{number:,} {named(number, thing)}"


def named(number: int, thing: str) -> str:
    """Choose the singular or plural: ``epoch`` for 1, ``epochs`` for 2."""
    return thing if number == 1 else f"{thing}s"


def duration(seconds: float) -> str:
    """Format a duration such as ``4.3 min``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def tiles(run: FinishedRun, changes: Sequence[Change]) -> list[dict[str, str]]:
    """Main numbers of the page, each with its name and colour class."""
    metric = leading_metric(run.run)
    corpus: Mapping[str, Any] = run.run.scores(TEST, "corpus")
    shown = [] if metric is None else [(f"{corpus[metric]:.3f}", f"{metric}, test", "cool")]
    epochs = num_epochs(run)
    shown.append((str(epochs), named(epochs, "epoch"), ""))
    if run.train is not None:
        name = named(len(run.train), "training caption")
        shown.append((f"{len(run.train):,}", name, ""))
    if run.record is not None:
        share = len({change.edit.sample_id for change in changes}) / len(run.record.view.roster)
        shown.append((f"{share:.1%}", "of them edited", "warm"))
    seconds = sum(float(entry.get("seconds", 0)) for entry in run.run.timing)
    shown += [(duration(seconds), "of training", "")] if seconds else []
    return [{"value": value, "name": name, "kind": kind} for value, name, kind in shown]


FILE_NAME = "report.html"
MAX_BYTES = 8_000_000
MAX_PICTURES = 100
EDITS = Path("curation") / "report.html"


def write_run_page(
    run: FinishedRun, path: Path, *, defaults: Callable[[], Mapping[str, Any]], edits: Path | None
) -> Sequence[str]:
    """Write the report page of a run, which opens without a network.

    Args:
        run: see `curation.review.runs.reading.read_finished_run`.
        path: the HTML file.
        defaults: gives the config of a training without any choice.
        edits: the page of all edits, which the run's page links to if it exists.

    Returns:
        Parts that the page omits, one line each.
    """
    change_list = [] if run.record is None else list(changes(run.record.view, run.record.truth))
    photos = thumbnails(
        _telling_photos(run, change_list), max_pictures=MAX_PICTURES, max_bytes=MAX_BYTES
    )
    numbers = {photo: number for number, photo in enumerate(photos)}
    link = None if edits is None or not edits.is_file() else os.path.relpath(edits, path.parent)
    content: dict[str, Any] = run_facts(run, change_list, numbers, defaults)
    content |= {"edits_page": link}
    blocks = [block("facts", pack(content)), *(block("picture", text) for text in photos.values())]
    write_text(path, page_of("run", f"Run {run.name}", blocks))
    return content["notes"]


def page_of(name: str, title: str, blocks: Sequence[str]) -> str:
    """Build a page of runs from ``pages/NAME.html``, its script and its data blocks."""
    return build_page(
        f"{name}.html",
        title=title,
        scripts=("dom.js", "charts.js", "unpack.js", "cards.js", "parts.js", f"{name}.js"),
        data="\n".join(blocks),
    )


def run_facts(
    run: FinishedRun,
    change_list: Sequence[Change],
    numbers: Mapping[Path, int],
    defaults: Callable[[], Mapping[str, Any]],
) -> dict[str, Any]:
    """All data of the page except images; failed parts are recorded in ``notes``.

    Args:
        run: the run.
        change_list: its edits.
        numbers: numbers of the pictures on the page.
        defaults: see `write_run_page`.
    """
    notes = Notes(lines=list(run.notes))

    def part(name: str, make: Callable[[], Any], default: Any = None) -> Any:
        return notes.read(name, run.run.folder, make, default)

    content = {
        "name": run.name,
        "title": title(run),
        "began": part("score before training", lambda: initialised(run), []),
        "seed": run.seed,
        "lead": part("summary", lambda: lead(run, change_list), []),
        "tiles": part("summary", lambda: tiles(run, change_list), []),
        "losses": part("training loss", lambda: training_curve(run.losses)),
        "validation": part("validation", lambda: validation(run.history, run.start)),
        "test": part("test scores", lambda: corpus_scores(run.run)),
        "examples": part("examples", lambda: examples(run, numbers)),
        "curation": part("curation", lambda: curation(run, change_list, numbers)),
        "settings": part("settings", lambda: changed_settings(run.run.config, defaults()), []),
        "versions": part("versions", lambda: _versions(run), []),
        "timing": [dict(entry) for entry in run.run.timing],
        "dropped": dropped(run),
    }
    return content | {"notes": notes.lines}


def _versions(run: FinishedRun) -> list[tuple[str, str]]:
    known = {name: value for name, value in run.run.versions.items() if name != "resumed"}
    resumed = len(run.run.versions.get("resumed", []))
    rows = [(name, shown(value)) for name, value in known.items()]
    return rows + ([("resumed", counted(resumed, "time"))] if resumed else [])


def _telling_photos(run: FinishedRun, change_list: Sequence[Change]) -> list[Path]:
    """Photos of the page, with examples of the test first."""
    ids = example_ids(run.run).values() if leading_metric(run.run) else ()
    tested = [photo_of(run.test, image_id) for group in ids for image_id in group]
    edited = [
        photo
        for change in before_after(change_list)
        for photo in (change.before.image_path, change.new_photo)
    ]
    return [photo for photo in (*tested, *edited) if photo is not None]
