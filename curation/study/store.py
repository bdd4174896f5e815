"""Annotations in SQLite: saved at once, by several annotators at the same time."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from curation.study.categories import KEYS
from curation.study.items import Placed, fingerprint

VERSION = 1
MAX_COMMENT_LENGTH = 2000
LOCK_TIMEOUT = 30  # seconds that a writer waits for another
ANNOTATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
SCHEMA = """
CREATE TABLE IF NOT EXISTS study (version INTEGER, fingerprint TEXT);
CREATE TABLE IF NOT EXISTS items (
    number INTEGER PRIMARY KEY, name TEXT, captions TEXT, loss REAL, clip_score REAL,
    set_number INTEGER, half TEXT);
CREATE TABLE IF NOT EXISTS assignments (
    annotator TEXT, set_number INTEGER, position INTEGER, PRIMARY KEY (annotator, set_number));
CREATE TABLE IF NOT EXISTS annotations (
    annotator TEXT, number INTEGER, categories TEXT, comment TEXT, done INTEGER, saved TEXT,
    PRIMARY KEY (annotator, number));
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An annotator's answer on a picture.

    Attributes:
        annotator: their id.
        number: of the item.
        categories: keys of `curation.study.categories`, in their order.
        comment: free text.
        done: whether they went on from the picture; until then it is a draft.
    """

    annotator: str
    number: int
    categories: tuple[str, ...]
    comment: str = ""
    done: bool = True

    def __post_init__(self) -> None:
        if not ANNOTATOR.fullmatch(self.annotator):
            raise ValueError(
                f"annotator must be 1 to 40 letters, digits, '.', '_' or '-', such as 'anna-3': "
                f"got {self.annotator[:60]!r}"
            )
        unknown = set(self.categories) - set(KEYS)
        if unknown:
            raise ValueError(f"unknown categories {sorted(unknown)}; known: {', '.join(KEYS)}")
        if len(self.comment) > MAX_COMMENT_LENGTH:
            raise ValueError(
                f"a comment has at most {MAX_COMMENT_LENGTH} characters: got {len(self.comment)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An item as the database holds it."""

    number: int
    name: str
    captions: tuple[str, ...]
    loss: float
    clip_score: float | None
    set_number: int
    half: str


class Store:
    """The annotations of one study.

    Each call opens its own connection, so one store serves any number of threads and processes.

    Args:
        path: the database; made when missing.
    """

    def __init__(self, *, path: str | Path) -> None:
        self.path = Path(path)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection that holds the write lock; committed at the end, or not at all."""
        connection = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise OSError(
                f"{self.path}: {error}; is it a study's database, writable, on a disk with space?"
            ) from error
        finally:
            connection.close()

    def fill(self, placed: Sequence[Placed]) -> None:
        """Take up the study's pictures, or check that they are those of the database.

        Raises:
            ValueError: the database is of other pictures, captions, losses or sets.
            OSError: it cannot be opened or written.
        """
        digest = fingerprint(placed)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as connection:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            row = connection.execute("SELECT version, fingerprint FROM study").fetchone()
            if row is None:
                self._insert(connection, placed, digest)
            elif row != (VERSION, digest):
                raise ValueError(
                    f"{self.path}: holds annotations of other pictures, captions, losses or sets; "
                    "use those, or another database with --store"
                )

    def _insert(
        self, connection: sqlite3.Connection, placed: Sequence[Placed], digest: str
    ) -> None:
        connection.execute("INSERT INTO study VALUES (?, ?)", (VERSION, digest))
        connection.executemany(
            "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    number,
                    entry.item.name,
                    json.dumps(entry.item.captions),
                    entry.item.loss,
                    entry.item.clip_score,
                    entry.set_number,
                    entry.half,
                )
                for number, entry in enumerate(placed)
            ],
        )

    def assign(self, annotator: str, *, another: bool = False) -> int | None:
        """The set that an annotator works on: the one begun last, or the least annotated one left.

        Args:
            annotator: their id.
            another: whether to assign a further set, because the last one is finished.

        Returns:
            The set's number, or None when they have done all.

        Raises:
            ValueError: a malformed id.
        """
        Annotation(annotator=annotator, number=0, categories=())
        with self._transaction() as connection:
            assigned = [
                number
                for (number,) in connection.execute(
                    "SELECT set_number FROM assignments WHERE annotator=? ORDER BY position",
                    (annotator,),
                )
            ]
            if assigned and not another:
                return assigned[-1]
            row = connection.execute(
                "SELECT s.set_number FROM (SELECT DISTINCT set_number FROM items) s "
                "LEFT JOIN assignments a ON a.set_number = s.set_number "
                "GROUP BY s.set_number HAVING COALESCE(SUM(a.annotator = ?), 0) = 0 "
                "ORDER BY COUNT(a.annotator), s.set_number LIMIT 1",
                (annotator,),
            ).fetchone()
            if row is None:
                return None
            connection.execute(
                "INSERT INTO assignments VALUES (?, ?, ?)", (annotator, row[0], len(assigned))
            )
            return row[0]

    def save(self, annotation: Annotation) -> None:
        """Write an annotation in place of an earlier one; it is on the disk when this returns.

        Raises:
            ValueError: no such item, or none of a set that the annotator was given.
            OSError: the database cannot be written.
        """
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT 1 FROM items i JOIN assignments a ON a.set_number = i.set_number "
                "WHERE i.number = ? AND a.annotator = ?",
                (annotation.number, annotation.annotator),
            ).fetchone()
            if row is None:
                raise ValueError(
                    f"item {annotation.number} is in no set of {annotation.annotator!r}; "
                    "reload the page"
                )
            categories = [key for key in KEYS if key in annotation.categories]
            connection.execute(
                "INSERT OR REPLACE INTO annotations VALUES (?, ?, ?, ?, ?, datetime('now'))",
                (
                    annotation.annotator,
                    annotation.number,
                    json.dumps(categories),
                    annotation.comment,
                    int(annotation.done),
                ),
            )

    def items(self) -> list[Stored]:
        """All pictures, sets one after the other."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT * FROM items ORDER BY number").fetchall()
        return [
            Stored(
                number=number,
                name=name,
                captions=tuple(json.loads(captions)),
                loss=loss,
                clip_score=score,
                set_number=place,
                half=half,
            )
            for number, name, captions, loss, score, place, half in rows
        ]

    def annotations(self, annotator: str | None = None) -> list[Annotation]:
        """All annotations so far, drafts included, by item and annotator."""
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT annotator, number, categories, comment, done FROM annotations "
                "WHERE :annotator IS NULL OR annotator = :annotator ORDER BY number, annotator",
                {"annotator": annotator},
            ).fetchall()
        return [
            Annotation(
                annotator=author,
                number=number,
                categories=tuple(json.loads(categories)),
                comment=comment,
                done=bool(done),
            )
            for author, number, categories, comment, done in rows
        ]
