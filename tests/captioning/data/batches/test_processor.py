"""Photos through a processor of transformers that lies in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import ViTImageProcessor

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.processor import ProcessorReader
from captioning.data.batches.settings import Splits
from captioning.data.roster import Roster, build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Sample


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    processor = ViTImageProcessor(size={"height": 8, "width": 8}, do_normalize=False)
    processor.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    samples = []
    for number, color in enumerate(("red", "blue")):
        path = tmp_path / f"{color}.png"
        Image.new("RGB", (16, 12), color).save(path)
        samples += [
            Sample(
                row=0,
                sample_id=f"{color}#{k}",
                image_id=str(number),
                image_path=path,
                caption=f"it is {color}",
            )
            for k in range(2)
        ]
    return build_roster("colors", samples)


def module(roster: Roster, reader: ProcessorReader) -> CaptionDataModule:
    return CaptionDataModule(
        splits=Splits(train=roster, val=roster),
        tokenizer=WordTokenizer.build(["it is red", "it is blue"], min_count=1),
        readers={"pictures": reader},
    )


def test_pixels_are_the_processors_own(saved: Path, roster: Roster) -> None:
    batch = next(iter(module(roster, ProcessorReader(pretrained=str(saved))).train_dataloader()))
    assert batch.images.shape == (2, 3, 8, 8)
    assert batch.extras == {}
    for image_id, image in zip(batch.image_ids, batch.images, strict=True):
        color = (1.0, 0.0, 0.0) if image_id == "0" else (0.0, 0.0, 1.0)
        torch.testing.assert_close(image.mean((1, 2)), torch.tensor(color))


def test_tensors_can_keep_their_names(saved: Path, roster: Roster) -> None:
    reader = ProcessorReader(pretrained=str(saved), names={}, do_rescale=False)
    batch = next(iter(module(roster, reader).val_dataloader()))
    assert batch.images is None
    assert batch.extras["pixel_values"].max() == 255


def test_a_folder_without_a_processor_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no preprocessor_config\.json in it"):
        ProcessorReader(pretrained=str(tmp_path))
