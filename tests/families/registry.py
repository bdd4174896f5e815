"""All small image-to-text models, those that cannot be run, and their folders."""

from __future__ import annotations

import atexit
import functools
import importlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from captioning.runtime.processors import REFUSED
from tests import image_text_folders

GROUPS = ("gemma", "qwen", "llava", "tiles", "older", "newest")


def _all(name: str) -> dict[str, Any]:
    """What the groups of families have under a name."""
    modules = [importlib.import_module(f"tests.families.{group}") for group in GROUPS]
    return {key: value for module in modules for key, value in getattr(module, name, {}).items()}


_BUILT: dict[str, Callable[[], Any]] = {**image_text_folders.FAMILIES, **_all("FAMILIES")}
_REFUSED = [kind.replace("-", "_").replace(".", "_") for kind in REFUSED]
FAMILIES = {name: build for name, build in _BUILT.items() if name not in _REFUSED}
"""Builders of network and processor by model type, "_" in the place of "-" and "."."""
VARIANTS: dict[str, Callable[[], Any]] = _all("VARIANTS")
"""Further forms of a model type, which published models have."""
UNRUN: dict[str, Callable[[], Any]] = {
    **{name: build for name, build in _BUILT.items() if name in _REFUSED},
    **_all("UNRUN"),
}
"""Builders of model types that are refused."""
PROMPTS: dict[str, str] = {"florence2": "<CAPTION>", "paligemma": "caption en", **_all("PROMPTS")}
"""Prompts of families that are not asked in words of a chat."""


@functools.cache
def family_folder(family: str) -> Path:
    """The folder of a family's model as the hub has it, made when it is first wanted."""
    folder = Path(tempfile.mkdtemp(prefix=f"{family}_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    torch.manual_seed(0)
    network, processor = {**FAMILIES, **VARIANTS, **UNRUN}[family]()
    network.save_pretrained(folder)
    for part in processor if isinstance(processor, tuple) else (processor,):
        part.save_pretrained(folder)
    return folder
