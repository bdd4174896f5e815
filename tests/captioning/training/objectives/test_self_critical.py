"""Self-critical training: its gradient, on every model and in runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.interfaces import AbstractDecoderState
from captioning.models.base import AbstractCaptioner
from captioning.models.blip import Blip
from captioning.text.tokenizers.words import WordTokenizer
from captioning.training.objectives.rewards import AbstractReward
from captioning.training.objectives.self_critical import (
    SelfCritical,
    above_others,
    described,
    drawn_captions,
    evaluating,
    first_captions,
)
from captioning.types import Batch, CaptionLosses, Sample
from tests.tiny import FEATURE_SIZE, MODELS, build, make_batch, tokenizer

WORDS, LENGTH = 3, 2  # every caption of at most two tokens can be written down


class Lengths(AbstractReward):
    """The number of words, and more for some."""

    def __init__(self) -> None:
        self.opened: list[int] = []

    def open(self, samples: Sequence[Sample]) -> None:
        self.opened.append(len(samples))

    def rewards(self, captions, samples, ended) -> Tensor:
        return torch.tensor([len(c.split()) + 3.0 * c.count("b") for c in captions])


@dataclass(frozen=True, kw_only=True)
class Place(AbstractDecoderState):
    images: Tensor
    length: int

    def select(self, index: Tensor) -> Place:
        return replace(self, images=self.images[index])


class Table(AbstractCaptioner[Place]):
    """Logits of each image's first and second token, whatever the first one was."""

    def __init__(self) -> None:
        tokenizer = WordTokenizer(words=["a", "b", "c"][:WORDS])
        search = GreedySearch.with_settings(max_length=LENGTH)
        super().__init__(tokenizer=tokenizer, search=search)
        generator = torch.Generator().manual_seed(5)
        logits = torch.randn(2, LENGTH, len(tokenizer), generator=generator)
        # what search never writes has no chance: begin, padding and unknown words
        logits[:, :, [tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id]] = -torch.inf
        self.logits = torch.nn.Parameter(logits)
        self.dropout = torch.nn.Dropout(0.5)

    def losses(self, batch: Batch) -> CaptionLosses:
        tokens, mask = batch.caption_tokens()
        log_probs = self.dropout(self.logits.log_softmax(-1)[batch.image_index])
        log_probs = log_probs[:, : tokens.shape[1] - 1]
        nll = -log_probs.gather(2, tokens[:, 1:, None])[..., 0].where(mask[:, 1:], 0).sum(1)
        per_sample = nll.detach() / mask[:, 1:].sum(1)
        return CaptionLosses(total=nll.mean(), per_sample=per_sample, nll=nll)

    def start(self, batch: Batch) -> Place:
        return Place(images=torch.arange(len(batch.image_ids)), length=0)

    def step(self, tokens: Tensor, state: Place) -> tuple[Tensor, Place]:
        log_probs = self.logits[state.images, state.length].log_softmax(-1)
        return log_probs, replace(state, length=state.length + 1)


def table_batch() -> Batch:
    words = Table().tokenizer
    tokens = torch.tensor([words.encode("a b"), words.encode("b c"), words.encode("c a")])[:, :3]
    return Batch(
        rows=torch.arange(3),
        sample_ids=("x", "y", "z"),
        image_ids=("i0", "i1"),
        image_index=torch.tensor([0, 1, 1]),
        tokens=tokens,
        token_mask=torch.ones_like(tokens, dtype=torch.bool),
    )


def samples(number: int) -> list[Sample]:
    options = {"image_path": Path("x"), "caption": "a"}
    return [Sample(row=n, sample_id=str(n), image_id=str(n), **options) for n in range(number)]


def objective(**settings) -> SelfCritical:
    chosen = SelfCritical(reward=Lengths(), **settings)
    chosen.open(samples(10))
    return chosen


def expected_reward(model: Table) -> Tensor:
    """The mean over images of the expected reward, over all captions there are."""
    words, total = model.tokenizer, torch.zeros(())
    log_probs = model.logits.log_softmax(-1)
    texts = [words.token_id(word) for word in "abc"[:WORDS]]
    for image in range(2):
        captions = [(words.eos_id,), *itertools.product(texts, [*texts, words.eos_id])]
        for tokens in captions:
            log_prob = sum(log_probs[image, n, token] for n, token in enumerate(tokens))
            (reward,) = Lengths().rewards([words.decode(tokens)], [], [])
            total = total + reward * log_prob.exp() / 2
    return total


@pytest.mark.parametrize("settings", [{"baseline": "mean"}, {"baseline": "greedy"}])
def test_the_gradient_is_that_of_the_expected_reward(settings: dict) -> None:
    """Of a model whose captions can all be written down; dropout plays no part."""
    model, batch = Table().train(), table_batch()
    expected_reward(model).backward()
    expected, model.logits.grad = model.logits.grad, None
    objective(num_samples=20_000, **settings).losses(model, batch, (0, 0)).total.backward()
    gradient = -model.logits.grad
    assert expected.abs().max() > 0.3
    torch.testing.assert_close(gradient, expected, atol=0.02, rtol=0)
    assert model.training
    assert model.dropout.training


def test_advantages_against_the_others_add_up_to_nothing() -> None:
    rewards = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])
    advantages = above_others(rewards)
    others = torch.stack([rewards[:, [1, 2]], rewards[:, [0, 2]], rewards[:, [0, 1]]], 1).mean(2)
    torch.testing.assert_close(advantages, rewards - others)
    torch.testing.assert_close(advantages.sum(1), torch.zeros(2))
    with pytest.raises(ValueError, match="at least 2 for baseline=mean: got 1"):
        SelfCritical(reward=Lengths(), num_samples=1)


def test_draws_depend_on_seed_epoch_and_batch_alone() -> None:
    def total(seed: int, step: tuple[int, int]) -> float:
        torch.rand(3)  # the global generator plays no part
        return objective(seed=seed).losses(Table(), table_batch(), step).total.item()

    assert total(0, (1, 2)) == total(0, (1, 2))
    assert len({total(0, (1, 2)), total(1, (1, 2)), total(0, (2, 2)), total(0, (1, 3))}) == 4


@pytest.mark.parametrize("baseline", ["mean", "greedy"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_trained_on_rewards(name: str, baseline: str) -> None:
    model, batch = build(name).train(), make_batch()
    plain = model.eval().losses(batch).per_sample
    settings = {"num_samples": 3, "baseline": baseline, "temperature": 1.0}
    losses = objective(**settings).losses(model, batch, (0, 0))
    torch.testing.assert_close(losses.per_sample, plain)
    assert not losses.per_sample.requires_grad
    losses.total.backward()
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    assert torch.stack(norms).isfinite().all()
    assert sum(norms) > 0
    assert losses.parts["reward"] > 0


def test_drawn_captions_are_as_likely_as_their_scores_say() -> None:
    """Log-likelihoods by teacher forcing are those that the search added up."""
    for name in MODELS:
        model, batch = build(name), make_batch()
        if model.loss_is_bound:
            continue
        chosen = objective(num_samples=3)
        search = chosen._sampling(model, (0, 0))
        drawn = drawn_captions(model, batch, search)
        expected = model.candidates(batch, search=search)
        scores = torch.tensor([p.score for group in expected for p in group])
        captions = described(batch, drawn, model.tokenizer.bos_id, by_token=True)
        losses = model.losses(captions)
        torch.testing.assert_close(-losses.nll, scores, atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(losses.token_nll.sum(1), losses.nll)


def test_draws_are_as_long_as_the_search_allows() -> None:
    """Where the search's length counts begin token and prompt, draws' does, too."""
    search = TransformersBeamSearch.with_settings(beam_size=3, max_length=10, count_prompt=True)
    sizes = {"feature_size": FEATURE_SIZE, "hidden_size": 16, "num_layers": 2, "num_heads": 2}
    model = Blip(
        **sizes,
        intermediate_size=48,
        max_positions=24,
        tokenizer=tokenizer(),
        search=search,
        prompt="a dog runs on",
    ).eval()
    model.decoder.text.cls.predictions.bias.data[model.tokenizer.eos_id] = -20
    chosen = objective(num_samples=3)
    drawn = drawn_captions(model, make_batch(), chosen._sampling(model, (0, 0)))
    assert int(drawn.lengths.max()) == 10 - 1 - len(model.prompt_ids) == 5


def test_gradients_flow_under_autocast() -> None:
    """The copies of weights that sampling makes without gradients are not used for them."""
    model, batch = build("updown").train(), make_batch()
    with torch.autocast("cpu", torch.bfloat16):
        objective(num_samples=3).losses(model, batch, (0, 0)).total.backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert missing == []


def test_masked_words_change_the_likelihood_alone() -> None:
    model, batch = build("updown"), make_batch()
    weights = torch.ones(batch.tokens.shape)
    weights[2, 3] = 0
    masked = replace(batch, token_weights=weights)
    critical = objective(likelihood_weight=0.5)
    critical.open(samples(len(batch)))
    plain, losses = (critical.losses(model, one, (0, 0)) for one in (batch, masked))
    for name in ("policy", "reward"):
        assert torch.equal(losses.parts[name], plain.parts[name])
    assert torch.equal(losses.parts["likelihood"], model.losses(masked).total)
    assert not torch.equal(losses.parts["likelihood"], plain.parts["likelihood"])


def test_samples_of_no_weight_are_no_references() -> None:
    """Such as placeholders of photos without captions."""
    reward = Lengths()
    SelfCritical(reward=reward).open([*samples(3)[:2], replace(samples(3)[2], weight=0.0)])
    assert reward.opened == [2]


def test_a_model_without_likelihoods_is_refused_by_its_name() -> None:
    model = Table()
    complete = model.losses
    model.losses = lambda batch: replace(complete(batch), nll=None)
    with pytest.raises(ValueError, match=r"and Table\.losses gives none"):
        objective().losses(model, table_batch(), (0, 0))


def test_the_first_caption_of_each_image_stands_for_it() -> None:
    assert first_captions(table_batch()) == [0, 1]


def test_modules_are_left_in_the_mode_that_they_were_in() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval()).train()
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model] == [True, False]
