"""The pictures in ``docs/guides/review.md``.

``CAPTIONING_IMAGES=docs/images pytest tests/curation/review/app/test_screenshots.py`` makes them
anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(
    "CAPTIONING_IMAGES" not in os.environ,
    reason="makes the pictures of the docs: CAPTIONING_IMAGES=docs/images",
)
FOLDER = Path(os.environ.get("CAPTIONING_IMAGES", ".")).resolve()
MAX_BYTES = 150_000


def photograph(browser, tmp_path: Path, name: str) -> None:
    """The window as a picture for the docs: a JPEG, as most of it is a photo."""
    browser.screenshot(tmp_path / "window.png")
    browser.resize(1280, 900)
    picture = FOLDER / name
    options = {"quality": 76, "subsampling": 0, "optimize": True}
    Image.open(tmp_path / "window.png").convert("RGB").save(picture, **options)
    assert picture.stat().st_size <= MAX_BYTES


def test_a_photo(open_page, hopper, browser, tmp_path) -> None:
    browser.view(1100, 960)
    browser.open(open_page().url)
    browser.wait("document.body.dataset.ready")
    browser.type("#file", str(hopper))
    browser.wait("document.querySelectorAll('#words button').length")
    browser.run("document.querySelector('#words button:nth-child(2)').focus()")
    photograph(browser, tmp_path, "app.jpg")


def test_a_suspect(open_page, checked, photos, browser, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the page shows paths as they are named
    browser.view(1100, 690)
    browser.open(open_page(suspects=checked.name, photos=[photos.name]).url)
    browser.wait("document.getElementById('suspect-photo').naturalWidth")
    browser.press("c")
    browser.run("document.getElementById('text').value = 'A woman in uniform before a flag'")
    photograph(browser, tmp_path, "app_review.jpg")
