"""A small CLIP without training, in the layout of open_clip's folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

SIZES = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


def clip_folder(path: Path, *, seed: int = 0) -> Path:
    """The folder ``path``, newly made; the test is skipped where open_clip is not installed."""
    open_clip = pytest.importorskip("open_clip", reason="needs open_clip")
    torch.manual_seed(seed)
    path.mkdir()
    config = {"model_cfg": SIZES, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (path / "open_clip_config.json").write_text(json.dumps(config))
    save_file(open_clip.CLIP(**SIZES).state_dict(), path / "open_clip_model.safetensors")
    return path
