"""The split of token ids agrees with the split of words."""

from __future__ import annotations

import pytest
import torch

from captioning.models.layers.object_split import ObjectSplit
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS, ObjectWords, build_object_words
from captioning.text.tokenizers.words import WordTokenizer

CAPTIONS = (
    "two men eat hot dogs at a table",
    "a hot dog and a dog near fire hydrants",
    "the grass is wet",
    "teddy bear teddy bears bear",
    "table tennis balls and tennis balls",
)


def split(*names: str) -> tuple[ObjectSplit, ObjectWords, WordTokenizer]:
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=1)
    words = build_object_words("coco")
    if names:
        words = ObjectWords(names=names, lemmatizer=load_lemmas(LEMMAS))
    return ObjectSplit(tokenizer=tokenizer, words=words), words, tokenizer


@pytest.mark.parametrize("names", [(), ("dog", "table"), ("table tennis", "tennis ball", "bear")])
def test_numbers_are_those_of_words(names: tuple[str, ...]) -> None:
    module, words, tokenizer = split(*names)
    for caption in CAPTIONS:
        ids = torch.tensor([[*tokenizer.encode(caption)[1:], tokenizer.pad_id]])
        expected = [*words.numbers(caption.split()), 0, 0]
        assert module.numbers(ids)[0].tolist() == expected, caption


def test_objects_leave_the_context_in_place() -> None:
    module, _, tokenizer = split()
    ids = torch.tensor([tokenizer.encode("two men eat hot dogs at a table")])
    numbers = module.numbers(ids)
    context = module.context(ids, numbers)
    singular, plural = len(tokenizer), len(tokenizer) + 1
    expected = ids.clone()
    expected[0, [2, 4, 5]], expected[0, 8] = plural, singular
    assert torch.equal(context, expected)
    assert module.size == len(tokenizer) + 2
    words, counts = module.objects(ids, numbers, 3)
    assert tokenizer.decode(words[0].tolist()) == "men hot dogs"
    assert counts.tolist() == [3]


def test_a_caption_without_objects_has_none() -> None:
    module, _, tokenizer = split()
    ids = torch.tensor([tokenizer.encode("the grass is wet")])
    words, counts = module.objects(ids, module.numbers(ids), 5)
    assert words.shape == (1, 5)
    assert not words.any()
    assert counts.tolist() == [0]


def test_captions_of_one_token() -> None:
    module, _, tokenizer = split()
    assert module.numbers(torch.tensor([[tokenizer.eos_id]])).tolist() == [[0]]


def test_a_vocabulary_without_objects_is_refused() -> None:
    with pytest.raises(ValueError, match="model.module.objects"):
        split("zebra")
