"""A folder belongs to one set, of one data set with its boxes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from augmentation.__main__ import _augment_captions, augment
from augmentation.captions.made import AbstractCaptionMethod, MadeOfPhoto, NewCaption
from augmentation.set_folder import claim_folder, data_identity
from captioning.data.detections import detection_line
from captioning.data.roster import Roster, build_roster
from captioning.types import Phrase, Region, Sample
from tests.augmentation.regions.scenes import photo, scenes

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
BOX = Region(box=(10.0, 10.0, 30.0, 30.0), label="cat")
PHRASE = Phrase(start=0, text="A cat", chain_id="1", kinds=("animals",), regions=(0,))
HELD_OUT = "method.classes={dog: {candidates: [cat]}}"


def one_photo(*regions: Region, phrase: Phrase = PHRASE, path: Path = Path("1.jpg")) -> Roster:
    sample = Sample(
        row=0,
        sample_id="1#0",
        image_id="1",
        image_path=path,
        caption="A cat sits .",
        regions=regions,
        phrases=(phrase,),
    )
    return build_roster("one", [sample])


def config_of(folder: Path, *overrides: str) -> DictConfig:
    given = [f"paths.cache={folder / 'cache'}", f"out={folder / 'out'}", "num_processes=0"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("augmentation", overrides=[*given, *overrides])


@pytest.mark.parametrize(
    "other",
    [
        one_photo(),
        one_photo(BOX, BOX),
        one_photo(replace(BOX, label="dog")),
        one_photo(replace(BOX, score=0.5)),
        one_photo(replace(BOX, box=(10.0, 10.0, 30.0, 30.5))),
        one_photo(BOX, phrase=replace(PHRASE, regions=())),
        one_photo(BOX, phrase=replace(PHRASE, kinds=("people",))),
    ],
)
def test_other_boxes_and_phrases_are_other_data(other: Roster) -> None:
    roster = one_photo(BOX)
    assert other.fingerprint == roster.fingerprint
    assert data_identity(other) != data_identity(roster)
    assert data_identity(one_photo(replace(BOX))) == data_identity(roster)


def test_what_differs_is_named(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"seed": 0, "data": 1, "split": "train"})
    with pytest.raises(ValueError, match=r"differs in data, seed\): choose another out="):
        claim_folder(tmp_path, {"seed": 1, "data": 2, "split": "train"})
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(ValueError, match="differs in all"):
        claim_folder(tmp_path, {"seed": 1})


def detections(path: Path, roster: Roster, shift: float) -> Path:
    """A file of a detector that sees all boxes of a roster somewhat to the left."""
    lines = ['{"detector": "test"}']
    for rows in roster.rows_by_image.values():
        sample = roster.samples[rows[0]]
        boxes = [(r.box[0] - shift, r.box[1], r.box[2] - shift, r.box[3]) for r in sample.regions]
        regions = [replace(r, box=b) for r, b in zip(sample.regions, boxes, strict=True)]
        lines.append(detection_line(sample.image_id, sample.image_path.name, (64, 64), regions))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pictures_of_other_detections_are_refused_the_folder(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    roster = scenes(tmp_path / "images")
    lines = [
        json.dumps({"image": s.image_path.name, "image_id": s.image_id, "caption": s.caption})
        for s in roster.samples
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    first, other = (detections(tmp_path / f"{n}.jsonl", roster, shift=n) for n in (0, 4))
    given = ["data=jsonl", f"data.root={tmp_path}", HELD_OUT, "method.limits.smallest_area=50"]
    card = augment(config_of(tmp_path, *given, f"detections=[{first}]"))
    assert card["counts"]["pictures"] > 0
    with pytest.raises(ValueError, match="other settings or data"):
        augment(config_of(tmp_path, *given, f"detections=[{other}]"))
    again = augment(config_of(tmp_path, *given, f"detections=[{first}]"))
    assert again["counts"] == card["counts"]


class Echo(AbstractCaptionMethod):
    """Makes one caption a photo."""

    what = "captions of a test"

    def captions(self, roster: Roster, *, skip: int = 0) -> Iterator[MadeOfPhoto]:
        for sample in roster.samples[skip:]:
            made = NewCaption(sample=sample, text="A cat .", phrases=(PHRASE,))
            yield MadeOfPhoto(captions=[made])


def test_captions_of_other_boxes_are_refused_the_folder(tmp_path: Path) -> None:
    config = config_of(tmp_path, "method=ssa")
    path = photo(tmp_path / "1.png", [])
    roster, moved = one_photo(BOX, path=path), one_photo(replace(BOX, label="dog"), path=path)
    _augment_captions(config, Echo(), roster)
    _augment_captions(config, Echo(), roster)
    with pytest.raises(ValueError, match="other settings or data"):
        _augment_captions(config, Echo(), moved)
