"""The picture in README.md: a wrong caption that the demo removed, and what that is worth.

``CAPTIONING_IMAGES=docs/images pytest tests/curation/review/test_front_picture.py`` makes it from
``captioning demo`` (minutes; a finished one in ``CAPTIONING_RUNS`` is taken).
"""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from captioning.commands.main import main
from captioning.types import Sample
from tests.front_page import demo_scores

WIDTH, HEIGHT = 860, 300
STYLE = """
body { margin: 0; font: 17px/1.45 sans-serif; color: #1b1f24; background: #fff; }
main { display: flex; gap: 28px; padding: 22px; box-sizing: border-box; height: 300px; }
img { width: 256px; height: 256px; border-radius: 6px; image-rendering: auto; }
del { color: #b3261e; text-decoration-thickness: 2px; }
small { color: #57606a; font-size: 14px; }
p { margin: 0 0 10px; }
table { border-collapse: collapse; font-size: 15px; }
td, th { text-align: left; padding: 2px 18px 2px 0; font-weight: normal; }
th { color: #57606a; }
b { font-weight: 600; }
"""


def page(sample: Sample, reason: str, others: list[str], scores: Mapping[str, str]) -> str:
    """The photo, its struck-out caption and two others, and the demo's scores."""
    photo = base64.b64encode(sample.image_path.read_bytes()).decode()
    kind = sample.image_path.suffix.removeprefix(".").replace("jpg", "jpeg")
    kept = "".join(f"<p>{html.escape(text)}</p>" for text in others[:2])
    rows = "".join(f"<tr><td>{name}</td><td><b>{score}</b></td></tr>" for name, score in scores.items())
    return f"""<!doctype html><meta charset="utf-8"><style>{STYLE}</style>
<main><img src="data:image/{kind};base64,{photo}"><div>
<p><del>{html.escape(sample.caption)}</del><br><small>removed: {html.escape(reason)}</small></p>
{kept}
<table><tr><th>captioner trained on 20% swapped captions</th><th>test CIDEr-D, 3 seeds</th></tr>
{rows}</table></div></main>"""
