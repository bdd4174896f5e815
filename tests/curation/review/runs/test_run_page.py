"""The page of a run, of several, and their figures."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import page_data
import pytest
from finished_folder import EDITS, make_folder
from omegaconf import OmegaConf

from captioning.commands import report as command
from captioning.commands.main import main
from captioning.results.figures import VECTOR, figure_style, save_figure
from captioning.types import Edit
from curation.review.runs.reading import read_finished_run
from curation.review.runs.run_figures import draw_figures, training_loss
from curation.review.runs.run_page import duration, page_of
from curation.review.runs.runs_page import groups_of, short_names


def texts(sentences: list[list[Any]]) -> str:
    """Sentences as a reader sees them."""
    parts = [part for sentence in sentences for part in (*sentence, " ")]
    return "".join(part if isinstance(part, str) else part["text"] for part in parts)


# Parts whose lines name the file once more, in a command that mends it.
WITH_PATHS = ("config.yaml", "curation.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "run")


@pytest.fixture
def facts(folder: Path) -> dict[str, Any]:
    assert main(["report", str(folder), "--no-figures"]) == 0
    return page_data.facts(folder / "report.html")


def test_the_page_begins_with_what_happened(facts: Mapping[str, Any]) -> None:
    lead = texts(facts["lead"])
    assert lead.startswith("tiny_model was trained on toy for 2 epochs, on 12 captions of 6 ")
    assert "photos, in 2.0 min (seed 0). On 6 test" in lead
    assert "On 6 test photos it reaches CIDEr-D 0.400 (95% interval over photos: 0.2" in lead
    assert "highest in epoch 1 (0.400) and was still rising at the end." in lead
    assert "removed 1 caption and replaced 1 caption, 16.7% of all; 11 of 12 captions" in lead
    assert "1 item of the data could not be used." in lead
    assert [tile["value"] for tile in facts["tiles"]] == ["0.400", "2", "12", "16.7%", "2.0 min"]


def test_the_page_shows_scores_examples_and_edits(facts: Mapping[str, Any]) -> None:
    rows = {row["name"]: row for row in facts["test"]["rows"]}
    low, high = rows["CIDEr-D"]["interval"]
    assert 0.15 < low < 0.4 < high < 0.65
    assert rows["BLEU-4"]["interval"] is None  # corpus BLEU is no mean of images
    best, worst = facts["examples"][:2]
    assert [item["image"] for item in best["items"]][:2] == ["a.jpg", "f.jpg"]
    assert worst["items"][0]["image"] == "b.jpg"
    assert best["items"][0]["references"] == ["caption 0 of photo a", "caption 1 of photo a"]
    assert best["items"][0]["photo"] >= 0
    curation = facts["curation"]
    assert [(e["before"], e["after"]) for e in curation["shown"]] == [
        ("caption 1 of photo f", None),
        ("caption 0 of photo a", "a new caption"),
    ]
    assert curation["rules"][0]["reason"] == "loss 6.5 > 6 (mean + 1 SD)"
    assert curation["rules"][0]["losses"] == [6.5, 6.5]
    # the caption of the highest loss was removed in the first epoch, that of the lowest replaced
    thresholds = [entry["threshold"] for entry in curation["histograms"]["epochs"]]
    assert thresholds == [6.5, None]
    assert facts["dropped"][0]["count"] == 1
    assert ["data.name", "toy", "miniworld"] in facts["settings"]
    assert not [row for row in facts["settings"] if row[0].startswith(("paths", "data.train"))]
    assert facts["edits_page"] == "curation/report.html"


def test_a_page_with_parts_of_plugins_is_kept_where_they_are_not_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = folder / "config.yaml"
    config.write_text(f"{config.read_text()}\nplugins: [json, csv]\n")
    assert main(["report", str(folder), "--no-figures"]) == 0
    page = folder / "report.html"
    page.write_text("with all parts")
    assert main(["report", str(folder), "--no-figures", "--plugins", "json"]) == 1
    assert "made with its user's packages: add --plugins csv, as" in capsys.readouterr().err
    assert page.read_text() == "with all parts"
    other = folder / "other.html"
    assert main(["report", str(folder), "--no-figures", "--out", str(other)]) == 0
    assert main(["report", str(folder), "--no-figures", "--plugins", "json", "csv"]) == 0
    assert page_data.facts(page)
    assert page_data.facts(other)
    config.write_text("[")
    assert main(["report", str(folder), "--no-figures"]) == 1


def test_scores_of_nothing_but_zero_have_bins(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "zero", scores=[0.0] * 6)
    assert main(["report", str(folder), "--no-figures"]) == 0
    bars = page_data.facts(folder / "report.html")["test"]["distribution"]
    assert bars["edges"] == sorted(set(bars["edges"]))
    assert bars["counts"][0] == 6


def test_intervals_that_the_test_left_are_taken(folder: Path, edit_json) -> None:
    edit_json(
        folder / "metrics.json",
        lambda metrics: metrics["test"].update(intervals={"BLEU-4": [0.1, 0.3]}),
    )
    assert main(["report", str(folder), "--no-figures"]) == 0
    rows = page_data.facts(folder / "report.html")["test"]["rows"]
    assert [row["interval"] for row in rows] == [[0.1, 0.3], None]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "lost", "kept"),
    [
        ("metrics.json", "test", "curation"),
        ("curation.jsonl", "curation", "test"),
        ("curation/losses.npz", "curation", "test"),
        ("history.json", "validation", "test"),
        ("logs/csv/metrics.csv", "losses", "test"),
        ("predictions.json", "examples", "test"),
        ("timing.json", "timing", "test"),
        ("versions.json", "versions", "test"),
        ("dropped.json", "dropped", "test"),
        ("config.yaml", "curation", "test"),
    ],
)
def test_a_damaged_part_is_left_out_in_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, lost: str, kept: str
) -> None:
    (folder / name).write_text('step,train/loss\n3,x\n"' if name.endswith("csv") else '[{"a": ')
    assert main(["report", str(folder), "--no-figures"]) == 1
    facts = page_data.facts(folder / "report.html")
    assert not facts[lost]
    assert facts[kept]
    assert any("left out: " in note for note in facts["notes"])
    assert "left out: " in capsys.readouterr().err
    assert str(folder.parent) not in "".join(facts["notes"]) or name in WITH_PATHS


def test_values_of_the_wrong_kind_are_damage_too(folder: Path, edit_json) -> None:
    edit_json(folder / "metrics.json", lambda m: m["test"]["per_image"].update({"a.jpg": [1]}))
    edit_json(folder / "timing.json", lambda timing: timing.update(epochs=[3]))
    edit_json(folder / "history.json", lambda history: history.append({"epoch": "last"}))
    assert main(["report", str(folder), "--no-figures"]) == 1
    facts = page_data.facts(folder / "report.html")
    assert (facts["test"], facts["timing"], facts["validation"]) == (None, [], None)
    assert len(facts["notes"]) == 3


@pytest.mark.parametrize(
    ("name", "change", "part"),
    [
        ("versions.json", lambda content: content.update(resumed=5), "versions left out"),
        ("timing.json", lambda c: c["epochs"][0].update(seconds="x"), "left out"),
        (
            "history.json",
            lambda c: c[0].update({"CIDEr-D": "x"}),
            "history.json is damaged: CIDEr-D is 'x'",
        ),
    ],
)
def test_what_the_page_itself_leaves_out_is_told_too(
    folder: Path, edit_json, capsys: pytest.CaptureFixture[str], name: str, change, part: str
) -> None:
    edit_json(folder / name, change)
    assert main(["report", str(folder), "--no-figures"]) == 1
    assert part in capsys.readouterr().err


def test_a_remedy_names_a_file_that_is_there(folder: Path, capsys) -> None:
    path = folder / "curation.jsonl"
    path.write_text(path.read_text()[:-9])
    assert main(["report", str(folder), "--no-figures"]) == 1
    assert f"captioning curate journal repair {path}" in capsys.readouterr().err


def test_a_run_without_curation_has_a_page(folder: Path) -> None:
    (folder / "curation.jsonl").unlink()
    assert main(["report", str(folder), "--no-figures"]) == 0
    facts = page_data.facts(folder / "report.html")
    assert facts["curation"] is None
    assert facts["edits_page"] is None
    assert "on 12 captions of 6 photos" in texts(facts["lead"])
    assert "No caption was curated." in texts(facts["lead"])


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "is not a run folder: no config.yaml in it or below" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "no such folder" in capsys.readouterr().err


def compared(tmp_path: Path, *, status: int = 0, **second: Any) -> dict[str, Any]:
    """Facts of the page of two configs, the first with two seeds."""
    for seed in (0, 1):
        scores = [0.1 + seed / 10, 0.1, 0.2, 0.3, 0.4, 0.5]
        make_folder(tmp_path / f"none/seed{seed}", name="toy/x-none", seed=seed, scores=scores)
    more = [*EDITS, Edit(sample_id="b.jpg#0", action="remove", policy="q", epoch=1)]
    options = {"edits": more, "scores": [0.9, 0.1, 0.2, 0.3, 0.4, 0.6]} | second
    make_folder(tmp_path / "remove/seed0", name="toy/x-remove", **options)
    page = tmp_path / "page.html"
    sources = [str(tmp_path / "none"), str(tmp_path / "remove/seed0")]
    assert main(["report", *sources, "--no-figures", "--out", str(page)]) == status
    return page_data.facts(page)


def test_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    facts = compared(tmp_path, settings={"optimizer": {"lr": 0.1}})
    assert facts["names"] == ["none", "remove"]
    assert facts["num_runs"] == 3
    column = facts["table"]["metrics"].index("CIDEr-D")
    first, second = (row["cells"][column] for row in facts["table"]["rows"])
    assert first["mean"] == pytest.approx((1.6 + 1.7) / 12)
    assert first["spread"] == pytest.approx(0.1 / 6 / 2**0.5)
    assert (second["spread"], second["best"]) == (None, True)
    assert second["interval"][0] < second["mean"] < second["interval"][1]
    assert second["difference"][0] == pytest.approx((0.8 + 0.1) / 6)  # of the shared seed
    assert "CIDEr-D is highest for remove: 0.417" in texts(facts["lead"])
    assert facts["validation"][0]["band"][0][1] < facts["validation"][0]["band"][0][2]
    assert facts["edited_by_epoch"][1]["points"] == [[0, 1], [1, 3]]
    assert facts["overlap"]["rows"][0] == [1, pytest.approx(2 / 3)]
    assert facts["different"][0]["image"] == "a.jpg"
    assert [c["score"] for c in facts["different"][0]["captions"]] == [pytest.approx(0.15), 0.9]
    shared = facts["edited"][:2]
    assert {item["id"] for item in shared} == {"a.jpg#0", "f.jpg#1"}
    assert [edit["run"] for edit in shared[0]["edits"]] == ["none", "remove"]
    assert facts["settings"] == [["optimizer.lr", "–", "0.1"]]


def test_runs_that_cannot_be_compared_lack_the_table_alone(tmp_path: Path) -> None:
    facts = compared(tmp_path, status=1, settings={"data": {"name": "other"}})
    assert facts["table"] is None
    (note,) = (note for note in facts["notes"] if "runs with different data" in note)
    assert "--" not in note
    assert "captioning compare" in note
    assert len(facts["validation"]) == 2
    assert facts["apart"]
    assert "captioning compare A B scores two of them on one test set" in texts(facts["lead"])
    assert facts["different"] == []


def test_curves_of_other_data_share_no_axes(tmp_path: Path) -> None:
    facts = compared(tmp_path, settings={"data": {"root": "cleaned"}})
    assert facts["table"] is not None
    assert facts["apart"]
    validated = {"text": "a", "pictures": "b"}
    for folder in (tmp_path / "none/seed0", tmp_path / "none/seed1", tmp_path / "remove/seed0"):
        (folder / "data.json").write_text(json.dumps({"splits": {"val": validated}}))
    sources = [str(tmp_path / "none"), str(tmp_path / "remove/seed0")]
    page = tmp_path / "known.html"
    assert main(["report", *sources, "--no-figures", "--out", str(page)]) in (0, 1)
    assert not page_data.facts(page)["apart"]


@pytest.mark.long
def test_configs_that_cannot_be_compared_have_no_figure_of_both(tmp_path: Path) -> None:
    drawn = {}
    for place, settings in (("same", {}), ("other", {"data": {"name": "other"}})):
        folder = tmp_path / place
        runs = [make_folder(folder / "a", name="toy/a")]
        runs += [make_folder(folder / "b", name="toy/b", settings=settings)]
        drawn[place] = draw_figures([read_finished_run(run) for run in runs], folder / "plots")
    assert drawn["same"] == ["training_loss", "validation", "test_scores", "edits"]
    assert drawn["other"] == ["edits"]


def test_what_training_began_with_stands_on_the_page(folder: Path) -> None:
    (folder / "start.json").write_text('{"scores": {"BLEU-4": 0.1, "CIDEr-D": 0.25}}')
    assert main(["report", str(folder), "--no-figures"]) == 0
    facts = page_data.facts(folder / "report.html")
    told = "Before training, the captioner had validation CIDEr-D 0.250, and 0.400 after the last"
    assert told in texts(facts["lead"])
    assert facts["validation"]["start"] == [["CIDEr-D", 0.25]]
    (folder / "start.json").write_text('{"scores": {"CIDEr-D": "x"}}')
    other = folder / "other.html"
    assert main(["report", str(folder), "--no-figures", "--out", str(other)]) == 1
    assert any("score before training left out" in n for n in page_data.facts(other)["notes"])


def test_runs_of_one_name_that_are_no_seeds_of_one_config_stand_apart(tmp_path: Path) -> None:
    for place, seeds in (("here", (0, 1)), ("there", (0, 1))):
        for seed in seeds:
            make_folder(tmp_path / f"{place}/toy/x/seed{seed}", name="toy/x", seed=seed)
    page = tmp_path / "page.html"
    sources = [str(tmp_path / place) for place in ("here", "there")]
    assert main(["report", *sources, "--no-figures", "--out", str(page)]) == 0
    facts = page_data.facts(page)
    assert facts["full_names"] == [f"toy/x ({place}/toy/x)" for place in ("here", "there")]
    assert [row["num_runs"] for row in facts["table"]["rows"]] == [2, 2]
    assert "data.train.image_folder" in [key for key, *_ in facts["settings"]]
    assert "share a seed or differ in settings" in texts(facts["lead"])


def test_seeds_may_read_the_folders_of_their_seed_and_no_other_data(tmp_path: Path) -> None:
    runs = []
    for seed, lr in ((0, 0.1), (1, 0.1), (2, 0.2)):
        own = {"start_from": f"runs/x/seed{seed}", "model": {"seed": seed}}
        settings = own | {"imported": "store/seed0", "steps": {"seed": 0}, "lr": lr}
        folder = tmp_path / f"seed{seed}"
        runs.append(read_finished_run(make_folder(folder, name="x", seed=seed, settings=settings)))
    assert [group.key for group in groups_of(runs[:2])] == ["x"]
    assert [len(group.runs) for group in groups_of(runs)] == [1, 1, 1]


def test_names_lose_what_all_share() -> None:
    names = ["a/none-lr_1", "a/remove-lr_1-x"]
    assert short_names(names) == ["none", "remove-x"]
    assert short_names(["a", "a-b"]) == ["a", "a-b"]  # nothing would be left of the first
    assert short_names(["study/only"]) == ["study/only"]


@pytest.mark.long
def test_figures_are_vectors_with_labels_and_the_same_each_time(folder: Path) -> None:
    assert main(["report", str(folder)]) == 0
    plots = folder / "plots"
    names = {"edits", "losses", "test_scores", "training_loss", "validation"}
    assert {path.name for path in plots.iterdir()} == {
        f"{n}.{e}" for n in names for e in ("svg", "pdf")
    }
    first = {path.name: path.read_bytes() for path in plots.iterdir()}
    assert all(first[f"{name}.pdf"].startswith(b"%PDF") for name in names)
    words = "".join(ElementTree.fromstring(first["losses.svg"]).itertext())
    for text in ("loss of the caption (nats a token)", "captions", "epoch 0: 1 edited"):
        assert text in words
    with figure_style():
        again = training_loss(groups_of([read_finished_run(folder)]))
    save_figure(again, folder, "again")
    for ending in VECTOR:
        assert (folder / f"again.{ending}").read_bytes() == first[f"training_loss.{ending}"]


def test_a_page_that_fails_does_not_fail_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = OmegaConf.create({"run_dir": str(folder), "report": True})
    with caplog.at_level(logging.WARNING):
        command.report_ended(config, SimpleNamespace())
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{folder}: the run is finished, but its page could not be written" in line
    assert f"try captioning report {folder}" in line
    assert not (folder / "report.html").exists()
    caplog.clear()
    command.report_ended(OmegaConf.merge(config, {"report": False}), SimpleNamespace())
    assert not caplog.records


def test_a_page_that_a_kill_left_unwritten_is_written_when_the_run_is_started_again(
    folder: Path,
) -> None:
    config = OmegaConf.create({"run_dir": str(folder), "report": True})
    page = folder / "report.html"
    command.report_ended(config, None)
    assert page_data.facts(page)["lead"]
    page.write_text("one that is there")
    command.report_ended(config, None)
    assert page.read_text() == "one that is there"


def test_durations_are_read_at_a_glance() -> None:
    assert [duration(x) for x in (3.04, 90, 7200)] == ["3.0 s", "1.5 min", "2.0 h"]


def test_in_a_browser_the_pages_are_read_by_keyboard_and_without_network(
    folder: Path, tmp_path: Path, browser
) -> None:
    assert main(["report", str(folder), "--no-figures"]) == 0
    browser.open((folder / "report.html").as_uri())
    browser.wait("document.body.dataset.ready === 'yes'")
    assert "removed 1 caption" in browser.text("#lead")
    assert (
        browser.run("return document.querySelectorAll('svg[role=img]:not([aria-label])').length")
        == 0
    )
    assert browser.run("return [...document.images].every(x => x.naturalWidth > 0)")
    assert browser.run("return [...document.querySelectorAll('#captions img')].every(x => x.alt)")
    struck = "return getComputedStyle(document.querySelector('.before.gone')).textDecorationLine"
    assert browser.run(struck) == "line-through"
    # what can be pressed is reached by the keyboard: buttons, links and summaries
    kinds = "return [...new Set([...document.querySelectorAll('main *')].filter(x => x.onclick)"
    assert browser.run(f"{kinds}.map(x => x.tagName))]") == []
    browser.run("document.querySelectorAll('#captions .tabs button')[1].focus()")
    browser.type("#captions .tabs button:nth-child(2)", "\ue007")
    browser.wait(
        "document.querySelectorAll('#captions [aria-pressed=true]')[0].textContent === 'worst'"
    )
    assert "caption 1 of photo a" in browser.text("#captions .gallery article:nth-child(1)")
    wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    browser.resize(500, 900)
    assert browser.run(wide)
    browser.resize(1280, 900)
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_an_epoch_that_edits_at_random_has_no_threshold(tmp_path: Path) -> None:
    edits = [replace(EDITS[1], sample_id="a.jpg#1", epoch=0)]
    folder = make_folder(tmp_path / "random", edits=edits)
    assert main(["report", str(folder), "--no-figures"]) == 0
    epochs = page_data.facts(folder / "report.html")["curation"]["histograms"]["epochs"]
    assert [entry["threshold"] for entry in epochs] == [None, None]


@pytest.mark.parametrize("name", ["run", "runs", "compared"])
def test_the_scripts_of_a_page_declare_each_name_once(name: str) -> None:
    """A browser runs none of a script that declares a name twice."""
    script = page_of(name, "title", []).rpartition("<script>")[2]
    names = re.findall(r"^(?:const|let|(?:async )?function) (\w+)", script, re.MULTILINE)
    assert len(names) > 40
    assert sorted(names) == sorted(set(names))
