"""Reading published checkpoints: tensors alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from captioning.convert.published_tensors import read_state, require, without_prefix


class Anything:
    """An object, which could run code."""


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"model": state, "epoch": 3}])
def test_tensors_are_read_wrapped_or_not(tmp_path: Path, wrap):
    torch.save(wrap({"a.weight": torch.ones(2), "step": 3}), tmp_path / "model.pth")
    state = read_state(tmp_path / "model.pth")
    assert list(state) == ["a.weight"]
    assert state["a.weight"].tolist() == [1, 1]


def test_safetensors_are_read(tmp_path: Path):
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert list(read_state(tmp_path / "model.safetensors")) == ["a"]


def test_objects_are_refused_with_the_remedy(tmp_path: Path):
    path = tmp_path / "model.pth"
    torch.save({"model": Anything()}, path)
    with pytest.raises(
        ValueError, match=r"model.pth: not plain tensors .* save its state_dict alone"
    ):
        read_state(path)
    path.write_bytes(pickle.dumps({"a": Anything()}, protocol=2))
    with pytest.raises(ValueError, match=r"model.pth: not plain tensors"):
        read_state(path)


def test_a_file_without_tensors_is_refused(tmp_path: Path):
    torch.save({"epoch": 3}, tmp_path / "model.pth")
    with pytest.raises(ValueError, match="holds no tensors by name"):
        read_state(tmp_path / "model.pth")


def test_a_prefix_goes_if_all_have_it():
    ones = torch.ones(1)
    assert list(without_prefix({"module.a": ones, "module.b": ones}, "module.")) == ["a", "b"]
    assert list(without_prefix({"module.a": ones, "b": ones}, "module.")) == ["module.a", "b"]


def test_another_model_is_named_by_what_is_missing():
    with pytest.raises(
        ValueError, match=r"not a checkpoint of BLIP: 'x' is missing .* begins with a"
    ):
        require({"a": torch.ones(1)}, ["a", "x"], "BLIP")
