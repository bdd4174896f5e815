"""A language model on a GPU answers and learns as on a processor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from augmentation.toca.teaching import teach
from augmentation.writing.causal_writer import CausalWriter
from augmentation.writing.prompt import Prompt
from captioning.config.compose import compose_config
from tests.causal_folder import save_causal
from tests.task_calls import call
from tests.tiny import CAPTIONS

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU and GPU_TESTS=1: torch sees none"
)
PROMPTS = [
    Prompt(
        instruction="Do.",
        examples=(("a", "b"),),
        question=caption,
        names=("T", "S"),
        required_tokens=((caption.split()[1], "N"), (".", "")),
    )
    for caption in CAPTIONS
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("causal"), positions=256)


@pytest.mark.parametrize("max_small_words", [None, 2])
def test_answers_are_those_of_a_processor(folder: Path, max_small_words: int | None) -> None:
    settings = {"temperature": 0, "max_new_tokens": 8, "max_small_words": max_small_words}
    found, expected = (
        CausalWriter(name=str(folder), device=device, **settings).answers(PROMPTS, seed=0)
        for device in ("cuda", "cpu")
    )
    assert [answer.text for answer in found] == [answer.text for answer in expected]
    for answer, other in zip(found, expected, strict=True):
        assert answer.likelihood == pytest.approx(other.likelihood, rel=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_draws_depend_on_the_seed_alone(folder: Path, precision: str) -> None:
    writer = CausalWriter(name=str(folder), temperature=2.0, max_new_tokens=8, precision=precision)
    assert writer.answers(PROMPTS, seed=1) == writer.answers(PROMPTS, seed=1)
    assert writer.answers(PROMPTS, seed=1) != writer.answers(PROMPTS, seed=2)


def test_a_model_learns_as_on_a_processor(folder: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "captions.txt"
    corpus.write_text("".join(f"{caption}\n" for caption in CAPTIONS), encoding="utf-8")

    def losses(device: str) -> list[float]:
        settings = [
            *("corpus=lines", f"corpus.train.path={corpus}", f"name={folder}", f"device={device}"),
            *("training.batch_size=4", "training.log_every=1", "training.num_steps=6"),
            *("val_batches=1", f"out={tmp_path / device}"),
        ]
        card = call(teach, compose_config("teaching", settings))
        return [step["loss"] for step in card["history"]]

    assert losses("cuda") == pytest.approx(losses("cpu"), rel=1e-3)
