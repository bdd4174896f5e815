"""An export that fails names file, problem and remedy, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.export.export import FORMATS, HOLD_PHOTOS, export
from curation.export.tool_files import FORMS, Style
from curation.record import RunRecord

STYLES = {"sharegpt": "messages", "llava": "messages", "kohya": "text_files"}
WAYS = [*((format, None) for format in FORMATS), *((STYLES[form], form) for form in FORMS)]
WITH_PHOTOS = [way for way in WAYS if way[0] != "journal"]


def record_of(folder: Path, names: list[str]) -> RunRecord:
    rng = np.random.default_rng(0)
    samples = []
    for row, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(path)
        sample = Sample(
            row=row,
            sample_id=f"{name}#0",
            image_id=name,
            image_path=path,
            caption=f"A dog, number {row}.",
        )
        samples.append(sample)
    edits = [
        Edit(sample_id=sample.sample_id, action="down_weight", value="0.5", reason="why " * 400)
        for sample in samples
    ]
    view = CurationView(roster=build_roster("toy", samples)).apply(edits)
    return RunRecord(policy="p", seed=0, view=view)


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return record_of(tmp_path / "photos", [f"p{number}.jpg" for number in range(6)])


def write(record: RunRecord, out: Path, way: tuple[str, str | None]) -> None:
    format, form = way
    photos = "none" if format == "journal" else "copy"
    style = Style(form=form)
    export(record, None, out, format=format, photos=photos, style=style)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """The system refuses to write further into a file, as it does where the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_write_that_fails_leaves_nothing(record, tmp_path, way) -> None:
    out = tmp_path / "new" / "out"
    with pytest.raises(OSError) as raised, small_files(2000):
        write(record, out, way)
    assert raised.value.errno == errno.EFBIG
    problem = f"{os.strerror(errno.EFBIG)}; free space or choose another place"
    assert (raised.value.strerror, raised.value.filename) == (problem, str(out))
    assert left(tmp_path / "new") == []
    write(record, out, way)
    assert left(tmp_path / "new") == ["out"]


@pytest.mark.parametrize("way", WITH_PHOTOS, ids=str)
def test_a_photo_that_vanished_is_named(record, tmp_path, way) -> None:
    gone = tmp_path / "photos" / "p4.jpg"
    gone.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        write(record, tmp_path / "out", way)
    text = str(raised.value)
    assert text.startswith(f"{gone}: no such picture; ")
    assert "put it back, or take its captions out of the set" in text
    assert ("--photos none" in text) == (way[0] not in HOLD_PHOTOS)
    assert "\n" not in text
    assert left(tmp_path) == ["photos"]


@pytest.mark.parametrize("way", WITH_PHOTOS, ids=str)
def test_a_photo_that_cannot_be_read_is_named(record, tmp_path, way) -> None:
    odd = tmp_path / "photos" / "p4.jpg"
    odd.unlink()
    odd.mkdir()
    with pytest.raises(OSError) as raised:
        write(record, tmp_path / "out", way)
    assert raised.value.filename == str(odd)
    assert "; mend it, or take its captions out of the set" in str(raised.value)
    assert left(tmp_path) == ["photos"]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_is_there_stays(record, tmp_path, way, monkeypatch) -> None:
    for name in ("file", "folder", "link", "late"):
        out = tmp_path / "targets" / name
        out.parent.mkdir(exist_ok=True)
        if name == "folder":
            out.mkdir()
            (out / "mine.txt").write_text("mine")
        elif name == "file":
            out.write_text("mine")
        elif name == "link":
            out.symlink_to("nowhere")
        else:  # somebody writes there meanwhile
            target = "curation.export.export.write_text"
            monkeypatch.setattr(target, lambda *_, out=out: _occupy(out))
        with pytest.raises(ValueError) as raised:
            write(record, out, way)
        monkeypatch.undo()
        assert str(raised.value) == f"{out} exists already and is not empty; choose a new folder"
    assert left(tmp_path / "targets") == ["file", "folder", "late", "link"]
    assert (tmp_path / "targets" / "file").read_text() == "mine"
    assert left(tmp_path / "targets" / "folder") == ["mine.txt"]


def test_a_link_to_an_empty_folder_is_filled(record, tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write(record, tmp_path / "link", ("csv", None))
    assert (tmp_path / "real" / "captions.csv").is_file()
    assert left(tmp_path) == ["link", "photos", "real"]


def _occupy(folder: Path) -> None:
    folder.mkdir()
    (folder / "theirs.txt").write_text("theirs")


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_place_that_is_none_is_named(record, tmp_path, way) -> None:
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "out"
    with pytest.raises(OSError) as raised:
        write(record, out, way)
    assert raised.value.filename == str(out)
    assert "; free space or choose another place" in str(raised.value)
    assert left(tmp_path) == ["file", "photos"]


@pytest.mark.parametrize("way", WITH_PHOTOS, ids=str)
def test_two_pictures_of_one_name_are_named(record, tmp_path, way) -> None:
    edits = [
        Edit(sample_id=f"p{number}.jpg#0", action="replace_image", value=f"{number}/same.png")
        for number in (2, 3)
    ]
    both = replace(record, view=replace(record.view, journal=()).apply(edits))
    with pytest.raises(ValueError, match=r"2/same.png and 3/same.png would both be called"):
        write(both, tmp_path / "out", way)
    assert left(tmp_path) == ["photos"]


@pytest.mark.parametrize(
    ("names", "form", "text"),
    [
        (["sub/a.jpg", "sub/a.png"], None, "sub/a.jpg and sub/a.png would share the text file"),
        (["x.jpg", "sub/b.jpg", "sub_b.jpg"], "kohya", "sub/b.jpg and sub_b.jpg would share the"),
        ([".a.jpg", "xa.png", "x.a.jpg"], None, ".a.jpg and x.a.jpg would share the text file"),
    ],
)
def test_two_photos_of_one_text_file_are_named(tmp_path, names, form, text) -> None:
    record = record_of(tmp_path / "photos", [*names, "other/z.jpg"])
    with pytest.raises(ValueError) as raised:
        write(record, tmp_path / "out", ("text_files", form))
    assert str(raised.value).startswith(text)
    assert str(raised.value).endswith("rename one of the two, or choose another format")
    assert left(tmp_path) == ["photos"]
