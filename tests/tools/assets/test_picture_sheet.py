"""A sheet holds every picture, each above its caption."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tools.assets.diffusion import picture_sheet


def test_pictures_stand_in_rows_above_their_captions() -> None:
    colours = [(250, 0, 0), (0, 250, 0), (0, 0, 250)]
    pictures = [Image.new("RGB", (40, 40), colour) for colour in colours]
    sheet = picture_sheet(pictures, ["a dog", "", "a very long caption " * 30], columns=2)
    values = np.asarray(sheet).astype(int)
    for colour in colours:
        assert (values == colour).all(2).sum() == 1600
    assert sheet.width == 2 * 48
    half = sheet.height // 2
    dark = (values.sum(2) < 300) & ~np.any(values == 250, axis=2)
    assert dark[:half, :48].any()
    assert not dark[:half, 48:].any()
    assert dark[half:, :48].any()
