"""The loss that training from scratch and fine-tuning share, from latents and prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor, nn
from transformers import CLIPTextModel

from augmentation.image_replacement.training.labels import LabelReader
from augmentation.training.loop import LossOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Photos to be denoised.

    Attributes:
        latents: ``(B, C, H, W) float32``, of deviation 1.
        prompts: ``(B, L) int64``.
        places: ``(B, 1 or C, H, W)``, weights of the latents' places and channels; None weighs all
            alike.
        maps: ``(B, H, W) int64``, see `label_maps`; None: unknown.
    """

    latents: Tensor
    prompts: Tensor
    places: Tensor | None = None
    maps: Tensor | None = None


class Denoiser(nn.Module):
    """The two networks of a latent diffusion model that read prompts and remove noise.

    Args:
        unet: predicts from noisy latents, time and the prompt's states.
        text_encoder: prompts to states.
        noise: the schedule of noise, and the prediction's type.
        snr_cap: caps the weight of steps with little noise, 5 in Hang et al., ICCV 2023; None
            weighs all steps alike.
        half: compute in bfloat16 where that is safe; weights stay in float32.
        labels: predicts labels from the U-Net's last maps, and is trained along; so the U-Net
            learns in fewer steps how a prompt's words look (Yu et al., ICLR 2025, with the
            features of a network instead of labels). None: no labels.
        label_weight: of the labels' loss.
    """

    weights: Tensor

    def __init__(
        self,
        *,
        unet: UNet2DConditionModel,
        text_encoder: CLIPTextModel,
        noise: DDPMScheduler,
        snr_cap: float | None,
        half: bool = False,
        labels: LabelReader | None = None,
        label_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.unet = unet
        self.text_encoder = text_encoder
        self.noise: Any = noise
        self.computes_in_half = half
        self.labels = labels
        self.label_weight = label_weight
        signal = self.noise.alphas_cumprod.float()
        kind = self.noise.config.prediction_type
        self.register_buffer("weights", step_weights(signal, kind, snr_cap))

    def loss(self, examples: Examples, generator: torch.Generator) -> Tensor:
        """Weighted square error of the prediction at times drawn evenly, and the labels' loss.

        Args:
            examples: without ``maps`` no labels' loss is added.
            generator: of times and noise, on the CPU: they are the same on any device.
        """
        latents, place_weights = examples.latents, examples.places
        steps = self.noise.config.num_train_timesteps
        times = torch.randint(steps, (len(latents),), generator=generator).to(latents.device)
        noise = torch.randn(latents.shape, generator=generator).to(latents)
        noisy = self.noise.add_noise(latents, noise, times)
        noisy = noisy.contiguous(memory_format=torch.channels_last)
        maps = examples.maps
        labels = None if maps is None else self.labels
        captured: list[Tensor] = []
        with torch.autocast(latents.device.type, torch.bfloat16, enabled=self.computes_in_half):
            states = self.text_encoder(examples.prompts.to(latents.device)).last_hidden_state
            with _outputs(self.unet.conv_norm_out if labels else None, captured):
                predicted = self.unet(noisy, times, states).sample.float()
            label_loss = 0.0 if labels is None or maps is None else labels.loss(captured[0], maps)
        target = noise
        if self.noise.config.prediction_type == "v_prediction":
            target = self.noise.get_velocity(latents, noise, times)
        errors = (predicted - target).square()
        if place_weights is not None:
            errors = errors * place_weights
        errors = errors.mean((1, 2, 3))
        return (errors * self.weights[times]).mean() + self.label_weight * label_loss


@contextmanager
def _outputs(layer: Any, outputs: list[Tensor]) -> Iterator[None]:
    """Within the context, outputs of the layer are added to ``outputs``."""
    if layer is None:
        yield
        return
    hook = layer.register_forward_hook(lambda _layer, _inputs, output: outputs.append(output))
    try:
        yield
    finally:
        hook.remove()


Draw = Callable[[int, torch.Generator], Examples]


def loss_of_draws(denoiser: Denoiser, draw: Draw, *, batch_size: int) -> LossOf:
    """The loss of a step.

    Args:
        denoiser: to be trained.
        draw: draws a number of photos with a generator.
        batch_size: photos in a step.
    """

    def loss_of(_: int, generator: torch.Generator) -> Tensor:
        return denoiser.loss(draw(batch_size, generator), generator)

    return loss_of


@torch.no_grad()
def mean_loss(denoiser: Denoiser, draw: Draw, *, batch_size: int, batches: int) -> float:
    """Mean loss over the same photos, prompts, times and noise whenever it is called.

    Labels are left out: they are a means, and not every data set has them.

    Args:
        denoiser: what is judged.
        draw: see `loss_of_draws`.
        batch_size: photos in a batch.
        batches: how many.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = (replace(draw(batch_size, generator), maps=None) for _ in range(batches))
    losses = [denoiser.loss(examples, generator) for examples in drawn]
    return float(torch.stack(losses).mean())


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
    offset = 0.0 if prediction_type == "epsilon" else 1.0
    return ((snr_cap + offset) / (ratio + offset)).clamp(max=1.0)
