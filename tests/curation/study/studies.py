"""A small study on the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def make_folder(folder: Path, num_images: int = 8, **further) -> Path:
    """Pictures ``0.png, 1.png, ...`` of growing loss with their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(num_images):
        pixels = np.full((8, 12, 3), 20 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        line = {"image": f"{number}.png", "captions": [f"caption {number}", "<b>second</b>"]}
        lines.append(line | {"loss": 1.0 + number, "clip_score": 0.9 - number / 100} | further)
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def answer(who: Any, *ticked: str, comment: str = "", at: str = "2026-11-01") -> dict[str, Any]:
    """An annotation as Label Studio exports it."""
    parts = [("people", "choices", {"choices": list(ticked)})] if ticked else []
    parts += [("comment", "textarea", {"text": [comment]})] if comment else []
    result = [
        {"id": name, "from_name": name, "to_name": "photo", "type": kind, "value": value}
        for name, kind, value in parts
    ]
    return {"completed_by": who, "was_cancelled": False, "created_at": at, "result": result}
