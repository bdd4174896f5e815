"""Too little memory: one line that says what to lower."""

from __future__ import annotations

import pytest
import torch

from captioning.models.updown import UpDown
from tests.run_calls import train

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB.\nOf the allocated memory ..."


@pytest.mark.parametrize(
    ("method", "error", "advice"),
    [
        (
            "losses",
            torch.OutOfMemoryError(FULL),
            "out of memory in training (CUDA out of memory. Tried to allocate 2.00 GiB.): lower "
            "loader.batch_size=20 (loader.batch_size=10 with trainer.accumulate_grad_batches=2 "
            "makes as large updates), or set trainer.precision=bf16-mixed",
        ),
        (
            "generate",
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            "out of memory while captions are generated (DefaultCPUAllocator: can't allocate "
            "memory: you tried): lower loader.eval_batch_size=50, or search.beam_size=2",
        ),
    ],
)
def test_it_is_said_what_to_lower(small, monkeypatch, method, error, advice) -> None:
    def full(self, *_) -> None:
        raise error

    monkeypatch.setattr(UpDown, method, full)
    with pytest.raises(MemoryError) as told:
        train(small("num_epochs=1"))
    assert str(told.value).startswith(advice)
    assert "\n" not in str(told.value)


def test_other_errors_stay_what_they_are(small, monkeypatch) -> None:
    def broken(self, *_) -> None:
        raise RuntimeError("a shape is wrong")

    monkeypatch.setattr(UpDown, "losses", broken)
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        train(small("num_epochs=1"))
