"""What a GPU alone can tell; every test here is skipped where torch sees none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

# cuBLAS reads it at its first product; without it two runs need not end in the same bits.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU and GPU_TESTS=1 (make gpu-test): torch sees none")


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As runs are by default: in full precision; an error where no kernel is deterministic."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
