"""Reading GloVe files."""

from __future__ import annotations

import bz2

import pytest
import torch

from captioning.text.word_tables import load_word_vectors

LINES = "dog 1 2 3\ncat 4 5 6\nzebra 7 8 9\n"
WORDS = ("<pad>", "cat", "dog", "unseen")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "glove.txt").write_text(LINES)
    (tmp_path / "glove.txt.bz2").write_bytes(bz2.compress(LINES.encode()))
    return tmp_path / "glove.txt"


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.bz2"])
def test_known_words_get_their_vectors_and_others_drawn_ones(path, name: str) -> None:
    vectors = load_word_vectors(path=path.parent / name, words=WORDS, size=3)
    assert vectors.dtype == torch.float32
    assert vectors[1].tolist() == [4, 5, 6]
    assert vectors[2].tolist() == [1, 2, 3]
    assert vectors[0].abs().sum() > 0
    again = load_word_vectors(path=path.parent / name, words=WORDS, size=3)
    assert torch.equal(vectors, again)


def test_a_missing_file_says_where_vectors_come_from(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="GloVe"):
        load_word_vectors(path=tmp_path / "none.txt", words=WORDS, size=3)


@pytest.mark.parametrize("line", ["dog 1 2", "dog 1 2 nan", "dog 1 2 x"])
def test_bad_lines_are_named(tmp_path, line: str) -> None:
    (tmp_path / "bad.txt").write_text(f"cat 1 2 3\n{line}\n")
    with pytest.raises(ValueError, match="line 2"):
        load_word_vectors(path=tmp_path / "bad.txt", words=WORDS, size=3)


def test_no_known_word_is_an_error(path) -> None:
    with pytest.raises(ValueError, match="none of the 1 words"):
        load_word_vectors(path=path, words=("unseen",), size=3)


def test_missing_words_may_be_drawn_otherwise(path) -> None:
    words = (*WORDS, *(f"unseen{number}" for number in range(500)))
    options = {"missing_mean": -1.0, "missing_spread": 2.0}
    drawn = load_word_vectors(path=path, words=words, size=3, **options)[len(WORDS) :]
    assert abs(float(drawn.mean()) + 1) < 0.2
    assert abs(float(drawn.std()) - 2) < 0.2
