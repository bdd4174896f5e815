"""CLIP in the format of transformers, with the calls and the input of open_clip's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from captioning.runtime.files import read_json
from captioning.runtime.model_folder import load_network


class HubClip(nn.Module):
    """A CLIP of transformers as open_clip has it.

    Args:
        network: gives ``get_image_features`` and ``get_text_features``.
        image_size: side of the photos in pixels.
    """

    def __init__(self, network: Any, *, image_size: int) -> None:
        super().__init__()
        self.network = network
        self.visual = SimpleNamespace(image_size=image_size)

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Embeddings ``(B, D)`` of normalised pixels ``(B, 3, H, W)``."""
        return _vectors(self.network.get_image_features(pixel_values=pixels))

    def encode_text(self, tokens: Tensor) -> Tensor:
        """Embeddings ``(B, D)`` of tokens ``(B, T)``; nothing looks at what is padded behind."""
        return _vectors(self.network.get_text_features(input_ids=tokens))


def _vectors(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.pooler_output


def load_hub_clip(folder: Path) -> dict[str, Any]:
    """``model``, ``preprocess`` and ``tokenize`` of a `captioning.vision.clip.ClipEncoder`.

    Args:
        folder: of a CLIP, its tokenizer and its ``preprocessor_config.json``.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: another model, weights that lack tensors, or photos that are not squares.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder}: no open_clip_config.json, nor config.json; give a folder of open_clip or "
            "of transformers"
        )
    kind = read_json(folder / "config.json").get("model_type")
    if kind != "clip":
        raise ValueError(f"{folder}: weights of {kind!r}, no CLIP; similarity=siglip reads SigLIP")
    library: Any = importlib.import_module("transformers")  # slow, and needed here only
    network = load_network(library.CLIPModel, folder, name=str(folder), kind="a CLIP")
    config = network.config
    tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    preprocess = _preprocess(folder)
    side = preprocess.transforms[1].size[0]
    if side != config.vision_config.image_size:
        raise ValueError(
            f"{folder}: photos of {side} pixels by preprocessor_config.json, of "
            f"{config.vision_config.image_size} by config.json; give the weights' own files"
        )

    def tokenize(texts: Sequence[str]) -> Tensor:
        length = config.text_config.max_position_embeddings
        options = {"padding": True, "truncation": True, "max_length": length}
        return tokenizer(list(texts), return_tensors="pt", **options)["input_ids"]

    model = HubClip(network, image_size=side)
    return {"model": model, "preprocess": preprocess, "tokenize": tokenize}


def _preprocess(folder: Path) -> transforms.Compose:
    """As CLIP's authors and open_clip make photos ready."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        path = folder / "processor_config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no preprocessor_config.json; give the model's own")
    content = read_json(path)
    content = content.get("image_processor", content)
    short, crop = content["size"], content["crop_size"]
    short = short["shortest_edge"] if isinstance(short, dict) else short  # an older form
    sides = {crop["height"], crop["width"]} if isinstance(crop, dict) else {crop}
    if len(sides) != 1:
        raise ValueError(f"{path}: photos must be squares: got {crop}")
    return transforms.Compose(
        [
            transforms.Resize(short, interpolation=InterpolationMode.BICUBIC),
            transforms.CenterCrop(sides.pop()),
            transforms.ToTensor(),
            transforms.Normalize(content["image_mean"], content["image_std"]),
        ]
    )
