"""Greedy search: the most probable token at each step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from captioning.decoding.candidates import best_tokens
from captioning.decoding.rules import Rules
from captioning.decoding.state import DEAD, Pool, SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@torch.no_grad()
def greedy(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    *,
    num_images: int,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_length: int,
    min_length: int = 0,
    forbidden_ids: Sequence[int] = (),
    end_ids: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    device: torch.device | str = "cpu",
) -> SearchResult:
    """Extend one hypothesis an image by its most probable token, the lowest id among equals.

    Images leave the batch when their hypothesis ends. One whose tokens all have probability 0
    has no hypothesis, as in `beam_search`.

    Args:
        stepper: the model.
        state: its memory of ``num_images`` hypotheses.
        num_images: I.
        bos_id: first token read, never produced.
        eos_id: ends a hypothesis.
        pad_id: never produced; may equal ``eos_id``.
        max_length: most tokens, the end token counted.
        min_length: fewest tokens, the end token counted.
        forbidden_ids: further tokens never produced.
        end_ids: further tokens that end a hypothesis and stay in it, such as a full stop.
        no_repeat_ngram: n; no n tokens in a row occur twice in a hypothesis; 0 for no such rule.
        device: where the state lives.

    Returns:
        One hypothesis an image (M = 1), scored by its summed log-probability.

    Raises:
        ValueError: an argument out of its range, or NaN log-probabilities.
    """
    rules = Rules.build(
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        max_length=max_length,
        min_length=min_length,
        forbidden_ids=forbidden_ids,
        end_ids=end_ids,
        no_repeat_ngram=no_repeat_ngram,
        device=device,
    )
    pool = Pool(
        num_images=num_images, num_best=1, max_length=max_length, pad_id=pad_id, device=device
    )
    pool.scores.zero_()
    images = torch.arange(num_images, device=device)
    last = torch.full((num_images,), bos_id, dtype=torch.long, device=device)
    for length in range(1, max_length + 1):
        log_probs, state = stepper.step(last, state)
        log_probs = rules.without_repeats(log_probs, pool.tokens[images, 0, : length - 1])
        values, tokens = best_tokens(log_probs, count=1, forbidden=rules.forbidden(length))
        values, last = values[:, 0], tokens[:, 0]
        pool.scores[images, 0] += values
        pool.lengths[images, 0] = torch.where(values > DEAD, length, 0)
        pool.tokens[images, 0, length - 1] = last
        going = (~rules.ended(last) & (values > DEAD)).nonzero().squeeze(1)
        if len(going) < len(images):
            images, last = images[going], last[going]
            if not len(images):
                break
            state = state.select(going)
    return pool.result()
