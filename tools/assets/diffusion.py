"""Train a small text-to-image model: ``python -m tools.assets diffusion``.

A latent diffusion model (Rombach et al., CVPR 2022) in the format of diffusers, over the latents of
`tools.assets.autoencoder`, with a text encoder and byte pairs of its
own. Settings are in ``configs/diffusion.yaml``.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers.models.attention_processor import AttnProcessor
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from omegaconf import DictConfig, OmegaConf
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.pipeline_files import sums_of
from augmentation.image_replacement.training.denoising import (
    Denoiser,
    Examples,
    LabelReader,
    label_maps,
    label_names,
    loss_of_draws,
    mean_loss,
    object_weights,
)
from augmentation.image_replacement.training.fine_tuning import (
    build_pipeline,
    generate,
    load_pipeline,
    parameter_counts,
    save_pipeline,
)
from augmentation.image_replacement.training.photos_and_prompts import (
    PromptSampler,
    captions_by_photo,
    photo_paths,
    train_tokenizer,
)
from augmentation.training.identity import training_identity
from augmentation.training.loop import TrainingLoop
from augmentation.training.weights_card import write_card
from captioning.config.tasks import plain
from captioning.data.roster import Roster
from captioning.runtime.extras import write_sums
from captioning.runtime.files import write_atomically
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings
from captioning.vision.photo_places import photo_exists, photo_stamp
from tools.assets.autoencoder import latents_of

_CAPTION_LINES = 6  # below each picture of a sheet


@torch.inference_mode()
def encode(autoencoder: PatchAutoencoder, paths: list[Path], *, size: int, cache: Path) -> Tensor:
    """Latents of photos, ``(I, C, H, W) float16``; computed once, then read from ``cache``.

    A photo that has changed is noticed by the size and time of its file.
    """
    stamped = [f"{path} {photo_stamp(path) if photo_exists(path) else None}" for path in paths]
    digest = hashlib.sha256("\n".join(stamped).encode())
    for value in autoencoder.state_dict().values():
        digest.update(value.numpy().tobytes())
    path = cache / f"{digest.hexdigest()[:16]}-{size}.safetensors"
    if not path.is_file():
        latents = latents_of(autoencoder, paths, size=size) * autoencoder.config.scaling_factor
        write_tensors(path, {"latents": latents.half()})
    return read_tensors(path)[0]["latents"]


def starting_parts(config: DictConfig, roster: Roster) -> tuple[PatchAutoencoder, Any, Denoiser]:
    """The parts of the generator in ``config.start``, or untrained networks on an autoencoder.

    Args:
        config: the whole config.
        roster: captions that a new tokenizer is made from, and labels of boxes.

    Raises:
        ValueError: ``start`` cannot be loaded.
        OSError: there is no autoencoder.
    """
    if config.start is not None:
        pipeline = load_pipeline(config.start)
        autoencoder, tokenizer = pipeline.vae, pipeline.tokenizer
        unet, text = pipeline.unet, pipeline.text_encoder
    else:
        autoencoder = PatchAutoencoder.from_pretrained(config.autoencoder)
        texts = [sample.caption for sample in roster.samples]
        tokenizer = train_tokenizer(texts, size=config.vocabulary, max_length=config.max_length)
        unet, text = _untrained(config, autoencoder.config.latent_channels, tokenizer)
    # on a processor the fused attention's backward pass takes several times as long as its parts'
    unet.set_attn_processor(AttnProcessor())
    text.set_attn_implementation("eager")
    width, names = unet.config.block_out_channels[0], label_names(roster)
    denoiser = Denoiser(
        unet=unet,
        text_encoder=text,
        noise=DDPMScheduler(**_plain(config.noise)),
        snr_cap=config.snr_cap,
        half=config.half,
        labels=LabelReader(width, len(names)) if config.labels and names else None,
        label_weight=config.labels,
    )
    denoiser.to(memory_format=torch.channels_last)
    return autoencoder.requires_grad_(False), tokenizer, denoiser


def _plain(config: DictConfig) -> dict[str, Any]:
    settings: Any = OmegaConf.to_container(config, resolve=True)
    return settings


def _untrained(config: DictConfig, channels: int, tokenizer: Any) -> tuple[Any, Any]:
    text = CLIPTextModel(
        CLIPTextConfig(
            **_plain(config.text),
            vocab_size=len(tokenizer),
            max_position_embeddings=tokenizer.model_max_length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    unet = UNet2DConditionModel(
        **_plain(config.unet),
        in_channels=channels,
        out_channels=channels,
        cross_attention_dim=config.text.hidden_size,
    )
    return unet, text


def channel_weights(autoencoder: PatchAutoencoder, *, power: float) -> Tensor:
    """Weights of the latents' channels: larger for channels that change pixels more.

    All channels have the same deviation, but the pixels' variance is mostly that of a few; without
    weights most of the loss is about invisible details.

    Args:
        autoencoder: its linear path shows how much a channel's deviation changes the pixels.
        power: 0 for equal weights, 1 for the pixels' deviation, 2 for their variance.

    Returns:
        ``(C, 1, 1) float32``, of mean 1.
    """
    norms = autoencoder.synthesis.weight.detach().flatten(2).norm(dim=0) ** power
    return (norms / norms.mean())[:, :, None]


class DiffusionData:
    """Latents and prompts of a split.

    Args:
        roster: photos with captions.
        autoencoder: encodes the photos.
        tokenizer: reads the captions.
        config: the whole config.
    """

    def __init__(
        self,
        *,
        roster: Roster,
        autoencoder: PatchAutoencoder,
        tokenizer: CLIPTokenizer,
        config: DictConfig,
    ) -> None:
        self.captions = captions_by_photo(roster)
        cache = Path(config.paths.cache) / "latents"
        self.latents = encode(autoencoder, photo_paths(roster), size=config.size, cache=cache)
        self.maps = label_maps(roster, label_names(roster), cells=self.latents.shape[-1])
        self.places = object_weights(self.maps, config.objects)
        self.channels = channel_weights(autoencoder, power=config.channels)
        self.prompts = PromptSampler(captions=self.captions, tokenizer=tokenizer, **config.prompts)

    def draw(self, number: int, generator: torch.Generator) -> Examples:
        """Photos drawn at random."""
        photos = torch.randint(len(self.latents), (number,), generator=generator)
        return Examples(
            latents=self.latents[photos].float(),
            prompts=self.prompts.draw(photos.tolist(), generator),
            places=self.places[photos] * self.channels,
            maps=self.maps[photos],
        )


def train_diffusion(config: DictConfig) -> dict[str, Any]:
    """Train as the config says, and write a diffusers folder with a card in it.

    Returns:
        The card: settings, data, versions and losses.

    Raises:
        ValueError: wrong settings, or a folder of another training.
        OSError: files that cannot be read or written.
    """
    torch.manual_seed(config.seed)
    if config.threads:
        torch.set_num_threads(config.threads)
    rosters = {split: read_roster(DataSettings.of(config), split) for split in ("train", "val")}
    autoencoder, tokenizer, denoiser = starting_parts(config, rosters["train"])
    parts = {"autoencoder": autoencoder, "tokenizer": tokenizer}
    data = {
        split: DiffusionData(roster=roster, config=config, **parts)
        for split, roster in rosters.items()
    }
    batch_size, num_captions = config.training.batch_size, config.sheet.number
    sheet_captions = [captions[0] for captions in data["val"].captions[:num_captions]]

    def validate(step: int) -> dict[str, float]:
        sheet = picture_sheet(
            generate(build_pipeline(denoiser, **parts), sheet_captions, config.sheet),
            sheet_captions,
        )
        write_atomically(Path(config.sheet.folder) / f"{step:06d}.png", sheet.save)
        draw = data["val"].draw
        return {"val loss": mean_loss(denoiser, draw, batch_size=batch_size, batches=8)}

    key = "autoencoder" if config.start is None else "start"
    loop = TrainingLoop(
        model=denoiser,
        settings=config.training,
        checkpoint=Path(config.checkpoint),
        seed=config.seed,
        identity=training_identity(config, rosters, starts={key: config[key]}),
    )
    loss_of = loss_of_draws(denoiser, data["train"].draw, batch_size=batch_size)
    history = loop.run(loss_of, validate)
    pipeline = build_pipeline(denoiser, **parts)
    out = Path(config.out)
    save_pipeline(pipeline, out)
    write_sums(sums_of(out), out.rglob("*.safetensors"))
    description = "small text-to-image latent diffusion model"
    details = {"parameters": parameter_counts(pipeline), "history": history}
    return write_card(
        out, description=description, rosters=rosters, settings=plain(config), **details
    )


def picture_sheet(
    pictures: Sequence[Image.Image], captions: Sequence[str], *, columns: int = 8
) -> Image.Image:
    """Pictures in rows, each above its caption.

    Args:
        pictures: of one size.
        captions: one a picture; longer ones are cut and end in dots.
        columns: pictures in a row.
    """
    size = max(picture.width for picture in pictures)
    cell = (size + 8, size + 8 + 11 * _CAPTION_LINES)
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * cell[0], rows * cell[1]), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(9)
    for number, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        x, y = number % columns * cell[0] + 4, number // columns * cell[1] + 4
        sheet.paste(picture, (x, y))
        lines = textwrap.wrap(caption, width=max(12, size // 5), max_lines=_CAPTION_LINES)
        pen.multiline_text((x, y + size + 2), "\n".join(lines), fill="black", font=font, spacing=1)
    return sheet
