"""Where a run captions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from captioning.evaluation.predict import _captioned, load_run
from captioning.types import Prediction


class Recorded:
    """A batch that tells where it was sent."""

    def __init__(self) -> None:
        self.places: list[torch.device] = []

    def to(self, device: torch.device) -> Recorded:
        self.places.append(device)
        return self


class Elsewhere:
    """A captioner on another device."""

    device = torch.device("meta")

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def candidates(self, batch: Recorded) -> list[list[Prediction]]:
        if self.error is not None:
            raise self.error
        assert batch.places == [self.device]
        return [[Prediction(image_id="0", caption="a dog")]]


def captioned(model: Any, batches: Any) -> list[list[Prediction]]:
    return _captioned(model, batches, None)


def test_batches_are_captioned_on_the_model_s_device() -> None:
    assert len(captioned(Elsewhere(), [Recorded(), Recorded()])) == 2


def test_a_full_device_is_told_with_what_to_lower() -> None:
    full = Elsewhere(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    with pytest.raises(MemoryError, match=r"\(CUDA out of memory\): lower search.beam_size"):
        captioned(full, [Recorded()])


def test_a_device_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device=cuda:99: torch sees"):
        load_run(tmp_path / "none", device="cuda:99")
