"""What a report's page carries, read without a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any


def blocks(page: Path, kind: str) -> list[str]:
    """The data blocks of a kind, as they stand in the page."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf'<script type="text/plain" data-kind="{kind}">([^<]*)</script>', text)


def unpacked(block: str) -> Any:
    """The plain values of a packed block."""
    return json.loads(gzip.decompress(base64.b64decode(block)))


def facts(page: Path) -> dict[str, Any]:
    """Everything but the list and the pictures."""
    (block,) = blocks(page, "facts")
    return unpacked(block)


def listed(page: Path) -> dict[str, list[Any]]:
    """The list's columns, all blocks together."""
    columns: dict[str, list[Any]] = {}
    for block in blocks(page, "edits"):
        for name, values in unpacked(block).items():
            columns.setdefault(name, []).extend(values)
    return columns
