"""Write a study's images as Label Studio tasks, and read the annotators' answers.

People choose from 25 kinds of error (`CATEGORIES`). Van Miltenburg and Elliott ("Room for
improvement in automatic image description", 2017) name 20 for captions. The data curation paper
adapted them to generated pictures: five for what looks weird, one for text in the picture and one
for captions that contradict each other came in, and "other" became a comment.

`write_results` makes a table of them, the paper's two figures (9a and 9b), and the agreement.
Krippendorff's alpha measures how far annotators agree. It is 1 minus the observed disagreement over
that expected by chance: 1 is perfect agreement, 0 is chance. It takes any number of annotators a
picture (Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011); nltk computes it.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from nltk.metrics.agreement import AnnotationTask
from nltk.metrics.distance import binary_distance, masi_distance

from captioning.runtime.files import write_atomically, write_json, write_text
from curation.review.suspects.label_studio import (
    LOCAL_FILES,
    PHOTO,
    latest_values,
    photo_addresses,
    read_export,
    texts_of,
)
from curation.study.items import Item, Placed, fingerprint

COMMAND = "captioning curate study"
COMMENT = "comment"
DATABASES = (".sqlite", ".db")
COLUMNS = (
    "annotator", "picture", "set", "half", "loss", "clip_score", "num_errors", "categories",
    "comment", "captions",
)  # fmt: skip
NOTHING = "no error"
Label = tuple[str, int, Hashable]  # annotator, item, value
COLORS = ("#2f6690", "#d1603d", "#3f7d58", "#b98a2f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A category of errors that annotators can tick for an image.

    Attributes:
        key: short name in tables.
        group: heading on the page.
        label: under that heading.
        hint: text that explains when the category applies.
    """

    key: str
    group: str
    label: str
    hint: str


def _group(group: str, *rows: tuple[str, str, str]) -> tuple[Category, ...]:
    return tuple(
        Category(key=key, group=group, label=label, hint=hint) for key, label, hint in rows
    )


def _objects(group: str, key: str) -> tuple[Category, ...]:
    return _group(
        group,
        (f"wrong-{key}", "Wrong", "another thing in its place"),
        (f"similar-{key}", "Similar", "something that only resembles it"),
        (f"missing-{key}", "Missing", "nothing like it is there"),
        (f"extra-{key}", "Extra", "a further one that the captions do not name"),
        (f"weird-{key}", "Weird", "deformed, or could not exist"),
    )


CATEGORIES = (
    *_group(
        "People",
        ("age", "Age", "a child for an adult, for example"),
        ("gender", "Gender", "a woman for a man, for example"),
        ("clothing-type", "Type of clothing", "a shirt for a jacket, for example"),
        ("clothing-color", "Color of clothing", "red for blue, for example"),
        ("weird-face", "Weird face", "deformed, melted or blank"),
        (
            "weird-body",
            "Weird body parts",
            "too many fingers or limbs, or joints that bend wrongly",
        ),
    ),
    *_objects("Main object", "main-object"),
    *_objects("Other objects", "other-object"),
    *_group(
        "General",
        ("stance", "Stance", "standing for sitting, for example: what holds still"),
        ("activity", "Activity", "walking for jumping, for example: what moves"),
        ("position", "Position", "in the wrong place within the scene"),
        ("number", "Number", "too many or too few people or things"),
        ("scene", "Scene, event, location", "the surroundings are wrong"),
        ("text", "Text", "letters that make no sense"),
        ("color", "Color", "of anything but clothing"),
        ("unrelated", "Unrelated", "the picture has nothing to do with the captions"),
        ("inconsistent-captions", "Captions disagree", "the captions contradict each other"),
    ),
)
KEYS = tuple(category.key for category in CATEGORIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An annotator's answer about an image.

    Attributes:
        annotator: their id or address.
        number: place of the picture in the study.
        categories: keys of `curation.study.answers`, in their order.
        comment: free text.
    """

    annotator: str
    number: int
    categories: tuple[str, ...]
    comment: str = ""


def write_tasks(
    placed: Sequence[Placed], folder: Path, *, root: Path | None = None, address: str = LOCAL_FILES
) -> Path:
    """Write ``tasks.json``, one set after another, and ``interface.xml``; images stay.

    A task holds neither loss nor half, which annotators must not see.

    Args:
        placed: the study's pictures, from `divide`.
        folder: for the two files.
        root, address: see `photo_addresses`.

    Returns:
        The root.

    Raises:
        ValueError: an image is outside the root.
        OSError: the folder cannot be written.
    """
    study = fingerprint(placed)
    top, addresses = photo_addresses([entry.item.path for entry in placed], root, address)
    tasks = [
        {
            "data": {
                "image": image,
                "captions": "\n".join(entry.item.captions),
                "set": entry.set_number + 1,
                "number": number,
                "study": study,
            }
        }
        for number, (entry, image) in enumerate(zip(placed, addresses, strict=True))
    ]
    write_text(folder / "interface.xml", _interface())
    write_json(folder / "tasks.json", tasks)
    return top


def _interface() -> str:
    lines = [
        "<View>",
        f'  <Image name="{PHOTO}" value="$image"/>',
        '  <Header value="The captions"/>',
        '  <Text name="captions" value="$captions"/>',
        '  <Header value="Tick every error of the picture; submit it without a tick if none"/>',
    ]
    for group in dict.fromkeys(category.group for category in CATEGORIES):
        name = group.lower().replace(" ", "-")
        lines += [
            f'  <Header value="{group}" size="5"/>',
            f'  <Choices name="{name}" toName="{PHOTO}" choice="multiple" showInline="true">',
        ]
        lines += [
            f'    <Choice value="{category.label}" alias="{category.key}" '
            f"hint={quoteattr(category.hint)}/>"
            for category in CATEGORIES
            if category.group == group
        ]
        lines.append("  </Choices>")
    lines += [
        f'  <TextArea name="{COMMENT}" toName="{PHOTO}" placeholder="Anything else?"',
        '            maxSubmissions="1" rows="2"/>',
        "</View>",
    ]
    return "\n".join(lines) + "\n"


def read_answers(path: str | Path, placed: Sequence[Placed]) -> list[Annotation]:
    """Read the answers by image and annotator; an annotator's latest answer counts.

    Args:
        path: what Label Studio exported as JSON, or ``study.sqlite`` of the page that earlier
            versions served (without its drafts).
        placed: the study's pictures, from `divide`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not an export of this study.
        OSError: the database cannot be read.
    """
    if Path(path).suffix in DATABASES:
        found = _read_database(Path(path), placed)
    else:
        found = _read_label_studio(path, placed)
    return sorted(found, key=lambda answer: (answer.number, answer.annotator))


def _read_label_studio(path: str | Path, placed: Sequence[Placed]) -> Iterable[Annotation]:
    study = fingerprint(placed)
    entries: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    places: dict[tuple[int, str], str] = {}
    for where, task in read_export(path):
        with _named(where):
            number, found = task["data"]["number"], task["data"]["study"]
            made = [(_annotator(entry), entry) for entry in task["annotations"]]
        _check_study(where, found, study)
        if type(number) is not int or not 0 <= number < len(placed):
            raise ValueError(f"{where}: number must be from 0 to {len(placed) - 1}: got {number!r}")
        for annotator, entry in made:
            entries[number, annotator].append(entry)
            places[number, annotator] = f"{where}, annotated by {annotator}"
    for (number, annotator), made in entries.items():
        where = places[number, annotator]
        with _named(where):
            values = latest_values(made)
            if values is None:  # skipped
                continue
            ticked = [key for value in values.values() for key in value.get("choices", ())]
            comment = "\n".join(texts_of(values.get(COMMENT, {}).get("text", ())))
        categories = _categories(ticked, where)
        yield Annotation(annotator=annotator, number=number, categories=categories, comment=comment)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Context manager: adds the task to errors about its format."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} has no {error}: export the project of {COMMAND} as JSON (not JSON-MIN)"
        ) from error


def _annotator(entry: Mapping[str, Any]) -> str:
    """Annotator of an annotation: an e-mail address or a number."""
    who = entry["completed_by"]
    if isinstance(who, Mapping):
        who = who.get("email") or who["id"]
    if who is None or who == "":
        raise KeyError("completed_by")
    return str(who)


def _categories(ticked: Collection[str], where: str) -> tuple[str, ...]:
    unknown = sorted(set(ticked) - set(KEYS))
    if unknown:
        raise ValueError(
            f"{where} has unknown categories {unknown}; known categories: {', '.join(KEYS)}"
        )
    return tuple(key for key in KEYS if key in ticked)


def _read_database(path: Path, placed: Sequence[Placed]) -> list[Annotation]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: name the file with a study's answers")
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT fingerprint FROM study").fetchone()
            rows = connection.execute(
                "SELECT annotator, number, categories, comment FROM annotations WHERE done"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise OSError(f"{path} is not a readable study database: {error}") from error
    _check_study(str(path), None if found is None else found[0], fingerprint(placed))
    return [
        Annotation(
            annotator=annotator,
            number=number,
            categories=_categories(json.loads(keys), str(path)),
            comment=comment,
        )
        for annotator, number, keys, comment in rows
    ]


def _check_study(where: str, found: object, expected: str) -> None:
    if found != expected:
        raise ValueError(
            f"{where}: the answers belong to other images, captions, losses or sets; use the "
            "IMAGES, --sets, --set-size and --seed with which the tasks were written"
        )


def write_results(
    placed: Sequence[Placed],
    annotations: Sequence[Annotation],
    folder: str | Path,
    *,
    num_required: int,
) -> dict[str, Any]:
    """Write ``annotations.csv``, ``summary.json`` and the figures.

    The table holds every annotation; figures and summary rest on the pictures with at least
    ``num_required`` annotations.

    Args:
        placed: the study's pictures, from `curation.study.items.divide`.
        annotations: their annotations, from `curation.study.answers.read_answers`.
        folder: for the files.
        num_required: annotations of a picture.

    Returns:
        The summary: counts, mean errors, agreement.

    Raises:
        ValueError: no image has ``num_required`` annotations.
    """
    folder = Path(folder)
    counts = Counter(annotation.number for annotation in annotations)
    write_text(folder / "annotations.csv", _table(placed, annotations))
    used = [annotation for annotation in annotations if counts[annotation.number] >= num_required]
    if not used:
        raise ValueError(
            f"no image has {num_required} annotations yet ({len(annotations)} annotations are "
            f"finished, in {folder / 'annotations.csv'}); annotate more, or lower --annotations"
        )
    errors: dict[int, list[int]] = defaultdict(list)
    for annotation in used:
        errors[annotation.number].append(len(annotation.categories))
    means = {number: float(np.mean(values)) for number, values in errors.items()}
    by_category = Counter(key for annotation in used for key in annotation.categories)
    write_atomically(
        folder / "errors_by_category.png", lambda part: _by_category(by_category, part)
    )
    shown = [placed[number] for number in means]
    write_atomically(
        folder / "errors_by_loss.png",
        lambda part: _by_loss([entry.item for entry in shown], list(means.values()), part),
    )
    summary = {
        "num_pictures": len(means),
        "num_annotations": len(used),
        "num_annotators": len({annotation.annotator for annotation in used}),
        "mean_errors": {
            half: _mean([value for number, value in means.items() if placed[number].half == half])
            for half in ("low", "high")
        },
        "errors_by_category": {c.key: by_category[c.key] for c in CATEGORIES},
        "krippendorff_alpha": agreement(used),
    }
    write_json(folder / "summary.json", summary)
    return summary


def told(summary: dict[str, Any]) -> str:
    """One line of text about a summary."""
    low, high = (_rounded(summary["mean_errors"][half]) for half in ("low", "high"))
    alpha = _rounded(summary["krippendorff_alpha"]["all"])
    return (
        f"{summary['num_pictures']} pictures, {summary['num_annotations']} annotations "
        f"by {summary['num_annotators']} people; mean errors {low} at low loss, "
        f"{high} at high loss; Krippendorff's alpha {alpha}"
    )


def _rounded(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def alpha(
    labels: Sequence[Label], distance: Callable[..., float] = binary_distance
) -> float | None:
    """Krippendorff's alpha, at most 1; None if undefined.

    It is undefined where no item has two labels, and where all labels are the same: nothing could
    have been disagreed about.

    Args:
        labels: at most one of an annotator and item.
        distance: distance of two labels, in [0, 1]; by default 0 for the same and 1 for different
            ones.
    """
    counts = Counter(item for _, item, _ in labels)
    paired = [label for label in labels if counts[label[1]] > 1]
    if len({value for _, _, value in paired}) < 2:
        return None
    return float(AnnotationTask(data=paired, distance=distance).alpha())


def agreement(annotations: Sequence[Annotation]) -> dict[str, float | None]:
    """Alpha of each category (ticked or not), and over all categories as ``"all"``.

    Over all, the sets of ticked categories are compared by the MASI distance (Passonneau, 2006),
    which counts part of an overlap.
    """
    alphas: dict[str, float | None] = {
        "all": alpha(
            [
                (
                    annotation.annotator,
                    annotation.number,
                    frozenset(annotation.categories or (NOTHING,)),
                )
                for annotation in annotations
            ],
            masi_distance,
        )
    }
    for key in KEYS:
        alphas[key] = alpha(
            [
                (annotation.annotator, annotation.number, key in annotation.categories)
                for annotation in annotations
            ]
        )
    return alphas


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _table(placed: Sequence[Placed], annotations: Sequence[Annotation]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for annotation in annotations:
        entry = placed[annotation.number]
        item = entry.item
        score = "" if item.clip_score is None else item.clip_score
        texts = (" ".join(annotation.categories), annotation.comment, " | ".join(item.captions))
        writer.writerow(
            [
                _plain(annotation.annotator),
                _plain(item.name),
                entry.set_number,
                entry.half,
                item.loss,
                score,
                len(annotation.categories),
                *map(_plain, texts),
            ]
        )
    return file.getvalue()


def _plain(text: str) -> str:
    """Escape a text so that no spreadsheet runs it as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _by_category(counts: Counter[str], path: Path) -> None:
    """Draw Figure 9a: how often each category was ticked."""
    figure = _figure(7, 6)
    axes = figure.add_subplot()
    groups = list(dict.fromkeys(category.group for category in CATEGORIES))
    rows = sorted(CATEGORIES, key=lambda category: counts[category.key])
    axes.barh(
        [category.key for category in rows],
        [counts[category.key] for category in rows],
        color=[COLORS[groups.index(category.group)] for category in rows],
    )
    axes.legend(
        handles=[Patch(color=COLORS[place], label=group) for place, group in enumerate(groups)],
        frameon=False,
        loc="lower right",
    )
    axes.set(xlabel="annotations that name it", title="Errors by category")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _by_loss(items: Sequence[Item], errors: Sequence[float], path: Path) -> None:
    """Draw Figure 9b: mean errors of each image by its loss and, if known, its CLIPScore."""
    figure = _figure(6, 4.2)
    axes = figure.add_subplot()
    losses = [item.loss for item in items]
    scores = [item.clip_score for item in items if item.clip_score is not None]
    if len(scores) == len(items):
        dots = axes.scatter(scores, losses, c=errors, cmap="viridis", s=36)
        figure.colorbar(dots, ax=axes, label="mean number of errors")
        axes.set(xlabel="CLIPScore", ylabel="loss of the captioner (nats a token)")
    else:
        axes.scatter(losses, errors, color=COLORS[0], s=36)
        axes.set(xlabel="loss of the captioner (nats a token)", ylabel="mean number of errors")
    axes.set_title("Errors, loss and CLIPScore")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
