"""Vocabularies of published UpDown checkpoints: where marks stand, and what unknown words cost."""

from __future__ import annotations

import pytest

from captioning.text.tokenizers.published_words import PublishedWords
from captioning.text.tokenizers.restore import restored

CAPTIONS = ["a dog runs", "a dog sits", "a cat"]


def built(layout, **settings) -> PublishedWords:
    return PublishedWords.build(
        CAPTIONS, layout=layout, min_count=2, extra_words=["cow"], **settings
    )


def test_updown_baseline_writes_the_end_after_as_many_tokens_as_are_known() -> None:
    words = built("updown_baseline")
    assert words.words == ("@@UNKNOWN@@", "@@BOUNDARY@@", "a", "dog", "cow")
    assert words.encode("a dog a cow") == [1, 2, 3, 2, 4, 1]
    # The end takes the place of the last word, or of an earlier one; what follows stays.
    assert words.encode("a cat dog") == [1, 2, 0, 1]
    assert words.encode("cat cat dog a") == [1, 0, 0, 1, 2]
    assert words.encode("a cat") == [1, 2, 1]
    assert words.encode("cat") == [1, 1]
    assert words.decode([2, 0, 3, 1, 4]) == "a @@UNKNOWN@@ dog"


def test_ruotianluo_has_one_mark() -> None:
    words = built("ruotianluo", max_words=2)
    assert words.words == ("<end>", "a", "dog", "cow", "UNK")
    assert words.encode("a cat dog") == [0, 1, 4, 0]
    assert words.decode([1, 4, 0, 2]) == "a UNK"


@pytest.mark.parametrize("layout", ["updown_baseline", "ruotianluo"])
def test_words_of_constraints_are_all_known(layout) -> None:
    words = built(layout)
    assert words.spellings("dog cow") == [[words.token_id("dog"), words.token_id("cow")]]
    assert words.spellings("dog unseen") == []


def test_a_checkpoint_has_it() -> None:
    words = built("ruotianluo", max_words=7)
    again = restored(words.state())
    assert again.state() == words.state()
    assert again.encode("a dog") == words.encode("a dog")


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(ValueError, match="must begin with @@UNKNOWN@@"):
        PublishedWords(words=["a", "b"], layout="updown_baseline")
    with pytest.raises(ValueError, match="distinct"):
        PublishedWords(words=["a", "a"], layout="ruotianluo")
    with pytest.raises(ValueError, match="no word occurs 9 times"):
        PublishedWords.build(CAPTIONS, layout="ruotianluo", min_count=9)
