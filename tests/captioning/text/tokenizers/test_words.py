"""The word tokenizer and its vocabulary."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from captioning.data.readers.coco import load_annotations
from captioning.text.tokenizers.treebank import PUNCTUATION, split_words
from captioning.text.tokenizers.words import WordTokenizer

CAPTIONS = ["A dog runs .", "A dog's ball, a red ball!", "Two dogs run. A cat sits"]


def test_words_are_lower_case_without_punctuation() -> None:
    assert split_words("Two dogs run. A cat (black) sits, \"still\"!") == (
        "two", "dogs", "run", "a", "cat", "black", "sits", "still",
    )  # fmt: skip


def test_possessives_and_hyphens_are_split_as_treebank_does() -> None:
    assert split_words("A dog's t-shirt isn't red") == (
        "a",
        "dog",
        "'s",
        "t-shirt",
        "is",
        "n't",
        "red",
    )


def treebank_words(caption: str) -> tuple[str, ...]:
    """What `split_words` must give, by NLTK alone."""
    tokens = NLTKWordTokenizer().tokenize(caption.lower())
    words = [token.rstrip(".") if len(token) > 1 else token for token in tokens]
    return tuple(word for word in words if word and word not in PUNCTUATION)


PIECES = """
    a Dog cannot gonna wanna gimme more'n d'ye man's isn't 's s' 'x ... .. . st. u.s. , ,, a, 1,000
    a,b a,1 : 3:15 -- - t-shirt a--b can-cannot ?! & $5 5% a/b " `` '' ( ) [ ü. 'tis 't is y'all's
    o' # _ İ rock'n'roll who'd've cannot. wanna, a..b a. .a -. ., x.., n't
"""
ENDS = ["", " ", "  ", "\n", "\x1c"]
TEXTS = st.lists(st.tuples(st.sampled_from(PIECES.split()), st.sampled_from(ENDS)))


@given(TEXTS)
def test_words_that_are_looked_up_are_those_of_treebank(pieces: list[tuple[str, str]]) -> None:
    caption = "".join(piece + end for piece, end in pieces)
    assert split_words(caption) == treebank_words(caption)


@given(st.text(alphabet="anot1.,'-:;?!&$%/ \"", max_size=12))
def test_words_of_any_punctuation_are_those_of_treebank(caption: str) -> None:
    assert split_words(caption) == treebank_words(caption)


@pytest.mark.long
def test_words_of_real_captions_are_those_of_treebank() -> None:
    annotations = load_annotations("pycocoevalcap:captions_val2014").items("annotations")
    captions = [annotation["caption"] for annotation in annotations[:: len(annotations) // 2000]]
    assert [split_words(caption) for caption in captions] == list(map(treebank_words, captions))


def test_vocabulary_is_ordered_by_count_then_word_and_rare_words_are_unknown() -> None:
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=2)
    assert tokenizer.words[4:] == ("a", "ball", "dog")
    assert tokenizer.encode("a cat") == [tokenizer.bos_id, 4, tokenizer.unk_id, tokenizer.eos_id]
    assert len({tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}) == 4


def test_encode_and_decode_are_inverse_on_known_words() -> None:
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=1)
    ids = tokenizer.encode("two dogs run")
    assert tokenizer.decode([*ids, 5, 6]) == "two dogs run"


def test_long_captions_are_cut_in_counting_and_encoding() -> None:
    tokenizer = WordTokenizer.build(["a b c d"], min_count=1, max_words=2)
    assert tokenizer.words[4:] == ("a", "b")
    assert len(tokenizer.encode("a b a b")) == 4


def test_extra_words_are_kept_however_rare() -> None:
    assert "zebra" in WordTokenizer.build(CAPTIONS, min_count=2, extra_words=["zebra"]).words


def test_the_state_rebuilds_the_tokenizer() -> None:
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=1, max_words=7)
    other = WordTokenizer(**tokenizer.state())
    assert other.words == tokenizer.words
    assert other.max_words == 7
    assert other.log_frequencies() == tokenizer.log_frequencies()


def test_frequencies_count_words_ends_and_unknown_words() -> None:
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=2)
    shares = [math.exp(value) for value in tokenizer.log_frequencies()]
    assert shares[tokenizer.eos_id] == pytest.approx(3 / sum(tokenizer.counts))
    assert tokenizer.counts == (0, 0, 3, 16 - 4 - 2 - 2, 4, 2, 2)
    assert WordTokenizer(words=["a"]).log_frequencies() is None
    with pytest.raises(ValueError, match="one per word"):
        WordTokenizer(words=["a"], counts=[1])


def test_no_frequent_word_is_an_error_with_its_remedy() -> None:
    with pytest.raises(ValueError, match="min_count"):
        WordTokenizer.build(CAPTIONS, min_count=50)
    with pytest.raises(ValueError, match="distinct"):
        WordTokenizer(words=["a", "a"])
