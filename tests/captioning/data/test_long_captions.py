"""A caption that does not fit is refused, or cut and counted."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.data.batches.dataset import (
    CaptionDataset,
    masked_token_weights,
    sentences_of_tokens,
)
from captioning.data.long_captions import chosen, fit_tokens, warn_of_short_search
from captioning.data.roster import Roster, build_roster
from captioning.data.token_table import TokenTable
from captioning.text.sentence_spans import trained_text
from captioning.text.tokenizers.published_words import PublishedWords
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import MaskedSpan, Sample

FITS, LONG, ENDLESS = "a dog runs", "A dog runs. A cat sits. A bird sings.", "a b c d e f g h i"


def make_roster(captions: Sequence[str], **options: Any) -> Roster:
    samples = [
        Sample(
            row=0, sample_id=name, image_id=name, image_path=Path(name), caption=caption, **options
        )
        for name, caption in zip("pqrs", captions, strict=False)
    ]
    return build_roster("toy/train", samples)


def tokenizer(max_words: int = 7) -> WordTokenizer:
    return WordTokenizer.build([FITS, LONG, ENDLESS], min_count=1, max_words=max_words)


def table(roster: Roster, words: WordTokenizer) -> TokenTable:
    return TokenTable.encode((sample.caption for sample in roster.samples), words)


def test_captions_end_with_the_last_sentence_that_fits(tmp_path: Path, caplog) -> None:
    roster, words = make_roster([FITS, LONG]), tokenizer()
    tokens, found = fit_tokens(roster, words, table(roster, words), "sentence")
    assert words.decode(tokens[1].tolist()) == "a dog runs a cat sits"
    assert found.kept == {"q": len("A dog runs. A cat sits.")}
    assert "1 of 2 captions of toy/train are longer than tokenizer.max_words=7" in caplog.text
    assert "'q' (2 too long): raise tokenizer.max_words=7 by 2" in caplog.text
    found.write(tmp_path)
    assert json.loads((tmp_path / "long_captions.json").read_text()) == {
        "long_captions": "sentence",
        "limit": "tokenizer.max_words=7",
        "captions": 2,
        "cut": 1,
        "kept": {"q": 23},
    }


def test_captions_that_fit_keep_their_table_and_leave_no_file(tmp_path: Path, caplog) -> None:
    roster, words = make_roster([FITS, LONG]), tokenizer(9)
    for mode in ("sentence", "refuse", "cut"):
        own = table(roster, words)
        tokens, found = fit_tokens(roster, words, own, mode)
        assert tokens is own
        found.write(tmp_path)
    assert not list(tmp_path.iterdir())
    assert not caplog.text


def test_captions_that_are_cut_within_a_sentence_are_counted(caplog) -> None:
    roster, words = make_roster([FITS, LONG, ENDLESS]), tokenizer()
    own = table(roster, words)
    tokens, found = fit_tokens(roster, words, own, "cut")
    assert tokens is own
    assert list(found.kept) == ["q", "r"]
    assert "2 of 3 captions of toy/train are longer than" in caplog.text


@pytest.mark.parametrize(
    ("mode", "captions", "problem"),
    [
        ("refuse", [FITS, LONG], r"max_words=7 cuts 1 of 2 captions .*'q' \(2 too long\): raise"),
        ("sentence", [FITS, ENDLESS], r"within the first sentence of 1 of 2 .*long_captions=cut"),
        *(
            (mode, [LONG, ENDLESS], r"max_words=7 cuts all 2 captions of toy/train, such as 'p'")
            for mode in ("cut", "sentence", "refuse")
        ),
    ],
)
def test_what_does_not_fit_is_refused(mode, captions, problem) -> None:
    roster, words = make_roster(captions), tokenizer()
    with pytest.raises(ValueError, match=problem):
        fit_tokens(roster, words, table(roster, words), mode)


def test_batches_hold_what_fits_with_its_masks_and_sentences() -> None:
    words = tokenizer()
    roster = make_roster([LONG], masks=(MaskedSpan(start=12, stop=23),))
    assert trained_text(LONG, words, "sentence") == "A dog runs. A cat sits."
    assert trained_text(LONG, words, "cut") == LONG
    assert trained_text(ENDLESS, words, "sentence") == ENDLESS
    data = CaptionDataset(
        roster.samples,
        tokenizer=words,
        readers=[lambda *_: {}],
        long_captions="sentence",
        marks_sentences=True,
    )
    batch = data[[0]]
    assert batch.tokens is not None
    assert batch.token_weights is not None
    assert batch.token_sentences is not None
    assert batch.tokens.shape == (1, 8)
    assert batch.token_weights.tolist() == [[1, 1, 1, 1, 0, 0, 0, 1]]
    assert batch.token_sentences.tolist() == [[-1, 0, 0, 0, 1, 1, 1, -1]]
    for function in (masked_token_weights, sentences_of_tokens):
        whole = function(roster.samples, words, 9, "cut")
        assert whole is not None
        assert whole.shape == (1, 9)


def test_only_processors_cut_at_sentences_unless_told() -> None:
    words = tokenizer()
    assert chosen(None, words) == "cut"
    assert chosen("refuse", words) == "refuse"
    words.of_processor = True
    assert chosen(None, words) == "sentence"


def test_unknown_words_count_where_they_are_no_tokens() -> None:
    words = PublishedWords.build([FITS], layout="updown_baseline", min_count=1, max_words=2)
    text = "a zebra runs"
    assert words.left_out(text, words.encode(text)) == 1
    assert words.left_out("a dog", words.encode("a dog")) == 0


def test_a_search_that_ends_most_captions_early_is_told(caplog) -> None:
    caplog.set_level(logging.WARNING)
    roster, words = make_roster([ENDLESS, FITS, ENDLESS]), tokenizer(20)
    tokens = TokenTable(ids=np.arange(25), ends=np.array([11, 15, 25]))
    warn_of_short_search(roster, tokens, 5)
    assert not caplog.text
    warn_of_short_search(roster, tokens, 4)
    assert "search.max_length=4 ends captions early: half of toy/train have 9 tokens" in caplog.text
    assert words.left_out(ENDLESS, words.encode(ENDLESS)) == 0
