"""Prompts for training: a tokenizer of one's own, whole captions, now and then none."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from augmentation.image_replacement.training.denoising import (
    PromptSampler,
    join_captions,
    train_tokenizer,
)

CAPTIONS = [
    ["A red dog runs.", "Two dogs run on the beach.", "The dog is red."],
    ["A cat sleeps."],
]
TOKENIZER = train_tokenizer(
    [text for texts in CAPTIONS for text in texts] * 3, size=560, max_length=40
)


def sampler(single: float = 0.0, empty: float = 0.0) -> PromptSampler:
    return PromptSampler(captions=CAPTIONS, tokenizer=TOKENIZER, single=single, empty=empty)


def draw(prompts: PromptSampler, photos: list[int], seed: int = 0) -> torch.Tensor:
    return prompts.draw(photos, torch.Generator().manual_seed(seed))


def test_often_seen_words_are_tokens() -> None:
    assert TOKENIZER.tokenize("A red dog") == ["a</w>", "red</w>", "dog</w>"]
    assert len(TOKENIZER) <= 560
    assert TOKENIZER.model_max_length == 40
    with pytest.raises(ValueError, match="more than 514 tokens: got 514"):
        train_tokenizer(["a"], size=514, max_length=40)


@pytest.mark.long
@given(st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=20))
def test_any_word_is_known_by_its_bytes(word: str) -> None:
    ids = TOKENIZER(word, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.unk_token_id not in ids


def test_prompts_begin_end_and_are_padded_as_the_tokenizer_does_it() -> None:
    prompt_ids = draw(sampler(single=1.0), [1])
    expected = TOKENIZER(CAPTIONS[1][0], padding="max_length", max_length=40, return_tensors="pt")
    assert torch.equal(prompt_ids, expected["input_ids"])


def test_all_captions_of_a_photo_in_any_order_or_one() -> None:
    texts = [TOKENIZER.decode(row, skip_special_tokens=True) for row in draw(sampler(), [0] * 30)]
    assert len(set(texts)) == 6
    assert {len(text) for text in texts} == {len(texts[0])}
    ones = [
        TOKENIZER.decode(row, skip_special_tokens=True)
        for row in draw(sampler(single=1.0), [0] * 30)
    ]
    assert len(set(ones)) == 3
    assert all(any(caption in text for text in texts) for caption in ones)


def test_all_captions_may_be_cut_where_there_is_no_more_room() -> None:
    captions = [["a red dog runs", "a cat sleeps on the beach"]]
    tokenizer = train_tokenizer(captions[0] * 3, size=560, max_length=9)
    options = {"captions": captions, "tokenizer": tokenizer, "single": 0.0, "empty": 0.0}
    whole, cut = PromptSampler(**options), PromptSampler(**options, cut=True)
    lengths = {len(row[row != tokenizer.pad_token_id]) for row in draw(whole, [0] * 20)}
    assert max(lengths) <= 1 + 6  # the longer caption alone: there is no room for both
    tokens = {tuple(tokenizer.convert_ids_to_tokens(row)) for row in draw(cut, [0] * 20).tolist()}
    texts = {" ".join(row[1:-1]).replace("</w>", "") for row in tokens}
    assert texts == {"a red dog runs a cat sleeps", "a cat sleeps on the beach a"}


def test_a_share_of_prompts_is_empty() -> None:
    prompt_ids = draw(sampler(empty=0.25), [0, 1] * 400)
    empty = (prompt_ids[:, 1] == TOKENIZER.eos_token_id).float().mean()
    assert 0.2 < float(empty) < 0.3


def test_the_generator_decides() -> None:
    prompts = sampler(single=0.5, empty=0.1)
    assert torch.equal(draw(prompts, [0, 1, 0]), draw(prompts, [0, 1, 0]))
    assert not torch.equal(draw(prompts, [0] * 9), draw(prompts, [0] * 9, seed=1))


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), min_size=1), st.integers(1, 20)
)
def test_whole_captions_as_far_as_there_is_room(captions: list[list[int]], room: int) -> None:
    prompt_ids = join_captions(captions, room)
    assert len(prompt_ids) <= room
    assert prompt_ids[: len(captions[0])] == captions[0][:room]
    if sum(map(len, captions)) <= room:
        assert prompt_ids == [token for caption in captions for token in caption]
    remaining = room - len(prompt_ids)
    assert len(captions[0]) >= room or all(
        len(c) > remaining or _within(c, prompt_ids) for c in captions
    )


def _within(part: list[int], full: list[int]) -> bool:
    return any(full[n : n + len(part)] == part for n in range(len(full)))
