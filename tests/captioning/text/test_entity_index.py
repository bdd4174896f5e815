"""Entities in the space of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from captioning.text.entities import TEMPLATES
from captioning.text.entity_index import build_entity_index


class Letters:
    """A text is where its letters are."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        counts = [[text.count(letter) + 0.1 for letter in "abcdgot"] for text in texts]
        return normalize(torch.tensor(counts), dim=-1)


def test_an_entity_is_the_mean_of_its_name_in_seven_texts(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("dog\ncat\n")
    index = build_entity_index(encoder=Letters(), names_path=file)
    assert index.names == ("dog", "cat")
    assert len(TEMPLATES) == 7
    for name, embedding in zip(index.names, index.embeddings, strict=True):
        texts = Letters().embed_texts([template.format(name) for template in TEMPLATES])
        torch.testing.assert_close(embedding, normalize(texts.mean(0), dim=0))


def test_photos_may_be_compared_with_other_names_than_captions(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("dog\ncat\n")
    photos = tmp_path / "photos.txt"
    photos.write_text("hot dog\ncat\n")
    index = build_entity_index(encoder=Letters(), names_path=file, photo_names=photos)
    assert (index.names, index.caption_names) == (("hot dog", "cat"), ("dog", "cat"))
    same = build_entity_index(encoder=Letters(), names_path=file, photo_names=file)
    assert (same.names, same.caption_names) == (("dog", "cat"), ())


def test_features_without_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="set features=joint_space or features=clip"):
        build_entity_index(encoder=None)


def test_broken_encoders_are_named() -> None:
    class Broken:
        def embed_texts(self, texts: Sequence[str]) -> Tensor:
            return torch.full((len(texts), 2), torch.nan)

    with pytest.raises(ValueError, match="not finite; check the text encoder's weights"):
        build_entity_index(encoder=Broken())
