"""Checkpoints survive whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import resource

import pytest
import torch

from captioning.runtime.files import remove_unfinished
from captioning.training import trainer
from captioning.training.trainer import AtomicCheckpointIO


def test_a_checkpoint_is_read_as_it_was_written(tmp_path) -> None:
    AtomicCheckpointIO().save_checkpoint({"a": torch.arange(3)}, tmp_path / "last.ckpt")
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["a"].tolist() == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_leaves_the_former_checkpoint(tmp_path, monkeypatch) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"epoch": 1}, path)

    def fill(_: object, file) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trainer.torch, "save", fill)
    with pytest.raises(OSError, match="free space"):
        AtomicCheckpointIO().save_checkpoint({"epoch": 2}, path)
    assert torch.load(path, weights_only=True) == {"epoch": 1}


def test_a_limit_of_file_sizes_is_told_as_such(tmp_path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"epoch": 1}, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # beyond it a write fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large; .*last\.ckpt"):
            AtomicCheckpointIO().save_checkpoint({"a": torch.zeros(100_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert torch.load(path, weights_only=True) == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_disk_that_keeps_something_else_leaves_the_former_checkpoint(
    tmp_path, monkeypatch
) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"epoch": 1}, path)
    save = torch.save

    def flip(content: object, file) -> None:
        save(content, file)
        file.seek(-3000, os.SEEK_END)
        file.write(b"\1")

    monkeypatch.setattr(trainer.torch, "save", flip)
    with pytest.raises(OSError, match=r"not hold what was written .*last\.ckpt"):
        AtomicCheckpointIO().save_checkpoint({"epoch": 2, "a": torch.zeros(2000)}, path)
    assert torch.load(path, weights_only=True) == {"epoch": 1}


def test_a_killed_write_is_cleared_away(tmp_path) -> None:
    (tmp_path / ".0123456789ab.ckpt").write_bytes(b"half")
    (tmp_path / "last.ckpt").write_bytes(b"whole")
    remove_unfinished(tmp_path, ".ckpt")
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]
