"""Masked tokens in every captioner's loss: as if their terms were taken out of it by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from captioning.models import cos_cvae
from captioning.models.base import AbstractCaptioner
from captioning.models.layers.gaussian import Gaussian
from captioning.types import Batch
from tests.contracts.test_captioners import batch_for, build, only, permuted
from tests.tiny import MODELS

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
every_model = pytest.mark.parametrize("name", [*MODELS, "vlm_git"])
# Their words have no terms without the whole caption.
BOUNDS = ("cos_cvae", "cos_cvae_projected")
MASKED = ((2, 3), (0, 2))  # caption and place of a token, the begin token at 0
LEFT = 0.2


def plain(name: str) -> AbstractCaptioner:
    """The model without label smoothing, which likelihoods do not have."""
    model = build(name)
    model.label_smoothing = 0.0
    return model


def masked(batch: Batch, *places: tuple[int, int], weight: float = 0.0) -> Batch:
    weights = torch.ones(batch.tokens.shape)
    for place in places:
        weights[place] = weight
    return replace(batch, token_weights=weights)


def gradients(model: AbstractCaptioner, loss: Tensor) -> Tensor:
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
    return torch.cat([g.flatten() for g in found if g is not None])


def term(model: AbstractCaptioner, batch: Batch, caption: int, place: int) -> Tensor:
    """The negative log-likelihood of one token, given those before it."""
    one = only(model, batch, caption)

    def up_to(stop: int) -> Tensor:
        tokens = {"tokens": one.tokens[:, :stop], "token_mask": one.token_mask[:, :stop]}
        return model.losses(replace(one, **tokens)).nll.sum()

    return up_to(place + 1) - up_to(place)


@pytest.mark.parametrize("name", [name for name in (*MODELS, "vlm_git") if name not in BOUNDS])
@pytest.mark.parametrize("weight", [0.0, LEFT])
def test_a_masked_tokens_term_is_taken_out(name: str, weight: float) -> None:
    model = plain(name)
    batch = batch_for(model)
    taken = (1 - weight) * sum(term(model, batch, *place) for place in MASKED)
    number = batch.token_mask[:, 1:].sum() - (1 - weight) * len(MASKED)
    if getattr(model, "reduction", "token_mean") == "caption_sum":
        number = len(batch)
    expected = (model.losses(batch).nll.sum() - taken) / number
    total = model.losses(masked(batch, *MASKED, weight=weight)).total
    torch.testing.assert_close(total, expected)
    got, wanted = gradients(model, total), gradients(model, expected)
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
    whole = gradients(model, model.losses(batch).total)
    assert (got - whole).abs().max() > 1e-2 * whole.abs().max()


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("weight", [0.0, LEFT])
def test_a_masked_words_likelihood_and_divergence_are_taken_out_of_the_bound(
    name: str, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(name)
    one, place = only(model, batch_for(model), 2), 3
    nll, kls = [], []
    word_losses, divergence = cos_cvae.token_losses, Gaussian.divergence

    def spied(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        nll.append(word_losses(*arguments))
        return nll[-1]

    def spied_divergence(self: Gaussian, other: Gaussian) -> Tensor:
        kls.append(divergence(self, other))
        return kls[-1]

    monkeypatch.setattr(cos_cvae, "token_losses", spied)
    monkeypatch.setattr(Gaussian, "divergence", spied_divergence)
    total = model.losses(masked(one, (0, place), weight=weight)).total
    number = int(one.token_mask.sum()) - 1  # the words of the caption and its end
    weights = torch.ones(number)
    weights[place - 1] = weight
    words = nll[0][0] + sum(kl[0, :number].sum(1) for kl in kls)
    expected = (weights * words).sum()
    expected = expected if model.reduction == "caption_sum" else expected / weights.sum()
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(gradients(model, total), gradients(model, expected))
    assert not torch.isclose(total, model.losses(one).total)


@every_model
def test_nothing_is_learnt_from_captions_without_a_token_left(name: str) -> None:
    model = build(name).train()
    batch = batch_for(model)
    losses = model.losses(replace(batch, token_weights=torch.zeros(batch.tokens.shape)))
    assert losses.total.item() == 0
    assert not gradients(model, losses.total).any()
    assert losses.per_sample.isfinite().all()
    one = torch.ones(batch.tokens.shape)
    one[2] = 0  # a caption alone
    total = model.losses(replace(batch, token_weights=one)).total
    assert gradients(model, total).isfinite().all()


@every_model
def test_the_captions_own_losses_are_of_all_their_tokens(name: str) -> None:
    model = build(name)
    batch = batch_for(model)
    unmasked, losses = model.losses(batch), model.losses(masked(batch, *MASKED))
    assert torch.equal(losses.per_sample, unmasked.per_sample)
    assert torch.equal(losses.nll, unmasked.nll)
    everything = model.losses(masked(batch))
    torch.testing.assert_close(everything.total, unmasked.total)


@every_model
def test_processes_with_masks_and_without_add_up_to_one_batch(name: str) -> None:
    model = build(name)
    batch = masked(batch_for(model), *MASKED, weight=LEFT)
    numbers = torch.arange(len(batch))
    with_masks = (batch.token_weights < 1).any(1)
    losses = [
        model.losses(replace(permuted(batch, order), token_weights=weights))
        for order, weights in (
            (numbers[with_masks], batch.token_weights[with_masks]),
            (numbers[~with_masks], None),
        )
    ]
    total = 0.0
    for parts in zip(*(part.means for part in losses), strict=True):
        whole = sum(mean.denominator for mean in parts)
        total = total + sum(mean.value * mean.denominator for mean in parts) / whole
    torch.testing.assert_close(total, model.losses(batch).total)


@every_model
def test_weights_of_tokens_and_of_captions_are_multiplied(name: str) -> None:
    model = build(name)
    batch = batch_for(model)
    weights = torch.ones(len(batch))
    weights[2] = 0.5
    halved = torch.ones(batch.tokens.shape)
    halved[2] = 0.5
    expected = model.losses(replace(batch, weights=weights**2)).total
    total = model.losses(replace(batch, weights=weights, token_weights=halved)).total
    if getattr(model, "reduction", "token_mean") == "token_mean":
        torch.testing.assert_close(total, expected)
    else:  # the caption's sum is smaller, and it counts as a caption of half the weight
        share = float((weights**2).sum() / weights.sum())
        torch.testing.assert_close(total, expected * share)
