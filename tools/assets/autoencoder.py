"""Train a small image autoencoder: ``python -m tools.assets autoencoder``.

This is the first half of a latent diffusion model (Rombach et al., CVPR 2022): images become
latents of smaller size. Settings are in ``configs/autoencoder.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import MinLen
from torch import Tensor, nn

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.training.denoising import (
    LabelReader,
    label_maps,
    label_names,
    load_pictures,
    object_weights,
    photo_paths,
)
from augmentation.training.identity import training_identity
from augmentation.training.loop import AbstractLoopSettings, LossOf, TrainingLoop
from augmentation.training.weights_card import write_card
from captioning.config.build import build_part
from captioning.config.ranges import (
    Name,
    NonNegativeFloat,
    NumThreads,
    PositiveInt,
    Seed,
)
from captioning.config.tasks import plain, recorded
from captioning.data.roster import Roster
from captioning.training.rosters import read_roster
from captioning.training.settings import Data, DataSettings, Part, Paths
from captioning.vision.backbones import Backbone

NUM_START = 400
"""Number of photos to initialise a new autoencoder's linear path and the latents' deviation."""


Sizes = Annotated[Sequence[PositiveInt], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class AutoencoderTraining(AbstractLoopSettings):
    """Settings in ``training``: loop and weights of the loss terms, see `AutoencoderLoss`.

    Attributes:
        num_steps: number of updates.
        objects: weight of pixels and edges inside boxes, with 1 outside.
        edges, features, labels: weights of these errors.
        spread: weight of the latents' squares.
        decoder_only: trains only the decoder, so latents do not change.
        latent_noise: deviation of noise on the latents, relative to that of the latents.
    """

    num_steps: PositiveInt
    objects: NonNegativeFloat
    edges: NonNegativeFloat
    spread: NonNegativeFloat
    features: NonNegativeFloat
    labels: NonNegativeFloat
    decoder_only: bool
    latent_noise: NonNegativeFloat


def starting_model(
    start: str | None,
    model: Mapping[str, PositiveInt | Sizes],
    paths: Sequence[Path],
    *,
    size: int,
) -> PatchAutoencoder:
    """Create a new autoencoder, or load an earlier one.

    Args:
        start: folder of an earlier autoencoder.
        model: arguments of a new autoencoder.
        paths: photos whose patches initialise a new autoencoder.
        size: side of a picture in pixels.

    Raises:
        OSError: ``start`` is no autoencoder's folder.
    """
    if start is not None:
        return PatchAutoencoder.from_pretrained(start)
    made = PatchAutoencoder(**plain(model), sample_size=size)
    made.start_from(load_pictures(paths[:NUM_START], size=size))
    return made


def pixel_distance(decoded: Tensor, real: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean absolute difference of pixels.

    Args:
        decoded: ``(B, C, H, W)``.
        real: of the same shape.
        weights: ``(B, 1, H, W)``.
    """
    return ((decoded - real).abs() * weights).mean()


def edge_distance(decoded: Tensor, real: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean absolute difference of horizontal and vertical gradients."""
    across = pixel_distance(decoded.diff(dim=3), real.diff(dim=3), weights[..., 1:])
    return across + pixel_distance(decoded.diff(dim=2), real.diff(dim=2), weights[..., 1:, :])


class FeatureDistance:
    """Perceptual distance of images in the first layers of a frozen network.

    The mean square distance of feature vectors scaled to length 1, summed over layers (Zhang et
    al., CVPR 2018, without its weights). Blur costs little in pixels, but much in this distance.

    Args:
        backbone: a timm network that returns its intermediate maps.
        layers: number of layers, from the finest.
    """

    def __init__(self, *, backbone: Backbone, layers: int = 3) -> None:
        self.backbone = backbone.eval().requires_grad_(False)
        self.layers = layers

    def __call__(self, decoded: Tensor, real: Tensor) -> Tensor:
        """Distance of images ``(B, 3, H, W)`` in [-1, 1]: a scalar of at least 0."""
        with torch.no_grad():
            targets = self._maps(real)
        pairs = zip(self._maps(decoded), targets, strict=True)
        return torch.stack([(a - b).square().sum(1).mean() for a, b in pairs]).sum()

    def _maps(self, pictures: Tensor) -> list[Tensor]:
        pixels = self.backbone.normalise((pictures + 1) * 127.5)
        intermediates = self.backbone.network.forward_intermediates(
            pixels, indices=list(range(self.layers)), intermediates_only=True, stop_early=True
        )
        return [nn.functional.normalize(values, dim=1) for values in intermediates]


class AutoencoderLoss(nn.Module):
    """Loss of pixels, edges, features and labels, with a small penalty on the latents' squares.

    Objects have few of a scene's pixels, and captions describe mostly them: errors of
    pixels and edges weigh ``settings.objects`` times as much at objects.

    Latents are decoded with noise, as a generator will produce them: important features must
    exceed it. Labels make objects of a kind similar in the latents, which a generator learns in
    fewer steps (Yao et al., CVPR 2025, with the features of a network instead of labels).

    Args:
        model: autoencoder to train.
        settings: weights of the terms.
        features: with weight ``settings.features``; None: not used.
        labels: predicts labels from latents, with weight ``settings.labels``, and is trained with
            the model; None: not used.
    """

    def __init__(
        self,
        *,
        model: PatchAutoencoder,
        settings: AutoencoderTraining,
        features: FeatureDistance | None = None,
        labels: LabelReader | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.settings = settings
        self.features = features
        self.labels = labels

    def forward(self, pictures: Tensor, maps: Tensor, generator: torch.Generator) -> Tensor:
        """Loss of a batch.

        Args:
            pictures: ``(B, 3, H, W)`` in [-1, 1].
            maps: label maps from `label_maps`, ``(B, H / 8, W / 8) int64``.
            generator: random generator of the noise.
        """
        settings = self.settings
        with torch.set_grad_enabled(not settings.decoder_only):
            latents = self.model.encode(pictures).latent_dist.mean
        noise = torch.randn(latents.shape, generator=generator)
        # in proportion to each channel, or larger latents would reduce its effect
        noise = noise * latents.detach().std((0, 2, 3), keepdim=True)
        noisy = latents + settings.latent_noise * noise
        decoded = self.model.decode(noisy).sample
        cells = object_weights(maps, settings.objects)
        weights = nn.functional.interpolate(cells, pictures.shape[2:])
        loss = pixel_distance(decoded, pictures, weights)
        loss = loss + settings.edges * edge_distance(decoded, pictures, weights)
        if self.features is not None:
            loss = loss + settings.features * self.features(decoded, pictures)
        if self.labels is not None:
            loss = loss + settings.labels * self.labels.loss(noisy, maps)
        return loss + settings.spread * latents.square().mean()


@torch.inference_mode()
def score(model: PatchAutoencoder, paths: list[Path], *, size: int) -> dict[str, float]:
    """Peak signal-to-noise ratio in dB (mean over images) and mean absolute error in [0, 255]."""
    ratios, errors = [], []
    for start in range(0, len(paths), 16):
        real = load_pictures(paths[start : start + 16], size=size)
        decoded = model.decode(model.encode(real).latent_dist.mode()).sample.clamp(-1, 1)
        difference = (decoded - real) / 2
        ratios += (-10 * difference.square().mean((1, 2, 3)).log10()).tolist()
        errors += (255 * difference.abs().mean((1, 2, 3))).tolist()
    return {"psnr": sum(ratios) / len(ratios), "absolute error": sum(errors) / len(errors)}


@torch.inference_mode()
def latents_of(model: PatchAutoencoder, paths: list[Path], *, size: int) -> Tensor:
    """Unscaled latents of photos, ``(I, C, H, W) float32``."""
    batches = [paths[start : start + 16] for start in range(0, len(paths), 16)]
    means = [model.encode(load_pictures(b, size=size)).latent_dist.mean for b in batches]
    return torch.cat(means)


@torch.inference_mode()
def deviation(model: PatchAutoencoder, paths: list[Path], *, size: int) -> Tensor:
    """Standard deviation of each channel of the latents of photos, ``(C,)``."""
    return latents_of(model, paths, size=size).transpose(0, 1).flatten(1).std(1)


def train_autoencoder(
    *,
    paths: Paths,
    data: Data,
    seed: Seed = 0,
    threads: NumThreads | None = None,
    first_images: PositiveInt | None = None,
    num_val: PositiveInt = 100,
    size: PositiveInt = 64,
    half: bool = False,
    start: Name | None = None,
    backbone: Part,
    model: Mapping[str, PositiveInt | Sizes],
    training: AutoencoderTraining,
    out: Name,
    checkpoint: Name,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Train an autoencoder; write a diffusers folder with a model card.

    Args:
        paths: folders.
        data: photos with boxes.
        seed: seed of all random draws.
        threads: threads of torch; None: torch's default.
        first_images: number of photos to read per split; None: all.
        num_val: number of validation photos to score.
        size: side length of an image in pixels.
        half: compute in bfloat16.
        start: see `starting_model`.
        backbone: backbone of the feature error.
        model: see `starting_model`.
        training: settings of loop and loss.
        out: the folder.
        checkpoint: file that a killed training resumes from.
        plugins: packages of the data's reader, only for the card.

    Returns:
        The card: settings, data, versions and scores.

    Raises:
        ValueError: wrong settings, or a folder of another training.
        OSError: files that cannot be read or written.
    """
    settings = recorded(locals())
    torch.manual_seed(seed)
    if threads:
        torch.set_num_threads(threads)
    source = DataSettings(data=data, paths=paths, seed=seed, first_images=first_images)
    rosters = {split: read_roster(source, split) for split in ("train", "val")}
    train, val = (photo_paths(rosters[split]) for split in ("train", "val"))
    val = val[:num_val]
    network: Any = starting_model(start, model, train, size=size)
    if training.decoder_only:
        network.analysis.requires_grad_(False)
        network.down.requires_grad_(False)
    network.to(memory_format=torch.channels_last)
    loss = build_loss(network, rosters["train"], training, backbone)
    loop = TrainingLoop(
        model=loss,
        settings=training,
        num_steps=training.num_steps,
        checkpoint=Path(checkpoint),
        seed=seed,
        identity=training_identity(settings, rosters, starts={"start": start}),
    )
    loss_of = loss_of_photos(
        loss, rosters["train"], size=size, batch_size=training.batch_size, half=half
    )
    history = loop.run(loss_of, lambda _: score(network, val, size=size))
    if not training.decoder_only:
        network.standardise(deviation(network.eval(), train[:NUM_START], size=size))
    final = score(network, val, size=size)
    network.half().save_pretrained(out)
    return write_card(
        Path(out),
        description="image autoencoder of a small latent diffusion model",
        rosters=rosters,
        settings=settings,
        parameters=sum(value.numel() for value in network.parameters()),
        history=history,
        val=final,
    )


def build_loss(
    model: PatchAutoencoder, roster: Roster, settings: AutoencoderTraining, backbone: Part
) -> AutoencoderLoss:
    """Build the loss from the terms with a weight above 0."""
    features = FeatureDistance(backbone=build_part(backbone)) if settings.features else None
    channels, names = model.config.latent_channels, label_names(roster)
    labels = LabelReader(channels, len(names)) if settings.labels and names else None
    return AutoencoderLoss(model=model, settings=settings, features=features, labels=labels)


def loss_of_photos(
    loss: AutoencoderLoss, roster: Roster, *, size: int, batch_size: int, half: bool
) -> LossOf:
    """Loss of a step on randomly drawn photos."""
    paths = photo_paths(roster)
    maps = label_maps(roster, label_names(roster), cells=size // loss.model.patch)

    def loss_of(_: int, generator: torch.Generator) -> Tensor:
        drawn = torch.randint(len(paths), (batch_size,), generator=generator)
        pictures = load_pictures([paths[index] for index in drawn.tolist()], size=size)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return loss(
                pictures.contiguous(memory_format=torch.channels_last), maps[drawn], generator
            )

    return loss_of
