"""The token that a caption begins with conditions all of its words, in training and in search."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioning.types import Batch
from tests.contracts.test_captioners import batch_for, build, only

CAPTION = 1
FAMILIES = ("updown", "blip", "cos_cvae")
names = pytest.mark.parametrize("name", FAMILIES)


def begun(batch: Batch, token: int) -> Batch:
    tokens = batch.tokens.clone()
    tokens[:, 0] = token
    return replace(batch, tokens=tokens)


@names
def test_the_begin_token_is_read(name: str) -> None:
    model = build(name)
    model.label_smoothing = 0.0
    one = only(model, batch_for(model), CAPTION)
    other = model.tokenizer.token_id("cat")
    losses = []
    for token in (model.tokenizer.bos_id, other):
        torch.manual_seed(0)
        losses.append(model.losses(begun(one, token)))
    assert not torch.isclose(losses[0].nll, losses[1].nll).any()
    model.zero_grad()
    losses[1].total.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["updown", "blip"])
def test_search_reads_it_as_training_does(name: str) -> None:
    model = build(name)
    model.label_smoothing = 0.0
    one = only(model, batch_for(model), CAPTION)
    first = {"tokens": one.tokens[:, :2], "token_mask": one.token_mask[:, :2]}
    for token in (model.tokenizer.bos_id, model.tokenizer.token_id("cat")):
        nll = model.losses(begun(replace(one, **first), token)).nll
        log_probs, _ = model.step(torch.tensor([token]), model.start(one))
        torch.testing.assert_close(-log_probs[0, one.tokens[0, 1]], nll[0])


def test_word_dropout_leaves_begin_tokens() -> None:
    words = build("cos_cvae").words
    words._drop_below = 99.0  # all words are dropped
    tokens = torch.tensor([[6, 5, 4], [words._tokenizer.bos_id, 5, 4]])
    dropped = words.dropped(tokens, torch.zeros(tokens.shape))
    assert dropped[:, 0].tolist() == tokens[:, 0].tolist()
    assert not (dropped[:, 1:] == tokens[:, 1:]).any()
