"""Cache of parses on disk, keyed by caption; several processes may share a file."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from captioning.types import Parse, Token

COLUMNS = ("text", "lemma", "pos", "tag", "dep", "head")
# Seconds that a process waits for another process's write.
PATIENCE = 120.0
MAX_KEYS_PER_QUERY = 500


def pack(parse: Parse) -> str:
    """Write a parse as six lines, one per column; no value holds white space."""
    return "\n".join(" ".join(str(getattr(token, name)) for token in parse) for name in COLUMNS)


def unpack(text: str) -> Parse:
    """Read a parse that `pack` wrote."""
    columns = [line.split(" ") for line in text.split("\n")]
    return tuple(
        Token(text=word, lemma=lemma, pos=pos, tag=tag, dep=dep, head=int(head))
        for word, lemma, pos, tag, dep, head in zip(*columns, strict=True)
    )


def _key(caption: str) -> bytes:
    return hashlib.blake2b(caption.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class ParseCache:
    """SQLite cache from captions to parses of one pipeline or model.

    SQLite locks the file while a process writes, so the file system must support locks: local disks
    do, some network file systems do not.

    Args:
        path: the file; created with its folders on the first write.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self, captions: Sequence[str]) -> dict[str, str]:
        """Return the packed parses of the captions that the file holds."""
        if not self.path.exists():
            return {}
        by_key = {_key(caption): caption for caption in captions}
        keys = list(by_key)
        parses: dict[str, str] = {}
        with self._open() as connection:
            for start in range(0, len(keys), MAX_KEYS_PER_QUERY):
                chunk = keys[start : start + MAX_KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                query = f"SELECT key, parse FROM parses WHERE key IN ({marks})"
                parses |= {by_key[key]: parse for key, parse in connection.execute(query, chunk)}
        return parses

    def write(self, parses: Iterable[tuple[str, str]]) -> None:
        """Store (caption, packed parse) pairs in one transaction."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection, connection:
            connection.executemany(
                "INSERT OR IGNORE INTO parses VALUES (?, ?)",
                ((_key(caption), parse) for caption, parse in parses),
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file, and create its table if needed.

        Raises:
            ValueError: the file is not a parse cache.
            OSError: the file cannot be read or written, or stays locked by another process.
        """
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS parses (key BLOB PRIMARY KEY, parse TEXT NOT NULL)"
                    " WITHOUT ROWID"
                )
                yield connection
        except sqlite3.OperationalError as error:
            raise OSError(
                f"{self.path}: {error}; free disk space, or choose another cache folder"
            ) from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path}: {error}; delete the file, then rerun") from error
