"""Vocabulary and tokens that are kept between starts."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.data.roster import Roster, build_roster
from captioning.training import run
from captioning.training.run import build_tokenizer, tokens_of
from captioning.types import Sample

CAPTIONS = ("a dog runs", "a brown dog", "a cat isn't here")


@pytest.fixture(autouse=True)
def keep_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MIN_CAPTIONS", 1)


CHOSEN = OmegaConf.create(
    {"_target_": run.COUNTED, "_partial_": True, "min_count": 2, "max_words": 20}
)


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def roster(captions=CAPTIONS) -> Roster:
    return build_roster(
        "train",
        [
            Sample(row=0, sample_id=f"{i}#0", image_id=str(i), image_path=Path("x"), caption=text)
            for i, text in enumerate(captions)
        ],
    )


def start(cache: str, train: Roster, chosen: DictConfig = CHOSEN):
    tokenizer = build_tokenizer(chosen, train, cache=cache)
    table = tokens_of(train, tokenizer, cache=cache)
    assert [table[i].tolist() for i in range(len(table))] == [
        tokenizer.encode(sample.caption) for sample in train.samples
    ]
    return tokenizer.state(), table


def test_a_second_start_neither_counts_nor_splits(cache, monkeypatch) -> None:
    first, _ = start(cache, roster())
    assert first["words"] == ["a", "dog"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the captions were split again")

    monkeypatch.setattr(run, "SplitCaptions", refuse)
    monkeypatch.setattr(run.TokenTable, "encode", refuse)
    tokenizer = build_tokenizer(CHOSEN, roster(), cache=cache)
    assert tokenizer.state() == first
    assert tokens_of(roster(), tokenizer, cache=cache).path is not None, (
        "it is mapped from the file"
    )


def test_other_captions_and_settings_have_files_of_their_own(cache) -> None:
    start(cache, roster())
    assert start(cache, roster(["a cat", "a cat"]))[0]["words"] == ["a", "cat"]
    other = OmegaConf.merge(CHOSEN, {"min_count": 1})
    assert "brown" in start(cache, roster(), other)[0]["words"]


def test_captions_that_are_not_trained_on_may_count_for_the_words(cache) -> None:
    share, left_out = roster(CAPTIONS[:1]), roster(CAPTIONS[1:])
    tokenizer = build_tokenizer(CHOSEN, share, [left_out], cache=cache)
    assert tokenizer.state() == start(cache, roster())[0]
    table = tokens_of(share, tokenizer, cache=cache)
    assert [table[i].tolist() for i in range(len(table))] == [tokenizer.encode(CAPTIONS[0])]


@pytest.mark.parametrize("suffix", [".json", ".bin"])
def test_a_damaged_file_is_told_and_made_anew(cache, caplog, suffix: str) -> None:
    first, _ = start(cache, roster())
    (path,) = (Path(cache) / "tokens").glob(f"*{suffix}")
    good = path.read_bytes()
    path.write_bytes(good[:-9])
    with caplog.at_level(logging.WARNING):
        assert start(cache, roster())[0] == first
    assert f"{path}" in caplog.text
    assert "computed again" in caplog.text
    assert path.read_bytes() == good


def test_a_folder_that_cannot_be_written_costs_time_alone(cache, tmp_path, caplog) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        start(cache, roster())
    assert "cannot be kept for later starts" in caplog.text


def test_words_of_added_pairs_may_stay_uncounted(cache) -> None:
    """The vocabulary is the one without pairs, whatever objects these name, and all have tokens."""
    own = roster().samples
    pairs = [replace(s, sample_id=f"p{s.row}", caption="a cat", origin="added:x") for s in own]
    both = build_roster("train", [*own, *pairs])
    alone = build_tokenizer(CHOSEN, roster(), cache=cache)
    tokenizer = build_tokenizer(CHOSEN, both, uncounted={"added:x"}, cache=cache)
    assert tokenizer.state() == alone.state() != build_tokenizer(CHOSEN, both, cache=cache).state()
    assert tokens_of(both, tokenizer, cache=cache)[len(own)].tolist() == tokenizer.encode("a cat")
