"""Any text-to-image pipeline of diffusers, by hub name or folder, as a generator of pictures."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from augmentation.images.generator import AbstractGenerator, Job
from captioning.extras import import_extra
from captioning.model_folder import model_folder
from captioning.ranges import Device, NonNegativeFloat, PositiveInt

PACKAGED = Path(__file__).parent / "weights"
INDEX = "model_index.json"
# Of a pipeline on the hub: no pickles, and none of the same weights in other forms.
FILES = (
    INDEX,
    "*/*.json",
    "*/*.txt",
    "*/*.model",
    "*/model.safetensors",
    "*/diffusion_pytorch_model.safetensors",
    "*/*-of-*.safetensors",
)
PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class StableDiffusion(AbstractGenerator):
    """A pipeline with all its settings; weights are read from safetensors alone, when first needed.

    Each picture has a random generator of its own, on the processor, so its noise is the same on
    every device and in every batch.

    Args:
        model: name of a pipeline in this package (``miniworld``), a folder in the format of
            diffusers, or such a pipeline's name on the hub.
        scheduler: class of diffusers such as ``"DDIMScheduler"``; None for the pipeline's own.
        num_steps: denoising steps.
        guidance_scale: weight of the prompt; 1 for no guidance.
        negative_prompt: what the picture must not show.
        width, height: in pixels; None for those that the model was trained at.
        precision: ``"float16"`` halves memory and time on a GPU.
        batch_size: pictures at once.
        device: ``"auto"`` takes a GPU if there is one.
        safety_checker: whether the pipeline's own checker withholds pictures; it must have one.
        watermark: mark pictures invisibly as generated. Off for training: the captioner
            would learn from it (paper); on for pictures that are published.
        lora: folder of low-rank weights that are put on top, or None.

    Raises:
        ValueError: a setting out of its range.
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
        self.safety_checker, self.watermark = safety_checker, watermark
        self.lora = lora
        self._pipeline: Any = None

    @property
    def name(self) -> str:
        """Last part of the model's name, and eight digits of its weights' hash."""
        return f"{Path(self.model).name}@{self.identity[:8]}"

    @cached_property
    def identity(self) -> str:
        """SHA-256 of all files of the model, and of the low-rank weights."""
        digest = hashlib.sha256()
        for folder in (self.folder, *([Path(self.lora)] if self.lora else [])):
            for path in sorted(folder.rglob("*")):
                if path.suffix in (".json", ".txt", ".model", ".safetensors"):
                    digest.update(path.relative_to(folder).as_posix().encode())
                    digest.update(_file_digest(path))
        return digest.hexdigest()

    @cached_property
    def folder(self) -> Path:
        """The pipeline's folder, downloaded from the hub if necessary."""
        packaged = PACKAGED / self.model
        name = str(packaged) if (packaged / INDEX).is_file() else self.model
        return model_folder(name, instead="a folder or miniworld", marker=INDEX, files=FILES)

    @cached_property
    def _index(self) -> Mapping[str, Any]:
        return json.loads((self.folder / INDEX).read_text(encoding="utf-8"))

    @cached_property
    def _tokenizer(self) -> Any:
        transformers = importlib.import_module("transformers")
        folder = str(self.folder / "tokenizer")
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def recipe(self) -> Mapping[str, Any]:
        """Model and settings, without batch size and device, which do not change pictures."""
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
        }

    @cached_property
    def _native_size(self) -> tuple[int, int]:
        """Width and height that the network was trained at, by its configs."""
        paths = [self.folder / part / "config.json" for part in ("unet", "vae")]
        if not all(path.is_file() for path in paths):
            raise ValueError(f"{self.folder}: set width and height, which it does not tell")
        network, decoder = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
        scale = 2 ** (len(decoder["block_out_channels"]) - 1)
        side = network["sample_size"]
        height, width = side if isinstance(side, list) else (side, side)
        return width * scale, height * scale

    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        if self.width is not None and self.height is not None:
            return self.width, self.height
        native = self._native_size
        return self.width or native[0], self.height or native[1]

    @property
    def max_tokens(self) -> int:
        """Length of the text encoder's input: 77 for CLIP's."""
        return int(self._tokenizer.model_max_length)

    def count_tokens(self, text: str) -> int:
        """Tokens with begin and end."""
        return len(self._tokenizer(text, verbose=False).input_ids)

    def start(self) -> None:
        """Check settings and files without loading weights, and choose the device.

        Raises:
            ModuleNotFoundError: a package is not installed.
            FileNotFoundError: no such folder.
            ConnectionError: the hub cannot be reached.
            ValueError: an unknown scheduler, a safety checker that the pipeline lacks, or a size
                that it does not tell.
        """
        diffusers = import_extra("diffusers", extra="generation", purpose="generating pictures")
        if self.watermark:
            _optional("imwatermark", "pip install invisible-watermark, or set watermark=false")
        if self.scheduler is not None and not hasattr(diffusers, self.scheduler):
            raise ValueError(
                f"scheduler={self.scheduler}: diffusers has none of that name, such as "
                "DDIMScheduler, PNDMScheduler or DPMSolverMultistepScheduler"
            )
        if self.safety_checker and not (self.folder / "safety_checker").is_dir():
            raise ValueError(f"{self.folder} has no safety checker: set safety_checker=false")
        if self.device == "auto":
            gpu = torch.cuda.is_available()
            self.device = f"cuda:{torch.cuda.current_device()}" if gpu else "cpu"
        self.recipe()

    def load(self) -> None:
        """Load the weights onto the device."""
        if self._pipeline is not None:
            return
        self.start()
        diffusers = importlib.import_module("diffusers")
        for package in ("diffusers", "transformers"):
            importlib.import_module(f"{package}.utils.logging").disable_progress_bar()
        # diffusers takes classes of other packages only from modules that are imported already
        importlib.import_module("augmentation.images.autoencoder")
        arguments = {} if self.safety_checker else _without_checker(self._index)
        pipeline = diffusers.DiffusionPipeline.from_pretrained(
            str(self.folder),
            use_safetensors=True,
            local_files_only=True,
            dtype=PRECISIONS[self.precision],
            **arguments,
        )
        if self.lora:
            pipeline.load_lora_weights(self.lora, use_safetensors=True)
        if self.scheduler is not None:
            scheduler = getattr(diffusers, self.scheduler)
            pipeline.scheduler = scheduler.from_config(pipeline.scheduler.config)
        pipeline.set_progress_bar_config(disable=True)
        for part in pipeline.components.values():
            if isinstance(part, nn.Module):
                part.eval().requires_grad_(False)
        self._pipeline = pipeline.to(self.device)

    @torch.inference_mode()
    def generate(self, jobs: Sequence[Job]) -> list[np.ndarray | None]:
        """Pictures of a batch, see `AbstractGenerator.generate`."""
        self.load()
        width, height = self.size()
        # not every pipeline takes one
        negative = {"negative_prompt": [self.negative_prompt] * len(jobs)}
        result = self._pipeline(
            prompt=[job.prompt for job in jobs],
            **(negative if self.negative_prompt else {}),
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
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def __getstate__(self) -> dict[str, Any]:
        # settings travel to other processes, weights are read there
        return {**self.__dict__, "_pipeline": None}


def _without_checker(index: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that leave a safety checker out, for pipelines that know of one."""
    if "safety_checker" not in index:
        return {}
    return {"safety_checker": None, "requires_safety_checker": False}


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _optional(package: str, remedy: str) -> Any:
    """An optional package, imported when it is first needed."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"generating pictures needs {package}: {remedy}") from error
