"""Train a small text-to-image model: ``python -m tools.assets diffusion``.

The model is a latent diffusion model (Rombach et al., CVPR 2022) in the format of diffusers, on
latents of `tools.assets.autoencoder`, with its own text encoder and byte pairs. Settings are in
``configs/diffusion.yaml``.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge
from diffusers.models.attention_processor import AttnProcessor
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import (
    StableDiffusionPipeline,
)
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.pipeline_files import sums_of
from augmentation.image_replacement.training.denoising import (
    Denoiser,
    Examples,
    LabelReader,
    PromptSampler,
    PromptSettings,
    captions_by_photo,
    label_maps,
    label_names,
    loss_of_draws,
    mean_loss,
    object_weights,
    photo_paths,
    sampler,
    train_tokenizer,
)
from augmentation.image_replacement.training.fine_tuning import (
    build_pipeline,
    generate,
    load_pipeline,
    parameter_counts,
    save_pipeline,
)
from augmentation.training.identity import training_identity
from augmentation.training.loop import LoopSettings, TrainingLoop
from augmentation.training.weights_card import write_card
from captioning.config.ranges import (
    AbstractSettings,
    Name,
    NonNegativeFloat,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.config.tasks import plain, recorded
from captioning.data.roster import Roster
from captioning.runtime.extras import write_sums
from captioning.runtime.files import write_atomically
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.training.rosters import read_roster
from captioning.training.settings import Data, DataSettings, Paths
from captioning.vision.photo_places import photo_exists, photo_stamp
from tools.assets.autoencoder import latents_of

_CAPTION_LINES = 6  # below each picture of a sheet


@torch.inference_mode()
def encode(autoencoder: PatchAutoencoder, paths: list[Path], *, size: int, cache: Path) -> Tensor:
    """Latents of photos, ``(I, C, H, W) float16``, computed once and cached in ``cache``.

    Changed photos are detected by size and time of the file.
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


@dataclass(frozen=True, kw_only=True)
class SheetSettings(AbstractSettings):
    """Settings in ``sheet``: images of the first captions of validation photos.

    Attributes:
        folder: folder of the sheets.
        number: number of images.
        steps, guidance: see `generate`.
    """

    folder: Name
    number: PositiveInt
    steps: PositiveInt
    guidance: NonNegativeFloat


def new_networks(
    autoencoder: PatchAutoencoder,
    tokenizer: CLIPTokenizer,
    *,
    text: Mapping[str, Any],
    unet: Mapping[str, Any],
) -> tuple[UNet2DConditionModel, CLIPTextModel]:
    """Create untrained networks.

    Args:
        autoencoder: autoencoder whose latents the U-Net predicts.
        tokenizer: tokenizer of the text encoder.
        text: arguments of ``CLIPTextConfig``.
        unet: arguments of the U-Net.
    """
    encoder = CLIPTextModel(
        CLIPTextConfig(
            **plain(text),
            vocab_size=len(tokenizer),
            max_position_embeddings=tokenizer.model_max_length,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    channels = autoencoder.config.latent_channels
    network = UNet2DConditionModel(
        **plain(unet),
        in_channels=channels,
        out_channels=channels,
        cross_attention_dim=text["hidden_size"],
    )
    return network, encoder


def channel_weights(autoencoder: PatchAutoencoder, *, power: float) -> Tensor:
    """Weights of the latents' channels, larger for channels that affect pixels more.

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
        latents: latents of the photos, ``(I, C, H, W) float16``.
        roster: photos with captions.
        prompts: prompts of the photos.
        objects: weight of the error inside boxes, with 1 outside.
        channels: weights of the latents' channels, see `channel_weights`.
    """

    def __init__(
        self,
        *,
        latents: Tensor,
        roster: Roster,
        prompts: PromptSampler,
        objects: float,
        channels: Tensor,
    ) -> None:
        self.latents, self.prompts, self.channels = latents, prompts, channels
        self.maps = label_maps(roster, label_names(roster), cells=latents.shape[-1])
        self.places = object_weights(self.maps, objects)

    def draw(self, number: int, generator: torch.Generator) -> Examples:
        """Draw photos at random."""
        photos = torch.randint(len(self.latents), (number,), generator=generator)
        return Examples(
            latents=self.latents[photos].float(),
            prompts=self.prompts.draw(photos.tolist(), generator),
            places=self.places[photos] * self.channels,
            maps=self.maps[photos],
        )


def train_diffusion(
    *,
    paths: Paths,
    data: Data,
    seed: Seed = 0,
    threads: NumThreads | None = None,
    first_images: PositiveInt | None = None,
    size: PositiveInt = 64,
    half: bool = False,
    start: Name | None = None,
    autoencoder: Name,
    vocabulary: Annotated[int, Ge(512)] = 1280,
    max_length: PositiveInt = 48,
    text: Mapping[str, PositiveInt],
    unet: Mapping[str, Any],
    noise: Mapping[str, Any],
    snr_cap: PositiveFloat | None = None,
    objects: NonNegativeFloat = 4.0,
    labels: NonNegativeFloat = 0.1,
    channels: NonNegativeFloat = 0.35,
    prompts: PromptSettings,
    training: LoopSettings,
    sheet: SheetSettings,
    out: Name,
    checkpoint: Name,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Train a generator; write a diffusers folder with a model card.

    Args:
        paths: folders.
        data: photos with captions and boxes.
        seed: seed of all random draws.
        threads: threads of torch; None: torch's default.
        first_images: number of photos to read per split; None: all.
        size: side length of an image in pixels.
        half: compute in bfloat16.
        start: folder of a generator; None: untrained networks on an autoencoder.
        autoencoder: folder of the autoencoder.
        vocabulary: tokens of a new tokenizer, 512 of them single bytes.
        max_length: tokens of a prompt, with start and end.
        text, unet: see `new_networks`.
        noise: arguments of ``DDPMScheduler``.
        snr_cap: see `Denoiser`.
        objects: weight of the error inside boxes, with 1 outside.
        labels: weight of reading labels from the U-Net's last maps.
        channels: power of `channel_weights`.
        prompts: settings of the prompts made of captions.
        training: settings of the loop.
        sheet: settings of the sheet of images at each validation.
        out: the folder.
        checkpoint: file that a killed training resumes from.
        plugins: packages of the data's reader, only for the card.

    Returns:
        The card: settings, data, versions and losses.

    Raises:
        ValueError: wrong settings, ``start`` that cannot be loaded, or a folder of another
            training.
        OSError: no autoencoder, or files that cannot be read or written.
    """
    settings = recorded(locals())
    torch.manual_seed(seed)
    if threads:
        torch.set_num_threads(threads)
    source = DataSettings(data=data, paths=paths, seed=seed, first_images=first_images)
    rosters = {split: read_roster(source, split) for split in ("train", "val")}
    new = {"vocabulary": vocabulary, "max_length": max_length, "text": text, "unet": unet}
    decoder, tokenizer, *networks = _started(start, autoencoder, rosters["train"], new)
    how = {"snr_cap": snr_cap, "half": half, "labels": labels}
    denoiser = _denoiser(*networks, rosters["train"], plain(noise), **how)
    parts = {"autoencoder": decoder.requires_grad_(False), "tokenizer": tokenizer}
    cache = Path(paths.cache) / "latents"
    weights = {"objects": objects, "channels": channel_weights(decoder, power=channels)}
    photos = {
        split: DiffusionData(
            roster=roster,
            latents=encode(decoder, photo_paths(roster), size=size, cache=cache),
            prompts=sampler(roster, tokenizer, prompts),
            **weights,
        )
        for split, roster in rosters.items()
    }
    draw, batch_size = photos["val"].draw, training.batch_size

    def validate(step: int) -> dict[str, float]:
        write_sheet(build_pipeline(denoiser, **parts), rosters["val"], sheet, step)
        return {"val loss": mean_loss(denoiser, draw, batch_size=batch_size, batches=8)}

    key = "autoencoder" if start is None else "start"
    loop = TrainingLoop(
        model=denoiser,
        settings=training,
        num_steps=training.num_steps,
        checkpoint=Path(checkpoint),
        seed=seed,
        identity=training_identity(settings, rosters, starts={key: settings[key]}),
    )
    loss_of = loss_of_draws(denoiser, photos["train"].draw, batch_size=batch_size)
    history = loop.run(loss_of, validate)
    return _written(Path(out), build_pipeline(denoiser, **parts), rosters, settings, history)


def _written(
    out: Path,
    pipeline: StableDiffusionPipeline,
    rosters: Mapping[str, Roster],
    settings: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """Write the generator and return its card."""
    save_pipeline(pipeline, out)
    write_sums(sums_of(out), out.rglob("*.safetensors"))
    description = "small text-to-image latent diffusion model"
    details = {"parameters": parameter_counts(pipeline), "history": history}
    return write_card(out, description=description, rosters=rosters, settings=settings, **details)


def _started(
    start: str | None, autoencoder: str, roster: Roster, new: Mapping[str, Any]
) -> tuple[Any, Any, Any, Any]:
    """Load autoencoder, tokenizer, U-Net and text encoder from ``start``, or create new ones."""
    if start is not None:
        pipeline = load_pipeline(start)
        return pipeline.vae, pipeline.tokenizer, pipeline.unet, pipeline.text_encoder
    decoder = PatchAutoencoder.from_pretrained(autoencoder)
    captions = [sample.caption for sample in roster.samples]
    sizes = {"size": new["vocabulary"], "max_length": new["max_length"]}
    tokenizer = train_tokenizer(captions, **sizes)
    networks = new_networks(decoder, tokenizer, text=new["text"], unet=new["unet"])
    return decoder, tokenizer, *networks


def _denoiser(
    unet: Any,
    text: Any,
    roster: Roster,
    noise: Mapping[str, Any],
    *,
    snr_cap: float | None,
    half: bool,
    labels: float,
) -> Denoiser:
    # on a processor the fused attention's backward pass takes several times as long as its parts'
    unet.set_attn_processor(AttnProcessor())
    text.set_attn_implementation("eager")
    width, names = unet.config.block_out_channels[0], label_names(roster)
    denoiser = Denoiser(
        unet=unet,
        text_encoder=text,
        noise=DDPMScheduler(**noise),
        snr_cap=snr_cap,
        half=half,
        labels=LabelReader(width, len(names)) if labels and names else None,
        label_weight=labels,
    )
    return denoiser.to(memory_format=torch.channels_last)


def write_sheet(
    pipeline: StableDiffusionPipeline, roster: Roster, settings: SheetSettings, step: int
) -> None:
    """Generate images for the first captions of photos, and write them as a sheet."""
    captions = [texts[0] for texts in captions_by_photo(roster)[: settings.number]]
    drawn = generate(pipeline, captions, steps=settings.steps, guidance=settings.guidance)
    path = Path(settings.folder) / f"{step:06d}.png"
    write_atomically(path, picture_sheet(drawn, captions).save)


def picture_sheet(
    pictures: Sequence[Image.Image], captions: Sequence[str], *, columns: int = 8
) -> Image.Image:
    """Sheet of images in rows, each above its caption.

    Args:
        pictures: images of one size.
        captions: one caption per image; long captions are cut and end in dots.
        columns: images per row.
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
