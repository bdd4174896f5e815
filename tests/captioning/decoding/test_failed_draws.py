"""Draws of latents of which no caption can come, among others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from captioning.decoding.latent_draws import LatentSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractLatentState
from tests.captioning.decoding.toy import BOS, EOS, PAD, TableState, TableStepper

NUM_DRAWS = 3


@dataclass(frozen=True)
class Latents(AbstractLatentState):
    """Before the draws; draw d of image i reads row ``3 * i + d`` of the table."""

    num_images: int

    def select(self, index: Tensor) -> AbstractDecoderState:
        raise AssertionError(index)

    def drawn(
        self, *, keys: Sequence[int | str], draws: range, temperature: float, seed: int
    ) -> TableState:
        rows = torch.tensor([NUM_DRAWS * i + d for i in range(self.num_images) for d in draws])
        return TableState(rows, torch.zeros_like(rows))


def captions(words: Sequence[Sequence[int | None]], **settings: object) -> SearchResult:
    """Of images whose draws each say one word, or fail (None)."""
    table = torch.full((NUM_DRAWS * len(words), 11, 7), -torch.inf)
    for row, word in enumerate(word for draws in words for word in draws):
        if word is not None:
            table[row, :, EOS] = -2.0
            table[row, TableStepper(table).next_code(0, BOS), word] = -0.5
            table[row, TableStepper(table).next_code(0, BOS), EOS] = -torch.inf
    request = SearchRequest(num_images=len(words), bos_id=BOS, eos_id=EOS, pad_id=PAD)
    search = LatentSearch.with_settings(num_captions=NUM_DRAWS, max_length=4, **settings)
    return search(TableStepper(table), Latents(len(words)), request)


@pytest.mark.parametrize("at_once", [1, 2, 20])
@pytest.mark.parametrize("distinct", [False, True])
def test_failed_draws_come_last(at_once: int, distinct: bool) -> None:
    result = captions([[None, 4, 6], [3, None, 3]], at_once=at_once, distinct=distinct)
    assert result.tokens.tolist() == [
        [[4, EOS], [6, EOS], [PAD, PAD]],
        [[3, EOS], [3, EOS], [PAD, PAD]],
    ]
    assert result.lengths.tolist() == [[2, 2, 0]] * 2
    assert result.scores.tolist() == [[-2.5, -2.5, -torch.inf]] * 2


def test_captions_of_an_image_are_counted_over_its_draws() -> None:
    search = LatentSearch.with_settings(num_captions=5, captions_per_draw=2, beam_size=3)
    assert search.captions_per_image == 10
