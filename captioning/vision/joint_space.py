"""Small joint space of photos and sentences: two trained heads on frozen networks.

A photo is represented by the pooled grid of a frozen `Backbone`, a sentence by a frozen sentence
encoder. A small head maps each into one space, where a dot product is a cosine. The packaged
heads were trained on one set of photos (``weights/joint_space.json``);
`captioning.training.joint_heads` trains others. This is not CLIP, and its similarities must not be
reported under that name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from captioning.config.loadable import loadable
from captioning.config.ranges import Device, DropRate, PositiveInt
from captioning.interfaces import TextEmbedder
from captioning.runtime.devices import Resident, by_device, leave_device
from captioning.runtime.extras import check_shipped
from captioning.runtime.tensor_files import read_tensors, weights_digest, write_tensors
from captioning.vision.backbones import Backbone

Pooling = Literal["mean", "mean_max"]
POOLINGS = get_args(Pooling)
WEIGHTS = Path(__file__).parent / "weights" / "joint_space.safetensors"


class JointSpace(nn.Module):
    """Two heads that map photos and sentences into one space.

    Attributes:
        settings: constructor arguments, to rebuild the heads.
        log_scale: log of the scale of cosines in the contrastive loss (1 / temperature).
    """

    def __init__(
        self,
        *,
        image_size: int = 1280,
        sentence_size: int = 384,
        width: PositiveInt = 1024,
        size: PositiveInt = 256,
        dropout: DropRate = 0.5,
        input_dropout: DropRate = 0.2,
        pooling: Pooling = "mean",
    ) -> None:
        """Create heads with new weights.

        Args:
            image_size: dimension D of the grid features.
            sentence_size: dimension of the sentence vectors.
            width: hidden units of each head.
            size: dimension of the joint space.
            dropout: dropout of hidden units in training, in [0, 1).
            input_dropout: dropout of pooled features and sentence values, in [0, 1).
            pooling: ``"mean"`` over the grid, or ``"mean_max"``: mean and maximum concatenated.

        Raises:
            ValueError: an unknown pooling.
        """
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {POOLINGS}: got {pooling!r}")
        self.settings: dict[str, Any] = {
            "image_size": image_size,
            "sentence_size": sentence_size,
            "width": width,
            "size": size,
            "dropout": dropout,
            "input_dropout": input_dropout,
            "pooling": pooling,
        }
        pooled_size = image_size * (1 + (pooling == "mean_max"))
        self.image_head = _head(pooled_size, width, size, dropout, input_dropout)
        self.text_head = _head(sentence_size, width, size, dropout, input_dropout)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def pool(self, regions: Tensor) -> Tensor:
        """Pool grid features ``(I, R, D)`` to one vector per photo, ``(I, P) float32``.

        Mean and maximum are each normalised to mean 0 and variance 1 over D, because
        maxima are about ten times as large.
        """
        cells = regions.float()
        pooled = [cells.mean(1)]
        if self.settings["pooling"] == "mean_max":
            pooled.append(cells.amax(1))
        return torch.cat([nn.functional.layer_norm(part, part.shape[1:]) for part in pooled], dim=1)

    def embed_pooled(self, pooled: Tensor) -> Tensor:
        """Return unit vectors ``(I, size)`` of pooled features from `pool`."""
        return nn.functional.normalize(self.image_head(pooled), dim=-1)

    def embed_sentences(self, sentences: Tensor) -> Tensor:
        """Return unit vectors ``(N, size)`` of sentence vectors ``(N, sentence_size) float32``."""
        return nn.functional.normalize(self.text_head(sentences), dim=-1)


def _head(
    size_in: int, width: int, size_out: int, dropout: float, input_dropout: float
) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(size_in),
        nn.Dropout(input_dropout),
        nn.Linear(size_in, width),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(width, size_out),
    )


class JointSpaceEncoder:
    """Encode photos and sentences in the small joint space.

    Attributes:
        space: ``"joint-space"``, also used in score names.
        heads: the trained heads.
        backbone: the frozen photo network.
    """

    space = "joint-space"

    def __init__(
        self,
        *,
        heads: JointSpace,
        backbone: Backbone,
        sentences: TextEmbedder,
        device: str = "cpu",
    ) -> None:
        """Combine built parts; `build_joint_space` is the usual way and checks that they match."""
        self._heads = Resident(heads, device=device, precision="float32")
        self._backbone = Resident(backbone.for_inference("cpu"), device=device, precision=None)
        self.heads, self.backbone = self._heads.network, self._backbone.network
        self._sentences = sentences
        self._photos_at_once = by_device(self._heads.device, processor=16, gpu=64)

    @property
    def identity(self) -> str:
        """Hashes of heads and backbone; heads imply their sentence encoder."""
        return f"joint_space-{weights_digest(self.heads)}-{self.backbone.identity}"

    @property
    def dim(self) -> int:
        """Embedding size."""
        return int(self.heads.settings["size"])

    def embed_features(self, regions: Tensor) -> Tensor:
        """Return unit vectors ``(I, size)`` of grid features ``(I, R, D)``, on the CPU."""
        with self._heads.used() as heads:
            return heads.embed_pooled(heads.pool(regions.to(self._heads.device))).cpu()

    def prepare(self, photo: Image.Image) -> Image.Image:
        """Return the resized photo, which `embed_photos` accepts instead of a photo."""
        return self.backbone.fitted(photo.convert("RGB"))

    def embed_photos(self, photos: Sequence[Image.Image], batch_size: int | None = None) -> Tensor:
        """Return unit vectors ``(I, size)`` of RGB photos of any size, on the CPU."""
        embeddings, size = [], batch_size or self._photos_at_once
        for start in range(0, len(photos), size):
            squared = [self.prepare(photo) for photo in photos[start : start + size]]
            pixels = torch.from_numpy(np.stack([np.asarray(image) for image in squared]))
            with self._backbone.used() as backbone:
                inputs = pixels.permute(0, 3, 1, 2).to(self._backbone.device)
                grid = backbone.grid(backbone.normalise(inputs))
            embeddings.append(self.embed_features(grid))
        return torch.cat(embeddings) if embeddings else torch.zeros(0, self.dim)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors ``(len(texts), size)`` of sentences, on the CPU."""
        vectors = self._sentences.embed_texts(texts)
        with self._heads.used() as heads:
            return heads.embed_sentences(vectors.to(self._heads.device)).cpu()

    def fits(self, texts: Sequence[str]) -> list[bool]:
        """Whether the sentence encoder reads each text to its end; True if unknown."""
        fits = getattr(self._sentences, "fits", None)
        return [True] * len(texts) if fits is None else fits(texts)

    def release(self) -> None:
        """Move the networks to the CPU; the next call moves them back."""
        for place in (self._heads, self._backbone):
            place.release()
        leave_device(self._sentences)


@loadable
def build_joint_space(
    *,
    backbone: Backbone,
    sentences: TextEmbedder,
    weights: str | Path | None = None,
    device: Device = "auto",
) -> JointSpaceEncoder:
    """Build the joint space from a backbone, a sentence encoder and heads.

    Args:
        backbone: photo network; ``efficientnet_lite0`` for the packaged heads.
        sentences: sentence encoder; ``minilm`` for the packaged heads.
        weights: file from `save_heads`; None: the packaged heads.
        device: device of backbone and heads; ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: an invalid device, a damaged file, or heads trained with other networks.
    """
    if weights is None:
        check_shipped(WEIGHTS.with_suffix(".sha256"))
    path = WEIGHTS if weights is None else Path(weights)
    heads, trained_over = load_heads(path)
    provided = {"backbone": backbone.identity, "sentences": sentences.identity}
    for part, identity in provided.items():
        if trained_over[part] != identity:
            raise ValueError(
                f"{path}: the heads were trained with {part} {trained_over[part]}, got {identity}; "
                f"use the former, or train heads with captioning train-space"
            )
    return JointSpaceEncoder(heads=heads, backbone=backbone, sentences=sentences, device=device)


def save_heads(heads: JointSpace, path: str | Path, *, backbone: str, sentences: str) -> None:
    """Write heads in half precision, with their settings and the networks' identities.

    Args:
        heads: trained heads.
        path: ``.safetensors`` file; replaced atomically.
        backbone: identity of the backbone.
        sentences: identity of the sentence encoder.
    """
    tensors = {key: value.half().contiguous() for key, value in heads.state_dict().items()}
    about = {"settings": heads.settings, "backbone": backbone, "sentences": sentences}
    metadata = {"joint_space": json.dumps(about)}
    write_tensors(Path(path), tensors, metadata)


def load_heads(path: str | Path) -> tuple[JointSpace, dict[str, str]]:
    """Load heads in evaluation mode, and the identities of the networks they were trained with.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds no heads.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the option weights=")
    try:
        tensors, texts = read_tensors(path)
        about = json.loads(texts["joint_space"])
        heads = JointSpace(**about["settings"])
        heads.load_state_dict({key: tensor.float() for key, tensor in tensors.items()})
        trained_over = {part: str(about[part]) for part in ("backbone", "sentences")}
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} holds no heads of a joint space ({error!r})") from error
    return heads.eval(), trained_over
