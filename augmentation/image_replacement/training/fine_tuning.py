"""Fine-tune an image generator on captions: ``captioning augment fine-tune``.

Section 3.3 of Li, Lotz, Qiu and Elliott, "The Role of Data Curation in Image Captioning": 15,000
steps at a constant rate of 1e-5, batches of 32, an image's captions one after the other as its
prompt. Settings are in ``configs/fine_tuning.yaml``. The loss is the same as in training from
scratch (`augmentation.image_replacement.training.denoising`). One process, one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Gt, Le, MinLen
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import (
    StableDiffusionPipeline,
)
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.utils.state_dict_utils import convert_state_dict_to_diffusers
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from torch import Tensor, nn
from transformers import CLIPTokenizer

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.pipeline_files import (
    INDEX,
    hub_files,
    import_own_parts,
    with_packaged,
)
from augmentation.image_replacement.training.denoising import (
    Denoiser,
    Examples,
    PromptSampler,
    PromptSettings,
    as_pictures,
    load_pictures,
    load_square,
    loss_of_draws,
    mean_loss,
    photo_paths,
    sampler,
)
from augmentation.training.identity import training_identity
from augmentation.training.loop import LoopPrecision, LoopSettings, TrainingLoop
from augmentation.training.weights_card import write_card
from captioning.config.ranges import (
    AbstractSettings,
    Device,
    Name,
    NumThreads,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.config.tasks import recorded
from captioning.data.roster import Roster
from captioning.runtime.devices import chosen_device
from captioning.runtime.files import read_json, write_json
from captioning.runtime.model_folder import model_folder
from captioning.training.rosters import read_roster
from captioning.training.settings import Data, DataSettings, Paths
from captioning.vision.photo_keys import NUM_THREADS

Tuning = Literal["full", "lora"]
"""Train all weights of the U-Net, or low-rank adapters (LoRA)."""


@dataclass(frozen=True, kw_only=True)
class LowRankSettings(AbstractSettings):
    """Config ``lora``: low-rank adaptation.

    Attributes:
        rank: rank of the additions.
        alpha: they are scaled by ``alpha / rank``.
        modules: names of the layers that get them.
    """

    rank: PositiveInt
    alpha: Annotated[float, Gt(0), Le(2**20)]
    modules: Annotated[Sequence[Name], MinLen(1)]


def choose_trained(
    pipeline: StableDiffusionPipeline, *, lora: LowRankSettings | None, text_encoder: bool
) -> None:
    """Enable gradients of the trained parameters.

    Args:
        pipeline: the generator.
        lora: additions to the U-Net that are trained; None: all of its weights.
        text_encoder: whether the text encoder is trained, too.
    """
    for part in (pipeline.vae, pipeline.text_encoder, pipeline.unet):
        part.requires_grad_(False)
    if lora is not None:
        pipeline.unet.add_adapter(
            LoraConfig(
                r=lora.rank,
                lora_alpha=lora.alpha,  # pyright: ignore[reportArgumentType]
                init_lora_weights="gaussian",
                target_modules=list(lora.modules),
            )
        )
    else:
        pipeline.unet.requires_grad_(True)
    if text_encoder:
        pipeline.text_encoder.requires_grad_(True)


class PhotoData:
    """Photos of a split with prompts, encoded on demand; threads may read photos ahead.

    Args:
        roster: photos with captions.
        autoencoder: encodes the photos, on the device that it is on.
        prompts: prompts of the roster's photos, in its order.
        size: side in pixels that photos are scaled and cut to.
    """

    def __init__(
        self, *, roster: Roster, autoencoder: Any, prompts: PromptSampler, size: int
    ) -> None:
        self.paths = photo_paths(roster)
        self.autoencoder = autoencoder
        self.prompts = prompts
        self.size = size
        self._pool: ThreadPoolExecutor | None = None
        self._coming: dict[tuple[int, ...], list[Future[np.ndarray]]] = {}

    def _drawn(self, number: int, generator: torch.Generator) -> list[int]:
        return torch.randint(len(self.paths), (number,), generator=generator).tolist()

    def read_ahead(self, number: int, generator: torch.Generator) -> None:
        """Let threads read the photos that `draw` will request with the given generator."""
        photos = self._drawn(number, generator)
        pool = self._pool = self._pool or ThreadPoolExecutor(NUM_THREADS)
        load = partial(load_square, size=self.size)
        self._coming[tuple(photos)] = [pool.submit(load, self.paths[photo]) for photo in photos]

    def _pictures(self, photos: Sequence[int]) -> Tensor:
        coming = self._coming.pop(tuple(photos), None)
        if coming is None:
            return load_pictures([self.paths[photo] for photo in photos], size=self.size)
        return as_pictures([square.result() for square in coming])

    @torch.no_grad()
    def draw(self, number: int, generator: torch.Generator) -> Examples:
        """Draw random photos with their prompts for a batch."""
        photos = self._drawn(number, generator)
        pictures = self._pictures(photos)
        posterior = self.autoencoder.encode(pictures.to(self.autoencoder.device)).latent_dist
        noise = torch.randn(posterior.mean.shape, generator=generator).to(posterior.mean)
        latents = (posterior.mean + posterior.std * noise) * self.autoencoder.config.scaling_factor
        return Examples(latents=latents, prompts=self.prompts.draw(photos, generator))


def train_generator(
    *,
    paths: Paths,
    data: Data,
    generator: Name,
    tuning: Tuning = "lora",
    lora: LowRankSettings,
    text_encoder: bool = False,
    seed: Seed = 0,
    threads: NumThreads | None = None,
    device: Device = "auto",
    precision: LoopPrecision = "float32",
    gradient_checkpointing: bool = False,
    first_images: PositiveInt | None = None,
    size: PositiveInt = 128,
    snr_cap: PositiveFloat | None = None,
    prompts: PromptSettings,
    training: LoopSettings,
    val_batches: PositiveInt = 8,
    out: Name,
    checkpoint: Name,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Fine-tune a generator, and write a folder in the format of diffusers.

    Low-rank additions are merged into the folder's U-Net, so that it loads like any other, and
    lie beside it in ``pytorch_lora_weights.safetensors``.

    Args:
        paths: folders.
        data: photos with captions.
        generator: the packaged one, a hub's name, or a folder in the format of diffusers.
        tuning: trained part of the U-Net.
        lora: settings for ``tuning="lora"``.
        text_encoder: train it, too.
        seed: seed of all draws.
        threads: threads of torch; None: its own choice.
        device: device of the training.
        precision: precision of the networks' products.
        gradient_checkpointing: halves the memory and takes a third longer.
        first_images: photos of a split that are read; None: all.
        size: side in pixels.
        snr_cap: see `Denoiser`.
        prompts: made of the captions.
        training: settings of the loop.
        val_batches: batches of validation photos that are scored.
        out: the folder.
        checkpoint: file that a killed training resumes from.
        plugins: packages of the data's reader, for the card alone.

    Returns:
        The card, which is also in the folder: settings, data, versions and losses.

    Raises:
        ValueError: a setting is wrong, the model cannot be loaded, or the folder is taken.
        OSError: files that cannot be read or written.
    """
    settings = recorded(locals())
    torch.manual_seed(seed)  # initialises low-rank additions
    if threads:
        torch.set_num_threads(threads)
    place, name = chosen_device(device), with_packaged(generator)
    pipeline = load_pipeline(name)
    pipeline.to(place)
    chosen = {"lora": lora if tuning == "lora" else None, "text_encoder": text_encoder}
    choose_trained(pipeline, **chosen)
    if gradient_checkpointing:
        pipeline.unet.enable_gradient_checkpointing()
    source = DataSettings(data=data, paths=paths, seed=seed, first_images=first_images)
    rosters = {split: read_roster(source, split) for split in ("train", "val")}
    photos = {s: _photos(roster, pipeline, prompts, size) for s, roster in rosters.items()}
    denoiser = _denoiser(pipeline, snr_cap=snr_cap, half=precision == "bf16-mixed").to(place)
    batch_size = training.batch_size
    sizes = {"batch_size": batch_size, "batches": val_batches}

    def validate(_: int) -> dict[str, float]:
        return {"val loss": mean_loss(denoiser, photos["val"].draw, **sizes)}

    loop = TrainingLoop(
        model=denoiser,
        settings=training,
        num_steps=training.num_steps,
        checkpoint=Path(checkpoint),
        seed=seed,
        identity=training_identity(settings, rosters, starts={"generator": name}),
    )
    before = validate(0)
    loss_of = loss_of_draws(denoiser, photos["train"].draw, batch_size=batch_size)
    history = loop.run(loss_of, validate, partial(photos["train"].read_ahead, batch_size))
    save(pipeline, Path(out), tuning=tuning)
    number = sum(value.numel() for value in loop.trained.values())
    details = {"trained parameters": number, "before": before, "history": history}
    described = {"description": f"{generator}, fine-tuned on captions", "settings": settings}
    return write_card(Path(out), rosters=rosters, **described, **details)


def _denoiser(pipeline: StableDiffusionPipeline, *, snr_cap: float | None, half: bool) -> Denoiser:
    noise: Any = DDPMScheduler.from_config(pipeline.scheduler.config)
    parts = {"unet": pipeline.unet, "text_encoder": pipeline.text_encoder, "noise": noise}
    return Denoiser(**parts, snr_cap=snr_cap, half=half)


def _photos(
    roster: Roster, pipeline: StableDiffusionPipeline, prompts: PromptSettings, size: int
) -> PhotoData:
    drawn = sampler(roster, pipeline.tokenizer, prompts)
    return PhotoData(roster=roster, autoencoder=pipeline.vae, prompts=drawn, size=size)


def save(pipeline: StableDiffusionPipeline, folder: Path, *, tuning: Tuning) -> None:
    """Write the generator's folder; LoRA weights are also saved separately before merging."""
    if tuning == "lora":
        added = convert_state_dict_to_diffusers(get_peft_model_state_dict(pipeline.unet))
        # without its settings, loading would use the rank as alpha
        settings = pipeline.unet.peft_config["default"].to_dict()
        settings["target_modules"] = sorted(settings["target_modules"])
        pipeline.save_lora_weights(
            folder, unet_lora_layers=added, unet_lora_adapter_metadata=settings
        )
        pipeline.unet.fuse_lora()
        pipeline.unet.unload_lora()
    pipeline.save_pretrained(folder, safe_serialization=True)


def load_pipeline(name: str) -> Any:
    """Load a ``StableDiffusionPipeline`` in single precision for training.

    Args:
        name: a hub's name with its commit, or a folder in the format of diffusers.

    Raises:
        ValueError: it cannot be loaded; for others see
            `captioning.runtime.model_folder.model_folder`.
    """
    instead = "a folder in the format of diffusers"
    folder = model_folder(name, instead=instead, marker=INDEX, files=hub_files(None))
    import_own_parts()
    try:
        return StableDiffusionPipeline.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            safety_checker=None,
            requires_safety_checker=False,
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"generator={name} cannot be loaded as a Stable Diffusion pipeline ({error}); give a "
            "folder that holds model_index.json, or a name that the hub has"
        ) from error


def build_pipeline(
    denoiser: Denoiser, *, autoencoder: PatchAutoencoder, tokenizer: CLIPTokenizer
) -> StableDiffusionPipeline:
    """Build the complete generator, with a fast sampler and no safety checker."""
    parts: dict[str, Any] = {
        "vae": autoencoder,
        "text_encoder": denoiser.text_encoder,
        "tokenizer": tokenizer,
        "unet": denoiser.unet,
        "scheduler": DPMSolverMultistepScheduler.from_config(denoiser.noise.config),
        "safety_checker": None,
        "feature_extractor": None,
    }
    pipeline = StableDiffusionPipeline(**parts, requires_safety_checker=False)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def parameter_counts(pipeline: StableDiffusionPipeline) -> dict[str, int]:
    """Number of parameters of each network of a pipeline."""
    networks = {
        name: part for name, part in pipeline.components.items() if isinstance(part, nn.Module)
    }
    return {
        name: sum(value.numel() for value in part.parameters()) for name, part in networks.items()
    }


@torch.inference_mode()
def generate(pipeline: Any, prompts: Sequence[str], *, steps: int, guidance: float) -> list[Any]:
    """Generate an image for each prompt, each with its own seed.

    Args:
        pipeline: the generator.
        prompts: prompts of the pictures to draw.
        steps: the sampler's steps.
        guidance: scale of classifier-free guidance.
    """
    generators = [torch.Generator().manual_seed(number) for number in range(len(prompts))]
    output = pipeline(
        [*prompts],
        num_inference_steps=steps,
        guidance_scale=guidance,
        generator=generators,
    )
    return output.images


def save_pipeline(pipeline: StableDiffusionPipeline, folder: Path) -> None:
    """Write a pipeline's folder with half-precision weights, for single-precision inference."""
    pipeline.to(torch.float16).save_pretrained(folder, safe_serialization=True)
    # transformers, unlike diffusers, would load the precision that is written here
    path = folder / "text_encoder" / "config.json"
    write_json(path, read_json(path) | {"dtype": "float32"}, indent=2)
