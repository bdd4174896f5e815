"""A parser, object words and photos for the tests of methods that paste objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.roster import Roster
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS, ObjectWords
from captioning.text.parser import SpacyParser, build_caption_parser
from tests.augmentation.regions.scenes import scenes

NAMES = """
    man woman boy girl child person people dog cat horse sheep bus truck car hat jacket shirt
    t-shirt ball frisbee umbrella orange apple snow sand water grass bag leash boat group side front
"""
PAIRS = ("fire hydrant", "tennis ball", "young man", "hot dog")


@pytest.fixture(scope="session")
def parser() -> SpacyParser:
    return build_caption_parser(num_processes=1)


@pytest.fixture(scope="session")
def object_words() -> ObjectWords:
    return ObjectWords(names=(*NAMES.split(), *PAIRS), lemmatizer=load_lemmas(LEMMAS))


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    folder = tmp_path / "photos"
    folder.mkdir()
    return scenes(folder)
