"""Embeddings of entity names in a joint space, for comparison with photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from captioning.config.loadable import loadable
from captioning.interfaces import TextEmbedder
from captioning.text.entities import TEMPLATES, read_names, read_photo_names


@dataclass(frozen=True, kw_only=True)
class EntityIndex:
    """Entity names and their embeddings, which photos are compared with.

    Attributes:
        names: names of the entities.
        embeddings: ``(num_names, E) float32`` of unit length.
        caption_names: entity names for captions, in training; empty: the same names.
    """

    names: tuple[str, ...]
    embeddings: Tensor
    caption_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.embeddings) or len(set(self.names)) != len(self.names):
            raise ValueError(
                f"entities need distinct names with one embedding each: got "
                f"{len(self.embeddings)} embeddings for {len(self.names)} names"
            )


@loadable
def build_entity_index(
    *,
    encoder: TextEmbedder | None,
    names_path: str | Path | None = None,
    photo_names: str | Path | None = None,
) -> EntityIndex:
    """Embed entity names with an encoder; average each name over several prompt templates.

    Args:
        encoder: text encoder of the photos' joint space.
        names_path: file of names for captions, see `captioning.text.entities.read_names`.
        photo_names: names for photos, see `captioning.text.entities.read_photo_names`; None: the
            names for captions.

    Raises:
        FileNotFoundError, ValueError: no names, or no encoder.
    """
    caption_names = read_names(names_path)
    names = caption_names if photo_names is None else read_photo_names(photo_names)
    embeddings = embed_captions(
        encoder, [template.format(name) for name in names for template in TEMPLATES]
    )
    means = embeddings.view(len(names), len(TEMPLATES), -1).mean(1)
    return EntityIndex(
        names=names,
        embeddings=functional.normalize(means, dim=-1),
        caption_names=() if names == caption_names else caption_names,
    )


def embed_captions(encoder: TextEmbedder | None, texts: Sequence[str]) -> Tensor:
    """Return unit vectors of texts, ``(len(texts), E) float32``.

    Raises:
        ValueError: no encoder, or embeddings that are not finite.
    """
    if encoder is None:
        raise ValueError(
            "entities and captions are compared with photos, so features must belong to a "
            "joint space: set features=joint_space or features=clip"
        )
    embeddings = encoder.embed_texts(texts).float()
    if not torch.isfinite(embeddings).all():
        raise ValueError("embeddings of texts are not finite; check the text encoder's weights")
    return embeddings
