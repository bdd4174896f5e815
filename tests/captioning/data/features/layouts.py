"""Small files of features in the layouts that laboratories publish."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import lmdb
import msgpack
import numpy as np


@dataclass(frozen=True)
class Photo:
    """Features ``(n, D)`` and boxes ``(n, 4)`` in pixels of one photo."""

    features: np.ndarray
    boxes: np.ndarray
    width: int = 640
    height: int = 480

    @property
    def shares(self) -> np.ndarray:
        """The boxes in shares of the sides."""
        return self.boxes / np.array([self.width, self.height] * 2)


Photos = Mapping[str, Photo]


def make_photo(name: str, count: int, dim: int = 4) -> Photo:
    """Random features and boxes."""
    draw = np.random.default_rng(sum(map(ord, name)))
    corners = np.sort(draw.uniform(size=(count, 2, 2)), axis=1).reshape(count, 4)
    boxes = (corners * [640, 480, 640, 480]).astype(np.float32)
    return Photo(features=draw.normal(size=(count, dim)).astype(np.float32), boxes=boxes)


def write_tsv(path: Path, photos: Photos) -> Path:
    """As bottom-up attention's ``generate_tsv.py``: csv.DictWriter, base64 of float32."""
    names = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
    with path.open("w") as file:
        writer = csv.DictWriter(file, delimiter="\t", fieldnames=names)
        for name, photo in photos.items():
            values = (name, photo.width, photo.height, len(photo.boxes))
            coded = (base64.b64encode(a.tobytes()).decode() for a in (photo.boxes, photo.features))
            writer.writerow(dict(zip(names, (*values, *coded), strict=True)))
    return path


def write_npz(path: Path, photos: Photos) -> Path:
    """One file, an array an image."""
    np.savez(path, **{name: photo.features for name, photo in photos.items()})
    return path


def write_npz_folder(path: Path, photos: Photos) -> Path:
    """A file an image, as bottom-up attention in PyTorch: ``info`` is pickled."""
    path.mkdir()
    for name, photo in photos.items():
        np.savez_compressed(
            path / f"{name}.npz",
            x=photo.features,
            bbox=photo.boxes,
            num_bbox=len(photo.boxes),
            image_w=photo.width,
            image_h=photo.height,
            info=np.array({"objects_id": [1]}, dtype=object),
        )
    return path


def write_mcan_folder(path: Path, photos: Photos) -> Path:
    """A file an image with turned features, as OpenVQA reads them."""
    path.mkdir()
    for name, photo in photos.items():
        sides = {"image_w": photo.width, "image_h": photo.height}
        np.savez(path / f"{name}.npz", x=photo.features.T, bbox=photo.boxes, **sides)
    return path


def write_cocobu(path: Path, photos: Photos) -> tuple[Path, Path, Path]:
    """ruotianluo's cocobu_att and cocobu_box, and sizes as in cocotalk.json."""
    features, boxes, sizes = path / "cocobu_att", path / "cocobu_box", path / "cocotalk.json"
    features.mkdir(parents=True)
    boxes.mkdir()
    for name, photo in photos.items():
        np.savez_compressed(features / name, feat=photo.features)
        np.save(boxes / name, photo.boxes)
    images = [{"id": int(n), "width": p.width, "height": p.height} for n, p in photos.items()]
    sizes.write_text(json.dumps({"images": images}))
    return features, boxes, sizes


def write_vl_bart(path: Path, photos: Photos) -> Path:
    """VL-T5's and CIC-BART's groups."""
    with h5py.File(path, "w") as file:
        for name, photo in photos.items():
            group = file.create_group(name)
            group["features"] = photo.features
            group["boxes"] = photo.boxes
            group["obj_id"] = group["attr_id"] = np.arange(len(photo.boxes))
            group["obj_conf"] = group["attr_conf"] = np.ones(len(photo.boxes))
            group["img_w"], group["img_h"] = photo.width, photo.height
    return path


def write_updown_baseline(path: Path, photos: Photos) -> Path:
    """Rows of any length, flattened."""
    kind = h5py.special_dtype(vlen=np.dtype("float32"))
    with h5py.File(path, "w") as file:
        file["image_id"] = np.array([int(name) for name in photos])
        file["width"] = np.array([photo.width for photo in photos.values()], dtype=np.float32)
        file["height"] = np.array([photo.height for photo in photos.values()], dtype=np.float32)
        boxes = file.create_dataset("boxes", (len(photos),), kind)
        features = file.create_dataset("features", (len(photos),), kind)
        for row, photo in enumerate(photos.values()):
            boxes[row], features[row] = photo.boxes.ravel(), photo.features.ravel()
    return path


def write_padded_h5(path: Path, photos: Photos) -> Path:
    """A table with padded rows and ``num_boxes``."""
    width = max(len(photo.boxes) for photo in photos.values())
    with h5py.File(path, "w") as file:
        file["image_id"] = np.array(list(photos), dtype="S12")
        file["num_boxes"] = [len(photo.boxes) for photo in photos.values()]
        file["image_w"] = [photo.width for photo in photos.values()]
        file["image_h"] = [photo.height for photo in photos.values()]
        for field in ("features", "boxes"):
            rows = [getattr(photo, field) for photo in photos.values()]
            file[field] = np.stack([np.pad(r, ((0, width - len(r)), (0, 0))) for r in rows])
    return path


def write_uniter(path: Path, photos: Photos) -> Path:
    """UNITER's and VILLA's LMDB: msgpack with numpy's arrays, shares in float16."""
    entries = {
        f"coco_val2014_{int(name):012d}.npz": msgpack.packb(
            {
                "features": _packed(photo.features.astype(np.float16)),
                "norm_bb": _packed(np.pad(photo.shares, ((0, 0), (0, 2))).astype(np.float16)),
                "conf": _packed(np.ones(len(photo.boxes), dtype=np.float16)),
            },
            use_bin_type=True,
        )
        for name, photo in photos.items()
    }
    entries["__keys__"] = json.dumps(list(entries)).encode()
    return write_lmdb(path, entries)


def write_lmdb(path: Path, entries: Mapping[str, bytes]) -> Path:
    """An LMDB of these values."""
    with lmdb.open(str(path), map_size=2**22) as environment, environment.begin(write=True) as to:
        for key, value in entries.items():
            to.put(key.encode(), value)
    return path


def _packed(array: np.ndarray) -> dict[bytes, object]:
    """As msgpack-numpy encodes an array."""
    return {
        b"nd": True,  # codespell:ignore nd
        b"type": array.dtype.str,
        b"kind": b"",
        b"shape": array.shape,
        b"data": array.tobytes(),
    }
