"""The cache of parses: round trips, two processes at once, files that are none."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioning.text.parse_cache import ParseCache, pack, unpack
from captioning.types import Token

WORDS = st.text(min_size=1, max_size=8).filter(lambda text: text.split() == [text])
TOKENS = st.builds(
    Token, text=WORDS, lemma=WORDS, pos=WORDS, tag=WORDS, dep=WORDS, head=st.integers(0, 99)
)


@given(st.lists(TOKENS, min_size=1, max_size=5).map(tuple))
def test_what_is_packed_is_unpacked(parse: tuple[Token, ...]) -> None:
    assert unpack(pack(parse)) == parse


def test_only_known_captions_are_found(tmp_path: Path) -> None:
    cache = ParseCache(tmp_path / "new" / "parses.sqlite")
    assert cache.read(["a dog"]) == {}
    cache.write([("a dog", "1"), ("a cat", "2")])
    cache.write([("a dog", "of another process")])  # the first stays
    assert cache.read(["a cat", "a cow", "a dog"]) == {"a dog": "1", "a cat": "2"}
    many = [f"{number}" for number in range(1200)]
    cache.write(zip(many, many, strict=True))
    assert cache.read(many) == dict(zip(many, many, strict=True))


def write_many(path: Path, start: int) -> None:
    for number in range(start, start + 40):
        texts = [f"{number} {k}" for k in range(20)]
        ParseCache(path).write(zip(texts, texts, strict=True))


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "parses.sqlite"
    fork = multiprocessing.get_context("fork")
    # half of what they write is the same
    writers = [fork.Process(target=write_many, args=(path, start)) for start in (0, 20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    texts = [f"{number} {k}" for number in range(60) for k in range(20)]
    assert ParseCache(path).read(texts) == dict(zip(texts, texts, strict=True))


def test_a_failed_write_keeps_nothing(tmp_path: Path) -> None:
    cache = ParseCache(tmp_path / "parses.sqlite")

    def pairs():
        yield "a dog", "1"
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        cache.write(pairs())
    assert cache.read(["a dog"]) == {}


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    path = tmp_path / "parses.sqlite"
    path.write_text("no database, but long enough to be taken for one" * 100)
    with pytest.raises(ValueError, match="parses.sqlite: .* delete the file"):
        ParseCache(path).read(["a dog"])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "parses.sqlite").mkdir()
    with pytest.raises(OSError, match="parses.sqlite: .* choose another cache folder"):
        ParseCache(tmp_path / "parses.sqlite").write([("a dog", "1")])
