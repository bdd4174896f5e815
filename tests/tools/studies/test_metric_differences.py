"""The tables on why scores differ, from a few captions and without Java."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
THINGS = ["dog", "cat", "horse", "boat", "child", "woman", "bus", "bird", "train", "bench"]
GROUPS = [
    [
        f"A brown {thing} is by the old road",
        f"The brown {thing} is by a road.",
        f"A {thing} is near the old road.",
        f"{thing.title()} by the road, on a day in May.",
        f"One {thing} in the picture.",
    ]
    for thing in THINGS
]


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    return importlib.import_module("metric_differences")


def rows(table: str) -> dict[str, list[float]]:
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {name: [float(value) for value in values] for name, *values in lines}


@pytest.fixture
def tokens(study):
    return study.tokenized(GROUPS, study.tokenize_python)


def test_words_as_typed_match_less_than_tokens(study, tokens):
    table = rows(study.tokenizers(GROUPS, tokens))
    published, port, *_, typed = table.values()
    assert published == port
    assert all(low < high for low, high in zip(typed, published, strict=True))


def test_the_shortest_reference_is_no_closer_than_the_closest(study, tokens):
    table = rows(study.bleu(tokens))
    assert table["nltk's `corpus_bleu`, same tokens"] == table["corpus, closest reference length"]
    closest, shortest, *_ = (value for (value,) in table.values())
    assert shortest >= closest


def test_frequencies_of_the_same_images_change_nothing(study, tokens):
    first, five_times, everything = rows(study.cider(tokens, tokens)).values()
    assert first == five_times == everything
    more_dogs = [*tokens[:5], *[tokens[0]] * 5]
    alone, *among = rows(study.cider(tokens[:5], more_dogs)).values()
    assert among[0] == among[1]
    assert all(other < score for other, score in zip(among[0], alone, strict=True))


def test_mistakes_cost(study, tokens):
    right, shifted, empty, left_out = rows(study.mistakes(tokens)).values()
    assert shifted[2] < right[2]
    assert empty[2] < left_out[2]


def test_fewer_references_and_intervals_have_their_rows(study, tokens, monkeypatch):
    monkeypatch.setattr(study, "RESAMPLES", 5)
    assert list(rows(study.reference_counts(tokens))) == ["1", "2", "3", "4"]
    kept, anew = rows(study.cider_intervals(tokens)).values()
    assert kept[0] <= kept[1]
    assert kept != anew


def test_the_page_has_a_place_for_every_table(study):
    page = (ROOT / "docs" / "results" / "metric_differences.md").read_text(encoding="utf-8")
    for name in ["tokenizers", "bleu", "meteor", "cider", "intervals", "references", "mistakes"]:
        between = page.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
        assert "| --- |" in between, name
