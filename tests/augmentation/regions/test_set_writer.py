"""The data set that is written, and what happens when writing is cut short."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augmentation.regions import rendering
from augmentation.regions.paste import OUTSIDE, Blending
from augmentation.regions.proposal import Proposal
from augmentation.regions.rendering import PictureFormat, Renderer, from_run_lengths, run_lengths
from augmentation.regions.reranking import Threshold
from augmentation.regions.set_writer import write_set
from captioning.data.readers.coco import read_coco
from captioning.data.readers.imagefolder import read_imagefolder
from tests.augmentation.novel_objects.test_method import method

FORM = PictureFormat(blending=Blending(feather=2), suffix="png", owners="rle")


@pytest.fixture
def proposals(parser, roster) -> list[Proposal]:
    return list(method(parser).proposals(roster))


def write(proposals, folder: Path, **more):
    settings = {"picture_format": FORM, "settings": {"seed": 0}} | more
    return write_set(((proposal,) for proposal in proposals), folder=folder, **settings)


def as_part(folder: Path) -> list[bytes]:
    lines = (folder / "provenance.jsonl").read_bytes().splitlines()
    return [b"[" + line + b"]\n" for line in lines]


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_coco_reads_what_was_written(proposals, tmp_path):
    out = tmp_path / "out"
    counts = write(proposals, out)
    assert counts == {"pictures": 6, "captions": 6, "pastes": 6, "refused": {}}
    roster = read_coco(
        name="x",
        annotations=out / "captions.json",
        instances=out / "instances.json",
        image_folder=out / "images",
    )
    assert [sample.image_id for sample in roster.samples] == [p.name for p in proposals]
    for sample, proposal in zip(roster.samples, proposals, strict=True):
        assert (sample.caption,) == proposal.captions
        assert sample.regions == proposal.regions
    assert roster.dropped == ()
    folder = read_imagefolder(name="x", folder=out / "images")
    assert [sample.caption for sample in folder.samples] == [s.caption for s in roster.samples]


def test_every_pixel_is_of_the_target_or_of_the_paste_that_the_map_names(proposals, tmp_path):
    write(proposals, tmp_path / "out")
    lines = (tmp_path / "out" / "provenance.jsonl").read_text().splitlines()
    record, proposal = json.loads(lines[0]), proposals[0]
    width, height = record["size"]
    owners = from_run_lengths(record["owners"], width=width, height=height)
    picture = np.asarray(Image.open(tmp_path / "out" / "images" / record["file_name"]))
    before = np.asarray(Image.open(proposal.image_path))
    assert (picture[owners == 0] == before[owners == 0]).all()
    assert (owners == 1).sum() == record["pastes"][0]["pixels"] == 400
    assert record["target"] == {"image_id": proposal.image_id, "photo": proposal.image_path.name}
    assert record["pastes"][0]["photo"] == proposal.pastes[0].source.name


@pytest.mark.parametrize("lines", [0, 1, 4, 6])
def test_a_killed_run_goes_on_to_the_same_bytes(proposals, tmp_path, lines):
    complete, cut = tmp_path / "complete", tmp_path / "cut"
    write(proposals, complete)
    write(proposals[:lines] or proposals[:1], cut)
    written = as_part(cut)[:lines]
    for path in cut.glob("*.json*"):
        if path.name != "settings.json":
            path.unlink()
    (cut / "provenance.part.jsonl").write_bytes(b"".join(written) + b'{"name": "torn')
    (cut / "images" / ".0123.png").write_bytes(b"half a picture")
    write(proposals, cut)
    assert contents(cut) == contents(complete)


def test_a_picture_that_was_lost_is_made_again(proposals, tmp_path):
    complete, cut = tmp_path / "complete", tmp_path / "cut"
    for folder in (complete, cut):
        write(proposals, folder)
    (cut / "provenance.part.jsonl").write_bytes(b"".join(as_part(cut)))
    (cut / "provenance.jsonl").unlink()
    (cut / "images" / f"{proposals[2].name}.png").unlink()
    write(proposals, cut)
    assert contents(cut) == contents(complete)


@pytest.mark.long
def test_the_number_of_processes_does_not_matter(proposals, tmp_path):
    write(proposals, tmp_path / "one")
    write(proposals, tmp_path / "two", num_processes=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.long
def test_a_killed_process_is_told_with_the_remedy_and_the_set_goes_on(proposals, tmp_path):
    killed = {"build_ranker": partial(os._exit, 9), "num_processes": 1}
    with pytest.raises(ChildProcessError, match=r"killed, .*: lower num_processes= or format\.num"):
        write(proposals, tmp_path / "out", **killed)
    assert write(proposals, tmp_path / "out")["pictures"] == 6


def test_another_set_is_refused_the_folder(proposals, tmp_path):
    write(proposals, tmp_path / "out")
    with pytest.raises(ValueError, match="other settings"):
        write(proposals, tmp_path / "out", settings={"seed": 1})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").touch()
    with pytest.raises(ValueError, match="not empty"):
        write(proposals, tmp_path / "full")


def test_refused_proposals_are_counted_by_reason(proposals, tmp_path):
    missing = replace(proposals[0], image_path=tmp_path / "none.png")
    (tmp_path / "bad.png").write_bytes(b"no photo")
    broken = replace(proposals[1], image_path=tmp_path / "bad.png")
    move = replace(proposals[2].pastes[0], target_box=(99.0, 99.0, 120.0, 120.0))
    outside = replace(proposals[2], pastes=(move,))
    counts = write([missing, broken, outside, *proposals[3:]], tmp_path / "out")
    assert counts["pictures"] == 3
    assert counts["refused"] == {rendering.NO_PHOTO: 1, rendering.UNREADABLE: 1, OUTSIDE: 1}


def pulled(groups: list[list[Proposal]], count: list[int]):
    for group in groups:
        count[0] += 1
        yield group


class ByPlace:
    """A ranker that scores the candidates of a group by their places: the second fits too badly."""

    threshold = Threshold(value=0.5, space="x", reason="test")

    def scores(self, pairs) -> np.ndarray:
        return np.array([1.0, 0.1][: sum(1 for _ in pairs)])

    def selected(self, scores: np.ndarray) -> tuple[int, ...]:
        return tuple(n for n, score in enumerate(scores) if score >= 0.5)


class TooBad(ByPlace):
    """A ranker that keeps nothing."""

    def scores(self, pairs) -> np.ndarray:
        return super().scores(pairs) * 0.1


def limited(groups, folder: Path, **more):
    settings = {"picture_format": FORM, "settings": {"seed": 0}, "max_augmented": 2} | more
    return write_set(iter(groups), folder=folder, **settings)


def with_refused(proposals: list[Proposal], tmp_path: Path) -> list[list[Proposal]]:
    """Six groups of one; no picture can be made of the first and the third."""
    missing = [replace(p, image_path=tmp_path / "none.png") for p in proposals]
    return [[missing[0]], [proposals[1]], [missing[2]], *([p] for p in proposals[3:])]


def test_a_set_ends_once_pictures_of_so_many_could_be_made(proposals, tmp_path):
    count = [0]
    groups = with_refused(proposals, tmp_path)
    counts = limited(pulled(groups, count), tmp_path / "out")
    assert counts["pictures"] == 2
    assert counts["refused"] == {rendering.NO_PHOTO: 2}
    assert count == [4]  # none is read beyond the last one
    # finished: the method's report is of the same captions again
    assert limited(pulled(groups, again := [0]), tmp_path / "out") == counts
    assert again == [4]
    assert limited(groups, tmp_path / "all", max_augmented=9)["pictures"] == 4


def test_what_fits_too_badly_to_be_kept_is_augmented_too(proposals, tmp_path):
    pairs = [proposals[0:2], proposals[2:4], proposals[4:6]]
    kept = limited(pairs, tmp_path / "kept", build_ranker=ByPlace)
    assert (kept["pictures"], kept["refused"]) == (2, {rendering.TOO_UNLIKE: 2})
    missing = replace(proposals[0], image_path=tmp_path / "none.png")
    count = [0]
    with pytest.raises(ValueError, match=f"{rendering.TOO_UNLIKE}': 4"):
        limited(
            pulled([[missing], *pairs[1:], [proposals[1]]], count),
            tmp_path / "none",
            build_ranker=TooBad,
        )
    assert count == [3]


@pytest.mark.parametrize("lines", [0, 1, 3, 4])
def test_a_killed_set_of_so_many_goes_on_to_the_same_bytes(proposals, tmp_path, lines):
    groups = with_refused(proposals, tmp_path)
    limited(groups, tmp_path / "complete")
    cut, count = tmp_path / "cut", [0]
    limited(groups, cut)
    written = as_part(cut)[:lines]
    for path in cut.glob("*.json*"):
        if path.name != "settings.json":
            path.unlink()
    # processes were ahead
    (cut / "images" / f"{proposals[5].name}.png").write_bytes(b"a picture without record")
    (cut / "provenance.part.jsonl").write_bytes(b"".join(written) + b'{"name": "torn')
    limited(pulled(groups, count), cut)
    assert contents(cut) == contents(tmp_path / "complete")
    assert count == [4]


@pytest.mark.long
def test_processes_ahead_of_the_end_leave_nothing(proposals, tmp_path):
    groups = with_refused(proposals, tmp_path)
    limited(groups, tmp_path / "one")
    limited(groups, tmp_path / "two", num_processes=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_nothing_made_and_names_twice_are_refused(proposals, tmp_path):
    with pytest.raises(ValueError, match="nothing proposed"):
        write([], tmp_path / "none")
    with pytest.raises(ValueError, match="found: photos: none; classes: {'dog': 0}; check"):
        write([], tmp_path / "why", report=lambda: {"photos": {}, "classes": {"dog": 0}})
    with pytest.raises(ValueError, match="unique"):
        write([proposals[0], proposals[0]], tmp_path / "twice")


def test_grey_photos_become_colour_jpegs_and_maps_pictures(proposals, tmp_path):
    grey = tmp_path / "grey.png"
    Image.open(proposals[0].image_path).convert("L").save(grey)
    form = PictureFormat(blending=Blending(), suffix="jpg", owners="png")
    record = Renderer(folder=tmp_path, picture_format=form).record(
        replace(proposals[0], image_path=grey)
    )
    picture = Image.open(tmp_path / "images" / record["file_name"])
    assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (64, 64))
    owners = np.asarray(Image.open(tmp_path / "owners" / f"{proposals[0].name}.png"))
    assert np.unique(owners).tolist() == [0, 1]
    x, y = map(int, proposals[0].pastes[0].target_box[:2])
    red, green, _ = picture.getpixel((x + 10, y + 10))
    assert red > green + 50  # a dog on a grey photo


def test_run_lengths_come_back():
    owners = np.random.default_rng(0).integers(0, 3, (7, 5), np.uint8)
    assert (from_run_lengths(run_lengths(owners), width=5, height=7) == owners).all()
    assert run_lengths(np.zeros((2, 3), np.uint8)) == [0, 6]


@pytest.mark.parametrize("wrong", [{"suffix": "gif"}, {"owners": "all"}, {"quality": 0}])
def test_unknown_formats_are_refused(wrong):
    with pytest.raises(ValueError, match="must be|to 95"):
        PictureFormat(blending=Blending(), **wrong)
