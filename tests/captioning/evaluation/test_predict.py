"""Where a run captions, and in which precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from captioning.config.compose import compose_config
from captioning.evaluation.predict import _captioned, load_run
from captioning.types import Prediction
from tests.captioning.conftest import BLIP
from tests.run_calls import evaluate, train


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


def state() -> tuple[bool, str]:
    return torch.is_autocast_enabled("cpu"), torch.get_float32_matmul_precision()


@pytest.mark.long
@pytest.mark.parametrize("chosen", ["bf16-mixed", "bf16-true"])
def test_a_run_captions_in_its_own_precision_where_asked(
    small, small_settings, repository: Path, cache: Path, tmp_path: Path, chosen: str
) -> None:
    folder = tmp_path / "run"
    settings = [f"trainer.precision={chosen}", "speed.matmul_precision=high", "num_epochs=1"]
    if chosen == "bf16-mixed":
        config = small(*settings)
    else:
        own = [f"paths.cache={cache}", f"run_dir={folder}", "ema_decay=null", *BLIP]
        config = compose_config("train", [*small_settings, *settings, *own])
    train(config)
    torch.set_float32_matmul_precision("highest")  # as a command of its own begins
    with load_run(folder).computing():
        assert state() == (False, "highest")
    run = load_run(folder, precision="run")
    with run.computing():
        assert state() == (chosen == "bf16-mixed", "high")
        kind = torch.bfloat16 if chosen == "bf16-true" else torch.float32
        assert {weight.dtype for weight in run.model.parameters()} == {kind}
    assert state() == (False, "highest")
    evaluate(compose_config("evaluate", [f"run={folder}", "metrics=fast", "precision=run"]))
    again = next(folder.glob("evaluation/*/predictions.json"))
    predictions = json.loads((folder / "predictions.json").read_text())
    assert json.loads(again.read_text()) == predictions
    few = ("first_images=3", "metrics=fast", "precision=run")
    evaluate(compose_config("evaluate", [f"run={folder}", *few]))
    few = json.loads((folder / "first3" / again.parent.name / again.name).read_text())
    assert few == predictions[:3]
