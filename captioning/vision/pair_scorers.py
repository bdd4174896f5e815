"""Scorers of photo and caption that embed both apart: cosines, and SigLIP's probability."""

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
    """The cosine of photo and caption in any joint space.

    Args:
        encoder: the space.
        prompt: goes before every caption, such as ``"A photo depicts "``.
    """

    is_probability = False

    def __init__(self, *, encoder: JointEmbedder, prompt: str = "") -> None:
        self._encoder, self._prompt = encoder, prompt

    def prepare(self, photo: Image.Image) -> Any:
        """See `captioning.vision.photo_keys.prepared_for`."""
        return prepared_for(self._encoder, photo)

    @property
    def name(self) -> str:
        """See `PairScorer`."""
        return f"cosine of photo and caption ({self._encoder.space})"

    @property
    def identity(self) -> str:
        """See `PairScorer`."""
        return f"cosine {self._prompt!r} {self._encoder.identity}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """In [-1, 1]; see `PairScorer`."""
        return cosines(self._encoder, photos, [self._prompt + text for text in captions], photo_of)

    def release(self) -> None:
        """Leave the device, if the encoder can."""
        leave_device(self._encoder)


class SigmoidScorer:
    """SigLIP's probability that a caption belongs to a photo (Zhai et al., 2023, equation 1).

    Args:
        encoder: a SigLIP or SigLIP 2.

    Raises:
        ValueError: a network that was not trained by pairs, such as CLIP.
    """

    is_probability = True

    def __init__(self, *, encoder: DualEncoder) -> None:
        if encoder.sigmoid is None:
            raise ValueError(
                f"{encoder.space}: not a SigLIP, so it has no probability of a single pair; use "
                f"its cosine: captioning.vision.pair_scorers.CosineScorer"
            )
        self._encoder, self._sigmoid = encoder, encoder.sigmoid

    def prepare(self, photo: Image.Image) -> Any:
        """See `captioning.vision.photo_keys.prepared_for`."""
        return self._encoder.prepare(photo)

    @property
    def name(self) -> str:
        """See `PairScorer`."""
        return f"probability of a match ({self._encoder.space})"

    @property
    def identity(self) -> str:
        """See `PairScorer`."""
        return f"sigmoid {self._encoder.identity}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Scores in [0, 1]; see `PairScorer`."""
        scale, bias = self._sigmoid
        return torch.sigmoid(scale * cosines(self._encoder, photos, captions, photo_of) + bias)

    def release(self) -> None:
        """Leave the device; the next call comes back."""
        self._encoder.release()


def cosines(
    encoder: JointEmbedder,
    photos: Sequence[Image.Image],
    captions: Sequence[str],
    photo_of: Sequence[int],
) -> Tensor:
    """``(N,) float32`` cosines of captions and their photos, see `PairScorer.score_pairs`."""
    pictures = encoder.embed_photos(photos)[list(photo_of)]
    return (pictures * encoder.embed_texts(list(captions))).sum(1).float()
