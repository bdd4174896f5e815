"""What the study's page can ask for, and the secret of its address."""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from captioning.vision.photos import load_rgb
from curation.review.page_server import JPEG, Refused, Request, ServedPage, as_jpeg, served_page
from curation.study.categories import CATEGORIES
from curation.study.items import checked_picture
from curation.study.store import Annotation, Store

STYLES, SCRIPTS = ("base.css", "study.css"), ("dom.js", "ask.js", "study.js")


class Study:
    """What the page can ask for. Annotators see neither losses nor scores.

    Args:
        store: the annotations.
        paths: file of each picture, by its name.
        roots: folders in which pictures may lie.
        num_required: annotations that each picture should get.
    """

    def __init__(
        self, *, store: Store, paths: Mapping[str, Path], roots: Sequence[Path], num_required: int
    ) -> None:
        self.store = store
        self.items = store.items()
        self.paths = paths
        self.roots = list(roots)
        self.num_required = num_required
        self.page: ServedPage = served_page(
            "study.html",
            title="Which errors does the picture show?",
            styles=STYLES,
            scripts=SCRIPTS,
        )

    def get(self, path: str) -> tuple[str, bytes]:
        """A picture, by its number."""
        if match := re.fullmatch(r"image/(\d{1,6})", path):
            return JPEG, self.picture(int(match[1]))
        raise Refused(404, "no such page")

    def post(self, path: str, request: Request) -> dict[str, Any]:
        """An annotator's set, or an annotation to save."""
        record = request.record()
        if path == "api/sheet":
            another = record.get("another") is True
            return self.sheet(str(record.get("annotator", "")), another=another)
        if path == "api/annotation":
            return self.save(record)
        raise Refused(404, "no such page")

    def sheet(self, annotator: str, *, another: bool = False) -> dict[str, Any]:
        """The set that an annotator works on, with the annotations so far."""
        set_number = self.store.assign(annotator, another=another)
        annotations = {
            annotation.number: annotation for annotation in self.store.annotations(annotator)
        }
        empty = {"categories": [], "comment": "", "done": False}
        items = [
            {"number": item.number, "captions": item.captions}
            | (
                _annotation_fields(annotations[item.number])
                if item.number in annotations
                else empty
            )
            for item in self.items
            if item.set_number == set_number
        ]
        return {
            "annotator": annotator,
            "items": items,
            "categories": [asdict(category) for category in CATEGORIES],
            "missing": self.missing(),
        }

    def missing(self) -> int:
        """Number of annotations that are still required, over all pictures."""
        counts = Counter(
            annotation.number for annotation in self.store.annotations() if annotation.done
        )
        return sum(max(0, self.num_required - counts[item.number]) for item in self.items)

    def save(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write an annotation that the page sent."""
        categories = record.get("categories")
        if not isinstance(categories, list) or not all(isinstance(x, str) for x in categories):
            raise ValueError("categories must be a list of texts")
        number, done = record.get("number"), record.get("done")
        if type(number) is not int or type(done) is not bool:
            raise ValueError("number must be a whole number and done true or false")
        annotation = Annotation(
            annotator=str(record.get("annotator")),
            number=number,
            categories=tuple(categories),
            comment=str(record.get("comment", "")),
            done=done,
        )
        self.store.save(annotation)
        return {"saved": number}

    def picture(self, number: int) -> bytes:
        """A picture as JPEG: decoded first, so that nothing but pictures leaves the folder."""
        if number >= len(self.items):
            raise Refused(404, "no such picture")
        path = self.paths[self.items[number].name]
        try:
            photo = load_rgb(checked_picture(path, self.roots))
        except (OSError, ValueError) as error:
            raise Refused(404, "this picture cannot be shown") from error
        return as_jpeg(photo)


def _annotation_fields(annotation: Annotation) -> dict[str, Any]:
    return {
        "categories": annotation.categories,
        "comment": annotation.comment,
        "done": annotation.done,
    }


def read_token(path: Path) -> str:
    """The secret of a study's address; made at first, and readable by this user alone.

    It stays the same, so that pages that are open go on when the program is started again.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read or written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = path.read_text(encoding="ascii", errors="replace").strip()
        if not re.fullmatch(r"[\w-]{32,100}", token, re.ASCII):
            raise ValueError(
                f"{path}: holds no token of a study; delete it, then the study gets a new address"
            ) from None
        return token
    token = secrets.token_urlsafe(24)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    return token
