"""Records."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from captioning.data.readers.many_samples import quick_sample
from captioning.types import Phrase, Region, Sample


def test_a_sample_made_quickly_is_the_one_its_class_makes() -> None:
    required = {
        "row": 3,
        "sample_id": "7#1",
        "image_id": "7",
        "image_path": Path("7.jpg"),
        "caption": "a dog",
    }
    optional = {
        "regions": (Region(box=(0.0, 0.0, 1.0, 1.0), label="dog"),),
        "phrases": (Phrase(start=2, text="dog", chain_id="1"),),
        "size": (4.0, 3.0),
    }
    assert quick_sample(**required) == Sample(**required)
    sample = quick_sample(**required, **optional)
    assert sample == Sample(**required, **optional)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.caption = "a cat"  # pyright: ignore[reportAttributeAccessIssue]
