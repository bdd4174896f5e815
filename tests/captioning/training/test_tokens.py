"""Vocabulary and tokens that are kept between starts."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.data.roster import Roster, build_roster
from captioning.training import tokens
from captioning.training.tokens import build_tokenizer, tokens_of
from captioning.types import Sample

CAPTIONS = ("a dog runs", "a brown dog", "a cat isn't here")


@pytest.fixture(autouse=True)
def keep_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MIN_CAPTIONS", 1)


@pytest.fixture
def config(tmp_path: Path) -> DictConfig:
    tokenizer = {"_target_": tokens.COUNTED, "_partial_": True, "min_count": 2, "max_words": 20}
    return OmegaConf.create({"tokenizer": tokenizer, "paths": {"cache": str(tmp_path / "cache")}})


def roster(captions=CAPTIONS) -> Roster:
    return build_roster(
        "train",
        [
            Sample(row=0, sample_id=f"{i}#0", image_id=str(i), image_path=Path("x"), caption=text)
            for i, text in enumerate(captions)
        ],
    )


def start(config: DictConfig, train: Roster):
    tokenizer = build_tokenizer(config, train)
    table = tokens_of(config, train, tokenizer)
    assert [table[i].tolist() for i in range(len(table))] == [
        tokenizer.encode(sample.caption) for sample in train.samples
    ]
    return tokenizer.state(), table


def test_a_second_start_neither_counts_nor_splits(config, monkeypatch) -> None:
    first, _ = start(config, roster())
    assert first["words"] == ["a", "dog"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the captions were split again")

    monkeypatch.setattr(tokens, "SplitCaptions", refuse)
    monkeypatch.setattr(tokens.TokenTable, "encode", refuse)
    tokenizer = build_tokenizer(config, roster())
    assert tokenizer.state() == first
    assert tokens_of(config, roster(), tokenizer).path is not None, "it is mapped from the file"


def test_other_captions_and_settings_have_files_of_their_own(config) -> None:
    start(config, roster())
    assert start(config, roster(["a cat", "a cat"]))[0]["words"] == ["a", "cat"]
    config.tokenizer.min_count = 1
    assert "brown" in start(config, roster())[0]["words"]


def test_captions_that_are_not_trained_on_may_count_for_the_words(config) -> None:
    share, left_out = roster(CAPTIONS[:1]), roster(CAPTIONS[1:]).samples
    tokenizer = build_tokenizer(config, share, left_out)
    assert tokenizer.state() == start(config, roster())[0]
    table = tokens_of(config, share, tokenizer)
    assert [table[i].tolist() for i in range(len(table))] == [tokenizer.encode(CAPTIONS[0])]


@pytest.mark.parametrize("suffix", [".json", ".bin"])
def test_a_damaged_file_is_told_and_made_anew(config, caplog, suffix: str) -> None:
    first, _ = start(config, roster())
    (path,) = (Path(config.paths.cache) / "tokens").glob(f"*{suffix}")
    good = path.read_bytes()
    path.write_bytes(good[:-9])
    with caplog.at_level(logging.WARNING):
        assert start(config, roster())[0] == first
    assert f"{path}" in caplog.text
    assert "made anew" in caplog.text
    assert path.read_bytes() == good


def test_a_folder_that_cannot_be_written_costs_time_alone(config, tmp_path, caplog) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        start(config, roster())
    assert "cannot be kept for later starts" in caplog.text


def test_words_of_added_pairs_may_stay_uncounted(config) -> None:
    """The vocabulary is the one without pairs, whatever objects these name, and all have tokens."""
    own = roster().samples
    pairs = [replace(s, sample_id=f"p{s.row}", caption="a cat", origin="added:x") for s in own]
    both = build_roster("train", [*own, *pairs])
    alone = build_tokenizer(config, roster())
    tokenizer = build_tokenizer(config, both, uncounted={"added:x"})
    assert tokenizer.state() == alone.state() != build_tokenizer(config, both).state()
    assert tokens_of(config, both, tokenizer)[len(own)].tolist() == tokenizer.encode("a cat")
