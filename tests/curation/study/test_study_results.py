"""The table, the figures and the summary."""

from __future__ import annotations

import csv
import json

import pytest

from captioning.commands.main import main
from captioning.runtime.files import write_json
from curation.study.answers import Annotation, read_answers, write_results, write_tasks
from curation.study.items import divide, read_items
from tests.curation.study.studies import answer, make_folder


@pytest.fixture
def placed(tmp_path):
    return divide(read_items(make_folder(tmp_path / "pictures", 4)))


@pytest.fixture
def export(placed, tmp_path):
    """Four pictures that three annotators judged, worse ones with more errors."""
    write_tasks(placed, tmp_path / "tasks")
    tasks = json.loads((tmp_path / "tasks" / "tasks.json").read_text())
    for task, entry in zip(tasks, placed, strict=True):
        ticked = ("color", "number")[: 2 if entry.half == "high" else 0]
        comment = '=1+1, "x"\n'
        task["annotations"] = [answer(who, *ticked, comment=comment) for who in (1, 2, 3)]
    write_json(tmp_path / "export.json", tasks)
    return tmp_path / "export.json"


def test_results(placed, export, tmp_path):
    answers = read_answers(export, placed)
    summary = write_results(placed, answers, tmp_path / "out", num_required=3)
    assert (summary["num_pictures"], summary["num_annotations"]) == (4, 12)
    assert summary["num_annotators"] == 3
    assert summary["mean_errors"] == {"low": 0.0, "high": 2.0}
    assert summary["errors_by_category"]["color"] == 6
    assert summary["errors_by_category"]["age"] == 0
    assert summary["krippendorff_alpha"]["all"] == 1
    with (tmp_path / "out" / "annotations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    high = next(row for row in rows if row["half"] == "high")
    assert (high["num_errors"], high["categories"]) == ("2", "number color")
    # not a formula in a spreadsheet
    assert high["comment"] == '\'=1+1, "x"\n'
    assert high["captions"].endswith(" | <b>second</b>")
    for name in ("errors_by_category.png", "errors_by_loss.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_too_few_annotations_leave_the_table(placed, tmp_path):
    answers = [Annotation(annotator="=anna", number=0, categories=())]
    message = "no image has 4 annotations yet.*lower --annotations"
    with pytest.raises(ValueError, match=message):
        write_results(placed, answers, tmp_path / "out", num_required=4)
    assert "\n'=anna," in (tmp_path / "out" / "annotations.csv").read_text()


def test_the_command_writes_results(placed, export, tmp_path, capsys):
    command = ["curate", "study", str(tmp_path / "pictures"), "--answers", str(export)]
    command += ["--results", str(tmp_path / "out")]
    assert main(command) == 0
    assert "4 pictures, 12 annotations by 3 people; mean errors 0.00" in capsys.readouterr().out
    assert main([*command, "--annotations", "9"]) == 1
    assert capsys.readouterr().err.startswith("curate study: ")
    assert main([*command, "--set-size", "2"]) == 1
    assert "other images, captions, losses or sets" in capsys.readouterr().err
