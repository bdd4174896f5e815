"""Captions of pasted pictures and of their photos, compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from augmentation.regions import captioned as module
from augmentation.regions.annotations import write_annotations
from augmentation.regions.captioned import describe_set
from augmentation.run import augment
from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import Roster
from captioning.data.steps.take_detections import detection_line, read_detections, with_detections
from captioning.runtime.files import read_json
from captioning.types import Prediction
from tests.augmentation.regions.scenes import photo, region
from tests.augmentation.test_main import config_of
from tests.captioning.conftest import SMALL
from tests.run_calls import evaluate, train
from tests.task_calls import call, is_record

CAT, BIRD = (8.0, 8.0, 40.0, 40.0), (44.0, 44.0, 60.0, 60.0)
BEFORE, AFTER = "A white cat sits near a bird.", "A white dog sits near a bird."


def record(name: str, old: str = "cat", new: str = "dog") -> dict[str, Any]:
    """A line of provenance of a picture of the photo ``cat0`` or ``cat1``."""
    return {
        "name": name,
        "file_name": f"{name}.png",
        "size": [64, 64],
        "target": {"image_id": name.partition("-")[0], "photo": ""},
        "pastes": [{"label": new, "target_box": list(CAT)}],
        "before": [BEFORE],
        "captions": [AFTER],
        "regions": [{"label": new, "box": list(CAT)}, {"label": "bird", "box": list(BIRD)}],
        "notes": {"swap": {"old_object": old, "new_object": new}},
    }


def made_set(folder: Path) -> None:
    """Photos as ``data=jsonl`` with three pictures of them in ``made``, as they are written."""
    (folder / "images").mkdir()
    lines = []
    for n in range(2):
        boxes = [("cat", CAT), ("bird", BIRD)]
        path = photo(folder / "images" / f"cat{n}.png", boxes, ground=90 + n)
        regions = [{"label": label, "box": box} for label, box in boxes]
        line = {"image": path.name, "image_id": path.stem, "caption": BEFORE, "regions": regions}
        lines.append(json.dumps(line))
    (folder / "train.jsonl").write_text("\n".join(lines))
    made = folder / "made"
    (made / "images").mkdir(parents=True)
    pasted_records = [record("cat0-a"), record("cat0-b", new="cat"), record("cat1-a")]
    for picture_record in pasted_records:
        photo(made / "images" / picture_record["file_name"], [("dog", CAT), ("bird", BIRD)])
    refused = {"name": "cat1-b", "refused": "too flat"}
    text = "".join(
        json.dumps(picture_record) + "\n" for picture_record in (*pasted_records, refused)
    )
    (made / "provenance.jsonl").write_text(text)
    write_annotations(made, made / "provenance.jsonl")


def colours(
    folder: Path, data: DictConfig, *, search: Any, detections: list[str], device: str
) -> tuple[list[list[Prediction]], Roster, Any]:
    """A captioner that tells dogs from cats by their colour, and says a second caption."""
    roster = build_part(data.test)
    if detections:
        roster = with_detections(roster, read_detections(detections[0])[1])
    predictions = []
    for image_id, rows in roster.rows_by_image.items():
        with Image.open(roster.samples[rows[0]].image_path) as image:
            red = image.convert("RGB").getpixel((20, 20))[0] > 150
        first = f"A white {'dog' if red else 'cat'} sits near a bird."
        texts = (first, "Something else.")
        predictions.append([Prediction(image_id=image_id, caption=text) for text in texts])
    return predictions, roster, {"search": search and OmegaConf.to_container(search)}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DictConfig]:
    monkeypatch.setattr(module, "predict_run", colours)
    made_set(tmp_path)

    def composed(*overrides: str) -> DictConfig:
        data_options = [
            "data=jsonl",
            f"data.root={tmp_path}",
            f"augmented.root={tmp_path / 'made'}",
        ]
        fixed = ["metrics=fast", f"run={tmp_path / 'run'}", f"paths.runs={tmp_path}"]
        return compose_config("captioned", [*data_options, *fixed, *overrides])

    return composed


def test_pictures_are_called_what_was_pasted(config, tmp_path: Path) -> None:
    comparison = call(describe_set, config("num_shown=2"))
    assert is_record(comparison["evaluated"], config("num_shown=2"))
    assert (comparison["pictures"], comparison["photos"], comparison["same caption"]) == (3, 2, 0)
    exact = ("photos, captions before", "pictures, captions after")
    for key, scores in comparison["scores"].items():
        assert (scores["BLEU-4"] == pytest.approx(1)) == (key in exact), key
    # of cat0-b the new object is a cat again
    shares = {"photos": {"old": 1.0, "new": 0.0}, "pictures": {"old": 0.0, "new": 1.0}}
    assert comparison["named"] == {"number": 2, **shares}
    assert comparison["found"] is None
    out = tmp_path / "run" / "evaluation" / "captioned-made"
    lines = [json.loads(line) for line in (out / "captions.jsonl").read_text().splitlines()]
    assert sorted(line["picture"] for line in lines) == ["cat0-a", "cat0-b", "cat1-a"]
    assert lines[0]["captions of the picture"] == [AFTER, "Something else."]
    assert read_json(out / "captioned.json")["scores"] == comparison["scores"]
    with Image.open(out / "sheet.png") as sheet:
        assert sheet.size[0] > 2 * 224
    text = (out / "captioned.md").read_text()
    assert text.startswith("3 pictures of 2 photos; 0.0% of the pictures are called")
    assert "| pictures | 0.000 | 1.000 |" in text


@pytest.mark.long
def test_pictures_are_drawn_by_the_seed(config) -> None:
    def drawn(seed: int) -> str:
        folder = Path(config().run) / str(seed)
        call(describe_set, config("num_pictures=1", f"seed={seed}", f"out={folder}"))
        (line,) = (folder / "captions.jsonl").read_text().splitlines()
        return json.loads(line)["picture"]

    assert drawn(0) == drawn(0)
    assert len({drawn(seed) for seed in range(8)}) > 1


def test_another_search_is_asked_of_the_run(config) -> None:
    assert call(describe_set, config())["decoding"]["search"] is None
    comparison = call(describe_set, config("search=latents"))
    assert is_record(comparison["evaluated"], config("search=latents"))
    search = comparison["decoding"]["search"]
    assert search["_target_"].endswith("LatentSearch.with_settings")


def detections(path: Path, label: str, images: list[tuple[str, str]]) -> str:
    """A file of a detector that finds one thing and the bird."""
    regions = [region(label, *CAT), region("bird", *BIRD)]
    lines = [detection_line(name, file, (64, 64), regions) for name, file in images]
    path.write_text("\n".join(['{"detector": "test"}', *lines]) + "\n")
    return str(path)


def test_what_a_detector_finds_in_both_is_counted(config, tmp_path: Path) -> None:
    photos = [(f"cat{n}", f"cat{n}.png") for n in range(2)]
    names = ("cat0-a", "cat0-b", "cat1-a")
    options = [
        f"detections=[{detections(tmp_path / 'photos.jsonl', 'cat', photos)}]",
        "augmented_detections=["
        + detections(tmp_path / "made.jsonl", "dog", [(n, f"{n}.png") for n in names])
        + "]",
    ]
    comparison = call(describe_set, config(*options))["found"]
    assert comparison["counts"]["places"] == comparison["counts"]["context"] == 3
    assert comparison["shares"] == {
        "context found again": 1.0,
        "replaced objects found": 1.0,
        "replaced objects named": 1.0,
        "pasted objects found": 1.0,
        "pasted objects named": pytest.approx(2 / 3),
    }
    with pytest.raises(ValueError, match="must be set together"):
        call(describe_set, config(options[0]))


def test_other_data_and_unfinished_sets_are_refused(config, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"image": "cat1.png", "caption": BEFORE}))
    with pytest.raises(ValueError, match=r"lacks 2 of the requested images, such as cat0"):
        call(describe_set, config())
    with pytest.raises(ValueError, match=r"data\.nosuch is not set for jsonl"):
        call(describe_set, config("split=nosuch"))
    with pytest.raises(ValueError, match="num_pictures: must be a whole number of at least 1"):
        call(describe_set, config("num_pictures=0"))
    (tmp_path / "made" / "provenance.jsonl").unlink()
    with pytest.raises(ValueError, match=r"no provenance\.jsonl; set augmented\.root=FOLDER"):
        call(describe_set, config())


@pytest.mark.long
def test_a_trained_run_describes_pictures_that_were_made(tmp_path: Path) -> None:
    """With evaluate.py, which reads the set as test data, saying the same of the pictures."""
    paths = [f"paths.cache={tmp_path / 'cache'}", f"paths.runs={tmp_path / 'runs'}"]
    run, set_folder = tmp_path / "run", tmp_path / "out"
    trained = compose_config("train", [*SMALL, *paths, f"run_dir={run}", "num_epochs=1"])
    OmegaConf.resolve(trained)
    train(trained)
    few = ["method.keep=null", "method.rules.num_captions=1", "method.num_patches=1"]
    loose = ["method.min_uses=2", "max_pairs=6"]
    call(augment, config_of(tmp_path, "method=cutswap", "data=miniworld_tiny", *few, *loose))
    chosen = [
        *paths,
        "data=miniworld_tiny",
        f"augmented.root={set_folder}",
        f"run={run}",
        "metrics=fast",
    ]
    comparison = call(describe_set, compose_config("captioned", chosen))
    evaluated = compose_config(
        "evaluate",
        [*paths, "data=augmented", f"data.root={set_folder}", f"run={run}", "metrics=fast"],
    )
    corpus = evaluate(evaluated)
    assert 0 < comparison["pictures"] <= 6
    # the same words of the same references, whatever their order
    assert corpus == pytest.approx(comparison["scores"]["pictures, captions after"])
    predictions = read_json(run / "evaluation" / "augmented-test" / "predictions.json")
    lines = (run / "evaluation" / "captioned-out" / "captions.jsonl").read_text().splitlines()
    captions = {
        line["picture"]: line["captions of the picture"][0] for line in map(json.loads, lines)
    }
    assert {line["image_id"]: line["caption"] for line in predictions} == captions
