"""Contexts are filled with the photo's own objects of the same number, or skipped."""

from __future__ import annotations

import torch

from captioning.models.cos_cvae import fill_by_attention, fill_contexts

V = 20
S, P = V, V + 1


def extras(contexts: list[list[list[int]]], words: list[list[list[int]]]) -> dict:
    longest = max(
        (len(ids) for caption_contexts in contexts for ids in caption_contexts), default=2
    )
    tokens = torch.zeros(len(contexts), 2, longest, dtype=torch.long)
    lengths = torch.zeros(len(contexts), 2, dtype=torch.long)
    for place, caption_contexts in enumerate(contexts):
        for number, ids in enumerate(caption_contexts):
            tokens[place, number, : len(ids)] = torch.tensor(ids)
            lengths[place, number] = len(ids)
    return {
        "context_tokens": tokens,
        "context_lengths": lengths,
        "object_words": torch.tensor(words),
    }


def keys(number: int, draw: int = 0) -> list[tuple[int, ...]]:
    return [(0, row, draw) for row in range(number)]


def test_slots_take_words_of_their_number_in_turn() -> None:
    context = [1, 5, S, 6, P, 7, S, 2]
    batch = extras([[context]], [[[10, 11, -1], [15, -1, -1]]])
    fillings = set()
    for draw in range(20):
        filled = fill_contexts(batch, keys(1, draw), V)
        assert filled.contexts.tolist() == [context]
        words = filled.words[0].tolist()
        fillings.add((words[2], words[6]))
        assert words[4] == 15
        assert [words[i] for i in (0, 1, 3, 5, 7)] == [1, 5, 6, 7, 2]
    assert fillings == {(10, 11), (11, 10)}


def test_what_cannot_be_filled_is_skipped() -> None:
    singular, plural = [1, S, 2], [1, 5, P, 2]
    batch = extras(
        [[singular], [plural], [], [plural]],
        [[[10, -1], [-1, -1]], [[10, -1], [-1, -1]], [[10, 11], [12, 13]], [[-1, -1], [12, -1]]],
    )
    filled = fill_contexts(batch, keys(4), V)
    assert filled.captions.tolist() == [0, 3]
    assert filled.words.tolist() == [[1, 10, 2, 0], [1, 5, 12, 2]]
    assert filled.lengths.tolist() == [3, 4]


def test_none_at_all() -> None:
    filled = fill_contexts(extras([[], []], [[[10], [-1]]] * 2), keys(2), V)
    assert len(filled.captions) == len(filled.lengths) == 0


def test_each_context_gets_its_turn_by_key() -> None:
    batch = extras([[[1, 5, S, 2], [1, 6, S, 2]]], [[[10], [-1]]])
    chosen = [fill_contexts(batch, keys(1, draw), V).words[0, 1].item() for draw in range(20)]
    assert set(chosen) == {5, 6}
    assert chosen == [fill_contexts(batch, keys(1, d), V).words[0, 1].item() for d in range(20)]


def test_slots_take_the_label_that_is_attended_most() -> None:
    context = [1, S, 5, P, S, 2]
    pseudo = fill_contexts(extras([[context]], [[[10], [15]]]), keys(1), V)
    # the whole photo has no label; the third region's has no plural, the fourth's no singular
    labels = torch.tensor([[[-1, 11, 12, -1], [-1, 16, -1, 17]]])
    attention = torch.zeros(1, 5, 5)
    attention[0, 0] = torch.tensor([0.5, 0.1, 0.3, 0.05, 0.05])
    attention[0, 2] = torch.tensor([0.5, 0.1, 0.3, 0.06, 0.04])
    attention[0, 3] = torch.tensor([0.1, 0.2, 0.1, 0.6, 0.0])
    filled = fill_by_attention(pseudo, attention, labels, V)
    assert filled.words.tolist() == [[1, 12, 5, 16, 11, 2]]
    assert filled.contexts.tolist() == [context]
    # a photo without such labels keeps the words of its captions
    none = fill_by_attention(pseudo, attention, torch.full_like(labels, -1), V)
    assert none.words.tolist() == pseudo.words.tolist() == [[1, 10, 5, 15, 10, 2]]
