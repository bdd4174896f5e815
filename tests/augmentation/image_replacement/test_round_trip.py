"""Round trip: pictures of captions, captions of pictures, and scores against the first captions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.image_replacement import round_trip as module
from augmentation.image_replacement.round_trip import (
    image_requests,
    make_pictures,
    round_trip,
    write_pictures,
)
from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import Roster, build_roster
from captioning.results.runs import read_runs
from captioning.types import Prediction, Sample
from tests.task_calls import call


class Drawings(AbstractImageSource):
    """A grey picture a request, none for every fourth one."""

    def __init__(self, *, folder: str, only: int = 10**9) -> None:
        self.folder, self.only = Path(folder), only
        self.calls: list[str] = []

    def start(self, roster: Roster) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        self.calls.append(f"images {seed}")
        return [self._one(number, request) for number, request in enumerate(requests)]

    def _one(self, number: int, request: ImageRequest) -> Picture:
        if number % 4 == 3 or number >= self.only:
            return Picture(path=None, problem="blank picture")
        path = self.folder / f"{number}.png"
        Image.new("RGB", (16, 16), (number, 9, 9)).save(path)
        notes = ("caption left out of the prompt",) * (number % 2)
        return Picture(path=path, origin=f"drawn: {request.sample.caption}", notes=notes)


def roster(number: int = 3) -> Roster:
    samples = [
        Sample(
            row=0, sample_id=f"{image}#{n}", image_id=str(image), image_path=Path(f"{image}.png"),
            caption=f"caption {n} of {image}",
        )
        for image in range(number)
        for n in range(2)
    ]  # fmt: skip
    return build_roster("some/val", samples)


def test_a_request_a_photo_with_all_its_captions() -> None:
    requests = list(image_requests(roster()).values())
    assert [request.sample.caption for request in requests] == [
        f"caption 0 of {image}" for image in range(3)
    ]
    assert requests[1].captions == ("caption 0 of 1", "caption 1 of 1")
    assert requests[2].photos == (Path("2.png"),)


def test_every_caption_may_have_a_picture(tmp_path: Path) -> None:
    requests = image_requests(roster(), "caption")
    assert list(requests) == [f"{image}#{n}" for image in range(3) for n in range(2)]
    assert requests["1#1"].captions == ("caption 1 of 1", "caption 0 of 1")
    pictures = make_pictures(None, roster(), seed=0, per="caption")
    write_pictures(pictures, roster(), tmp_path / "pictures.jsonl")
    records = [json.loads(line) for line in (tmp_path / "pictures.jsonl").read_text().splitlines()]
    assert [record["image_id"] for record in records] == list(requests)
    assert records[3]["captions"] == ["caption 0 of 1", "caption 1 of 1"]


def test_a_source_is_closed_whatever_happens(tmp_path: Path) -> None:
    source = Drawings(folder=str(tmp_path))
    pictures = make_pictures(source, roster(), seed=7)
    assert source.calls == ["start", "images 7", "close"]
    assert pictures["1"].path == tmp_path / "1.png"
    broken = Drawings(folder=str(tmp_path / "none"))
    with pytest.raises(OSError, match="none"):
        make_pictures(broken, roster(), seed=7)
    assert broken.calls[-1] == "close"


def test_without_a_source_the_photos_are_described() -> None:
    assert make_pictures(None, roster(), seed=0)["2"].path == Path("2.png")


def echo(
    folder: Path, data: DictConfig, split: str, device: str
) -> tuple[list[list[Prediction]], Roster, Any]:
    """A captioner that knows the first caption of what it sees, and gets every fifth word wrong."""
    roster_read = build_part(data[split])
    predictions = []
    for image_id, rows in roster_read.rows_by_image.items():
        words = roster_read.samples[rows[0]].caption.split()
        wrong = ["wrong" if number % 5 == 4 else word for number, word in enumerate(words)]
        predictions.append([Prediction(image_id=image_id, caption=" ".join(wrong))])
    return predictions, roster_read, {"search": None}


@pytest.fixture
def config(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., DictConfig]:
    monkeypatch.setattr(module, "predict_run", echo)
    drawings = tmp_path / "drawings"
    drawings.mkdir()
    captioner = tmp_path / "captioner"
    (captioner / "checkpoints").mkdir(parents=True)
    (captioner / "checkpoints" / "last.ckpt").touch()
    settings = compose_config("train", ["data=miniworld_tiny"])
    OmegaConf.save(settings, captioner / "config.yaml", resolve=True)

    def made(*overrides: str) -> DictConfig:
        return compose_config(
            "round_trip",
            [
                "data.val.num_scenes=8",
                "data.val.size=32",
                f"paths.cache={tmp_path / 'cache'}",
                f"paths.runs={tmp_path / 'runs'}",
                "metrics.test=[BLEU,CIDEr-D]",
                "metrics.tokenizer=python",
                f"captioner={captioner}",
                "prompt=concatenation",
                *overrides,
            ],
        )

    return made


def test_a_row_is_a_run_folder_that_tables_read(
    config: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "build_part", build_drawings(tmp_path))
    scores = call(round_trip, config("generator=drawn"))
    out = tmp_path / "runs" / "round_trip" / "miniworld" / "drawn" / "concatenation"
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["val"]["corpus"] == scores
    assert metrics["made"] == {
        "pictures": 6,
        "photos": 8,
        "notes": {"caption left out of the prompt": 2, "blank picture": 2},
    }
    assert len(metrics["val"]["per_image"]) == 6
    assert 0.3 < scores["BLEU-4"] < 1
    lines = [json.loads(line) for line in (out / "pictures.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    assert len(lines[0]["captions"]) == 5
    assert lines[0]["origin"] == f"drawn: {lines[0]['captions'][0]}"
    assert len(json.loads((out / "predictions.json").read_text())) == 6

    of_photos = config("~curation/image_source", "prompt=none")
    bound = call(round_trip, of_photos)
    kept = OmegaConf.masked_copy(of_photos, [key for key in of_photos if key != "spread"])
    row = tmp_path / "runs" / "round_trip" / "miniworld" / "photos" / "none" / "config.yaml"
    assert row.read_text() == OmegaConf.to_yaml(kept, resolve=True)
    assert bound["CIDEr-D"] > 1
    runs = read_runs([tmp_path / "runs"])
    rows = {(run.setting("generator"), run.setting("prompt")): run for run in runs}
    assert set(rows) == {("drawn", "concatenation"), ("photos", "none")}
    assert rows["photos", "none"].value("CIDEr-D", "val") == pytest.approx(bound["CIDEr-D"])


def build_drawings(tmp_path: Path, **changed: Any) -> Callable[..., Any]:
    def build(part: DictConfig) -> Any:
        if "image_replacement" in part.get("_target_", ""):
            return Drawings(folder=str(tmp_path / "drawings"), **changed)
        return build_part(part)

    return build


def test_a_finished_row_is_kept_and_another_one_is_refused_its_folder(
    config: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = ["~curation/image_source", "prompt=none"]
    scores = call(round_trip, config(*photos))
    monkeypatch.setattr(module, "predict_run", None)
    assert call(round_trip, config(*photos)) == scores
    with pytest.raises(ValueError, match="results of other settings; choose another out="):
        call(round_trip, config(*photos, "seed=1"))


def test_what_cannot_be_evaluated_is_said(
    config: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="captioner=RUN_FOLDER"):
        call(round_trip, config("captioner=null"))
    with pytest.raises(ValueError, match="use per=photo with photos"):
        call(round_trip, config("~curation/image_source", "per=caption"))
    monkeypatch.setattr(module, "make_pictures", None)  # the captioner is looked at before
    with pytest.raises(FileNotFoundError, match=r"config.yaml does not exist; is this a run f"):
        call(round_trip, config(f"captioner={tmp_path / 'nowhere'}"))
    (tmp_path / "captioner" / "checkpoints" / "last.ckpt").unlink()
    with pytest.raises(FileNotFoundError, match="has no checkpoint: no epoch has ended yet"):
        call(round_trip, config())
    (tmp_path / "captioner" / "checkpoints" / "last.ckpt").touch()
    monkeypatch.setattr(module, "make_pictures", make_pictures)
    monkeypatch.setattr(module, "build_part", build_drawings(tmp_path, only=0))
    with pytest.raises(
        ValueError, match="no image could be generated; reasons and counts: {'blank picture': 8}"
    ):
        call(round_trip, config("generator=drawn"))
