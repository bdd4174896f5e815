"""Pipelines of diffusers on a GPU: pictures are the same twice, in any batch, offloaded or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("diffusers", reason="needs diffusers")
from tiny_pipeline import write_pipeline

from augmentation.image_replacement.generator import Job
from augmentation.image_replacement.stable_diffusion import StableDiffusion

JOBS = [Job(prompt=f"dog {number}", seed=number + 2**62) for number in range(5)]
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU and GPU_TESTS=1: torch sees none"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pipeline(tmp_path_factory.mktemp("tiny") / "pipeline")


def made(folder: Path, **options) -> np.ndarray:
    options = {"num_steps": 2, "batch_size": 5, "device": "cuda"} | options
    generator = StableDiffusion(model=str(folder), **options)
    pictures = np.rint(255 * np.stack(generator.generate(JOBS)))
    generator.release()
    return pictures


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_two_drawings_are_the_same(folder: Path, precision: str) -> None:
    assert np.array_equal(made(folder, precision=precision), made(folder, precision=precision))


@pytest.mark.parametrize(
    "options",
    [{"device": "cpu"}, {"batch_size": 2}, {"offload": "model"}, {"offload": "layers"}],
    ids=str,
)
def test_a_drawing_is_that_of_a_processor_or_of_another_batch(folder: Path, options: dict) -> None:
    difference = np.abs(made(folder, **options) - made(folder, precision="float32"))
    assert difference.max() <= 2
    assert (difference > 0).mean() < 0.05
