"""Group-relative policy optimisation: its formula, its updates, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from captioning.models.adapt import add_low_rank
from captioning.training.objectives.grpo import Grpo, divergence
from captioning.training.objectives.rewards import AbstractReward
from captioning.training.objectives.self_critical import described, evaluating
from captioning.types import REWARD, Sample
from tests.tiny import build, make_batch
from tests.tiny_vlm import batch_of, captioner, model_folder

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Letters(AbstractReward):
    """How often a caption has the letter a; counts how often it is asked."""

    asked = 0

    def open(self, samples) -> None:
        """Nothing is compared with."""

    def rewards(self, captions, samples, ended) -> torch.Tensor:
        self.asked += 1
        return torch.tensor([float(caption.count("a")) for caption in captions])


def objective(**settings) -> Grpo:
    chosen = Grpo(reward=Letters(), **settings)
    options = {"image_path": Path("x"), "caption": "a"}
    chosen.open([Sample(row=n, sample_id=str(n), image_id=str(n), **options) for n in range(10)])
    return chosen


def by_hand(model, batch, draws, old, settings) -> torch.Tensor:
    """Equation 3 of DeepSeekMath, token by token, in plain Python."""
    captions = described(batch, draws.drawn, model.tokenizer.bos_id, by_token=True)
    with evaluating(model):
        log_p = -model.losses(captions).token_nll
    exist, terms = captions.token_mask[:, 1:], []
    texts, each = draws.drawn.texts, draws.drawn.tokens.shape[1]
    for row in range(len(log_p)):
        group = [float(text.count("a")) for text in texts[row // each * each :][:each]]
        advantage = group[row % each] - sum(group) / each
        if settings["scale_rewards"] == "group":
            advantage /= torch.tensor(group).std() + 1e-4
        for place in range(log_p.shape[1]):
            if exist[row, place]:
                ratio = (log_p[row, place] - old[row, place]).exp()
                clipped = ratio.clamp(0.9, 1.3)
                loss = -torch.min(ratio * advantage, clipped * advantage)
                share = {"tokens": exist.sum(), "captions": len(log_p) * exist[row].sum()}
                longest = model.search.settings.max_length
                terms.append(loss / share.get(settings["mean"], len(log_p) * longest))
    return torch.stack(terms).sum()


@pytest.mark.parametrize(
    "settings",
    [
        {"mean": "tokens", "scale_rewards": "group"},
        {"mean": "captions", "scale_rewards": "group"},
        {"mean": "length", "scale_rewards": "none"},
    ],
)
def test_the_loss_and_its_gradient_are_the_papers(settings: dict) -> None:
    """Also of a second update, in which the ratio is not 1 and is clipped."""
    torch.manual_seed(0)
    model, batch = build("updown").train(), make_batch()
    chosen = objective(num_samples=4, num_updates=2, clip_low=0.1, clip_high=0.3, **settings)
    chosen.losses(model, batch, (0, 0))
    draws = chosen._draws
    old = -draws.kept["drawn"]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    losses = chosen.losses(model, batch, (0, 0))
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(losses.total, parameters, allow_unused=True)
    total = by_hand(model, batch, draws, old, settings)
    expected = torch.autograd.grad(total, parameters, allow_unused=True)
    torch.testing.assert_close(losses.total, total)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
    assert losses.parts["clipped"] > 0
    assert chosen.reward.asked == 1  # the captions were drawn and judged once


def test_a_new_batch_is_drawn_for() -> None:
    model, batch = build("updown"), make_batch()
    chosen = objective(num_samples=2, num_updates=2)
    for step in ((0, 0), (0, 0), (0, 1), (1, 1)):
        losses = chosen.losses(model, batch, step)
    assert chosen.reward.asked == 3
    assert losses.recorded[REWARD].shape == (len(batch),)


def test_rewards_of_a_batch_scale_by_its_spread() -> None:
    rewards = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])
    chosen, batch = objective(num_samples=3, scale_rewards="batch"), make_batch()
    advantages, logged = chosen._advantages(build("updown"), batch, rewards, [])
    centred = rewards - rewards.mean(1, keepdim=True)
    torch.testing.assert_close(advantages, centred / (rewards.std() + 1e-4))
    assert logged["rewards_alike"] == 0
    alike = objective(num_samples=3)._advantages(build("updown"), batch, torch.ones(2, 3), [])
    assert not alike[0].any()
    assert alike[1]["rewards_alike"] == 1


def test_the_divergence_is_that_of_the_model_before_its_additions() -> None:
    """Which the reference pass computes without a second model."""
    folder = model_folder("qwen2_vl")
    model, before = captioner(folder), captioner(folder)
    batch = batch_of(folder, model.tokenizer)
    add_low_rank(model, rank=2, alpha=8, dropout=0.0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    plain, chosen = objective(num_samples=3), objective(num_samples=3, num_updates=2, beta=0.5)
    losses = chosen.losses(model, batch, (0, 0))
    captions = described(batch, chosen._draws.drawn, model.tokenizer.bos_id, by_token=True)
    with torch.no_grad(), evaluating(before):
        base = before.losses(captions).token_nll
    torch.testing.assert_close(chosen._draws.kept["base"], base)
    exist = captions.token_mask[:, 1:]
    kl = divergence(chosen._draws.kept["drawn"], base)[exist].mean()
    assert kl > 0.01
    torch.testing.assert_close(losses.parts["kl"], kl)
    expected = plain.losses(model, batch, (0, 0)).total + 0.5 * kl
    torch.testing.assert_close(losses.total, expected)
    assert trained == {name for name, value in model.named_parameters() if value.requires_grad}


def test_what_cannot_be_is_refused_by_its_key() -> None:
    with pytest.raises(ValueError, match=r"objective\.num_samples must be at least 2.*got 1"):
        Grpo(reward=Letters(), num_samples=1)
    with pytest.raises(ValueError, match=r"set model\.lora .*or objective\.beta=0"):
        objective(beta=0.1).losses(build("updown"), make_batch(), (0, 0))
    with pytest.raises(ValueError, match=r"objective=grpo needs the log-likelihood of each token"):
        objective().losses(build("cos_cvae"), make_batch(), (0, 0))
