"""Token ids of many captions in a file."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from captioning.data.token_table import HEADER_BYTES, TokenTable
from captioning.text.tokenizers.treebank import SplitCaptions, split_words
from captioning.text.tokenizers.words import WordTokenizer

CAPTIONS = ["a dog runs", "a brown dog's ball", "?", "a cat"]


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer.build(CAPTIONS, min_count=2)


def rows(table: TokenTable) -> list[list[int]]:
    return [table[row].tolist() for row in range(len(table))]


def test_a_table_holds_what_the_tokenizer_gives(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    expected = [tokenizer.encode(caption) for caption in CAPTIONS]
    table = TokenTable.encode(CAPTIONS, tokenizer)
    table.save(tmp_path / "tokens.bin")
    mapped = TokenTable.open(tmp_path / "tokens.bin", number=len(CAPTIONS))
    assert rows(table) == rows(mapped) == expected
    assert mapped[0].dtype == np.int64
    sent = pickle.dumps(mapped)
    assert len(sent) < 500, "a mapped table is sent by name"
    for data in (sent, pickle.dumps(table)):
        assert rows(pickle.loads(data)) == expected  # noqa: S301


def test_captions_split_for_the_vocabulary_give_the_same_tokens(tokenizer: WordTokenizer) -> None:
    split = SplitCaptions([*CAPTIONS, "of another corpus"], max_words=20)
    assert WordTokenizer.build(split, min_count=2).state()["words"] == ["a", "dog"]
    ids, ends = split.encode(tokenizer, len(CAPTIONS))
    assert rows(TokenTable(ids=ids, ends=ends)) == [tokenizer.encode(text) for text in CAPTIONS]


def test_words_that_pieces_share_and_captions_that_are_cut_are_counted_as_one_by_one() -> None:
    captions = ["A dog's ball, a dog.", "cannot 'go' a dog (here)", "", "?", "a cat on a mat"]
    for max_words in (2, 3, 20):
        cut = [split_words(caption)[:max_words] for caption in captions]
        split = SplitCaptions(captions, max_words=max_words)
        assert +split.counts == Counter(chain.from_iterable(cut))
        assert split.lengths.tolist() == [len(words) for words in cut]
        assert [split.words[number] for number in split.numbers] == [*chain.from_iterable(cut)]


@pytest.mark.parametrize("damage", ["cut", "bit", "header", "other"])
def test_a_damaged_file_is_refused(tmp_path: Path, tokenizer: WordTokenizer, damage: str) -> None:
    path = tmp_path / "tokens.bin"
    TokenTable.encode(CAPTIONS, tokenizer).save(path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "bit":
        data[HEADER_BYTES + 3] ^= 1
    elif damage == "header":
        data[5] ^= 1
    path.write_bytes(data)
    number = len(CAPTIONS) + (damage == "other")
    with pytest.raises(ValueError, match=r"tokens\.bin is damaged"):
        TokenTable.open(path, number=number)
