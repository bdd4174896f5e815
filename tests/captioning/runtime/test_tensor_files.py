"""Files of tensors hold their sums: no flipped bit is read, and older files still are."""

from __future__ import annotations

import random
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from captioning.runtime.tensor_files import read_tensors, write_tensors

TENSORS = {
    "a": torch.randn(5, 4),
    "half": torch.randn(3).bfloat16(),
    "step": torch.tensor(7),
    "none": torch.zeros(0, 2),
    "turned": torch.randn(2, 3).T,
}
TEXTS = {"format": "pt", "about": '{"words": "ä"}'}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "x.safetensors", TENSORS, TEXTS)
    return tmp_path / "x.safetensors"


def are_equal(tensors: Mapping[str, Tensor]) -> bool:
    names = tensors.keys() == TENSORS.keys()
    return names and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_what_is_written_is_read_by_anybody(path: Path) -> None:
    tensors, texts = read_tensors(path)
    assert are_equal(tensors)
    assert texts == TEXTS
    assert are_equal(load_file(path))
    assert path.stat().st_mode & stat.S_IROTH


def test_equal_content_makes_equal_files(path: Path) -> None:
    first = path.read_bytes()
    assert first.index(b'"about"') < first.index(b'"crc32"') < first.index(b'"format"')
    write_tensors(path, TENSORS, dict(reversed(TEXTS.items())))
    assert path.read_bytes() == first


def test_no_flipped_bit_is_read(path: Path) -> None:
    complete, draw = path.read_bytes(), random.Random(0)
    for place in draw.sample(range(8 * len(complete)), 600):
        flipped = bytearray(complete)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            tensors, texts = read_tensors(path)
        except ValueError:
            continue
        assert b"crc32" not in flipped or (are_equal(tensors) and texts == TEXTS), place


@pytest.mark.parametrize("content", [b"", b"x" * 50, b"\x08\0\0\0\0\0\0\0{}      "[:12]])
def test_other_files_are_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.safetensors is not a safetensors file"):
        read_tensors(path)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist"):
        read_tensors(path.with_name("nowhere"))


def test_the_tensor_that_changed_is_named(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged \(its tensor \w+ does not match its checksum\)"):
        read_tensors(path)


def test_files_of_older_versions_are_read(path: Path) -> None:
    save_file({"a": TENSORS["a"]}, path, {"format": "pt"})
    tensors, texts = read_tensors(path)
    assert torch.equal(tensors["a"], TENSORS["a"])
    assert texts == {"format": "pt"}
