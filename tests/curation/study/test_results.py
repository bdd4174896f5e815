"""The table, the figures and the summary."""

from __future__ import annotations

import csv

import pytest

from captioning.commands.main import main
from curation.study.items import divide
from curation.study.manifest import read_items
from curation.study.results import write_results
from curation.study.store import Annotation, Store
from tests.curation.study.studies import make_folder


@pytest.fixture
def study(tmp_path):
    """Four pictures that three annotators judged, worse ones with more errors, and a draft."""
    folder = make_folder(tmp_path / "pictures", 4)
    store = Store(path=folder / "study.sqlite")
    store.fill(divide(read_items(folder)))
    for annotator in ("anna", "bert", "cleo"):
        store.assign(annotator)
        for item in store.items():
            ticked = ("color", "number")[: 2 if item.half == "high" else 0]
            store.save(
                Annotation(
                    annotator=annotator,
                    number=item.number,
                    categories=ticked,
                    comment='=1+1, "x"\n',
                )
            )
    store.assign("dora")
    store.save(Annotation(annotator="dora", number=0, categories=("age",), done=False))
    return store


def test_results(study, tmp_path):
    summary = write_results(study, tmp_path / "out", num_required=3)
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


def test_too_few_annotations_leave_the_table(study, tmp_path):
    with pytest.raises(ValueError, match="no picture has 4 annotations yet.*lower --annotations"):
        write_results(study, tmp_path / "out", num_required=4)
    assert (tmp_path / "out" / "annotations.csv").is_file()


def test_the_command_writes_results(study, tmp_path, capsys):
    command = ["curate", "study", str(study.path.parent), "--results", str(tmp_path / "out")]
    assert main(command) == 0
    assert "4 pictures, 12 annotations by 3 people; mean errors 0.00" in capsys.readouterr().out
    assert main([*command, "--annotations", "9"]) == 1
    assert capsys.readouterr().err.startswith("curate study: ")
    assert main([*command, "--set-size", "2"]) == 1
    assert "other pictures, captions, losses or sets" in capsys.readouterr().err
