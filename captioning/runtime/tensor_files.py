"""Safetensors files with a checksum for each tensor, which is verified on reading.

The format itself has no checksums: a flipped bit would be read as a weight. CRC-32 detects damage,
as in files of `torch.save` and in feature stores, at a third of a second per GiB.

`weights_digest` identifies a network by its tensors, for caches.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from captioning.runtime.files import write_atomically

SUMS = "crc32"  # key of the file's metadata


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors with their checksums to a file, atomically.

    Args:
        path: a ``.safetensors`` file.
        tensors: tensors by name; none share memory.
        metadata: texts by key.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    texts = dict(metadata or {})
    content = save(whole, {**texts, SUMS: json.dumps(_sums(whole, texts), sort_keys=True)})
    header, size = _header(content)

    def write(part: Path) -> None:  # not save_file, which lets no other users read the file
        with part.open("wb") as file:
            file.write(header)
            file.write(memoryview(content)[size:])

    write_atomically(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata; verify checksums, which files of older versions lack.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not in the safetensors format, or differs from its checksums.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            texts = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        expected = dict(json.loads(texts.pop(SUMS))) if SUMS in texts else None
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is not a safetensors file ({error})") from error
    sums = {} if expected is None else _sums(tensors, texts)
    for name in sorted(sums.keys() | (expected or {}).keys()):
        if expected is not None and sums.get(name) != expected.get(name):
            raise ValueError(f"{path}: damaged (its {name} does not match its checksum)")
    return tensors, texts


def _header(content: bytes) -> tuple[bytes, int]:
    """Sort the metadata of a file's header; return the new header and the old one's size.

    The library's order changes between runs, but equal content should give equal files.
    """
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, 8 + size


def _sums(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> dict[str, int]:
    sums = {f"tensor {name}": _sum(tensor) for name, tensor in tensors.items()}
    return sums | {f"text {key}": zlib.crc32(text.encode()) for key, text in texts.items()}


def _sum(tensor: Tensor) -> int:
    content = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return zlib.crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), content)


def weights_digest(network: nn.Module) -> str:
    """Hash all tensors of a network that affect its outputs (12 hex digits)."""
    digest = hashlib.sha256()
    for key, tensor in sorted(network.state_dict().items()):
        if not key.endswith("num_batches_tracked"):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:12]
