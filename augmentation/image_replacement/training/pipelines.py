"""Complete generators: loaded, assembled, used during training, and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import (
    StableDiffusionPipeline,
)
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from omegaconf import DictConfig
from torch import nn
from transformers import CLIPTokenizer

from augmentation.image_replacement.autoencoder import PatchAutoencoder
from augmentation.image_replacement.pipeline_files import INDEX, hub_files
from augmentation.image_replacement.training.denoising import Denoiser
from captioning.runtime.files import read_json, write_json
from captioning.runtime.model_folder import model_folder


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
