"""A study's pictures as tasks of Label Studio, and what people answered; needs no Label Studio."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from captioning.runtime.files import write_json, write_text
from curation.review.suspects.label_studio import (
    LOCAL_FILES,
    PHOTO,
    latest_values,
    photo_addresses,
    read_export,
    texts_of,
)
from curation.study.categories import CATEGORIES, KEYS
from curation.study.items import Placed, fingerprint

COMMAND = "captioning curate study"
COMMENT = "comment"
DATABASES = (".sqlite", ".db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An annotator's answer on a picture.

    Attributes:
        annotator: their id or address.
        number: place of the picture in the study.
        categories: keys of `curation.study.categories`, in their order.
        comment: free text.
    """

    annotator: str
    number: int
    categories: tuple[str, ...]
    comment: str = ""


def write_tasks(
    placed: Sequence[Placed], folder: Path, *, root: Path | None = None, address: str = LOCAL_FILES
) -> Path:
    """Write ``tasks.json``, set after set, and ``interface.xml``; pictures stay.

    A task holds neither loss nor half, which annotators must not see.

    Args:
        placed: the study's pictures, from `divide`.
        folder: for the two files.
        root, address: see `photo_addresses`.

    Returns:
        The root.

    Raises:
        ValueError: a picture lies outside the root.
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
    """What people answered, by picture and annotator; the latest answer of one counts.

    Args:
        path: what Label Studio exported as JSON, or ``study.sqlite`` of the page that earlier
            versions served (without its drafts).
        placed: the study's pictures, from `divide`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no such export, or of other pictures, captions, losses or sets.
        OSError: no such database.
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
            raise ValueError(f"{where}: its number is {number!r}, not 0 to {len(placed) - 1}")
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
    """Say which task is in another form."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} has no {error}: export the project of {COMMAND} as JSON (not JSON-MIN)"
        ) from error


def _annotator(entry: Mapping[str, Any]) -> str:
    """Who made an annotation: an address, or a number."""
    who = entry["completed_by"]
    if isinstance(who, Mapping):
        who = who.get("email") or who["id"]
    if who is None or who == "":
        raise KeyError("completed_by")
    return str(who)


def _categories(ticked: Collection[str], where: str) -> tuple[str, ...]:
    unknown = sorted(set(ticked) - set(KEYS))
    if unknown:
        raise ValueError(f"{where}: unknown categories {unknown}; known: {', '.join(KEYS)}")
    return tuple(key for key in KEYS if key in ticked)


def _read_database(path: Path, placed: Sequence[Placed]) -> list[Annotation]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT fingerprint FROM study").fetchone()
            rows = connection.execute(
                "SELECT annotator, number, categories, comment FROM annotations WHERE done"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise OSError(f"{path}: {error}; is it a study's database?") from error
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
            f"{where}: answers on other pictures, captions, losses or sets; give the IMAGES, "
            "--sets, --set-size and --seed that its tasks were written with"
        )
