"""The picture in ``docs/guides/review.md``, of a run on generated scenes.

``CAPTIONING_IMAGES=docs/images pytest tests/curation/review/runs/test_screenshot.py`` makes it
anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from captioning.commands.main import main

RUN = (
    *("data=miniworld", "model=updown_tiny", "first_images=200", "num_epochs=6"),
    *("steps=[plant_swap20]", "curation=replace_caption", "curation.select.ratio=0.05"),
    *("metrics.test=[BLEU,CIDEr-D]", "metrics.tokenizer=python"),
    *("run_name=miniworld/replace_caption", "trainer.enable_progress_bar=false"),
)


def photograph(browser, page: Path, picture: Path) -> None:
    """The top of a page as a picture of few colours."""
    browser.resize(1100, 1250)
    browser.open(page.as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    browser.screenshot(picture)
    browser.resize(1280, 900)
    Image.open(picture).convert("RGB").quantize(96).save(picture, optimize=True)


@pytest.mark.skipif(
    "CAPTIONING_IMAGES" not in os.environ,
    reason="makes the picture of the docs, in minutes: CAPTIONING_IMAGES=docs/images",
)
def test_a_training_ends_with_its_page(tmp_path: Path, browser) -> None:
    folder = tmp_path / "run"
    assert main(["train", *RUN, f"run_dir={folder}", f"paths.cache={tmp_path / 'cache'}"]) == 0
    picture = Path(os.environ["CAPTIONING_IMAGES"]) / "report.png"
    photograph(browser, folder / "report.html", picture)
    assert picture.stat().st_size < 200_000
    assert "of the edits hit a planted fault" in browser.text("#lead")
