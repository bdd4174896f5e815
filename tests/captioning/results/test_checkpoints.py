"""Checkpoints that are damaged, foreign or not finite: refused by name, with what can be used."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from captioning.results.checkpoints import check_intact, latest_checkpoint, load_checkpoint

CAPTIONER = {"class": "Toy", "tokenizer": {"words": ["a", "dog"]}}


def state(**changes: Any) -> dict[str, Any]:
    weights = {"a.weight": torch.randn(20, 30), "mask": torch.tensor([0.0, -torch.inf])}
    content = {"epoch": 2, "global_step": 30, "state_dict": weights, "captioner": CAPTIONER}
    return content | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.save(state(), tmp_path / "last.ckpt")
    torch.save(state(epoch=1, global_step=20), tmp_path / "best.ckpt")
    return tmp_path


def test_no_flipped_bit_changes_what_is_read(folder: Path) -> None:
    path, draw = folder / "last.ckpt", random.Random(0)
    complete = path.read_bytes()
    expected, refused = load_checkpoint(path), 0
    for place in draw.sample(range(8 * len(complete)), 300):
        flipped = bytearray(complete)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        content = read(path)
        if content is None:
            refused += 1
            continue
        # a byte that fills a gap
        assert content["captioner"] == expected["captioner"]
        weights = content["state_dict"]
        assert all(torch.equal(weights[k], v) for k, v in expected["state_dict"].items())
    assert refused > 150


def read(path: Path) -> dict[str, Any] | None:
    """The content of a checkpoint; None where it is refused by name."""
    try:
        return load_checkpoint(path)
    except ValueError as error:
        return None if str(error).startswith(f"{path} is damaged") else {}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([1, 2], "it holds a list"),
        (torch.zeros(3), "it holds a Tensor"),
        ({}, "it holds no epoch"),
        ({"epoch": "x"}, "it holds no epoch"),
        ({"epoch": 1, "global_step": 1, "state_dict": [1]}, "it holds no state_dict"),
        (
            {"epoch": 1, "global_step": 1, "state_dict": {}, "x": Path()},
            "it holds objects other than",
        ),
    ],
)
def test_foreign_content_is_named_with_another_checkpoint(
    folder: Path, content: Any, problem: str
) -> None:
    torch.save(content, folder / "last.ckpt")
    with pytest.raises(ValueError, match=rf"last\.ckpt is damaged \({problem}.*restore it"):
        load_checkpoint(folder / "last.ckpt")
    with pytest.raises(ValueError, match=rf"{problem}.*resume=\S+best\.ckpt resumes from epoch 1"):
        latest_checkpoint(folder)


def test_a_checkpoint_of_another_project_is_refused_for_captions(folder: Path) -> None:
    torch.save(state(captioner=None), folder / "last.ckpt")
    with pytest.raises(ValueError, match="holds no captioner of this framework"):
        load_checkpoint(folder / "last.ckpt")


@pytest.mark.parametrize("key", ["state_dict", "current_model_state"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(folder: Path, key: str, value: float) -> None:
    weights = {"b.weight": torch.tensor([1.0, value])}
    torch.save(state(**{key: weights}), folder / "last.ckpt")
    for read in (check_intact, load_checkpoint):
        with pytest.raises(ValueError, match=r"weight b\.weight holds NaN or infinity"):
            read(folder / "last.ckpt")


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"x" * 99])
def test_a_damaged_best_checkpoint_names_the_last(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    best = folder / "best.ckpt"
    best.write_bytes(damage(best.read_bytes()))
    with pytest.raises(ValueError, match=r"move it away: then \S+last\.ckpt \(epoch 2\) is used"):
        load_checkpoint(best)
