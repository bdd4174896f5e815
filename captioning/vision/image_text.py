"""Image-to-text models of transformers, from the hub's format."""

from __future__ import annotations

import importlib
from typing import Any, Literal

import torch

from captioning.runtime.model_folder import load_network
from captioning.runtime.processors import check_family, image_text_folder

WeightType = Literal["float32", "bfloat16", "float16"]


def load_image_text(name: str, *, dtype: torch.dtype = torch.float32) -> Any:
    """The network of an image-to-text model, in evaluation mode.

    Args:
        name: hub name, or folder with ``config.json`` and safetensors.
        dtype: of the weights.

    Raises:
        FileNotFoundError: no such folder, or no safetensors in it.
        ConnectionError: the hub cannot be reached.
        ValueError: another kind of model, or weights that are missing.
    """
    transformers: Any = importlib.import_module("transformers")  # slow, and needed here only
    folder = image_text_folder(name, weights=True)
    check_family(folder, name)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        known = transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        network = known[type(config)]
    except (KeyError, ValueError, OSError, TypeError, AttributeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{name}: no image-to-text model that transformers knows ({reason})"
        ) from error
    return load_network(network, folder, name=name, kind=network.__name__, dtype=dtype)
