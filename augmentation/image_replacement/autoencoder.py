"""A small autoencoder of images, initialised with principal components of patches.

It replaces Stable Diffusion's `AutoencoderKL` on a machine without GPU: pixels are moved into
channels and back instead of striding, and a linear path past all layers is set, before training, to
the principal components of patches as large as a latent's place. On MiniWorld the components of 8 x
8 pixels alone are better than an `AutoencoderKL` of this size trained for twelve minutes on a core.

A pipeline's ``model_index.json`` names this module; `diffusers` finds it once it is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.autoencoders.vae import DecoderOutput, DiagonalGaussianDistribution
from diffusers.models.modeling_outputs import AutoencoderKLOutput
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """Residual block of two convolutions, initialised to add 0.

    Args:
        width: channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        nn.init.kaiming_normal_(self.first.weight)
        nn.init.zeros_(self.second.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """Map features ``(B, width, H, W)`` to features of the same shape."""
        inner = self.first(functional.silu(maps))
        return maps + self.second(functional.silu(inner))


class PatchAutoencoder(ModelMixin, ConfigMixin):
    """Encodes images ``(B, 3, H, W)`` in [-1, 1] to latents ``(B, C, H / P, W / P)``, and decodes.

    Args:
        latent_channels: C.
        block_out_channels: widths at full, half, quarter resolution and so on; each after the first
            halves the latents' sides, so that P is 4 with three, 8 with four.
        blocks: residual blocks at half, quarter resolution and so on.
        sample_size: side of the pictures that it was trained on.
        scaling_factor: latents are multiplied with it to have deviation 1.

    Raises:
        ValueError: ``blocks`` does not have one number for each width after the first.
    """

    config: Any  # diffusers keeps the arguments there

    @register_to_config
    def __init__(
        self,
        *,
        latent_channels: int = 12,
        block_out_channels: Sequence[int] = (8, 24, 48, 128),
        blocks: Sequence[int] = (1, 1, 2),
        sample_size: int = 128,
        scaling_factor: float = 1.0,
    ) -> None:
        super().__init__()
        if len(blocks) != len(block_out_channels) - 1:
            raise ValueError(
                f"an autoencoder with block_out_channels {list(block_out_channels)} needs "
                f"{len(block_out_channels) - 1} numbers in blocks: got {list(blocks)}"
            )
        self.patch = 2 ** (len(block_out_channels) - 1)
        pixels = 3 * self.patch**2
        self.analysis = nn.Conv2d(pixels, latent_channels, 1)
        self.synthesis = nn.Conv2d(latent_channels, pixels, 1)
        widths = list(block_out_channels)
        down: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1)]
        up: list[nn.Module] = [nn.Conv2d(latent_channels, widths[-1], 3, padding=1)]
        for before, after, number in zip(widths[:-1], widths[1:], blocks, strict=True):
            down += [nn.PixelUnshuffle(2), nn.Conv2d(4 * before, after, 1)]
            down += [Residual(after) for _ in range(number)]
        for before, after, number in reversed(
            list(zip(widths[1:], widths[:-1], blocks, strict=True))
        ):
            up += [Residual(before) for _ in range(number)]
            up += [nn.Conv2d(before, 4 * after, 3, padding=1), nn.PixelShuffle(2)]
        for layer in (*down, *up):
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
        self.down = nn.Sequential(*down, nn.SiLU(), _silent(widths[-1], latent_channels))
        self.up = nn.Sequential(*up, nn.SiLU(), _silent(widths[0], 3))

    @torch.no_grad()
    def start_from(self, pictures: Tensor) -> None:
        """Initialise the linear path with the principal components of image patches.

        Args:
            pictures: ``(B, 3, H, W)`` in [-1, 1]. Latents get mean 0 and a mean square of 1, so
                that the most important ones are the largest.
        """
        cut = functional.pixel_unshuffle(pictures, self.patch)
        patches = cut.transpose(0, 1).flatten(1).double()
        mean = patches.mean(1)
        centred = patches - mean[:, None]
        spectrum = torch.linalg.eigh(centred @ centred.T / patches.shape[1])
        number = self.config.latent_channels
        basis = spectrum.eigenvectors[:, -number:].flip(1)  # (pixels, C)
        scale = spectrum.eigenvalues[-number:].mean().sqrt()
        analysis: Any = self.analysis
        analysis.weight.copy_((basis.T / scale)[:, :, None, None])
        analysis.bias.copy_(-(basis.T / scale) @ mean)
        synthesis: Any = self.synthesis
        synthesis.weight.copy_((basis * scale)[:, :, None, None])
        synthesis.bias.copy_(mean)

    @torch.no_grad()
    def standardise(self, deviation: Tensor) -> None:
        """Scale latents to standard deviation 1 in each channel; decoded images do not change.

        Noise would otherwise hide the small channels, which hold details, at almost all diffusion
        times.

        Args:
            deviation: ``(C,)``, of the latents so far.
        """
        rows, columns = deviation[:, None, None, None], deviation[None, :, None, None]
        encoders: list[Any] = [self.analysis, self.down[-1]]
        for layer in encoders:
            layer.weight /= rows
            layer.bias /= deviation
        decoders: list[Any] = [self.synthesis, self.up[0]]
        for layer in decoders:
            layer.weight *= columns

    def encode(self, x: Tensor, return_dict: bool = True) -> Any:
        """Encode images to latents; the latent distribution has no variance.

        Returns:
            An ``AutoencoderKLOutput``, or a tuple of the distribution without ``return_dict``.
        """
        linear = self.analysis(functional.pixel_unshuffle(x, self.patch))
        mean = linear + self.down(x)
        distribution = DiagonalGaussianDistribution(
            torch.cat([mean, torch.full_like(mean, -30.0)], dim=1), deterministic=True
        )
        return AutoencoderKLOutput(latent_dist=distribution) if return_dict else (distribution,)

    def decode(
        self, z: Tensor, return_dict: bool = True, generator: torch.Generator | None = None
    ) -> Any:
        """Decode latents to images deterministically; ``generator`` is ignored.

        Returns:
            A ``DecoderOutput``, or a tuple of the pictures without ``return_dict``.
        """
        del generator
        pictures = functional.pixel_shuffle(self.synthesis(z), self.patch) + self.up(z)
        return DecoderOutput(sample=pictures) if return_dict else (pictures,)

    def forward(self, x: Tensor) -> Tensor:
        """Encode images to latents, and decode the latents."""
        return self.decode(self.encode(x).latent_dist.mode()).sample


def _silent(width: int, out: int) -> nn.Conv2d:
    """Convolution that outputs 0 before training."""
    last = nn.Conv2d(width, out, 3, padding=1)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return last
