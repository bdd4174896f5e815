"""The table of families is that of the installed transformers, and what it refuses is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from captioning.runtime.processors import (
    REFUSED,
    image_text_folder,
    load_image_text,
    load_processor,
)
from tests.families.registry import UNRUN, family_folder
from tests.families.table import PAGE, rows, write_table


def test_the_page_has_every_family_of_the_installed_transformers(tmp_path: Path) -> None:
    """One that a later version adds is "not tried" there: ``python -m tests.families.table``."""
    copy = Path(shutil.copy(PAGE, tmp_path))
    write_table(copy)
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_at_least_forty_families_are_held() -> None:
    states = [state for _, state, _ in rows()]
    assert states.count("held") >= 40
    assert states.count("refused") == len(REFUSED)


@pytest.mark.parametrize("family", sorted(UNRUN))
def test_a_family_that_captions_no_photos_is_refused_by_name(family: str) -> None:
    folder = family_folder(family)
    for load in (load_processor, lambda place: load_image_text(str(place))):
        with pytest.raises(ValueError, match=rf"{family} is not a captioner: "):
            load(folder)
    assert image_text_folder(str(folder)) == folder
