"""The denoising loss against what is worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from diffusers import DDPMScheduler
from torch import Tensor, nn

from augmentation.images.training.denoising import Denoiser, mean_loss, step_weights


class Constant(nn.Module):
    """Predicts a constant, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))
        self.asked: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, noisy: Tensor, times: Tensor, states: Tensor) -> SimpleNamespace:
        self.asked.append((noisy, times, states))
        return SimpleNamespace(sample=torch.zeros_like(noisy) + self.value)


class Words(nn.Module):
    def forward(self, prompts: Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=prompts[..., None].float())


def denoiser(prediction: str, snr_cap: float | None = None) -> Denoiser:
    noise = DDPMScheduler(prediction_type=prediction, num_train_timesteps=50)
    return Denoiser(unet=Constant(), text_encoder=Words(), noise=noise, snr_cap=snr_cap)


LATENTS = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(5))
PROMPTS = torch.arange(12).view(6, 2)


def redrawn() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randint(50, (6,), generator=generator),
        torch.randn(LATENTS.shape, generator=generator),
    )


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_the_loss_is_the_square_of_what_is_to_be_predicted(prediction: str) -> None:
    model = denoiser(prediction)
    found = model.loss(LATENTS, PROMPTS, None, torch.Generator().manual_seed(1))
    times, noise = redrawn()
    signal = model.noise.alphas_cumprod[times].view(-1, 1, 1, 1)
    wanted = noise
    if prediction == "v_prediction":
        wanted = signal.sqrt() * noise - (1 - signal).sqrt() * LATENTS
    assert found.item() == pytest.approx(wanted.square().mean().item(), rel=1e-5)
    noisy, asked, states = model.unet.asked[0]
    assert torch.equal(asked, times)
    assert torch.allclose(noisy, signal.sqrt() * LATENTS + (1 - signal).sqrt() * noise)
    assert torch.equal(states, PROMPTS[..., None].float())


def test_weights_count() -> None:
    model = denoiser("epsilon", snr_cap=1.0)
    found = model.loss(LATENTS, PROMPTS, None, torch.Generator().manual_seed(1))
    times, noise = redrawn()
    signal = model.noise.alphas_cumprod[times]
    weights = ((1 - signal) / signal).clamp(max=1)
    expected = (weights * noise.square().mean((1, 2, 3))).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_places_count() -> None:
    model = denoiser("epsilon")
    places = torch.zeros(6, 1, 4, 4)
    places[2:, :, 1, 3] = 5.0
    found = model.loss(LATENTS, PROMPTS, places, torch.Generator().manual_seed(1))
    expected = 5 * redrawn()[1][2:, :, 1, 3].square().sum() / LATENTS.numel()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


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

    def draw(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, None]:
        chosen = torch.randint(6, (number,), generator=generator)
        return LATENTS[chosen], PROMPTS[chosen], None

    found = [mean_loss(model, draw, batch_size=3, batches=4) for _ in range(2)]
    assert found[0] == found[1]
    assert len(model.unet.asked) == 8
    assert not model.unet.asked[0][0].requires_grad
