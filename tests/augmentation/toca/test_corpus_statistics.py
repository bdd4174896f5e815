"""Counts of structures, words and ordered pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from augmentation.toca import corpus_statistics as module
from augmentation.toca.corpus_statistics import (
    CorpusStatistics,
    count_corpus,
    load_statistics,
    merge_statistics,
    save_statistics,
)
from augmentation.toca.templates import SLOTS, Deconstructed, deconstruct

ONE = Deconstructed(
    structure="[N] [VBG] [N] .", words=(("man", "N"), ("riding", "VBG"), ("horse", "N"))
)
TWO = Deconstructed(
    structure="[N] [VBG] [N] .", words=(("man", "N"), ("riding", "VBG"), ("park", "N"))
)
OTHER = Deconstructed(structure="[VB] [N] .", words=(("park", "VB"), ("man", "N")))


def counts(statistics: CorpusStatistics) -> dict[tuple[str, str], int]:
    names = zip(statistics.words, statistics.slots.tolist(), strict=True)
    keys = [(word, SLOTS[slot]) for word, slot in names]
    return dict(zip(keys, statistics.word_counts.tolist(), strict=True))


def test_counts() -> None:
    statistics = count_corpus([ONE, TWO, OTHER, ONE, Deconstructed(problem="no lexical word")])
    assert dict(zip(statistics.structures, statistics.structure_counts.tolist(), strict=True)) == {
        "[N] [VBG] [N] .": 3,
        "[VB] [N] .": 1,
    }
    assert counts(statistics) == {
        ("horse", "N"): 2,
        ("man", "N"): 4,
        ("park", "N"): 1,
        ("park", "VB"): 1,
        ("riding", "VBG"): 3,
    }
    assert statistics.pairs() == {
        ("man", "riding"): 3,
        ("man", "horse"): 2,
        ("man", "park"): 1,
        ("riding", "horse"): 2,
        ("riding", "park"): 1,
        ("park", "man"): 1,
    }
    assert statistics.left_out == {"no lexical word": 1}
    assert statistics.summary() == {"captions": 4, "structures": 2, "words": 5, "pairs": 6}


def test_structures_come_by_their_counts_and_then_by_their_texts() -> None:
    assert count_corpus([ONE, OTHER, OTHER]).structures == (OTHER.structure, ONE.structure)
    assert count_corpus([OTHER, ONE]).structures == (ONE.structure, OTHER.structure)


def test_pairs_do_not_depend_on_when_they_are_summed_up(gold, monkeypatch) -> None:
    captions = [deconstruct(tags) for _, tags in gold]
    statistics = count_corpus(captions)
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 10)
    assert count_corpus(captions).pairs() == statistics.pairs()
    plain: dict[tuple[str, str], int] = {}
    for caption in captions:
        texts = [word for word, _ in caption.words]
        for place, word in enumerate(texts):
            for later in texts[place + 1 :]:
                plain[word, later] = plain.get((word, later), 0) + 1
    assert statistics.pairs() == plain


def test_prior_knowledge_brings_words_and_pairs_but_no_structures() -> None:
    merged = merge_statistics(count_corpus([ONE]), count_corpus([TWO, OTHER]))
    together = count_corpus([ONE, TWO, OTHER])
    assert merged.structures == ("[N] [VBG] [N] .",)
    assert merged.structure_counts.tolist() == [1]
    assert counts(merged) == counts(together)
    assert merged.pairs() == together.pairs()


def test_statistics_are_kept(tmp_path: Path, gold) -> None:
    statistics = count_corpus(
        [*(deconstruct(tags) for _, tags in gold), Deconstructed(problem="why not")]
    )
    save_statistics(statistics, tmp_path / "a.npz")
    loaded = load_statistics(tmp_path / "a.npz")
    for name in ("structures", "words", "left_out"):
        assert getattr(loaded, name) == getattr(statistics, name)
    for name in module._ARRAYS:
        assert np.array_equal(getattr(loaded, name), getattr(statistics, name))


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="no caption of the corpus has a structure; reasons: {'why': 1}"
    ):
        count_corpus([Deconstructed(problem="why")])
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"a\.npz holds damaged statistics"):
        load_statistics(tmp_path / "a.npz")
