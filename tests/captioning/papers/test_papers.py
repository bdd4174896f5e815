"""A paper's file, its cells, its pages and its runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from captioning.commands.paper import PAPER
from captioning.papers import paper_report
from captioning.papers.cells import Cells, Results
from captioning.papers.paper import Paper
from captioning.papers.paper_file import read_paper
from captioning.papers.paper_report import item_lines, label, measured_lines
from captioning.papers.steps import Task, check_needs, tasks_of
from captioning.results.runs import write_study
from tests.captioning.papers.conftest import paper_of
from tests.photo_files import picture


def finish(results: Results, paper: Paper, seed: int, score: float) -> None:
    folder = results.folder(paper, paper.runs["ours"], "flickr8k", seed)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"seed: {seed}\n", encoding="utf-8")
    metrics = {"test": {"corpus": {"CIDEr-D": score}}}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")


def test_cells_have_mean_and_spread_over_seeds_in_the_papers_unit(tmp_path: Path, content):
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    for seed, score in enumerate((0.5, 0.7)):
        finish(results, paper, seed, score)
    cells, item = Cells(paper, "flickr8k", results), paper.items["table1"]
    first, second = cells.row_cells(item, item.rows[0])
    assert first.state == "measured"
    assert first.mean == pytest.approx(60)
    assert first.deviation == pytest.approx(14.142, abs=1e-3)
    assert first.differs == ("a small model", "few pairs"), "those of runs that are needed, too"
    assert second.state == "not possible"
    assert cells.counts == {"measured": 1, "missing": 0, "not possible": 1, "quoted": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [\n", "own.yaml is not valid YAML: .*line 2.*; correct the file"),
        ("title: x\nruns: [a]\n", "own.yaml: .*must hold keys and values: got"),
    ],
)
def test_a_broken_file_is_told_in_a_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=told) as refused:
        read_paper(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c.update(scales=["full"]), "scales: must hold keys and values"),
        (lambda c: c["runs"]["ours"]["flickr8k"].update(steps="train"), "ours.flickr8k: steps"),
        (lambda c: c["runs"]["ours"]["flickr8k"].update(steps=["a 'b"]), "No closing quotation"),
        (lambda c: c["runs"]["ours"]["flickr8k"].update(steps=[" "]), "must be commands"),
        (lambda c: c["runs"]["ours"]["flickr8k"].update(hours="2 h"), "hours: must be a number"),
        (lambda c: c["items"]["table1"].update(columns={"name": "C"}), "columns: must be a list"),
        (
            lambda c: c["items"]["table1"]["rows"][0].update(published=["abc", 1]),
            r"items.table1.rows\[0\]: published: must be a number or null: got 'abc'",
        ),
    ],
)
def test_values_of_another_kind_are_refused_by_place(tmp_path: Path, content, change, told):
    change(content)
    with pytest.raises(ValueError, match=f"mine.yaml: .*{told}"):
        paper_of(tmp_path, content)


def test_a_folder_of_records_that_is_not_there_is_refused(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    PAPER.add_arguments(parser)
    options = parser.parse_args(["list", "--records", str(tmp_path / "no")])
    with pytest.raises(FileNotFoundError, match="--records .*no: no such folder"):
        paper_report.show(options)


def test_what_is_not_measured_is_missing_or_has_its_reason(tmp_path: Path, content):
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    item = paper.items["table1"]
    small, full = Cells(paper, "flickr8k", results), Cells(paper, "full", results)
    assert small.cell(item, item.rows[0], 0).state == "missing"
    assert full.cell(item, item.rows[0], 0).reason == "the data were never released"
    assert full.cell(item, item.rows[1], 0).reason == "Others (2020)"


def test_a_way_may_lack_columns_by_file_or_metric(tmp_path: Path, content):
    columns = [{"name": "C", "metric": "CIDEr-D", "file": "cross/metrics.json"}]
    content["items"]["table1"]["columns"] = [*columns, {"name": "S", "metric": "SPICE"}]
    without = {"cross/metrics.json": "no photos", "SPICE": "no Java"}
    content["runs"]["ours"]["flickr8k"]["without"] = without
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    item = paper.items["table1"]
    cells = Cells(paper, "flickr8k", results).row_cells(item, item.rows[0])
    assert [(cell.state, cell.reason) for cell in cells] == [
        ("not possible", "no photos"),
        ("not possible", "no Java"),
    ]


def test_what_a_way_lacks_is_shown_where_it_was_measured(tmp_path: Path, content):
    content["runs"]["ours"]["flickr8k"]["without"] = {"CIDEr-D": "no references"}
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    finish(results, paper, 0, 0.5)
    item = paper.items["table1"]
    assert Cells(paper, "flickr8k", results).cell(item, item.rows[0], 0).values == (50.0,)


def test_further_tests_of_a_record_stand_for_files_of_a_run(tmp_path: Path, content):
    column = {"name": "C", "metric": "CIDEr-D", "file": "cross/metrics.json"}
    content["items"]["table1"]["columns"][0] = column
    recorded = {"file": "coco", "values": {"run_name": "coco/t"}}
    recorded["tests"] = {"cross/metrics.json": "flickr8k.json"}
    content["runs"]["ours"]["flickr8k"]["recorded"] = [recorded]
    record = {"run": "coco/t/seed0", "config": {"run_name": "coco/t", "seed": 0}}
    record |= {"metrics": {}, "files": {"flickr8k.json": {"CIDEr-D": 0.25}}}
    write_study(tmp_path / "coco.jsonl", [record])
    paper, results = paper_of(tmp_path, content), Results(tmp_path / "none", [tmp_path])
    item = paper.items["table1"]
    assert Cells(paper, "flickr8k", results).cell(item, item.rows[0], 0).values == (25.0,)


def test_a_run_may_have_the_records_of_another_one(tmp_path: Path, content):
    content["runs"]["ours"]["flickr8k"]["recorded"] = [{"file": "other", "run": "same"}]
    record = {"config": {"seed": 0}, "files": {}}
    scores = {"same": 0.25, "else": 0.75}
    records = [
        record | {"run": f"other/{name}/seed0", "metrics": {"test": {"corpus": {"CIDEr-D": score}}}}
        for name, score in scores.items()
    ]
    write_study(tmp_path / "other.jsonl", records)
    paper, results = paper_of(tmp_path, content), Results(tmp_path / "none", [tmp_path])
    item = paper.items["table1"]
    assert Cells(paper, "flickr8k", results).cell(item, item.rows[0], 0).values == (25.0,)
    content["runs"]["ours"]["flickr8k"]["recorded"] = [{"file": "other"}]
    with pytest.raises(ValueError, match=r"recorded: needs values or run, which tell"):
        paper_of(tmp_path, content)


def test_a_runs_folder_comes_before_its_record(tmp_path: Path, content):
    record = {"metrics": {"test": {"corpus": {"CIDEr-D": 0.25}}}, "files": {}}
    name = "mine-flickr8k/ours/seed"
    records = [record | {"run": f"{name}{seed}", "config": {"seed": seed}} for seed in (0, 1)]
    write_study(tmp_path / "mine-flickr8k.jsonl", records)
    paper, results = paper_of(tmp_path, content), Results(tmp_path, [tmp_path])
    finish(results, paper, 0, 0.5)
    item = paper.items["table1"]
    cell = Cells(paper, "flickr8k", results).cell(item, item.rows[0], 0)
    assert dict(zip(cell.seeds, cell.values, strict=True)) == {"0": 50.0, "1": 25.0}


def test_a_run_without_scores_is_read_when_its_steps_are_done(tmp_path: Path, content):
    content["items"]["table1"]["columns"][0] |= {"file": "card.json", "part": "likeness.token"}
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    folder = results.folder(paper, paper.runs["ours"], "flickr8k", 0)
    folder.mkdir(parents=True)
    card = {"likeness": {"token": {"CIDEr-D": 0.5}}}
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    (folder / "paper.json").write_text("[]", encoding="utf-8")
    item = paper.items["table1"]
    assert Cells(paper, "flickr8k", results).cell(item, item.rows[0], 0).values == (50.0,)


def test_published_and_measured_numbers_stand_in_tables_of_their_own(tmp_path: Path, content):
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    finish(results, paper, 0, 0.5)
    lines = item_lines(paper.items["table1"], Cells(paper, "flickr8k", results))
    assert "| Ours | 101.5 | 3 |" in lines
    assert "| Ours | 1 | 50.00 |" in lines
    assert [label("table1"), label("figure5a")] == ["Table 1", "Figure 5a"]


def test_a_table_says_each_thing_once(tmp_path: Path, content):
    """In the fitting place: above the table, beside a row, in a cell, or below."""
    content["runs"]["other"] = {
        "flickr8k": {
            "steps": ["train x=1"],
            "differs": ["a small model", "another rate"],
            "without": {"S": "no Java"},
        }
    }
    item = content["items"]["table1"]
    item["columns"].append({"name": "S", "metric": "SPICE"})
    item["rows"] = [
        {"name": "Ours", "published": [101.5, 3, 20], "run": "ours"},
        {"name": "Other", "published": [90, 3, 21], "run": "other"},
        {"name": "Theirs", "published": [99, None, None], "quoted": "Others (2020)"},
        {"name": "Nobody's", "published": [99, None, None], "not_possible": "never released"},
    ]
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    for seed, score in enumerate((0.5, 0.7)):
        finish(results, paper, seed, score)
    lines = measured_lines(paper.items["table1"], Cells(paper, "flickr8k", results))
    assert lines[2:] == [
        "All rows below differ from the paper in these points:",
        "",
        "- a small model",
        "",
        "|  | seeds | C | S |",
        "| --- | --- | --- | --- |",
        "| Ours [1] | 2 | 60.00 ± 14.14 | missing |",
        "| Other [2] |  | missing | not possible [3] |",
        "",
        "1. few pairs",
        "2. another rate",
        "3. no Java",
        "",
        "| not measured at this scale | reason |",
        "| --- | --- |",
        '| row "Nobody\'s" | never released |',
        '| column "human" | This project does not compute this score. |',
        "",
    ]
    assert "| Theirs | Others (2020) |" in item_lines(
        paper.items["table1"], Cells(paper, "flickr8k", results)
    )


def test_seeds_stand_in_the_cells_of_a_row_where_they_differ(tmp_path: Path, content):
    content["items"]["table1"]["columns"][1] = {"name": "R", "metric": "ROUGE-L"}
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    for seed, score in enumerate((0.5, 0.7)):
        finish(results, paper, seed, score)
    file = results.folder(paper, paper.runs["ours"], "flickr8k", 0) / "metrics.json"
    metrics = {"test": {"corpus": {"CIDEr-D": 0.5, "ROUGE-L": 0.25}}}
    file.write_text(json.dumps(metrics), encoding="utf-8")
    lines = measured_lines(paper.items["table1"], Cells(paper, "flickr8k", results))
    assert "| Ours |  | 60.00 ± 14.14 (2) | 25.00 (1) |" in lines


def test_runs_come_after_those_that_they_need_and_shared_ones_once(tmp_path: Path, content):
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    tasks = tasks_of(paper, ["ours"], "flickr8k", [0, 1], results)
    assert [(task.run.id, task.seed) for task in tasks] == [("pairs", 0), ("ours", 0), ("ours", 1)]
    made = tmp_path / "papers/mine-flickr8k/pairs/made"
    ours = tmp_path / "papers/mine-flickr8k/ours/seed1"
    assert tasks[0].lines == [f"captioning augment out={made}"]
    assert tasks[2].lines == [
        f"captioning train added={made} name=s1 seed=1 run_dir={ours}",
        f"captioning evaluate run={ours}",
    ]


def test_what_is_missing_is_told_by_seed(tmp_path: Path, content, capsys):
    """Of a run that all seeds share none is missing once it is made."""
    content["items"]["table1"]["rows"].append(
        {"name": "Pairs", "published": [1, 2], "run": "pairs"}
    )
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    line = f"{tmp_path}/mine.yaml --scale flickr8k --missing --runs {tmp_path}"
    words = [*line.split(), "--records", str(tmp_path), "--seeds"]

    parser = argparse.ArgumentParser()
    PAPER.add_arguments(parser)

    def told(seeds: str) -> list[str]:
        paper_report.show(parser.parse_args([*words, seeds]))
        lines = capsys.readouterr().out.splitlines()
        return [line[2:].split(":")[0] for line in lines if ", seed " in line]

    assert told("0,1") == ["pairs, seed 0", "ours, seed 0", "ours, seed 1"]
    finish(results, paper, 0, 0.5)
    made = results.folder(paper, paper.runs["pairs"], "flickr8k", 0)
    made.mkdir(parents=True)
    (made / "metrics.json").write_text('{"test": {"corpus": {"CIDEr-D": 1}}}', encoding="utf-8")
    (made / "paper.json").write_text(json.dumps([["augment", f"out={made}"]]), encoding="utf-8")
    assert told("0,1,2") == ["ours, seed 1", "ours, seed 2"]
    assert told("0") == []


def test_main_tables_are_of_more_seeds_than_others(tmp_path: Path, content, monkeypatch):
    content["runs"]["aside"] = {"flickr8k": {"steps": ["train x=1"]}}
    main = content["items"]["table1"]
    row = {"name": "Aside", "published": [1, 2], "run": "aside"}
    content["items"] = {"table1": {**main, "seeds": 3}, "table2": {**main, "rows": [row]}}
    paper_of(tmp_path, content)
    parser = argparse.ArgumentParser()
    PAPER.add_arguments(parser)
    found: list[Task] = []
    monkeypatch.setattr(paper_report, "carry_out", lambda tasks, *_: found.extend(tasks))

    def told(*words: str) -> list[str]:
        line = [f"{tmp_path}/mine.yaml", *words, "--scale", "flickr8k", "--run"]
        places = ["--runs", str(tmp_path), "--records", str(tmp_path)]
        found.clear()
        paper_report.show(parser.parse_args([*line, *places]))
        return [task.name for task in found]

    first, rest = ["pairs, seed 0", "ours, seed 0"], ["ours, seed 1", "ours, seed 2"]
    assert told() == told("--missing") == [*first, "aside, seed 0", *rest]
    assert told("2") == told("--rows", "aside") == ["aside, seed 0"]
    assert told("--missing", "--seeds", "1") == ["pairs, seed 0", "ours, seed 1", "aside, seed 1"]


@pytest.mark.parametrize("number", [0, "3"])
def test_tables_are_of_a_seed_or_more(tmp_path: Path, content, number):
    content["items"]["table1"]["seeds"] = number
    with pytest.raises(ValueError, match=r"table1: seeds must be a number, at least 1"):
        paper_of(tmp_path, content)


def test_what_all_seeds_share_is_made_of_the_first_seeds_runs(tmp_path: Path, content):
    content["runs"]["base"] = {"flickr8k": {"steps": ["train x=1"]}}
    content["runs"]["pairs"]["flickr8k"]["steps"] = ["augment of={run:base} seed={seed}"]
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    tasks = tasks_of(paper, ["ours"], "flickr8k", [1], results)
    assert [(task.run.id, task.seed) for task in tasks] == [("base", 0), ("pairs", 0), ("ours", 1)]
    base = tmp_path / "papers/mine-flickr8k/base/seed0"
    assert tasks[1].commands == (("augment", f"of={base}", "seed=0"),)


def test_evaluations_without_a_config_are_of_their_folders_seeds(tmp_path: Path, content):
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    for seed in (0, 1):
        finish(results, paper, seed, 0.5)
        (results.folder(paper, paper.runs["ours"], "flickr8k", seed) / "config.yaml").unlink()
    assert len(results.of(paper, paper.runs["ours"], "flickr8k")) == 2


@pytest.mark.parametrize("way", ["--run", "--slurm"])
def test_what_others_make_is_looked_for_before_anything_begins(
    tmp_path: Path, content, monkeypatch, capsys, way
):
    content["runs"]["ours"]["full"] = {"steps": ["train weights={data}/w.pth model.pretrained=a/b"]}
    content["needs"] = {
        "{data}/w.pth": {"what": "their weights"},
        "{models}/a/b": {"what": "a model", "named": ["pretrained=a/b"], "hub": True},
        "{models}/c": {"what": "of other runs"},
    }
    paper = paper_of(tmp_path, content)
    monkeypatch.setattr(paper_report, "load_paper", lambda _: paper)
    monkeypatch.setenv("CAPTIONING_DATA", str(tmp_path / "disk"))
    monkeypatch.setenv("CAPTIONING_MODELS", str(tmp_path / "hub"))
    carried: list[Task] = []
    monkeypatch.setattr(paper_report, "carry_out", lambda tasks, *_: carried.extend(tasks))
    parser = argparse.ArgumentParser()
    PAPER.add_arguments(parser)
    options = parser.parse_args(["mine", "--seeds", "0,1", "--runs", str(tmp_path), way])
    with pytest.raises(FileNotFoundError) as error:
        paper_report.show(options)
    assert str(error.value).splitlines()[1:-1] == [
        f"{tmp_path}/disk/w.pth: their weights; for ours",
        f"{tmp_path}/hub/a/b: a model (hf download a/b --local-dir {tmp_path}/hub/a/b); for ours",
    ]
    for path in ("disk/w.pth", "hub/a/b"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    paper_report.show(options)
    if way == "--run":
        weights = f"weights={tmp_path}/disk/w.pth"
        assert [task.commands[0][1] for task in carried] == [weights, weights]
    else:
        assert capsys.readouterr().out.count("sbatch --parsable") == 2


def test_photos_are_opened_before_anything_begins(tmp_path: Path, content, monkeypatch):
    """Of a data set all files are looked for, and all that is missing is named at once."""
    content["runs"]["ours"]["full"] = {"steps": ["train data=nocaps", "evaluate extra={data}/more"]}
    content["needs"] = {
        "data=nocaps": {},
        "{data}/more": {"what": "more photos", "num_photos": 20},
    }
    monkeypatch.setenv("CAPTIONING_DATA", str(tmp_path / "disk"))
    paper = paper_of(tmp_path, content)
    tasks = tasks_of(paper, ["ours"], "full", [0], Results(tmp_path))
    nocaps, more = tmp_path / "disk" / "nocaps", tmp_path / "disk" / "more"

    def told() -> list[str]:
        with pytest.raises(FileNotFoundError) as error:
            check_needs(paper, "full", tasks)
        return str(error.value).splitlines()[1:-1]

    captions = f"{nocaps}/nocaps_val_4500_captions.json: 10 captions an image, with domains"
    photos = f"{nocaps}/images: 4,500 photos of Open Images V4, named as file_name says"
    see = " (see `captioning prepare data=nocaps`); "
    others = f"{more}: more photos; "
    assert told() == [f"{captions}{see}for ours", f"{photos}{see}for ours", f"{others}for ours"]

    (nocaps / "images").mkdir(parents=True)
    (nocaps / "nocaps_val_4500_captions.json").touch()
    more.mkdir()
    for number in range(17):
        picture(more, f"{number:02}.jpg")
    few = f"{photos}{see}it has 0 of 4,500 photos; for ours"
    assert told() == [few, f"{others}it has 17 of 20 photos; for ours"]
    for number in range(17, 20):
        picture(more, f"{number:02}.jpg")
    assert told() == [few]
    (more / "19.jpg").write_bytes(b"<html>")  # the last name is opened, too
    assert told()[1].startswith(f"{others}19.jpg ")


@pytest.mark.parametrize("measured", [True, False])
def test_what_is_missing_can_be_carried_out(tmp_path: Path, content, monkeypatch, measured):
    paper, results = paper_of(tmp_path, content), Results(tmp_path)
    if measured:
        finish(results, paper, 0, 0.5)
    carried: list[str] = []
    monkeypatch.setattr(paper_report, "load_paper", lambda _: paper)
    monkeypatch.setattr(
        paper_report, "carry_out", lambda tasks, *_: carried.extend(t.run.id for t in tasks)
    )
    parser = argparse.ArgumentParser()
    PAPER.add_arguments(parser)
    words = f"mine --scale flickr8k --missing --run --seeds 0 --runs {tmp_path}".split()
    words += ["--records", str(tmp_path)]
    paper_report.show(parser.parse_args(words))
    assert carried == ([] if measured else ["pairs", "ours"])
    pairs = tasks_of(paper, ["pairs"], "flickr8k", [0], results)[0]
    pairs.folder.mkdir(parents=True)
    (pairs.folder / "paper.json").write_text(json.dumps(pairs.commands), encoding="utf-8")
    carried.clear()
    paper_report.show(parser.parse_args(words))
    assert carried == ([] if measured else ["ours"]), "what is made is not missing"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("title",), None, r"mine.yaml: 'title' is missing"),
        (("runs", "ours", "flickr8k", "step"), 1, r"runs.ours.flickr8k: 'step' is not known"),
        (("items", "table1", "rows", 0, "published"), [1], r"rows\[0\]: 1 numbers for 2 columns"),
        (("items", "table1", "rows", 0, "run"), "other", r"the run 'other', which does not exist"),
        (("items", "table1", "rows", 0, "quoted"), "them", r"needs one of run"),
        (("runs", "more"), {"full": "no"}, r"no row uses runs.more"),
        (("runs", "pairs", "flickr8k"), None, r"the run 'pairs' does not exist"),
        (("items", "table1", "columns", 0, "unit"), "x", r"unit must be one of"),
        (("scales", "small"), "x", r"scales must be of"),
    ],
)
def test_a_wrong_file_is_refused_by_place(tmp_path: Path, content, place, value, message):
    inner: Any = content
    for key in place[:-1]:
        inner = inner[key]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    with pytest.raises(ValueError, match=message):
        paper_of(tmp_path, content)
