"""Generate images with any text-to-image pipeline of diffusers, by hub name or folder."""

from __future__ import annotations

import gc
import hashlib
import importlib
import inspect
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from augmentation.image_replacement.generator import AbstractGenerator, Job
from augmentation.image_replacement.pipeline_files import (
    INDEX,
    PipelineFolder,
    hub_files,
    import_own_parts,
    sums_of,
    with_packaged,
)
from captioning.config.ranges import Device, NonNegativeFloat, PositiveInt
from captioning.runtime.devices import chosen_device, full_precision
from captioning.runtime.extras import check_shipped, import_extra
from captioning.runtime.model_folder import model_folder

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class StableDiffusion(AbstractGenerator):
    """A diffusers pipeline with all its settings; safetensors weights are loaded on demand.

    Each picture has its own random generator, on the CPU, so its noise is the same on every device
    and in every batch.

    Args:
        model: name of a pipeline in this package (``miniworld``), a folder in the format of
            diffusers, or such a pipeline's name on the hub.
        scheduler: class of diffusers such as ``"DDIMScheduler"``; None for the pipeline's own.
        num_steps: denoising steps.
        guidance_scale: weight of the prompt; 1 for no guidance.
        negative_prompt: content that the picture must not show.
        width, height: size in pixels; None: the model's training size.
        precision: ``"float16"`` halves memory and time on a GPU.
        batch_size: pictures at once.
        device: ``"auto"`` takes a GPU if there is one.
        variant: form of the weights that is read where the model has it: ``"fp16"`` is half the
            download; None for the plain ones.
        offload: ``"model"`` keeps on the GPU only the part that works, ``"layers"`` only the
            layer, which is slow; None: all of the pipeline.
        max_sequence_length: tokens of a prompt, for pipelines with an encoder of long texts (Flux,
            Stable Diffusion 3); None for their own.
        safety_checker: whether the pipeline's own checker withholds pictures; it must have one.
            Only Stable Diffusion 1 and 2 bring one.
        watermark: mark pictures invisibly as generated. Off for training: the captioner
            would learn from it (paper); on for pictures that are published.
        lora: folder of low-rank weights that are put on top, or None.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        *,
        model: str,
        scheduler: str | None = None,
        num_steps: PositiveInt = 50,
        guidance_scale: NonNegativeFloat = 7.5,
        negative_prompt: str = "",
        width: PositiveInt | None = None,
        height: PositiveInt | None = None,
        precision: Literal["float32", "float16", "bfloat16"] = "float32",
        batch_size: PositiveInt = 4,
        device: Device = "auto",
        variant: str | None = None,
        offload: Literal["model", "layers"] | None = None,
        max_sequence_length: PositiveInt | None = None,
        safety_checker: bool = False,
        watermark: bool = False,
        lora: str | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {tuple(PRECISIONS)}: got {precision!r}")
        if num_steps < 1 or batch_size < 1:
            got = f"got {num_steps} and {batch_size}"
            raise ValueError(f"num_steps and batch_size must be at least 1: {got}")
        self.model, self.scheduler = str(model), scheduler
        self.num_steps, self.guidance_scale = num_steps, guidance_scale
        self.negative_prompt = negative_prompt
        self.width, self.height = width, height
        self.precision, self.batch_size, self.device = precision, batch_size, device
        if offload not in (None, "model", "layers"):
            raise ValueError(f"offload must be model, layers or null: got {offload!r}")
        self.variant, self.offload = variant, offload
        self.max_sequence_length = max_sequence_length
        self.safety_checker, self.watermark = safety_checker, watermark
        self.lora = lora
        self._pipeline: Any = None

    @property
    def name(self) -> str:
        """Last part of the model's name, and eight digits of its weights' hash."""
        return f"{Path(self.model).name}@{self.identity[:8]}"

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the model's files and of the LoRA weights.

        Cards and other files in the folders do not affect pictures.

        Raises:
            FileNotFoundError: a folder does not exist, or holds no weights.
        """
        digest = hashlib.sha256()
        files = {self.folder: self._files.files()}
        if self.lora:
            files |= {Path(self.lora): _low_rank_files(Path(self.lora))}
        for folder, paths in files.items():
            for path in paths:
                digest.update(path.relative_to(folder).as_posix().encode())
                digest.update(_file_digest(path))
        return digest.hexdigest()

    @cached_property
    def folder(self) -> Path:
        """Folder of the pipeline, downloaded from the hub if necessary."""
        files = hub_files(self.variant)
        instead = f"curation/image_source=small_diffusion (files to fetch: {', '.join(files)})"
        return model_folder(with_packaged(self.model), instead=instead, marker=INDEX, files=files)

    @cached_property
    def _files(self) -> PipelineFolder:
        return PipelineFolder(self.folder)

    def recipe(self) -> Mapping[str, Any]:
        """Model and settings, without batch size and device, which do not change images."""
        width, height = self.size()
        return {
            "model": Path(self.model).name,
            "weights": self.identity[:32],
            "scheduler": self.scheduler,
            "num_steps": self.num_steps,
            "guidance_scale": self.guidance_scale,
            "negative_prompt": self.negative_prompt,
            "size": [width, height],
            "precision": self.precision,
            "safety_checker": self.safety_checker,
            "watermark": self.watermark,
            **self._later_settings(),
        }

    def _later_settings(self) -> dict[str, Any]:
        """Settings added later; unset ones are omitted, so that cached images stay valid."""
        settings = {
            "variant": self.variant if self._files.has_variant(self.variant) else None,
            "max_sequence_length": self.max_sequence_length,
        }
        return {name: value for name, value in settings.items() if value is not None}

    def size(self) -> tuple[int, int]:
        """Width and height of generated images in pixels."""
        if self.width is not None and self.height is not None:
            return self.width, self.height
        native = self._files.native_size()
        return self.width or native[0], self.height or native[1]

    @property
    def max_tokens(self) -> int:
        """Input length of the text encoder in tokens: 77 for CLIP."""
        return self._files.max_tokens(self.max_sequence_length)

    def count_tokens(self, text: str) -> int:
        """Number of tokens, including begin and end tokens."""
        return len(self._files.tokenizer(text, verbose=False).input_ids)

    def start(self) -> None:
        """Check settings and files without loading weights, and choose the device.

        Raises:
            ModuleNotFoundError: a package is not installed.
            FileNotFoundError: a folder is missing, or the folder ``lora`` holds no low-rank
                weights.
            ConnectionError: the hub cannot be reached.
            ValueError: an unknown scheduler, a safety checker or an argument that the pipeline
                lacks, a size that it does not tell or cannot draw, no text-to-image pipeline, or
                no such device.
        """
        diffusers = import_extra("diffusers", extra="generation", purpose="generating pictures")
        if self.watermark:
            _optional("imwatermark", "pip install invisible-watermark, or set watermark=false")
        if self.scheduler is not None and not hasattr(diffusers, self.scheduler):
            raise ValueError(
                f"scheduler={self.scheduler} does not exist in diffusers; choose one such as "
                "DDIMScheduler, PNDMScheduler or DPMSolverMultistepScheduler"
            )
        if self.safety_checker and not (self.folder / "safety_checker").is_dir():
            raise ValueError(f"{self.folder} has no safety checker: set safety_checker=false")
        kind = self._files.kind
        for name in ("negative_prompt", "max_sequence_length"):
            if getattr(self, name) and not self._files.takes(name):
                raise ValueError(
                    f"{self.folder}: {kind.__name__} does not accept {name}: unset {name}"
                )
        self._choose_device()
        self._files.check_size(*self.size())
        self.recipe()

    def _choose_device(self) -> None:
        if self.device == "auto":
            self.device = str(chosen_device("auto"))
        chosen_device(self.device)
        if self.offload is not None and not self.device.startswith("cuda"):
            raise ValueError(
                f"offload={self.offload} moves parts of the model off a GPU, but device is "
                f"{self.device}: set offload=null"
            )

    def load(self) -> None:
        """Load the weights onto the device."""
        if self._pipeline is not None:
            return
        self.start()
        if (sums := sums_of(self.folder)).is_file():
            check_shipped(sums)
        diffusers = importlib.import_module("diffusers")
        for package in ("diffusers", "transformers"):
            importlib.import_module(f"{package}.utils.logging").disable_progress_bar()
        import_own_parts()
        logging.getLogger("diffusers.pipelines.pipeline_utils").addFilter(_tells_not_of_ours)
        pipeline = diffusers.DiffusionPipeline.from_pretrained(
            str(self.folder),
            use_safetensors=True,
            local_files_only=True,
            dtype=PRECISIONS[self.precision],
            **self._loading_options(),
        )
        if self.lora:
            pipeline.load_lora_weights(self.lora, use_safetensors=True)
        if self.scheduler is not None:
            scheduler = getattr(diffusers, self.scheduler)
            pipeline.scheduler = scheduler.from_config(pipeline.scheduler.config)
        pipeline.set_progress_bar_config(disable=True)
        # prompts that are cut are counted by who writes them (curation.prompt.overlong)
        logging.getLogger(type(pipeline).__module__).addFilter(_tells_no_cut)
        for part in pipeline.components.values():
            if isinstance(part, nn.Module):
                part.eval().requires_grad_(False)
        if self.offload == "model":
            pipeline.enable_model_cpu_offload(device=self.device)
        elif self.offload == "layers":
            pipeline.enable_sequential_cpu_offload(device=self.device)
        else:
            pipeline = pipeline.to(self.device)
        self._pipeline = pipeline

    def _loading_options(self) -> dict[str, Any]:
        options = {} if self.safety_checker else _without_checker(self._files.index)
        if self._files.has_variant(self.variant):
            options["variant"] = self.variant
        # Stable Diffusion XL would mark pictures by itself where the package for it is installed.
        if "add_watermarker" in inspect.signature(self._files.kind.__init__).parameters:
            options["add_watermarker"] = False
        return options

    @torch.inference_mode()
    def generate(self, jobs: Sequence[Job]) -> list[np.ndarray | None]:
        """Generate the images of a batch, see `AbstractGenerator.generate`."""
        self.load()
        width, height = self.size()
        # not every pipeline takes these
        further: dict[str, Any] = {}
        if self.negative_prompt:
            further["negative_prompt"] = [self.negative_prompt] * len(jobs)
        if self.max_sequence_length is not None:
            further["max_sequence_length"] = self.max_sequence_length
        with full_precision():
            result = self._pipeline(
                prompt=[job.prompt for job in jobs],
                **further,
                num_inference_steps=self.num_steps,
                guidance_scale=self.guidance_scale,
                width=width,
                height=height,
                generator=[torch.Generator("cpu").manual_seed(job.seed) for job in jobs],
                output_type="np",
            )
        withheld = getattr(result, "nsfw_content_detected", None) or [False] * len(jobs)
        return [
            None if flag else self._add_watermark(picture)
            for picture, flag in zip(result.images, withheld, strict=True)
        ]

    def _add_watermark(self, picture: np.ndarray) -> np.ndarray:
        if not self.watermark or not np.isfinite(picture).all():
            return picture
        encoder = importlib.import_module("imwatermark").WatermarkEncoder()
        encoder.set_watermark("bytes", b"GeneratedImage")
        levels = (picture * 255).round().astype(np.uint8)
        # the package reads and writes blue, green, red
        return encoder.encode(levels[..., ::-1], "dwtDct")[..., ::-1].astype(np.float32) / 255

    def release(self) -> None:
        """Free the weights; they are loaded again when needed."""
        self._pipeline = None
        gc.collect()  # parts of a pipeline refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def __getstate__(self) -> dict[str, Any]:
        # settings travel to other processes, weights are read there
        return {**self.__dict__, "_pipeline": None}


def _without_checker(index: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that switch the safety checker off, for pipelines that have one."""
    if "safety_checker" not in index:
        return {}
    return {"safety_checker": None, "requires_safety_checker": False}


def _tells_not_of_ours(record: logging.LogRecord) -> bool:
    return "PatchAutoencoder" not in str(record.msg)  # it is none of diffusers' classes, but works


def _tells_no_cut(record: logging.LogRecord) -> bool:
    return "input was truncated" not in str(record.msg)


def _low_rank_files(folder: Path) -> list[Path]:
    """Sorted LoRA weight files in a folder."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"lora={folder} does not exist or holds no .safetensors file; name the folder of the "
            "LoRA weights, or set lora=null"
        )
    return files


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _optional(package: str, remedy: str) -> Any:
    """Import an optional package when it is first needed."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"generating images needs {package}: {remedy}") from error
