"""The denoising loss against what is worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from diffusers import DDPMScheduler
from torch import Tensor, nn

from augmentation.image_replacement.training.denoising import (
    Denoiser,
    Examples,
    LabelReader,
    mean_loss,
    step_weights,
)


class Constant(nn.Module):
    """Predicts a constant, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))
        self.conv_norm_out = nn.Conv2d(2, 3, 1)
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, noisy: Tensor, times: Tensor, states: Tensor) -> SimpleNamespace:
        self.calls.append((noisy, times, states))
        self.conv_norm_out(noisy)
        return SimpleNamespace(sample=torch.zeros_like(noisy) + self.value)


class Words(nn.Module):
    def forward(self, prompts: Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=prompts[..., None].float())


def denoiser(prediction: str, snr_cap: float | None = None) -> Denoiser:
    noise = DDPMScheduler(prediction_type=prediction, num_train_timesteps=50)
    return Denoiser(unet=Constant(), text_encoder=Words(), noise=noise, snr_cap=snr_cap)


LATENTS = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(5))
PROMPTS = torch.arange(12).view(6, 2)
MAPS = torch.randint(5, (6, 4, 4), generator=torch.Generator().manual_seed(6))
EXAMPLES = Examples(latents=LATENTS, prompts=PROMPTS)


def redrawn() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randint(50, (6,), generator=generator),
        torch.randn(LATENTS.shape, generator=generator),
    )


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_the_loss_is_the_square_of_what_is_to_be_predicted(prediction: str) -> None:
    model = denoiser(prediction)
    loss = model.loss(EXAMPLES, torch.Generator().manual_seed(1))
    times, noise = redrawn()
    signal = model.noise.alphas_cumprod[times].view(-1, 1, 1, 1)
    expected = noise
    if prediction == "v_prediction":
        expected = signal.sqrt() * noise - (1 - signal).sqrt() * LATENTS
    assert loss.item() == pytest.approx(expected.square().mean().item(), rel=1e-5)
    noisy, calls, states = model.unet.calls[0]
    assert torch.equal(calls, times)
    assert torch.allclose(noisy, signal.sqrt() * LATENTS + (1 - signal).sqrt() * noise)
    assert torch.equal(states, PROMPTS[..., None].float())


def test_weights_count() -> None:
    model = denoiser("epsilon", snr_cap=1.0)
    loss = model.loss(EXAMPLES, torch.Generator().manual_seed(1))
    times, noise = redrawn()
    signal = model.noise.alphas_cumprod[times]
    weights = ((1 - signal) / signal).clamp(max=1)
    expected = (weights * noise.square().mean((1, 2, 3))).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_places_count() -> None:
    model = denoiser("epsilon")
    places = torch.zeros(6, 1, 4, 4)
    places[2:, :, 1, 3] = 5.0
    loss = model.loss(replace(EXAMPLES, places=places), torch.Generator().manual_seed(1))
    expected = 5 * redrawn()[1][2:, :, 1, 3].square().sum() / LATENTS.numel()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_weights_fall_where_there_is_little_noise() -> None:
    signal = torch.tensor([0.99, 0.9, 0.5, 0.0])
    assert step_weights(signal, "epsilon", 1.0).tolist() == pytest.approx(
        [1 / 99, 1 / 9, 1, 1], rel=1e-4
    )
    assert step_weights(signal, "v_prediction", 1.0).tolist() == pytest.approx(
        [2 / 100, 2 / 10, 1, 1], rel=1e-4
    )
    assert step_weights(signal, "v_prediction", None).tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="epsilon or v_prediction: got 'sample'"):
        step_weights(signal, "sample", None)


def test_the_mean_loss_is_the_same_whenever_it_is_asked() -> None:
    model = denoiser("epsilon")

    def draw(number: int, generator: torch.Generator) -> Examples:
        chosen = torch.randint(6, (number,), generator=generator)
        return Examples(latents=LATENTS[chosen], prompts=PROMPTS[chosen], maps=MAPS[chosen])

    model.labels, model.label_weight = LabelReader(3, 4), 1.0
    loss = [mean_loss(model, draw, batch_size=3, batches=4) for _ in range(2)]
    model.labels = None
    assert mean_loss(model, draw, batch_size=3, batches=4) == loss[0]
    assert loss[0] == loss[1]
    assert len(model.unet.calls) == 12
    assert not model.unet.calls[0][0].requires_grad


def test_labels_are_read_from_the_last_maps_and_train_them() -> None:
    model, reader = denoiser("epsilon"), LabelReader(3, 4)
    plain = model.loss(EXAMPLES, torch.Generator().manual_seed(1))
    model.labels, model.label_weight = reader, 0.5
    assert model.loss(EXAMPLES, torch.Generator().manual_seed(1)) == plain
    loss = model.loss(replace(EXAMPLES, maps=MAPS), torch.Generator().manual_seed(1))
    maps = model.unet.conv_norm_out(model.unet.calls[-1][0])
    assert loss.item() == pytest.approx((plain + 0.5 * reader.loss(maps, MAPS)).item())
    loss.backward()
    assert model.unet.conv_norm_out.weight.grad.abs().sum() > 0
    assert not model.unet.conv_norm_out._forward_hooks
