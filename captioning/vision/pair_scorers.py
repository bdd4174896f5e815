"""Pair scorers that embed photo and caption separately: cosines, and SigLIP's probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from captioning.interfaces import JointEmbedder
from captioning.runtime.devices import leave_device
from captioning.vision.dual_encoder import DualEncoder
from captioning.vision.photo_keys import prepared_for


class CosineScorer:
    """Cosine of photo and caption in any joint space; a `PairScorer`.

    Args:
        encoder: encoder of the joint space.
        prompt: prefix of every caption, such as ``"A photo depicts "``.
    """

    is_probability = False

    def __init__(self, *, encoder: JointEmbedder, prompt: str = "") -> None:
        self._encoder, self._prompt = encoder, prompt

    def prepare(self, photo: Image.Image) -> Any:
        """Return the encoder's prepared photo, see `captioning.vision.photo_keys.prepared_for`."""
        return prepared_for(self._encoder, photo)

    @property
    def name(self) -> str:
        """Name of the score with the space's name; see `PairScorer`."""
        return f"cosine of photo and caption ({self._encoder.space})"

    @property
    def identity(self) -> str:
        """Cache key of prompt and encoder; see `PairScorer`."""
        return f"cosine {self._prompt!r} {self._encoder.identity}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Return cosines in [-1, 1]; see `PairScorer`."""
        return cosines(self._encoder, photos, [self._prompt + text for text in captions], photo_of)

    def release(self) -> None:
        """Free the device's memory, if the encoder can."""
        leave_device(self._encoder)


class SigmoidScorer:
    """SigLIP's probability that a caption matches a photo (Zhai et al., 2023, equation 1).

    Args:
        encoder: a SigLIP or SigLIP 2.

    Raises:
        ValueError: a network without match probability, such as CLIP.
    """

    is_probability = True

    def __init__(self, *, encoder: DualEncoder) -> None:
        if encoder.sigmoid is None:
            raise ValueError(
                f"{encoder.space} is not a SigLIP, so it has no probability of a single pair; use "
                f"captioning.vision.pair_scorers.CosineScorer"
            )
        self._encoder, self._sigmoid = encoder, encoder.sigmoid

    def prepare(self, photo: Image.Image) -> Any:
        """Return the encoder's prepared photo, see `captioning.vision.photo_keys.prepared_for`."""
        return self._encoder.prepare(photo)

    @property
    def name(self) -> str:
        """Name of the score with the space's name; see `PairScorer`."""
        return f"probability of a match ({self._encoder.space})"

    @property
    def identity(self) -> str:
        """Cache key of the encoder; see `PairScorer`."""
        return f"sigmoid {self._encoder.identity}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Return probabilities in [0, 1]; see `PairScorer`."""
        scale, bias = self._sigmoid
        return torch.sigmoid(scale * cosines(self._encoder, photos, captions, photo_of) + bias)

    def release(self) -> None:
        """Move the encoder to the CPU; the next call moves it back."""
        self._encoder.release()


def cosines(
    encoder: JointEmbedder,
    photos: Sequence[Image.Image],
    captions: Sequence[str],
    photo_of: Sequence[int],
) -> Tensor:
    """Return cosines ``(N,) float32`` of captions and their photos."""
    pictures = encoder.embed_photos(photos)[list(photo_of)]
    return (pictures * encoder.embed_texts(list(captions))).sum(1).float()
