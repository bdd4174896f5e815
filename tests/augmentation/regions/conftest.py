"""What these tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.roster import Roster
from captioning.text.parser import SpacyParser, build_caption_parser
from tests.augmentation.regions.scenes import scenes


@pytest.fixture(scope="session")
def parser() -> SpacyParser:
    return build_caption_parser(num_processes=1)


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    folder = tmp_path / "photos"
    folder.mkdir()
    return scenes(folder)
