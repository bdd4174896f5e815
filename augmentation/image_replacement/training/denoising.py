"""Training examples and denoising loss that the trainings of all image generators share.

Photos and prompts made of captions give latents and texts; the loss is the noise's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from PIL import ImageOps
from tokenizers import pre_tokenizers, trainers
from torch import Tensor, nn
from transformers import CLIPTextModel, CLIPTokenizer, PreTrainedTokenizerBase

from augmentation.training.loop import LossOf
from captioning.config.ranges import AbstractSettings, Fraction
from captioning.data.roster import Roster
from captioning.types import Region
from captioning.vision.photos import load_rgb

BACKGROUND = 0.1
"""Weight of cells without an object, which are most cells."""


def label_names(roster: Roster) -> list[str]:
    """Sorted labels of all boxes without repeats; empty for datasets without boxes."""
    return sorted({region.label for sample in roster.samples for region in sample.regions})


def label_maps(roster: Roster, names: Sequence[str], *, cells: int) -> Tensor:
    """Label of each cell of each photo: that of the smallest box that touches the cell.

    Only the photo's middle square is used, as by `load_pictures`.

    Args:
        roster: photos, with boxes or without; those with boxes are opened for their size.
        names: the labels.
        cells: rows and columns that the square is divided into.

    Returns:
        ``(I, cells, cells) int64``: 0 for background, else 1 more than the label's index.

    Raises:
        FileNotFoundError, ValueError: see `load_rgb`.
        KeyError: a label is not among the names.
    """
    numbers = {name: number for number, name in enumerate(names, start=1)}
    maps = torch.zeros(len(roster.rows_by_image), cells, cells, dtype=torch.int64)
    for cells_of_photo, rows in zip(maps, roster.rows_by_image.values(), strict=True):
        sample = roster.samples[rows[0]]
        if not sample.regions:
            continue
        sides = load_rgb(sample.image_path).size
        for region in sorted(sample.regions, key=_area, reverse=True):
            across, down = (
                _span(region.box[axis], region.box[axis + 2], sides[axis], min(sides), cells)
                for axis in (0, 1)
            )
            cells_of_photo[down, across] = numbers[region.label]
    return maps


def _area(region: Region) -> float:
    left, top, right, bottom = region.box
    return (right - left) * (bottom - top)


def _span(start: float, end: float, side: int, square: int, cells: int) -> slice:
    """Cells of the central square that a span of pixels touches."""
    first, last = ((value - (side - square) / 2) * cells / square for value in (start, end))
    return slice(max(0, math.floor(first)), max(0, math.ceil(last)))


def object_weights(maps: Tensor, weight: float) -> Tensor:
    """Weights of the error at each position: higher for positions with an object than without.

    Objects are a small part of a scene, and captions describe them.

    Args:
        maps: see `label_maps`.
        weight: weight of places with an object.

    Returns:
        ``(I, 1, cells, cells) float32``, of mean 1 over all.
    """
    weights = torch.where(maps > 0, weight, 1.0)[:, None]
    return weights / weights.mean()


class LabelReader(nn.Module):
    """Predicts labels from a network's feature maps, as an auxiliary loss for the maps.

    Args:
        channels: channels of the maps.
        num_labels: without the background.
        width: width of the hidden layer.
    """

    weights: Tensor

    def __init__(self, channels: int, num_labels: int, *, width: int = 96) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, num_labels + 1, 1)
        )
        weights = torch.ones(num_labels + 1)
        weights[0] = BACKGROUND
        self.register_buffer("weights", weights, persistent=False)

    def loss(self, maps: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of ``(B, channels, H, W)`` against ``(B, H, W) int64``."""
        return nn.functional.cross_entropy(self.layers(maps).float(), labels, self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Photos to be denoised, with their prompts.

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
    """Text encoder and denoising network of a latent diffusion model.

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
        label_weight: weight of the labels' loss.
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
        """Weighted squared error of the prediction at uniformly drawn times, plus the label loss.

        Args:
            examples: without ``maps`` no labels' loss is added.
            generator: generator of times and noise, on the CPU: they are the same on any device.
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
    """Context manager: appends outputs of the layer to ``outputs``."""
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
    """Denoising loss of a training step.

    Args:
        denoiser: denoiser to train.
        draw: draws a number of photos with a generator.
        batch_size: photos in a step.
    """

    def loss_of(_: int, generator: torch.Generator) -> Tensor:
        return denoiser.loss(draw(batch_size, generator), generator)

    return loss_of


@torch.no_grad()
def mean_loss(denoiser: Denoiser, draw: Draw, *, batch_size: int, batches: int) -> float:
    """Mean loss over fixed photos, prompts, times and noise, comparable between calls.

    Labels are left out: they are a means, and not every dataset has them.

    Args:
        denoiser: denoiser to evaluate.
        draw: see `loss_of_draws`.
        batch_size: photos in a batch.
        batches: how many.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = (replace(draw(batch_size, generator), maps=None) for _ in range(batches))
    losses = [denoiser.loss(examples, generator) for examples in drawn]
    return float(torch.stack(losses).mean())


def step_weights(signal: Tensor, prediction_type: str, snr_cap: float | None) -> Tensor:
    """Weights of the squared error at each time: lower for times with little noise.

    As Hang et al., except that the noisiest times of a v-prediction keep weight 1: there the
    layout is decided.

    Args:
        signal: ``(T,)``, the share of the variance that is signal.
        prediction_type: ``"epsilon"`` or ``"v_prediction"``.
        snr_cap: see `Denoiser`.

    Raises:
        ValueError: the prediction type is unknown.
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


def photo_paths(roster: Roster) -> list[Path]:
    """Photos of a roster without repeats, in its order."""
    return [roster.samples[rows[0]].image_path for rows in roster.rows_by_image.values()]


def load_pictures(paths: Sequence[Path], *, size: int) -> Tensor:
    """Load photos, scaled and cropped to central squares.

    Returns:
        ``(B, 3, size, size) float32`` in [-1, 1].

    Raises:
        FileNotFoundError, ValueError: see `load_rgb`.
    """
    return as_pictures([load_square(path, size=size) for path in paths])


def load_square(path: Path, *, size: int) -> np.ndarray:
    """Load one photo for `load_pictures`: ``(size, size, 3) uint8``."""
    return np.asarray(ImageOps.fit(load_rgb(path), (size, size)))


def as_pictures(squares: Sequence[np.ndarray]) -> Tensor:
    """Convert photos from `load_square` to the result of `load_pictures`."""
    return torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float() / 127.5 - 1


END_OF_WORD = "</w>"


def captions_by_photo(roster: Roster) -> list[list[str]]:
    """Captions of each photo, in the roster's order."""
    return [[roster.samples[row].caption for row in rows] for rows in roster.rows_by_image.values()]


def train_tokenizer(captions: Iterable[str], *, size: int, max_length: int) -> CLIPTokenizer:
    """Train a CLIP-like byte-pair tokenizer on captions.

    Args:
        captions: any texts; all single bytes become tokens, too.
        size: maximum number of tokens, including 512 for single bytes and two special ones.
        max_length: tokens of a prompt, with start and end.

    Raises:
        ValueError: ``size`` leaves no room for pairs.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(letter + END_OF_WORD for letter in letters)]
    if size <= len(words) + 2:
        raise ValueError(f"the vocabulary must have more than {len(words) + 2} tokens: got {size}")
    learner = CLIPTokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(letters) - 2, end_of_word_suffix=END_OF_WORD, show_progress=False,
        initial_alphabet=letters,
    )  # fmt: skip
    learner.train_from_iterator(captions, trainer)
    merges = _merges(learner)
    words += dict.fromkeys(first + second for first, second in merges)
    words = [*dict.fromkeys(words), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate(words)}
    parts: dict[str, Any] = {"vocab": vocabulary, "merges": merges}
    return CLIPTokenizer(**parts, model_max_length=max_length)


def _merges(tokenizer: Any) -> list[tuple[str, str]]:
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(first, second) for first, second in merges]


@dataclass(frozen=True, kw_only=True)
class PromptSettings(AbstractSettings):
    """Config ``prompts`` for training generators; see `PromptSampler`."""

    single: Fraction
    empty: Fraction
    cut: bool = False


class PromptSampler:
    """Draws a prompt for each photo of a batch.

    A prompt is one caption, or as many complete ones as the tokenizer has room for, in random
    order. A share of the prompts is empty, as classifier-free guidance needs (Ho and Salimans,
    2022).

    Args:
        captions: captions of each photo, at least one.
        tokenizer: tokenizer with a start and an end token.
        single: share of prompts of one caption only, in [0, 1].
        empty: share of empty prompts, in [0, 1].
        cut: all captions are taken, and the prompt ends where there is no more room.
    """

    def __init__(
        self,
        *,
        captions: Sequence[Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        single: float,
        empty: float,
        cut: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.cut = cut
        self.single = single
        self.empty = empty
        flat = [caption for photo_captions in captions for caption in photo_captions]
        tokenized = iter(tokenizer(flat, add_special_tokens=False, verbose=False)["input_ids"])
        self.ids: list[list[list[int]]] = [[next(tokenized) for _ in photo] for photo in captions]

    def draw(self, photos: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw prompts of photos, padded to the tokenizer's length: ``(B, L) int64``."""
        chances = torch.rand(len(photos), 2, generator=generator).tolist()
        return torch.tensor(
            [
                self._padded(self._prompt_ids(photo, chance, generator))
                for photo, chance in zip(photos, chances, strict=True)
            ]
        )

    def _prompt_ids(self, photo: int, chance: list[float], generator: torch.Generator) -> list[int]:
        if chance[0] < self.empty:
            return []
        captions = self.ids[photo]
        order = torch.randperm(len(captions), generator=generator).tolist()
        number = 1 if chance[1] < self.single else len(captions)
        drawn = [captions[index] for index in order[:number]]
        if self.cut:
            return [token for caption in drawn for token in caption][: self.room]
        return join_captions(drawn, self.room)

    @property
    def room(self) -> int:
        """Maximum number of prompt tokens, without special tokens."""
        return self.tokenizer.model_max_length - 2

    def _padded(self, ids: list[int]) -> list[int]:
        tokenizer = self.tokenizer
        prompt = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
        return prompt + [tokenizer.pad_token_id] * (tokenizer.model_max_length - len(prompt))


def join_captions(captions: Sequence[list[int]], room: int) -> list[int]:
    """Join the tokens of complete captions up to the maximum length.

    A first caption that is too long alone is cut.
    """
    prompt = list(captions[0][:room])
    for caption in captions[1:]:
        if len(prompt) + len(caption) <= room:
            prompt += caption
    return prompt


def sampler(
    roster: Roster, tokenizer: PreTrainedTokenizerBase, settings: PromptSettings
) -> PromptSampler:
    """Build the prompt sampler for a roster's photos, in its order."""
    shares = {"single": settings.single, "empty": settings.empty, "cut": settings.cut}
    return PromptSampler(captions=captions_by_photo(roster), tokenizer=tokenizer, **shares)
