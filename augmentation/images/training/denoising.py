"""What training from scratch and fine-tuning share: latents and prompts in, a loss out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from torch import Tensor, nn
from transformers import CLIPTextModel

from augmentation.images.training.loop import LossOf


class Denoiser(nn.Module):
    """The two networks of a latent diffusion model that read prompts and take noise away.

    Args:
        unet: predicts from noisy latents, time and the prompt's states.
        text_encoder: prompts to states.
        noise: says how noise is added and what is predicted.
        snr_cap: caps the weight of steps with little noise, 5 in Hang et al., ICCV 2023; None
            weighs all steps alike.
        half: compute in bfloat16 where that is safe; weights stay in float32.
    """

    def __init__(
        self,
        *,
        unet: UNet2DConditionModel,
        text_encoder: CLIPTextModel,
        noise: DDPMScheduler,
        snr_cap: float | None,
        half: bool = False,
    ) -> None:
        super().__init__()
        self.unet = unet
        self.text_encoder = text_encoder
        self.noise = noise
        self.half = half
        signal = noise.alphas_cumprod.float()
        self.register_buffer("weights", step_weights(signal, noise.config.prediction_type, snr_cap))

    def loss(
        self, latents: Tensor, prompts: Tensor, places: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        """Weighted square error of the prediction at times drawn evenly.

        Args:
            latents: ``(B, C, H, W) float32``, of deviation 1.
            prompts: ``(B, L) int64``.
            places: ``(B, 1 or C, H, W)``, weights of the latents' places and channels; None weighs
                all alike.
            generator: of times and noise, on the CPU: they are the same on any device.
        """
        steps = self.noise.config.num_train_timesteps
        times = torch.randint(steps, (len(latents),), generator=generator).to(latents.device)
        noise = torch.randn(latents.shape, generator=generator).to(latents)
        noisy = self.noise.add_noise(latents, noise, times)
        noisy = noisy.contiguous(memory_format=torch.channels_last)
        with torch.autocast(latents.device.type, torch.bfloat16, enabled=self.half):
            states = self.text_encoder(prompts.to(latents.device)).last_hidden_state
            predicted = self.unet(noisy, times, states).sample.float()
        target = noise
        if self.noise.config.prediction_type == "v_prediction":
            target = self.noise.get_velocity(latents, noise, times)
        errors = (predicted - target).square()
        if places is not None:
            errors = errors * places
        errors = errors.mean((1, 2, 3))
        return (errors * self.weights[times]).mean()


Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor, Tensor | None]]


def loss_of_draws(denoiser: Denoiser, draw: Draw, *, batch_size: int) -> LossOf:
    """The loss of a step.

    Args:
        denoiser: what is trained.
        draw: latents, prompts and weights (or None) of so many photos, drawn with the
            generator.
        batch_size: photos in a step.
    """

    def loss_of(_: int, generator: torch.Generator) -> Tensor:
        return denoiser.loss(*draw(batch_size, generator), generator)

    return loss_of


@torch.no_grad()
def mean_loss(denoiser: Denoiser, draw: Draw, *, batch_size: int, batches: int) -> float:
    """Mean loss over the same photos, prompts, times and noise whenever it is called.

    Args:
        denoiser: what is judged.
        draw: see `loss_of_draws`.
        batch_size: photos in a batch.
        batches: how many.
    """
    generator = torch.Generator().manual_seed(0)
    found = [denoiser.loss(*draw(batch_size, generator), generator) for _ in range(batches)]
    return float(torch.stack(found).mean())


def step_weights(signal: Tensor, prediction_type: str, snr_cap: float | None) -> Tensor:
    """Weights of the squared error at each time: lower where there is little noise.

    As Hang et al., except that the noisiest times of a v-prediction keep weight 1: there the
    layout is decided.

    Args:
        signal: ``(T,)``, the share of the variance that is signal.
        prediction_type: ``"epsilon"`` or ``"v_prediction"``.
        snr_cap: see `Denoiser`.

    Raises:
        ValueError: another prediction type.
    """
    if prediction_type not in ("epsilon", "v_prediction"):
        raise ValueError(
            f"prediction_type must be epsilon or v_prediction: got {prediction_type!r}"
        )
    if snr_cap is None:
        return torch.ones_like(signal)
    ratio = signal / (1 - signal)
    more = 0.0 if prediction_type == "epsilon" else 1.0
    return ((snr_cap + more) / (ratio + more)).clamp(max=1.0)
