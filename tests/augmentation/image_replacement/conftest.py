"""Lets the tests here, and the processes that they start, import `squares`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
