"""Suspects to FiftyOne and Label Studio, and what people decided there."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from captioning.commands.main import main
from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.roster import CurationView, build_roster
from captioning.runtime.files import write_json
from captioning.types import Edit, Sample
from curation.check import check
from curation.check.check_files import write_result
from curation.journal.journal import read_journal
from curation.record import RunRecord
from curation.review.suspects import label_studio as tasks
from curation.review.suspects import suspects
from curation.review.suspects.label_studio import write_corrected
from curation.review.suspects.suspects import read_suspects

CAPTIONS = {
    "a dog.jpg": "A dog runs on grass.",
    "b.jpg": "IMG_2043.JPG",
    "c.jpg": "See www.example.org/dogs for more.",
    "d.jpg": "Two dogs sleep in a basket.",
}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four photos, of which two have no captions but a file name and an address."""
    folder = tmp_path / "my photos"
    (folder / "more").mkdir(parents=True)
    rows = []
    for number, (name, caption) in enumerate(CAPTIONS.items()):
        path = f"more/{name}" if number else name
        pixels = np.random.default_rng(number).integers(0, 255, (96, 96, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / path)
        rows.append(f"{path},{caption}")
    (folder / "metadata.csv").write_text("\n".join(["file_name,text", *rows]) + "\n")
    return folder


@pytest.fixture
def checked(photos: Path, tmp_path: Path) -> Path:
    result = check(photos, space="none", skip=("duplicate_photo",), quiet=True)
    write_result(result, tmp_path / "checked")
    return tmp_path / "checked"


def annotated(tasks: list[dict[str, Any]], decide: Callable[[str], tuple[str, str]]) -> list[Any]:
    """Tasks as Label Studio exports them: with its own ids, and a skipped annotation before."""
    for number, task in enumerate(tasks):
        verdict, text = decide(task["data"]["caption"])
        result = [{"from_name": "verdict", "type": "choices", "value": {"choices": [verdict]}}]
        if text:
            result.append(
                {"from_name": "correction", "type": "textarea", "value": {"text": [text]}}
            )
        task["id"] = 100 + number
        task["annotations"] = [
            {"result": [], "was_cancelled": True, "updated_at": "2026-03-03T00:00:00Z"},
            {"result": result, "was_cancelled": False, "updated_at": "2026-02-02T00:00:00Z"},
        ]
    return tasks


def test_a_suspect_has_the_other_captions_of_its_photo(photos: Path, tmp_path: Path) -> None:
    table = photos / "metadata.csv"
    table.write_text(table.read_text() + "more/b.jpg,A cat sits.\nmore/b.jpg,A cat looks.\n")
    write_result(check(photos, space="none", quiet=True), tmp_path / "checked")
    found = read_suspects(tmp_path / "checked")
    assert {suspect.caption: suspect.others for suspect in found} == {
        "IMG_2043.JPG": ("A cat sits.", "A cat looks."),
        "See www.example.org/dogs for more.": (),
    }


def test_what_is_told_of_a_photo_alone_makes_no_suspect(photos: Path, tmp_path: Path) -> None:
    Image.open(photos / "a dog.jpg").convert("L").save(photos / "a dog.jpg")
    Image.open(photos / "more" / "b.jpg").convert("L").save(photos / "more" / "b.jpg")
    write_result(check(photos, space="none", quiet=True), tmp_path / "checked")
    found = read_suspects(tmp_path / "checked")
    assert [suspect.issues for suspect in found] == [("grey_photo", "file_name"), ("address",)]


def test_fiftyone_gets_a_sample_a_photo(checked: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "fiftyone"
    arguments = ["curate", "suspects", str(checked), "--export", "fiftyone"]
    assert main([*arguments, str(out)]) == 0
    samples = json.loads((out / "samples.json").read_text())["samples"]
    assert [(out / sample["filepath"]).resolve() for sample in samples] == [
        photos / "more" / "b.jpg",
        photos / "more" / "c.jpg",
    ]
    assert "version" not in json.loads((out / "metadata.json").read_text())
    (label,) = samples[1]["suspects"]["classifications"]
    assert label["_cls"] == "Classification"
    assert (label["label"], label["confidence"]) == (CAPTIONS["c.jpg"], 1.0)
    assert "address" in samples[1]["tags"]


def test_label_studio_and_back(checked: Path, photos: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "tasks"
    arguments = ["curate", "suspects", str(checked), "--export", "label-studio"]
    assert main([*arguments, "--out", str(out), "--root", str(photos)]) == 0
    assert f"2 tasks, photos below {photos}" in capsys.readouterr().out
    tasks = json.loads((out / "tasks.json").read_text())
    image = tasks[0]["data"]["image"]
    assert image == "/data/local-files/?d=more/b.jpg"
    controls = {node.get("name"): node for node in ElementTree.parse(out / "interface.xml").iter()}
    for task in tasks:
        (prediction,) = task["predictions"]
        assert 0 <= prediction["score"] <= 1
        for part in prediction["result"]:
            assert controls[part["from_name"]].get("toName") == part["to_name"]
            assert controls[part["to_name"]].get("value") == "$image"

    decide = {CAPTIONS["b.jpg"]: ("correct", " A cat  sits. "), CAPTIONS["c.jpg"]: ("remove", "")}
    write_json(tmp_path / "export.json", annotated(tasks, decide.__getitem__))
    arguments = [str(tmp_path / "export.json"), str(photos), str(tmp_path / "new")]
    assert main(["curate", "corrections", *arguments, "--format", "imagefolder"]) == 0
    assert "3 captions; 1 x replace_caption, 1 x remove" in capsys.readouterr().out
    roster = read_own(name="new", folder=tmp_path / "new")
    assert [s.caption for s in roster.samples] == [
        CAPTIONS["a dog.jpg"],
        "A cat sits.",
        CAPTIONS["d.jpg"],
    ]
    _, edits = read_journal(tmp_path / "new")
    assert {edit.policy for edit in edits} == {"people"}
    assert "edits that people made" in (tmp_path / "new" / "README.md").read_text()


def test_corrections_keep_the_splits_of_the_folder(tmp_path: Path) -> None:
    source, rows = tmp_path / "set", ["file_name,text,split"]
    source.mkdir()
    for number, split in enumerate(("train", "train", "val", "test")):
        Image.new("RGB", (64, 64), (number * 60, 0, 0)).save(source / f"{number}.png")
        rows.append(f"{number}.png,Dog number {number} runs.,{split}")
    (source / "captions.csv").write_text("\n".join(rows))
    write_json(tmp_path / "export.json", [])
    write_corrected(
        tmp_path / "export.json", source, tmp_path / "new", format="parquet", photos="copy"
    )
    splits = own_splits(tmp_path / "new")
    assert {path.name: split for path, split in splits.items()} == {
        "0.png": "train", "1.png": "train", "2.png": "val", "3.png": "test"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task.pop("annotations"), "task 1 has no 'annotations': export the project"),
        (lambda task: task["data"].update(caption="Other"), "with this caption is not in"),
        (
            lambda task: task["annotations"].append(verdict("correct")),
            "but the corrected caption is missing",
        ),
        (
            lambda task: task["annotations"].append(verdict("maybe")),
            "verdict must be keep, remove or correct: got 'maybe'",
        ),
    ],
)
def test_what_does_not_fit_names_the_task(checked, photos, tmp_path, change, message) -> None:
    label_studio(checked, tmp_path / "tasks")
    tasks = json.loads((tmp_path / "tasks" / "tasks.json").read_text())
    tasks = annotated(tasks, lambda caption: ("keep", ""))
    change(tasks[0])
    write_json(tmp_path / "export.json", tasks)
    options = {"format": "coco", "photos": "none"}
    with pytest.raises(ValueError, match=message):
        write_corrected(tmp_path / "export.json", photos, tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def verdict(choice: str) -> dict[str, Any]:
    value = {"choices": [choice]}
    return {"result": [{"from_name": "verdict", "value": value}], "updated_at": "2026-04-04"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> RunRecord:
    """A run that removed a caption and replaced another; what reads it gives this record."""
    samples = [
        Sample(
            row=row,
            sample_id=f"{row}#0",
            image_id=str(row),
            image_path=tmp_path / f"photo {row}.jpg",
            caption=f"Caption {row}.",
        )
        for row in range(4)
    ]
    edits = [
        Edit(sample_id="1#0", action="remove", reason="loss 5", policy="top", epoch=2),
        Edit(sample_id="2#0", action="replace_caption", value="New.", policy="top", epoch=3),
    ]
    view = CurationView(roster=build_roster("toy", samples)).apply(edits)
    losses = np.array([[1.0, 9.0, np.nan, 4.0]])
    record = RunRecord(policy="top", seed=3, view=view, epochs=[3], history=losses)
    (tmp_path / "run" / "curation").mkdir(parents=True)
    (tmp_path / "run" / "curation.jsonl").write_text("")
    (tmp_path / "run" / "config.yaml").write_text("")
    for module in (suspects, tasks):
        monkeypatch.setattr(module, "read_run", lambda folder: record)
    monkeypatch.setattr(tasks, "read_held_out", lambda folder: {})
    return record


def test_a_run_gives_what_it_changed_or_lost_most_on(run: RunRecord, tmp_path: Path) -> None:
    changed = read_suspects(tmp_path / "run")
    assert [(s.sample_id, s.caption, s.proposal) for s in changed] == [
        ("1#0", "Caption 1.", None),
        ("2#0", "Caption 2.", "New."),
    ]
    assert changed[0].reason == "top, epoch 2: loss 5"
    worst = read_suspects(tmp_path / "run", top=2)
    assert [s.sample_id for s in worst] == ["1#0", "3#0"]
    with pytest.raises(ValueError, match="--top must be at least 1"):
        read_suspects(tmp_path / "run", top=0)


def test_a_suspect_of_a_run_has_the_other_captions_of_its_photo(
    run: RunRecord, tmp_path: Path, monkeypatch
) -> None:
    samples = [
        replace(sample, image_id="shared") if sample.row in (1, 3) else sample
        for sample in run.view.roster.samples
    ]
    view = CurationView(roster=build_roster("toy", samples)).apply(run.view.journal)
    monkeypatch.setattr(suspects, "read_run", lambda folder: replace(run, view=view))
    others = {s.sample_id: s.others for s in read_suspects(tmp_path / "run")}
    assert others == {"1#0": ("Caption 3.",), "2#0": ()}
    others = {s.sample_id: s.others for s in read_suspects(tmp_path / "run", top=2)}
    assert others == {"1#0": ("Caption 3.",), "3#0": ("Caption 1.",)}


def test_a_loss_stands_beside_the_caption_that_it_is_of(run: RunRecord, tmp_path, monkeypatch):
    edits = [
        Edit(sample_id="0#0", action="replace_image", value="n.jpg", policy="top", epoch=1),
        Edit(sample_id="1#0", action="replace_caption", value="Put in.", policy="top", epoch=2),
        Edit(sample_id="3#0", action="down_weight", value="0.5", policy="top", epoch=2),
        Edit(sample_id="2#0", action="replace_caption", value="New.", policy="top", epoch=3),
    ]
    losses = np.array([[1.0, 2.0, 3.0, 4.0], [8.0, 9.0, 7.0, 6.0]])
    view = replace(run.view, journal=()).apply(edits)
    record = replace(run, view=view, epochs=[2, 3], history=losses)
    monkeypatch.setattr(suspects, "read_run", lambda folder: record)
    assert [
        (s.sample_id, s.proposal, s.reason) for s in read_suspects(tmp_path / "run", top=3)
    ] == [
        (
            "2#0",
            "New.",
            "loss 7.00 nats a token in epoch 3; keeping it undoes replace_caption by top, epoch 3",
        ),
        (
            "3#0",
            None,
            "loss 6.00 nats a token in epoch 3; keeping it undoes down_weight by top, epoch 2",
        ),
    ]
    alone = replace(record, history=np.array([[np.nan, 9.0, np.nan, np.nan]]), epochs=[3])
    monkeypatch.setattr(suspects, "read_run", lambda folder: alone)
    with pytest.raises(ValueError, match="was replaced; remove --top to see"):
        read_suspects(tmp_path / "run", top=3)


def test_people_have_the_last_word_on_a_runs_edits(run: RunRecord, tmp_path: Path) -> None:
    out = tmp_path / "tasks"
    label_studio(tmp_path / "run", out)
    tasks = json.loads((out / "tasks.json").read_text())
    assert unquote(tasks[0]["data"]["image"]).endswith("?d=photo 1.jpg")
    write_json(tmp_path / "export.json", annotated(tasks[:1], lambda caption: ("keep", "")))
    options = {"format": "jsonl", "photos": "none"}
    counts = write_corrected(
        tmp_path / "export.json", tmp_path / "run", tmp_path / "new", **options
    )
    assert counts == {"keep": 1, "left": 4}
    _, edits = read_journal(tmp_path / "new")
    assert edits == [replace(run.view.journal[1])]


def label_studio(source: Path, out: Path) -> None:
    arguments = ["--export", "label-studio", "--out", str(out)]
    assert main(["curate", "suspects", str(source), *arguments]) == 0


def test_photos_that_are_elsewhere_are_said(checked: Path, photos: Path, tmp_path: Path) -> None:
    photos.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"b\.jpg and all other photos are missing"):
        read_suspects(checked)


def test_nothing_suspected_is_said(checked: Path, tmp_path: Path, capsys) -> None:
    table = checked / "issues.csv"
    table.write_text(table.read_text().replace(",True,", ",False,"))
    arguments = ["curate", "suspects", str(checked), "--out", str(tmp_path / "new")]
    assert main([*arguments, "--export", "fiftyone"]) == 1
    assert "the check flagged no caption" in capsys.readouterr().err
    assert main([*arguments, "--export", "fiftyone", "--url", "/x"]) == 1
    assert "are for label-studio" in capsys.readouterr().err


def test_decisions_that_are_not_there_are_named(photos: Path, tmp_path: Path, capsys) -> None:
    words = ["curate", "corrections", str(tmp_path / "nowhere.json"), str(photos)]
    assert main([*words, str(tmp_path / "new")]) == 1
    assert (
        "nowhere.json does not exist; name the JSON export of Label Studio"
        in capsys.readouterr().err
    )
