"""COS-CVAE: the bound is a bound and a near one, latents are used, phases and noise do as said."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from captioning.models.cos_cvae import CosCvae
from captioning.models.layers.gaussian import Gaussian
from captioning.types import Batch
from tests.contracts.test_captioners import log_likelihoods
from tests.tiny import MODELS, make_batch


def later(batch: Batch, number: int) -> Batch:
    """The same captions as other rows: with other noise."""
    return replace(batch, rows=batch.rows + 1000 * number)


def train(model: CosCvae, num_updates: int, rate: float = 0.02) -> CosCvae:
    """A model that has seen the six captions often enough to say them."""
    batch = make_batch()
    batch = replace(batch, regions=batch.regions.to(model.dtype))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for number in range(num_updates):
        optimizer.zero_grad()
        model.train().losses(later(batch, number)).total.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def toy() -> CosCvae:
    torch.manual_seed(0)
    settings = {"word_dropout": 0.5, "later": {"nll": 1, "kl": 1}, "first_epochs": 0}
    return train(MODELS["cos_cvae"](**settings).double(), 400)


def test_divergence_and_density_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (
        Gaussian.of(torch.randn(4, 3, 10, generator=generator, dtype=torch.float64))
        for _ in range(2)
    )
    theirs = [Normal(law.mean, (law.log_variance / 2).exp()) for law in (one, other)]
    torch.testing.assert_close(one.divergence(other), kl_divergence(*theirs))
    values = one.at(torch.ones(4, 3, 5, dtype=torch.float64))
    torch.testing.assert_close(one.log_density(values), theirs[0].log_prob(values).sum(-1))
    assert (one.divergence(other) >= 0).all()
    assert not one.divergence(one).any()


def test_temperature_of_a_draw() -> None:
    law = Gaussian(mean=torch.zeros(3), log_variance=torch.tensor([-2.0, 0.0, 2.0]))
    noise = torch.ones(3)
    torch.testing.assert_close(law.at(noise), torch.tensor([-1.0, 0.0, 1.0]).exp())
    torch.testing.assert_close(law.at(noise, 0.5), torch.tensor([-0.5, 0.0, 0.5]).exp())
    assert not law.at(noise, 0).any()


def test_log_variances_stay_in_bounds() -> None:
    law = Gaussian.of(torch.tensor([0.0, 0.0, 0.0, 1e9, -1e9, 0.1]))
    torch.testing.assert_close(law.log_variance, torch.tensor([6, -6, 0.1]), rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_the_bound_is_near_the_likelihood_of_a_trained_model(toy: CosCvae) -> None:
    batch = make_batch()
    batch = replace(batch, regions=batch.regions.double())
    losses = torch.stack([toy.losses(later(batch, k)).per_sample for k in range(50)]).mean(0)
    bound = -losses * batch.token_mask[:, 1:].sum(1)
    by_prior = log_likelihoods(toy, batch, num_draws=4000)
    by_posterior = toy.log_likelihood(batch, num_draws=400)
    # Two ways to the likelihood that share nothing but the decoder's step and the prior.
    torch.testing.assert_close(by_prior, by_posterior, atol=0.25, rtol=0)
    assert (bound < by_posterior).all()
    assert (by_posterior - bound).max() < 3
    print("bound", bound, "likelihood", by_posterior, by_prior)


@torch.no_grad()
def test_latents_of_a_trained_model_are_active(toy: CosCvae) -> None:
    parts = toy.losses(make_batch_double()).parts
    print(parts)
    assert parts["active_context"] > 0
    assert parts["kl_context"] > 0.05


def make_batch_double() -> Batch:
    batch = make_batch()
    return replace(batch, regions=batch.regions.double())
