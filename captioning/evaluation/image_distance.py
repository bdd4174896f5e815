"""Distance between two folders of images, such as FID.

``captioning image-distance real=FOLDER other=FOLDER`` gives the Fréchet distance over the features
of any backbone (``features=NAME``) or of Inception-v3 (``inception=true``), under a name that tells
the features. With ``paired=true`` it gives the mean distance of images with equal names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.progress import track
from torch import Tensor

from captioning.config.build import build_part
from captioning.config.ranges import Device, Name, PositiveInt
from captioning.data.photo_folder import PHOTO_SUFFIXES, UNREAD_SUFFIXES
from captioning.metrics.fid import (
    INCEPTION,
    Features,
    frechet_image_distance,
    inception_features,
    paired_image_distance,
)
from captioning.results.versions import versions
from captioning.runtime.devices import chosen_device, full_precision
from captioning.runtime.files import write_json
from captioning.training.settings import CachedFeatures
from captioning.vision.backbones import Backbone
from captioning.vision.photos import load_rgb

INCEPTION_SIZE = 299


def image_distance(
    *,
    real: Name,
    other: Name,
    features: CachedFeatures,
    paired: bool = False,
    inception: bool = False,
    inception_weights: Name | None = None,
    batch_size: PositiveInt = 16,
    device: Device = "auto",
    out: Name | None = None,
) -> dict[str, Any]:
    """Compare two folders of images.

    Args:
        real, other: the folders.
        features: features whose backbone embeds the images.
        paired: compute the mean distance of images with equal names instead of a Fréchet distance.
        inception: embed the images with Inception-v3.
        inception_weights: file of its weights; None: download it.
        batch_size: images per batch.
        device: the network's device.
        out: path of a JSON file for the result.

    Returns:
        `captioning.metrics.fid.ImageDistance` as a dict.

    Raises:
        ValueError: a folder without images, an image that cannot be read, or, paired, images
            without a partner.
    """
    folders = [Path(real), Path(other)]
    files = [list_images(folder) for folder in folders]
    if paired:
        check_pairs(folders[0], folders[1], files[0], files[1])
    place = chosen_device(device)
    if inception:
        embed = inception_features(inception_weights, device=place)
        network, size = INCEPTION, INCEPTION_SIZE
    else:
        backbone: Backbone = build_part(features.own_backbone).for_inference(place)
        embed = _grid_means(backbone, place)
        network, size = backbone.identity, backbone.image_size
    sets = (read_images(paths, size=size, batch_size=batch_size) for paths in files)
    compare = paired_image_distance if paired else frechet_image_distance
    result = compare(*sets, features=embed, network=network).to_dict()
    if out is not None:
        named = {"real": str(folders[0]), "other": str(folders[1])}
        write_json(Path(out), result | named | {"versions": versions()})
    return result


def list_images(folder: Path) -> list[Path]:
    """Image files below a folder by relative path, without hidden files.

    Raises:
        ValueError: the folder holds no images.
    """
    kinds = PHOTO_SUFFIXES | UNREAD_SUFFIXES  # reading raises for one that cannot be opened
    files = (file for file in folder.rglob("*") if not file.name.startswith("."))
    images = sorted(file for file in files if file.suffix.lower() in kinds)
    if not images:
        raise ValueError(f"{folder}: no images ({', '.join(sorted(PHOTO_SUFFIXES))}) in it")
    return images


def check_pairs(
    first: Path, second: Path, files: Sequence[Path], other_files: Sequence[Path]
) -> None:
    """Raise an error if the images of two folders differ in names, apart from suffixes."""
    names = {file.relative_to(first).with_suffix("") for file in files}
    other_names = {file.relative_to(second).with_suffix("") for file in other_files}
    if unpaired := sorted(names ^ other_names):
        raise ValueError(
            f"{len(unpaired)} images are only in {first} or only in {second}, such as "
            f"{unpaired[0]}; set paired=false to compare folders with different images"
        )
    if len(names) != len(files) or len(other_names) != len(other_files):
        raise ValueError(f"images of {first} or {second} differ in their suffixes only")


def read_images(files: Sequence[Path], *, size: int, batch_size: int) -> Iterator[Tensor]:
    """Read images in batches ``(B, 3, size, size) uint8``, resized to a square.

    Raises:
        ValueError: a file is not an image.
    """
    starts = range(0, len(files), batch_size)
    for start in track(starts, description="images", transient=True):
        yield torch.stack([_read(file, size) for file in files[start : start + batch_size]])


def _read(file: Path, size: int) -> Tensor:
    squared = load_rgb(file).resize((size, size), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.asarray(squared).copy()).permute(2, 0, 1)


def _grid_means(backbone: Backbone, device: torch.device) -> Features:
    """Mean feature over a backbone's grid cells, for batches of uint8 images."""

    def features(images: Tensor) -> Tensor:
        with full_precision():
            return backbone.grid(backbone.normalise(images.to(device))).mean(1).cpu()

    return features
