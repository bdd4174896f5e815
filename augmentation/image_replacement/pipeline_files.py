"""Read the description of a diffusers pipeline from its folder, without its weights."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from augmentation.set_folder import CARD

INDEX = "model_index.json"
EARLIER_AUTOENCODER = "augmentation.images.autoencoder"
PACKAGED = Path(__file__).parent / "weights"
# Of a pipeline on the hub: no pickles, and none of the same weights in other forms.
TEXTS = (INDEX, "*/*.json", "*/*.txt", "*/*.model")
WEIGHTS = ("*/model{}.safetensors", "*/diffusion_pytorch_model{}.safetensors")
SHARDS = "*/*{}-*-of-*.safetensors"
# What a part's folder may hold that pictures depend on; cards have a date.
READ = (".json", ".txt", ".model", ".safetensors")
# Arguments of pipelines that make something else than a picture of a text.
OTHER_TASKS = ("image", "video", "num_frames", "audio_length_in_s")


def import_own_parts() -> None:
    """Let diffusers load pipelines that contain this framework's classes.

    It takes classes of other packages only from modules that are imported already. Pipelines that
    were saved before the module moved, such as the packaged one, name the earlier one.
    """
    autoencoder = importlib.import_module("augmentation.image_replacement.autoencoder")
    sys.modules.setdefault(EARLIER_AUTOENCODER, autoencoder)


def sums_of(folder: Path) -> Path:
    """Path for the checksums of a pipeline made here: beside its folder."""
    return folder.with_name(f"{folder.name}.sha256")


def with_packaged(name: str) -> str:
    """Return a pipeline's name, or the folder of a packaged pipeline such as ``miniworld``."""
    packaged = PACKAGED / name
    return str(packaged) if (packaged / INDEX).is_file() else name


def hub_files(variant: str | None) -> tuple[str, ...]:
    """File patterns to download from the hub.

    Args:
        variant: form of the weights, such as ``"fp16"``; None for the plain ones.
    """
    dotted = f".{variant}" if variant else ""
    weights = tuple(pattern.format(dotted) for pattern in (*WEIGHTS, SHARDS))
    return (*TEXTS, *weights)


class PipelineFolder:
    """A saved diffusers pipeline, described by its files.

    Args:
        path: folder with ``model_index.json``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def index(self) -> Mapping[str, Any]:
        """Content of ``model_index.json``.

        Raises:
            ValueError: ``model_index.json`` names no pipeline.
        """
        try:
            value = json.loads((self.path / INDEX).read_text(encoding="utf-8"))
            return {"_class_name": str(value["_class_name"]), **value}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path / INDEX} names no diffusers pipeline ({error}); save it again"
            ) from error

    def files(self) -> list[Path]:
        """Sorted files that images depend on: the index, and files of the parts that it names.

        Raises:
            ValueError: ``model_index.json`` names no pipeline.
        """
        parts = [self.path / name for name in self.index if not name.startswith("_")]
        found = [path for part in parts if part.is_dir() for path in part.rglob("*")]
        kept = [path for path in found if path.suffix in READ and path.name != CARD]
        return sorted([self.path / INDEX, *kept])

    @cached_property
    def kind(self) -> type:
        """Class of the diffusers pipeline.

        Raises:
            ValueError: the installed diffusers lacks a pipeline of its name, or it does not make
                pictures of texts alone.
        """
        diffusers = importlib.import_module("diffusers")
        name = self.index["_class_name"]
        kind = getattr(diffusers, name, None)
        if kind is None:
            raise ValueError(
                f"{self.path} needs pipeline {name}, which diffusers {diffusers.__version__} does "
                "not have; install a newer diffusers, or use another model"
            )
        arguments = inspect.signature(kind.__call__).parameters
        if "prompt" not in arguments or any(task in arguments for task in OTHER_TASKS):
            raise ValueError(
                f"{self.path}: {name} cannot generate images from text alone; choose a "
                "text-to-image model"
            )
        return kind

    def takes(self, argument: str) -> bool:
        """Return whether calls of the pipeline accept this argument."""
        return argument in inspect.signature(self.kind.__call__).parameters

    def has_variant(self, variant: str | None) -> bool:
        """Return whether the weights exist in this variant."""
        return variant is not None and any(self.path.glob(f"*/*.{variant}*.safetensors"))

    def native_size(self) -> tuple[int, int]:
        """Width and height that the network was trained at, from its configs.

        Raises:
            ValueError: the configs do not state the size.
        """
        network = self._config("unet") or self._config("transformer")
        side, scale = network.get("sample_size"), self._scale
        if not scale or not side:
            raise ValueError(f"{self.path} does not state the image size: set width and height")
        height, width = side if isinstance(side, list) else (side, side)
        return width * scale, height * scale

    @property
    def _scale(self) -> int | None:
        """Pixels per latent on each side, from the autoencoder's levels; None if unknown."""
        levels = self._config("vae").get("block_out_channels")
        return 2 ** (len(levels) - 1) if levels else None

    def check_size(self, width: int, height: int) -> None:
        """Raise ValueError unless the size in pixels is a whole number of latents.

        Raises:
            ValueError: a side is not a multiple of the pixels on a latent's side.
        """
        scale = self._scale or 1
        if width % scale or height % scale:
            raise ValueError(
                f"{self.path}: width and height must be multiples of {scale}: got {width} and "
                f"{height}"
            )

    def _config(self, part: str) -> Mapping[str, Any]:
        path = self.path / part / "config.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @cached_property
    def tokenizer(self) -> Any:
        """Tokenizer of the text encoder that reads the longest prompts."""
        transformers = importlib.import_module("transformers")
        folder = str(self.path / self._reader)
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)

    @property
    def _reader(self) -> str:
        """Name of the part that tokenizes the prompt; of several, the one that is not CLIP's."""
        parts = [name for name in sorted(self.index) if name.startswith("tokenizer")]
        if not self.takes("max_sequence_length"):
            return parts[0]
        long = [name for name in parts if not str(self.index[name][-1]).startswith("CLIP")]
        return (long or parts)[0]

    def max_tokens(self, max_sequence_length: int | None) -> int:
        """Number of tokens of the longest prompt that is not truncated: 77 for CLIP.

        Args:
            max_sequence_length: maximum length of a prompt in the call; None: the pipeline's own.
        """
        parameters = inspect.signature(self.kind.__call__).parameters
        if "max_sequence_length" not in parameters:
            return int(self.tokenizer.model_max_length)
        own = parameters["max_sequence_length"].default
        return int(max_sequence_length or own)
