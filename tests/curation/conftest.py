"""Makes `foreign` and the generator `squares` importable from the tests of this folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "augmentation" / "image_replacement")]


@pytest.fixture
def edit_json() -> Callable[[Path, Callable[[Any], object]], None]:
    """Changes what a JSON file holds."""

    def edit(path: Path, change: Callable[[Any], object]) -> None:
        content = json.loads(path.read_text(encoding="utf-8"))
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")

    return edit
