"""Priors draw what they say they expect, and chains depend on what stands before."""

from __future__ import annotations

import pytest
import torch

from captioning.models.layers.latent_form import LatentForm
from captioning.models.layers.latents import DrawChain, Latents

D, T, SIZES = 5, 6, (3, 2)


@pytest.fixture
def latents() -> Latents:
    torch.manual_seed(0)
    module = Latents(
        size=12,
        embedding_size=4,
        feature_size=D,
        hidden_sizes=(7, 6),
        sizes=SIZES,
        form=LatentForm(),
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module.double()


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_a_draw_of_the_prior_follows_its_laws(latents: Latents, temperature: float) -> None:
    prior, mean, eps = latents.prior, noise(4, D), noise(4, T, sum(SIZES))
    context, objects = prior.draw(mean, eps, temperature).split(SIZES, dim=2)
    for_context, for_objects = eps.split(SIZES, dim=2)
    conditions = prior.conditions(mean, torch.zeros(4, T, dtype=torch.long))
    distribution = prior.context_distributions(conditions, context)
    torch.testing.assert_close(distribution.sample(for_context, temperature), context)
    distribution = prior.object_distributions(conditions, context, objects)
    torch.testing.assert_close(distribution.sample(for_objects, temperature), objects)


def test_laws_depend_on_earlier_latents_alone(latents: Latents) -> None:
    values = noise(2, T, 5).split(SIZES, dim=2)
    mean = latents.prior.conditions(noise(2, D), torch.zeros(2, T, dtype=torch.long))
    changed = values[0].clone()
    changed[:, 3] += 1
    one, other = (latents.prior.context_distributions(mean, v).mean for v in (values[0], changed))
    assert torch.equal(one[:, :4], other[:, :4])
    assert (one[:, 4:] != other[:, 4:]).all()
    # z^o_t reads z^m_t of its own step.
    one, other = (
        latents.prior.object_distributions(mean, v, values[1]).mean for v in (values[0], changed)
    )
    assert torch.equal(one[:, :3], other[:, :3])
    assert (one[:, 3:] != other[:, 3:]).all()


def test_posteriors_read_the_whole_caption_and_the_latents_before(latents: Latents) -> None:
    words = torch.tensor([[3, 10, 4, 11, 5, 2]])
    other = words.clone()
    other[0, 5] = 6
    eps, lengths = noise(1, T, 3), torch.tensor([T])
    one, summary = latents.context(words, lengths, eps)
    two, _ = latents.context(other, lengths, eps)
    assert (one.distribution.mean[:, 0] != two.distribution.mean[:, 0]).all()  # backward in time
    moved = eps.clone()
    moved[:, 2] += 1
    three, _ = latents.context(words, lengths, moved)
    assert torch.equal(one.distribution.mean[:, :3], three.distribution.mean[:, :3])
    assert (one.distribution.mean[:, 3] != three.distribution.mean[:, 3]).all()
    assert summary.shape == (1, 7)


def test_objects_are_read_up_to_their_number(latents: Latents) -> None:
    words, counts = torch.tensor([[3, 4, 5], [3, 9, 9], [0, 0, 0]]), torch.tensor([2, 1, 0])
    inputs = (
        noise(1, D).expand(3, -1),
        noise(1, 7).expand(3, -1),
        noise(1, T, 3).expand(3, -1, -1),
    )
    eps = noise(3, T, 2)
    one = latents.objects(words, counts, *inputs, eps)
    words = torch.tensor([[3, 4, 8], [3, 8, 8], [0, 1, 2]])
    other = latents.objects(words, counts, *inputs, eps)
    assert torch.equal(one.values, other.values)
    assert len(one.distribution.mean[:, 0].unique(dim=0)) == 3


def test_padding_changes_no_draw() -> None:
    """As a GPU's graph needs it, which has room for the largest batch so far."""
    generator = torch.Generator().manual_seed(0)
    chain, previous = DrawChain(bounded=True), torch.nn.Linear(3, 6, bias=False)
    shapes = []

    def plain(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shapes.append(tuple(tensors[0].shape))
        drawn = chain(tensors[0], previous, tensors[1])
        return drawn.values, drawn.distribution.mean, drawn.distribution.log_variance

    for captions, steps in ((5, 7), (3, 4)):
        statistics = torch.randn(captions, steps, 6, generator=generator)
        noise = torch.randn(captions, steps, 3, generator=generator)
        padded = chain.padded(plain, statistics, noise, previous.weight)
        for one, other in zip(padded, plain(statistics, noise), strict=True):
            torch.testing.assert_close(one, other)
    assert shapes == [(8, 8, 6), (5, 7, 6), (8, 8, 6), (3, 4, 6)]
