"""Vectors of words: files by hand, the packaged table on words that people find alike."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from captioning.metrics.detection import area_under_roc
from captioning.text import word_tables
from captioning.text.word_tables import (
    GloveVectors,
    TokenTable,
    build_token_table,
    load_token_vectors,
)

LINES = "the 1 2 2\n. . 9 9 9\ndog 3 0 4\nzero 0 0 0\nDog 0 0 1\ndog 9 9 9\n"
WRITERS: dict[str, Callable] = {"txt": open, "bz2": bz2.open, "gz": gzip.open}

# Pairs of nouns that captions use for the same thing.
SYNONYMS = """man guy, man gentleman, woman lady, boy kid, child kid, baby infant, couch sofa,
bike bicycle, motorcycle motorbike, car automobile, plane airplane, airplane aircraft, puppy dog,
kitten cat, shore beach, ocean sea, hill mountain, road street, path trail, forest woods,
stone rock, boat ship, tv television, phone cellphone, cup mug, photo picture, jacket coat,
hat cap, pants trousers, sneakers shoes, house home, shop store, meal food, crowd people,
player athlete, bunch group, river stream, lawn grass, stairs steps, cab taxi, bag purse,
luggage suitcase, rug carpet, racket racquet, cop policeman, helmet hat, dogs dog, women woman"""


@pytest.fixture(params=list(WRITERS))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"words.{request.param}"
    with WRITERS[request.param](path, "wt", encoding="utf-8") as file:
        file.write(LINES)
    return path


def test_vectors_of_a_file_have_unit_length(path: Path) -> None:
    vectors = GloveVectors(path=path)
    word_rows = vectors.vectors(["dog", "absent", "the", "zero", "dog"])
    expected = [[0.6, 0, 0.8], [0, 0, 0], [1 / 3, 2 / 3, 2 / 3], [0, 0, 0], [0.6, 0, 0.8]]
    assert word_rows.dtype == torch.float32
    assert torch.allclose(word_rows, torch.tensor(expected))
    assert vectors.name == f"GloVe file {path.name}"


def test_no_words_and_later_words(path: Path) -> None:
    vectors = GloveVectors(path=path)
    assert vectors.vectors([]).shape == (0, 3)
    assert vectors.vectors(["the"]).any()
    path.unlink()
    assert vectors.vectors(["the"]).any()  # kept
    with pytest.raises(FileNotFoundError):
        vectors.vectors(["dog"])


def test_a_phrase_is_not_its_first_word(path: Path) -> None:
    assert not GloveVectors(path=path).vectors(["."]).any()


def test_a_word2vec_head_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("2 3\n" + LINES)
    assert GloveVectors(path=tmp_path / "w.txt").vectors(["dog"]).shape == (1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line holds a word and its values"),
        ("the 1 2 2\ndog 1 2\n", "line 2: 'dog' must have 3 finite values, got 2"),
        ("the 1 2 2\ndog 1 2 x\n", "line 2: the values after 'dog' are not numbers"),
        ("the 1 2 2\ndog 1 2 nan\n", "line 2: 'dog' must have 3 finite values"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        GloveVectors(path=path).vectors(["dog"])
    assert "words.txt" in str(caught.value)


def test_an_absent_file_says_where_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nlp\.stanford\.edu"):
        GloveVectors(path=tmp_path / "none.txt")


def make_table(rows: int = 3) -> TokenTable:
    tokenizer = Tokenizer(models.WordLevel({"sea": 0, "side": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("-", "removed")
    table = torch.tensor([[2.0, 0], [0, 2], [0, -1]])[:rows]
    return TokenTable(table=table, tokenizer=tokenizer, name="small")


def test_a_word_is_the_mean_of_its_tokens() -> None:
    word_rows = make_table().vectors(["sea", "sea-side", ""])
    assert torch.allclose(word_rows, torch.tensor([[1, 0], [0.5**0.5, 0.5**0.5], [0, 0]]))
    assert make_table().vectors([]).shape == (0, 2)


def test_a_table_without_a_row_for_every_token_is_refused() -> None:
    with pytest.raises(ValueError, match="got 2 rows for 3 tokens"):
        make_table(rows=2)


def test_the_packaged_table_tells_synonyms_from_other_nouns() -> None:
    pairs = [tuple(pair.split()) for pair in SYNONYMS.split(",")]
    words = sorted({word for pair in pairs for word in pair})
    vectors = dict(zip(words, build_token_table().vectors(words), strict=True))
    rng = np.random.default_rng(0)
    drawn = [tuple(words[i] for i in rng.choice(len(words), 2, replace=False)) for _ in range(1000)]
    known = set(map(frozenset, pairs))
    unrelated = [pair for pair in drawn if frozenset(pair) not in known]
    likeness = [float(vectors[a] @ vectors[b]) for a, b in [*pairs, *unrelated]]
    truth = [True] * len(pairs) + [False] * len(unrelated)
    assert area_under_roc(likeness, truth) > 0.97  # .988; GloVe 6B 50-d has .939 on a like list
    assert all(abs(float(vector.norm()) - 1) < 1e-5 for vector in vectors.values())


def test_a_vocabulary_gets_vectors_and_its_marks_random_ones() -> None:
    words = ("<bos>", "<eos>", "dog", "puppy", "bus")
    word_rows = load_token_vectors(words=words, length=3.0)
    assert torch.allclose(word_rows.norm(dim=1), torch.full((5,), 3.0))
    likeness = nn.functional.cosine_similarity(word_rows[:, None], word_rows[None], dim=2)
    assert likeness[2, 3] > likeness[2, 4] + 0.1  # a dog is like a puppy, not like a bus
    assert abs(likeness[0, 1]) < 0.3
    assert torch.equal(word_rows, load_token_vectors(words=words, length=3.0))
    assert not torch.equal(word_rows[:2], load_token_vectors(words=words, length=3.0, seed=1)[:2])


def test_an_absent_or_damaged_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(word_tables, "TABLE_PACKAGE", "no_such_package")
    with pytest.raises(ModuleNotFoundError, match="no_such_package is not installed.*'offline'"):
        build_token_table()
    (tmp_path / "half_package").mkdir()
    (tmp_path / "half_package" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(word_tables, "TABLE_PACKAGE", "half_package")
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="install the package again"):
        build_token_table()
    for name in (word_tables._TABLE, word_tables._TOKENIZER):
        file = tmp_path / "half_package" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"half a file")
    with pytest.raises(ValueError, match="differs from the file that the project was tested with"):
        build_token_table()
