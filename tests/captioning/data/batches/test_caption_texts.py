"""Embeddings and entities of captions without photos, and batches made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.data.batches.base import AbstractBatchReader, Epoch, Read, of_captions
from captioning.data.batches.caption_texts import CaptionTexts
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import Splits
from captioning.data.roster import build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Sample
from tests.captioning.data.batches.plain_parser import Plain

CAPTIONS = ("a cat sees two dogs", "a boy", "a bird", "a cat sees two dogs")


class Lengths:
    """Embeds a text by its length, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        self.requested += texts
        return torch.tensor([[len(text), 1.0] for text in texts])


def samples(captions: Sequence[str] = CAPTIONS) -> list[Sample]:
    return [
        Sample(
            row=row,
            sample_id=f"{row}#0",
            image_id=str(row),
            image_path=Path(f"{row}.none"),
            caption=caption,
        )
        for row, caption in enumerate(captions)
    ]


@pytest.fixture
def names(tmp_path: Path) -> Path:
    file = tmp_path / "names.txt"
    file.write_text("dog\nperson\ncat\n")
    return file


def test_rows_are_those_of_the_samples(names: Path) -> None:
    encoder = Lengths()
    texts = CaptionTexts(encoder=encoder, parser=Plain(), names_path=names)
    tensors = texts(samples())
    lengths = [[20, 1], [6, 1], [7, 1], [20, 1]]  # of "A cat sees two dogs." and so on
    assert tensors["text_embeddings"].tolist() == lengths
    assert tensors["text_embeddings"].dtype == torch.float16
    assert tensors["text_entities"].tolist() == [[2, 0], [1, -1], [-1, -1], [2, 0]]
    assert encoder.requested == ["A cat sees two dogs.", "A boy.", "A bird."]
    more = texts(samples(("a bird", "a fish", "a boy")))
    assert encoder.requested[3:] == ["A fish."]
    assert more["text_embeddings"].tolist() == [[7, 1], [7, 1], [6, 1]]
    assert more["text_entities"].tolist() == [[-1], [-1], [1]]


def test_without_a_parser_there_are_embeddings_alone() -> None:
    tensors = CaptionTexts(encoder=Lengths())(samples())
    assert list(tensors) == ["text_embeddings"]


def test_features_without_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="set features=joint_space or features=clip"):
        CaptionTexts(encoder=None)(samples())


class Unseen(AbstractBatchReader):
    """Photos that training on captions alone must not look at."""

    def open(self, epoch: Epoch) -> Read | None:
        return of_captions(lambda captions: {"seen": torch.ones(1)}) if epoch.has_photos else None


def test_batches_hold_their_captions_rows_and_no_photo(names: Path) -> None:
    texts = CaptionTexts(encoder=Lengths(), parser=Plain(), names_path=names)
    tokenizer = WordTokenizer.build(CAPTIONS, min_count=1)
    roster = build_roster("texts", samples())
    module = CaptionDataModule(
        splits=Splits(train=roster, val=roster, train_has_photos=False),
        tokenizer=tokenizer,
        readers={"texts": texts, "pictures": Unseen()},
    )
    batch = module.dataset(roster.samples, "train")[[1, 0, 2]]
    assert batch.images is None
    assert batch.regions is None
    assert batch.rows.tolist() == [0, 1, 2]  # longest first
    assert batch.extras["text_embeddings"][:, 0].tolist() == [20, 6, 7]
    assert batch.extras["text_entities"].tolist() == [[2, 0], [1, -1], [-1, -1]]
    moved = batch.to("cpu")
    assert torch.equal(moved.extras["text_entities"], batch.extras["text_entities"])
    assert module.dataset(roster.samples, "eval")[[0]].extras.keys() == {"seen"}
    assert "captions without photos" in module.refuses_photos
    with pytest.raises(ValueError, match=r"curation\.amend\.online=false"):
        module.rewrite(lambda samples: None)
