"""Image-to-text models of transformers, from the hub's format."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from captioning.model_folder import model_folder, quiet_loading

NO_HUB = "a folder of another model, or model=updown_small"


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
    folder = model_folder(
        name, instead=NO_HUB, files=("*.json", "*.txt", "*.jinja", "*.model", "*.safetensors")
    )
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        known = transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        network = known[type(config)]
    except (KeyError, ValueError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{name}: no image-to-text model that transformers knows ({reason})"
        ) from error
    try:
        with quiet_loading():
            model, report = network.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                dtype=dtype,
            )
    except OSError as error:
        raise FileNotFoundError(
            f"{folder}: no model.safetensors in it; other files of weights may hold programs and "
            "are not read: save the model with safetensors"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ValueError(
            f"{name}: weights lack {len(missing)} tensors of {network.__name__}, such as "
            f"{missing[0]}"
        )
    return model.eval()
