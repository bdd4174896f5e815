"""COS-CVAE: the bound is one, and near; latents that collapse show; phases, noise, filling."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from captioning.decoding.latent_draws import LatentSearch
from captioning.decoding.words_to_tokens import bind_search
from captioning.models.cos_cvae import CosCvae
from captioning.models.layers.gaussian import Gaussian
from captioning.models.layers.latent_decoder import Terms
from captioning.models.layers.latents import Chain
from captioning.types import Batch
from tests.contracts.test_captioners import log_likelihoods
from tests.tiny import MODELS, build, make_batch

BOUND = {"nll": 1.0, "kl": 1.0}
V = len(build("cos_cvae").tokenizer)


def later(batch: Batch, number: int) -> Batch:
    """The same captions as other rows: with other noise."""
    return replace(batch, rows=batch.rows + 1000 * number)


def exact(batch: Batch) -> Batch:
    return replace(batch, regions=batch.regions.double())


def of_one_image(batch: Batch) -> Batch:
    """All captions are the first image's: which one it will be is not to be seen."""
    return replace(batch, image_index=torch.zeros_like(batch.image_index))


def trained(batch: Batch, *, num_updates: int, **settings) -> CosCvae:
    torch.manual_seed(0)
    model = MODELS["cos_cvae"](**settings).to(batch.regions.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for number in range(num_updates):
        optimizer.zero_grad()
        model.train().losses(later(batch, number)).total.backward()
        optimizer.step()
    return model.eval()


def test_divergence_and_density_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (
        Gaussian.of(torch.randn(4, 3, 10, generator=generator, dtype=torch.float64))
        for _ in range(2)
    )
    theirs = [
        Normal(distribution.mean, (distribution.log_variance / 2).exp())
        for distribution in (one, other)
    ]
    torch.testing.assert_close(one.divergence(other), kl_divergence(*theirs))
    values = one.sample(torch.ones(4, 3, 5, dtype=torch.float64))
    torch.testing.assert_close(one.log_density(values), theirs[0].log_prob(values).sum(-1))
    assert not one.divergence(one).any()


def test_temperature_of_a_draw() -> None:
    distribution = Gaussian(mean=torch.zeros(3), log_variance=torch.tensor([-2.0, 0.0, 2.0]))
    noise = torch.ones(3)
    torch.testing.assert_close(distribution.sample(noise), torch.tensor([-1.0, 0.0, 1.0]).exp())
    torch.testing.assert_close(
        distribution.sample(noise, 0.5), torch.tensor([-0.5, 0.0, 0.5]).exp()
    )
    assert not distribution.sample(noise, 0).any()


def test_log_variances_stay_in_bounds() -> None:
    distribution = Gaussian.of(torch.tensor([0.0, 0.0, 0.0, 1e9, -1e9, 0.1]))
    torch.testing.assert_close(
        distribution.log_variance, torch.tensor([6, -6, 0.1]), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", ["cos_cvae", "cos_cvae_projected"])
@torch.no_grad()
def test_steps_with_the_posterior_s_latents_add_up_to_the_words_part(name: str) -> None:
    model, batch = build(name), make_batch()
    terms = model.terms(batch, 0, model._memory(batch))
    latents = torch.cat([terms.context.values, terms.objects.values], 2)
    start = model.start(batch)
    for caption, image in enumerate(batch.image_index.tolist()):
        state = start.select(torch.tensor([image]))
        state, total = replace(state, latents=latents[caption : caption + 1]), 0.0
        for now, following in itertools.pairwise(batch.tokens[caption][batch.token_mask[caption]]):
            log_probs, state = model.step(now.view(1), state)
            total -= log_probs[0, following]
        torch.testing.assert_close(total, terms.nll[caption])


def test_log_ratios_are_sums_over_words_that_exist() -> None:
    """``log p(x | z) p(z) / q(z | x)``, the densities being torch's."""
    generator = torch.Generator().manual_seed(0)

    def gaussian(size: int) -> Gaussian:
        return Gaussian.of(torch.randn(2, 3, 2 * size, generator=generator, dtype=torch.float64))

    posteriors, priors = [(gaussian(2), gaussian(4)) for _ in range(2)]
    real = torch.tensor([[True, True, False], [True, True, True]])
    nll, nothing = torch.tensor([5.0, 7.0], dtype=torch.float64), torch.zeros(2, 1)
    expected, chains = -nll, []
    for posterior, prior in zip(posteriors, priors, strict=True):
        noise = torch.randn(posterior.mean.shape, generator=generator, dtype=torch.float64)
        chains.append(Chain(values=posterior.sample(noise), distribution=posterior))
        p, q = (
            Normal(one.mean, (one.log_variance / 2).exp()).log_prob(chains[-1].values).sum(-1)
            for one in (prior, posterior)
        )
        expected = expected + torch.stack([(p - q)[0, :2].sum(), (p - q)[1].sum()])
    terms = Terms(
        nll=nll,
        kl_context=nothing,
        kl_objects=nothing,
        lengths=real.sum(1),
        context=chains[0],
        objects=chains[1],
        priors=priors,
    )
    torch.testing.assert_close(terms.log_ratios(real), expected)


def test_padding_changes_no_likelihood() -> None:
    model = build("cos_cvae")
    narrow, wide = (model.log_likelihood(make_batch(n), num_draws=3) for n in (0, 3))
    torch.testing.assert_close(narrow, wide)


@pytest.mark.long
@torch.no_grad()
def test_the_bound_is_near_the_likelihood_of_a_trained_model() -> None:
    batch = exact(make_batch())
    with torch.enable_grad():
        model = trained(batch, num_updates=100, first={"nll": 1, "kl": 0.1})
    losses = torch.stack([model.losses(later(batch, k)).per_sample for k in range(60)]).mean(0)
    bound = -losses * batch.token_mask[:, 1:].sum(1)
    by_posterior = model.log_likelihood(batch, num_draws=200)
    # Another way to the likelihood, that shares no more than the decoder's weights and the prior.
    by_prior = log_likelihoods(model, batch, num_draws=2000)
    torch.testing.assert_close(by_prior, by_posterior, atol=0.2, rtol=0)
    assert (bound < by_posterior).all()
    assert (
        by_posterior - bound
    ).mean() > 0.02  # latents are in use, so the bound is none too tight
    assert (by_posterior - bound).max() < 1.5


@pytest.mark.long
def test_latents_that_collapse_show_in_the_log_and_in_the_captions() -> None:
    batch = of_one_image(make_batch())
    settings = {"num_updates": 130, "first": BOUND, "word_dropout": 0.5}
    figures, captions = {}, {}
    for free in (0.0, 1.0):
        model = trained(batch, free_nats=free, **settings)
        figures[free] = model.losses(batch).parts
        search = LatentSearch.with_settings(num_captions=20, temperature=1.0, max_length=10)
        model.search = bind_search(search, model.tokenizer)
        captions[free] = {p.caption for p in model.candidates(batch)[0]}
    # A decoder this strong needs no latents: with the whole divergence charged they collapse.
    assert figures[0.0]["active_context"] == figures[0.0]["active_objects"] == 0
    assert figures[0.0]["kl_context"] < 0.01
    assert figures[1.0]["active_context"] == 1
    assert figures[1.0]["kl_context"] > 0.5
    assert len(captions[0.0]) < len(captions[1.0])
    assert len(captions[1.0]) >= 4


def test_phases_weigh_the_same_parts(monkeypatch) -> None:
    settings = {"first": {"nll": 1, "kl": 0.2}, "later": {"nll": 0.8, "kl": 0.8}}
    model, batch = build("cos_cvae"), make_batch()
    other = MODELS["cos_cvae"](**settings, first_epochs=2).eval()
    other.load_state_dict(model.state_dict())
    terms = other.terms(batch, 0, other._memory(batch))
    nll, kl, words = terms.nll.sum(), terms.kl.sum(), terms.lengths.sum()
    for epoch, (of_nll, of_kl) in enumerate([(1, 0.2), (1, 0.2), (0.8, 0.8), (0.8, 0.8)]):
        monkeypatch.setattr(CosCvae, "current_epoch", epoch)
        losses = other.losses(batch)
        torch.testing.assert_close(losses.total, (of_nll * nll + of_kl * kl) / words)
        # A caption's own loss is the bound in every phase.
        torch.testing.assert_close(losses.per_sample, (terms.nll + terms.kl) / terms.lengths)


def test_free_nats_take_what_lies_below_them_from_the_loss_alone() -> None:
    batch = make_batch()
    model = build("cos_cvae")
    free = MODELS["cos_cvae"](free_nats=1e4).eval()
    free.load_state_dict(model.state_dict())
    one, other = model.losses(batch), free.losses(batch)
    torch.testing.assert_close(one.per_sample, other.per_sample)
    torch.testing.assert_close(other.total, one.parts["nll"] + 2e4)


def test_noise_follows_the_row_and_the_updates(monkeypatch) -> None:
    model, batch = build("cos_cvae"), make_batch()
    one = model.losses(batch).per_sample
    assert torch.equal(one, model.losses(batch).per_sample)
    assert (one != model.losses(later(batch, 1)).per_sample).all()
    monkeypatch.setattr(CosCvae, "global_step", 7)
    at_seven = model.losses(batch).per_sample
    assert (one != at_seven).all()
    torch.manual_seed(5)  # torch's own generator has no part in it
    assert torch.equal(at_seven, model.losses(batch).per_sample)
    seeded = MODELS["cos_cvae"](seed=3).eval()
    seeded.load_state_dict(model.state_dict())
    assert (at_seven != seeded.losses(batch).per_sample).all()


def test_words_are_dropped_while_training_but_never_the_first() -> None:
    model = MODELS["cos_cvae"](word_dropout=0.3).train()
    words = make_batch().tokens[:, :-1]
    chances = torch.randn(words.shape, generator=torch.Generator().manual_seed(0))
    dropped = model.words.dropped(words, chances) == model.tokenizer.unk_id
    assert not dropped[:, 0].any()
    assert dropped[:, 1:].float().mean() == pytest.approx(0.3, abs=0.12)
    to_padding = MODELS["cos_cvae"](word_dropout=0.3, form={"drop_to_padding": True})
    expected = words.masked_fill(dropped, model.tokenizer.pad_id)
    assert torch.equal(to_padding.words.dropped(words, chances), expected)
    never = MODELS["cos_cvae"](word_dropout=0).train()
    assert torch.equal(never.words.dropped(words, chances), words)


def test_words_are_not_dropped_in_evaluation() -> None:
    batch = make_batch()
    model, other = (MODELS["cos_cvae"](word_dropout=share) for share in (0.9, 0))
    other.load_state_dict(model.state_dict())
    losses = [m.eval().losses(batch).per_sample for m in (model, other)]
    assert torch.equal(*losses)
    assert not torch.equal(*(m.train().losses(batch).per_sample for m in (model, other)))


def with_contexts(batch: Batch) -> Batch:
    """Each caption gets two contexts; the fifth has none, the last photo no plural object."""
    contexts = torch.tensor([[1, 5, V, 6, 2, 0], [1, V, 7, V + 1, 6, 2]]).expand(6, 2, 6).clone()
    lengths = torch.tensor([[5, 6]]).expand(6, 2).clone()
    lengths[4] = 0
    words = torch.tensor([[8, 9], [10, -1]]).expand(6, 2, 2).clone()
    words[5, 1] = -1
    extras = {"context_tokens": contexts, "context_lengths": lengths, "object_words": words}
    return replace(batch, extras=extras)


def pseudo_model(**settings) -> CosCvae:
    phase = {"nll": 0.8, "kl": 0.8, "nll_nn": 0.2, "kl_nn": 0.15}
    torch.manual_seed(0)
    return MODELS["cos_cvae"](first=phase, **settings).eval()


def test_filled_contexts_are_learnt_from() -> None:
    model, batch = pseudo_model(), make_batch()
    plain, more = model.losses(batch), model.losses(with_contexts(batch))
    torch.testing.assert_close(plain.per_sample, more.per_sample)
    parts = more.parts
    assert parts["pseudo_skipped"] in (pytest.approx(1 / 6), pytest.approx(2 / 6))
    expected = plain.total + 0.2 * parts["nll_nn"] + 0.15 * parts["kl_nn"]
    torch.testing.assert_close(more.total, expected)
    assert parts["kl_nn"] > 0
    assert "nll_nn" not in plain.parts
    model.losses(with_contexts(batch)).total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_filled_contexts_of_weight_0_or_none_count_nothing() -> None:
    model, batch = pseudo_model(), with_contexts(make_batch())
    order = torch.tensor([0, 1, 2, 3])
    fewer = replace(
        batch,
        rows=batch.rows[order],
        sample_ids=batch.sample_ids[:4],
        image_index=batch.image_index[order],
        tokens=batch.tokens[order],
        token_mask=batch.token_mask[order],
        extras={name: value[order] for name, value in batch.extras.items()},
    )
    weights = torch.tensor([1.0, 1, 1, 1, 0, 0])
    weighted = model.losses(replace(batch, weights=weights)).total
    torch.testing.assert_close(weighted, model.losses(fewer).total)
    none = {name: torch.zeros_like(value) for name, value in batch.extras.items()}
    losses = model.losses(replace(batch, extras=none))
    torch.testing.assert_close(losses.total, model.losses(make_batch()).total)
    assert losses.parts["pseudo_skipped"] == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reduction": "mean"}, "token_mean or caption_sum"),
        ({"word_dropout": 1.0}, r"word_dropout must be in \[0, 1\)"),
        ({"objects": "nowhere.txt"}, "does not exist"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        MODELS["cos_cvae"](**settings)
