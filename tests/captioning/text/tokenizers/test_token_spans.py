"""Every tokenizer says where its tokens stand in a caption as it is written."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.data.batches.dataset import masked_token_weights
from captioning.interfaces import AbstractTokenizer
from captioning.text.tokenizers.bart import BartTokenizer
from captioning.text.tokenizers.image_text import ImageTextTokenizer
from captioning.text.tokenizers.published_words import PublishedWords
from captioning.text.tokenizers.sentences import SentenceTokenizer
from captioning.text.tokenizers.subwords import SubwordTokenizer
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import MaskedSpan, Sample
from tests import causal_folder
from tests.captioning.data.byte_pairs import write_byte_pairs
from tests.image_text_folders import word_pieces
from tests.tiny import CAPTIONS

TEXTS = (
    'Two  dogs, one RED "Bird" (tall); the boy\'s cat cannot sit.',
    " a DOG!throws a ball... to the tree-top ",
    "a dog\u2019s ball — 3.5 cats; 'red' birds",
    "İstanbul: a dog runs",
    "A DOG RUNS ON THE GRASS.",
)


def _bart() -> BartTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        write_byte_pairs(Path(folder))
        (Path(folder) / "config.json").write_text("{}")
        return BartTokenizer.of_bart(name=folder, max_tokens=60)


def _subwords() -> SubwordTokenizer:
    pieces = word_pieces().backend_tokenizer
    ids = {"bos_id": 5, "eos_id": 3, "pad_id": 0, "unk_id": 1}
    size = pieces.get_vocab_size()
    return SubwordTokenizer(definition=pieces.to_str(), size=size, max_words=7, **ids)


def _sentences() -> SentenceTokenizer:
    pairs = causal_folder.byte_pairs()
    return SentenceTokenizer(definition=pairs.to_str(), size=pairs.get_vocab_size(), start_id=0)


def _image_text(before: str) -> ImageTextTokenizer:
    pairs = causal_folder.byte_pairs()
    size = pairs.get_vocab_size() + 1
    ids = {"bos_id": size - 1, "eos_id": 0, "pad_id": 0, "unk_id": 0}
    return ImageTextTokenizer(definition=pairs.to_str(), size=size, before=before, **ids)


MAKERS: dict[str, Callable[[], AbstractTokenizer]] = {
    "words": lambda: WordTokenizer.build(CAPTIONS, min_count=1),
    "updown_baseline": lambda: PublishedWords.build(
        CAPTIONS, layout="updown_baseline", min_count=1
    ),
    "ruotianluo": lambda: PublishedWords.build(CAPTIONS, layout="ruotianluo", min_count=1),
    "bart": _bart,
    "subwords": _subwords,
    "sentences": _sentences,
    "image_text": lambda: _image_text(""),
    "image_text_after_a_space": lambda: _image_text(" "),
}
WORDS = ("words", "updown_baseline", "ruotianluo")
maker = functools.cache(lambda name: MAKERS[name]())
every_tokenizer = pytest.mark.parametrize("name", MAKERS)


@every_tokenizer
@pytest.mark.parametrize("caption", TEXTS)
def test_tokens_are_the_characters_where_they_stand(name: str, caption: str) -> None:
    words = maker(name)
    ids, spans = words.encode(caption), words.token_spans(caption)
    assert len(ids) == len(spans)
    # updown_baseline may write the end before other words
    assert spans[0] == spans[ids.index(1, 1) if name == "updown_baseline" else -1] == (0, 0)
    filled = [span for span in spans if span != (0, 0)]
    assert filled == sorted(filled)
    assert len(filled) > 2
    for token, (start, stop) in zip(ids, spans, strict=True):
        text = words.decode([token]).strip().removeprefix("##").lower()
        # an unknown word, and a byte of a character, are not written as they stand there
        if token not in (words.unk_id, words.eos_id) and "�" not in text:
            assert text == caption[start:stop].lower()


@every_tokenizer
@given(caption=st.text(max_size=40))
@settings(max_examples=25, deadline=None)
def test_any_text_has_a_span_for_each_token(name: str, caption: str) -> None:
    words = maker(name)
    spans = words.token_spans(caption)
    assert len(spans) == len(words.encode(caption))
    assert all(0 <= start <= stop <= len(caption) for start, stop in spans)


@every_tokenizer
def test_a_masked_word_is_masked_in_all_of_its_tokens_and_nothing_else(name: str) -> None:
    words, caption = maker(name), "The dog SLEEPS on a ball."
    start = caption.index("SLEEPS")
    sample = Sample(row=0, sample_id="a", image_id="a", image_path=Path("a.jpg"), caption=caption)
    masks = (
        MaskedSpan(start=start, stop=start + 6),
        MaskedSpan(start=start + 7, stop=start + 9, weight=0.25),
    )
    ids, plain = words.encode(caption), replace(sample, row=1, caption="a dog", masks=())
    assert masked_token_weights([sample, plain], words, len(ids)) is None
    weights = masked_token_weights([replace(sample, masks=masks), plain], words, len(ids) + 2)
    assert weights.shape == (2, len(ids) + 2)
    assert (weights[1] == 1).all()
    assert (weights[0, len(ids) - 1 :] == 1).all()
    for weight, left in ((0, "sleeps"), (0.25, "on")):
        masked = [token for token, w in zip(ids, weights[0].tolist(), strict=False) if w == weight]
        assert len(masked) == 1 if name in WORDS else masked
        if words.unk_id not in masked:
            assert words.decode(masked).strip().lower() == left
    assert torch.unique(weights).tolist() == [0, 0.25, 1]


def test_a_tokenizer_that_does_not_tell_says_what_to_do() -> None:
    class Letters(WordTokenizer):
        token_spans = AbstractTokenizer.token_spans

    with pytest.raises(ValueError, match=r"Letters does not give .* add its method token_spans"):
        Letters(words=["a"]).token_spans("a")


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in WORDS])
def test_the_vocabulary_is_searched_once_for_tokens_inside_words(name: str) -> None:
    tokenizer = MAKERS[name]()
    assert tokenizer.continuing()
    assert tokenizer.continuing() is tokenizer.continuing()
