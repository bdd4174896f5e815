"""Makes `foreign` and the generator `squares` importable from the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "augmentation" / "images")]
