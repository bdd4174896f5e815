"""A run folder holds every picture that its journal names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from captioning.types import Edit
from curation.loop.replaced_images import PictureFolder


def edit(path: Path) -> Edit:
    return Edit(sample_id="a#0", action="replace_image", value=str(path), origin="toy")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / "A.PNG"
    path.parent.mkdir()
    path.write_bytes(b"a picture")
    return path


def test_values_are_paths_below_the_run_folder(tmp_path, picture):
    adopted = PictureFolder(run_folder=tmp_path / "run").adopt(edit(picture))
    assert adopted.value.startswith("curation/images/")
    assert adopted.value.endswith(".png")
    assert (tmp_path / "run" / adopted.value).read_bytes() == b"a picture"
    assert (adopted.sample_id, adopted.origin) == ("a#0", "toy")
    again = PictureFolder(run_folder=tmp_path / "run").adopt(edit(picture))
    assert again == adopted
    picture.unlink()
    assert (tmp_path / "run" / adopted.value).read_bytes() == b"a picture"


def test_other_edits_are_left_as_they_are(tmp_path):
    removal = Edit(sample_id="a#0", action="remove")
    assert PictureFolder(run_folder=tmp_path).adopt(removal) is removal
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_copied_where_they_cannot_be_linked(tmp_path, picture, monkeypatch):
    def no_link(source, target):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_link)
    adopted = PictureFolder(run_folder=tmp_path / "run").adopt(edit(picture))
    assert (tmp_path / "run" / adopted.value).stat().st_nlink == 1


def test_a_picture_that_was_cut_short_is_put_in_again(tmp_path, picture):
    folder = PictureFolder(run_folder=tmp_path / "run")
    target = tmp_path / "run" / folder.adopt(edit(picture)).value
    target.unlink()
    target.write_bytes(b"a pic")
    folder.adopt(edit(picture))
    assert target.read_bytes() == b"a picture"


def test_what_is_missing_or_cannot_be_written_is_named(tmp_path, picture):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.png"):
        PictureFolder(run_folder=tmp_path / "run").adopt(edit(tmp_path / "nowhere.png"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="choose another place"):
        PictureFolder(run_folder=tmp_path / "file").adopt(edit(picture))
