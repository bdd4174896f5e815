"""Fine-tune an image generator on captions: ``captioning augment fine-tune``.

Section 3.3 of Li, Lotz, Qiu and Elliott, "The Role of Data Curation in Image Captioning": 15,000
steps at a constant rate of 1e-5, batches of 32, an image's captions one after the other as its
prompt. Settings are in ``configs/fine_tuning.yaml``. The loss is that of training from scratch
(`augmentation.image_replacement.training.denoising`). One process, one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import (
    StableDiffusionPipeline,
)
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.utils.state_dict_utils import convert_state_dict_to_diffusers
from omegaconf import DictConfig
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
    loss_of_draws,
    mean_loss,
)
from augmentation.image_replacement.training.photos_and_prompts import (
    PromptSampler,
    as_pictures,
    captions_by_photo,
    load_pictures,
    load_square,
    photo_paths,
)
from augmentation.training.identity import training_identity
from augmentation.training.loop import TrainingLoop
from augmentation.training.weights_card import write_card
from captioning.config.tasks import plain
from captioning.data.roster import Roster
from captioning.runtime.devices import chosen_device
from captioning.runtime.files import read_json, write_json
from captioning.runtime.model_folder import model_folder
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings
from captioning.vision.photo_keys import NUM_THREADS

TUNINGS = ("full", "lora")


def choose_trained(pipeline: StableDiffusionPipeline, config: DictConfig) -> None:
    """Enable gradients of the trained parameters: all of the U-Net, or low-rank additions to it.

    Raises:
        ValueError: unknown ``tuning``.
    """
    if config.tuning not in TUNINGS:
        raise ValueError(f"tuning must be one of {TUNINGS}: got {config.tuning!r}")
    for part in (pipeline.vae, pipeline.text_encoder, pipeline.unet):
        part.requires_grad_(False)
    if config.tuning == "lora":
        pipeline.unet.add_adapter(
            LoraConfig(
                r=config.lora.rank,
                lora_alpha=config.lora.alpha,
                init_lora_weights="gaussian",
                target_modules=list(config.lora.modules),
            )
        )
    else:
        pipeline.unet.requires_grad_(True)
    if config.text_encoder:
        pipeline.text_encoder.requires_grad_(True)
    if config.gradient_checkpointing:
        pipeline.unet.enable_gradient_checkpointing()


class PhotoData:
    """Photos of a split with prompts, encoded when needed; threads may read them ahead.

    Args:
        roster: photos with captions.
        autoencoder: encodes the photos, on the device that it is on.
        prompts: of the roster's photos, in its order.
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
        """Let threads read the photos that `draw` will ask for with such a generator."""
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
        """Photos drawn at random."""
        photos = self._drawn(number, generator)
        pictures = self._pictures(photos)
        posterior = self.autoencoder.encode(pictures.to(self.autoencoder.device)).latent_dist
        noise = torch.randn(posterior.mean.shape, generator=generator).to(posterior.mean)
        latents = (posterior.mean + posterior.std * noise) * self.autoencoder.config.scaling_factor
        return Examples(latents=latents, prompts=self.prompts.draw(photos, generator))


def train_generator(config: DictConfig) -> dict[str, Any]:
    """Fine-tune as the config says, and write a folder in the format of diffusers.

    Low-rank additions are merged into the folder's U-Net, so that it loads like any other, and
    lie beside it in ``pytorch_lora_weights.safetensors``.

    Returns:
        The card, which lies in the folder too: settings, data, versions and losses.

    Raises:
        ValueError: wrong settings, a model that cannot be loaded, or a folder of another training.
        OSError: files that cannot be read or written.
    """
    torch.manual_seed(config.seed)  # initialises low-rank additions
    if config.threads:
        torch.set_num_threads(config.threads)
    device = chosen_device(config.device)
    generator = with_packaged(config.generator)
    pipeline = load_pipeline(generator)
    pipeline.to(device)
    choose_trained(pipeline, config)
    rosters = {split: read_roster(DataSettings.of(config), split) for split in ("train", "val")}
    data = {split: _data(roster, pipeline, config) for split, roster in rosters.items()}
    noise: Any = DDPMScheduler.from_config(pipeline.scheduler.config)
    denoiser = Denoiser(
        unet=pipeline.unet,
        text_encoder=pipeline.text_encoder,
        noise=noise,
        snr_cap=config.snr_cap,
        half=config.precision == "bf16-mixed",
    ).to(device)
    sizes = {"batch_size": config.training.batch_size, "batches": config.val_batches}

    def validate(_: int) -> dict[str, float]:
        return {"val loss": mean_loss(denoiser, data["val"].draw, **sizes)}

    loop = TrainingLoop(
        model=denoiser,
        settings=config.training,
        checkpoint=Path(config.checkpoint),
        seed=config.seed,
        identity=training_identity(config, rosters, starts={"generator": generator}),
    )
    before = validate(0)
    loss_of = loss_of_draws(denoiser, data["train"].draw, batch_size=sizes["batch_size"])
    read_ahead = partial(data["train"].read_ahead, sizes["batch_size"])
    history = loop.run(loss_of, validate, read_ahead)
    save(pipeline, Path(config.out), tuning=config.tuning)
    number = sum(value.numel() for value in loop.trained.values())
    details = {"trained parameters": number, "before": before, "history": history}
    description = f"{config.generator}, fine-tuned on captions"
    described = {"description": description, "settings": plain(config)}
    return write_card(Path(config.out), rosters=rosters, **described, **details)


def _data(roster: Roster, pipeline: StableDiffusionPipeline, config: DictConfig) -> PhotoData:
    prompts = PromptSampler(
        captions=captions_by_photo(roster), tokenizer=pipeline.tokenizer, **config.prompts
    )
    return PhotoData(roster=roster, autoencoder=pipeline.vae, prompts=prompts, size=config.size)


def save(pipeline: StableDiffusionPipeline, folder: Path, *, tuning: str) -> None:
    """Write the generator's folder; low-rank additions apart too, before they are merged."""
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
    """A ``StableDiffusionPipeline`` in single precision, to be trained.

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
    """The complete generator, with a sampler that needs few steps and no safety checker."""
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
    """Parameters of each of a pipeline's networks."""
    networks = {
        name: part for name, part in pipeline.components.items() if isinstance(part, nn.Module)
    }
    return {
        name: sum(value.numel() for value in part.parameters()) for name, part in networks.items()
    }


@torch.inference_mode()
def generate(pipeline: Any, prompts: list[str], settings: DictConfig) -> list[Any]:
    """A picture for each prompt, each with a seed of its own.

    Args:
        pipeline: the generator.
        prompts: what to draw.
        settings: ``steps`` and ``guidance``.
    """
    generators = [torch.Generator().manual_seed(number) for number in range(len(prompts))]
    output = pipeline(
        prompts,
        num_inference_steps=settings.steps,
        guidance_scale=settings.guidance,
        generator=generators,
    )
    return output.images


def save_pipeline(pipeline: StableDiffusionPipeline, folder: Path) -> None:
    """Write a pipeline's folder with weights in half precision, to be computed with in single."""
    pipeline.to(torch.float16).save_pretrained(folder, safe_serialization=True)
    # transformers, unlike diffusers, would load the precision that is written here
    path = folder / "text_encoder" / "config.json"
    write_json(path, read_json(path) | {"dtype": "float32"}, indent=2)
