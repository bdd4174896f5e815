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


def page(photo: Path, wrong: str, reason: str, others: list[str], scores: Mapping[str, str]) -> str:
    """The photo, its struck-out caption and two others, and the demo's scores."""
    data = base64.b64encode(photo.read_bytes()).decode()
    kind = photo.suffix.removeprefix(".").replace("jpg", "jpeg")
    kept = "".join(f"<p>{html.escape(text)}</p>" for text in others[:2])
    rows = "".join(
        f"<tr><td>{name}</td><td><b>{score}</b></td></tr>" for name, score in scores.items()
    )
    return f"""<!doctype html><meta charset="utf-8"><style>{STYLE}</style>
<main><img src="data:image/{kind};base64,{data}"><div>
<p><del>{html.escape(wrong)}</del><br><small>removed: {html.escape(reason)}</small></p>
{kept}
<table><tr><th>captioner trained on 20% swapped captions</th><th>test CIDEr-D, 3 seeds</th></tr>
{rows}</table></div></main>"""


def first_swapped(journal: Path, photos: Path) -> tuple[Mapping, int, str]:
    """The first removed caption whose photo has no other wrong one: entry, place, reason."""
    lines = (photos / "train" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    entries = {entry["image_id"]: entry for entry in map(json.loads, lines)}
    for line in journal.read_text(encoding="utf-8").splitlines()[1:]:
        edit = json.loads(line)
        entry = entries[edit["sample_id"].partition("#")[0]]
        if edit["origin"] == "noise:swap" and entry["origins"].count("noise:swap") == 1:
            return entry, entry["sample_ids"].index(edit["sample_id"]), edit["reason"]
    raise AssertionError("the demo removed no swapped caption")


@pytest.mark.skipif(
    "CAPTIONING_IMAGES" not in os.environ,
    reason="makes the picture of the README, in minutes: CAPTIONING_IMAGES=docs/images",
)
def test_a_wrong_caption_is_struck_out_beside_its_photo(tmp_path: Path, browser) -> None:
    assert main(["demo", "seed=0", "threads=1"]) == 0
    runs = Path(os.environ.get("CAPTIONING_RUNS", "runs")) / "demo"
    photos = tmp_path / "photos"
    export = ["curate", "export", str(runs / "track" / "seed0"), str(photos)]
    assert not main([*export, "--format", "imagefolder"])
    journal = runs / "recommended" / "seed0" / "curation.jsonl"
    entry, place, reason = first_swapped(journal, photos)
    others = [text for number, text in enumerate(entry["captions"]) if number != place]
    scores = demo_scores()
    written = page(
        photos / "train" / entry["file_name"], entry["captions"][place], reason, others, scores
    )
    (tmp_path / "page.html").write_text(written, encoding="utf-8")
    browser.view(WIDTH, HEIGHT)
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.run("return document.documentElement.scrollWidth") <= WIDTH
    assert browser.run("return document.documentElement.scrollHeight") <= HEIGHT
    assert browser.text("del") == entry["captions"][place]
    picture = Path(os.environ["CAPTIONING_IMAGES"]) / "front.png"
    browser.screenshot(picture)
    info = PngInfo()
    info.add_text("scores", json.dumps(scores))
    Image.open(picture).convert("RGB").quantize(128).save(picture, optimize=True, pnginfo=info)
    assert picture.stat().st_size < 200_000
