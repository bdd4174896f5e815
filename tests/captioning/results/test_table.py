from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from pathlib import Path

import pytest

from captioning.commands.main import main
from captioning.results.runs import read_published, read_runs
from captioning.results.table import Options
from captioning.results.table_formats import (
    put_between_marks,
    to_csv,
    to_latex,
    to_markdown,
)
from tests.captioning.results.table_runs import cells, make_run, table_of

GOLDEN = Path(__file__).parents[2] / "golden" / "tables"


def test_rows_are_means_and_spreads_over_seeds(tmp_path: Path) -> None:
    for seed, cider in enumerate([0.50, 0.52, 0.54]):
        make_run(tmp_path, seed, cider)
    make_run(tmp_path, 0, 0.6, curation="remove")
    table = table_of(
        read_runs([tmp_path]),
        group=["curation.name", "noise.ratio"],
        metrics=["CIDEr-D", "METEOR", "detection.auc", "timing.seconds"],
    )
    assert cells(table)[0][:3] == ["curation.name", "noise.ratio", "runs"]
    assert cells(table)[1:] == [
        ["none", "0.2", "3", "0.5200 ± 0.0200", "—", "0.7000 ± 0.1000", "15.0000 ± 0.0000"],
        ["remove", "0.2", "1", "0.6000", "—", "0.6000", "15.0000"],
    ]


def test_unfinished_runs_are_counted_as_missing(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    make_run(tmp_path, 1, 0.7)
    make_run(tmp_path, 2, None)
    make_run(tmp_path, 0, None, curation="remove")
    table = table_of(read_runs([tmp_path]), group=["curation.name"], metrics=["CIDEr-D"])
    assert [row[2] for row in cells(table)[1:]] == ["0.6000 ± 0.1414 (1 missing)", "—"]
    latex = to_latex(table)
    assert r"none & 3 & $0.6000 \pm 0.1414$ (1 missing) \\" in latex
    assert r"remove & 1 & -- \\" in latex
    assert to_csv(table).splitlines()[-2:] == ["none,3,0.6,0.1414213562,2", "remove,1,,,0"]


def test_runs_that_name_no_seed_stand_side_by_side(tmp_path: Path) -> None:
    for seed, cider in enumerate([0.5, 0.7]):
        config = make_run(tmp_path, seed, cider) / "config.yaml"
        config.write_text(config.read_text().replace(f"seed: {seed}\n", ""))
    table = table_of(read_runs([tmp_path]), metrics=["CIDEr-D"])
    assert cells(table)[1][-2:] == ["2", "0.6000 ± 0.1414"]


@pytest.mark.parametrize("value", [math.nan, math.inf, None, True, "0.5"])
def test_what_is_no_finite_number_is_missing(tmp_path: Path, value: object) -> None:
    make_run(tmp_path, 0, 0.5)
    folder = make_run(tmp_path, 1, 0.5)
    content = json.loads((folder / "metrics.json").read_text())
    content["test"]["corpus"]["CIDEr-D"] = value
    (folder / "metrics.json").write_text(json.dumps(content))
    table = table_of(read_runs([tmp_path]), metrics=["CIDEr-D"])
    assert cells(table)[1][-1] == "0.5000 (1 missing)"


def test_head_carries_what_is_needed_to_repeat(tmp_path: Path) -> None:
    folders = [make_run(tmp_path, seed, 0.5) for seed in (3, 1)]
    table = table_of(read_runs(folders), metrics=["CIDEr-D"], command="the command")
    head = "\n".join(table.head)
    for fact in (
        "built by: the command",
        "commit: abc123",
        "seeds: 3, 1",
        "machine: 2 cores",
        "date: 2026-11-21 to 2026-11-23",
        "data: flickr8k",
        "tokenizer: ptb",
        "run: train.py seed=3",
        "run: train.py seed=1",
    ):
        assert fact in head.splitlines() or fact in head


def test_generated_and_real_data_never_share_a_column(tmp_path: Path) -> None:
    runs = read_runs(
        [make_run(tmp_path, 0, 0.5), make_run(tmp_path, 1, 0.9, data="miniworld", references="aa")]
    )
    with pytest.raises(ValueError, match="different data \\(flickr8k, miniworld\\)"):
        table_of(runs, group=["curation.name"])
    table = table_of(runs, group=["data.name"], metrics=["CIDEr-D"])
    assert [row.labels for row in table.rows] == [("flickr8k",), ("miniworld",)]


@pytest.mark.parametrize(
    "change", [{"tokenizer": "python"}, {"references": "other"}, {"statistics": {"digest": "0"}}]
)
def test_scores_made_differently_are_refused(tmp_path: Path, change: dict[str, str]) -> None:
    runs = read_runs([make_run(tmp_path, 0, 0.5), make_run(tmp_path, 1, 0.5, **change)])
    with pytest.raises(ValueError, match="are not comparable"):
        table_of(runs)
    assert len(cells(table_of(runs, metrics=["detection.auc", "timing.seconds"]))) == 2


def test_data_sets_may_have_references_of_their_own_but_one_tokenizer(tmp_path: Path) -> None:
    other = {"data": "miniworld", "references": "other", "tokenizer": "python"}
    runs = read_runs([make_run(tmp_path, 0, 0.5), make_run(tmp_path, 1, 0.5, **other)])
    with pytest.raises(ValueError, match="scores with another tokenizer are not comparable"):
        table_of(runs, group=["data.name"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": ["curation.n"]}, "no run has the config key 'curation.n'"),
        ({"split": "tset"}, r"no run has the split 'tset': they have \['test'\]"),
    ],
)
def test_names_that_no_run_has_are_refused(tmp_path: Path, options: dict, message: str) -> None:
    make_run(tmp_path, 0, 0.5)
    with pytest.raises(ValueError, match=message):
        table_of(read_runs([tmp_path]), **options)


def test_the_same_seed_twice_in_a_row_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    make_run(tmp_path, 0, 0.6, curation="remove")
    with pytest.raises(ValueError, match="seed 0 occurs twice.*--group"):
        table_of(read_runs([tmp_path]), group=["run_name"])


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, 0, 0.5)
    assert len(read_runs([folder, tmp_path, folder])) == 1


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, 0, 0.5)
    assert main(["table", str(tmp_path), "--metrics", "CIDEr-D", "--format", "csv"]) == 0
    output = capsys.readouterr().out
    assert "run_name,runs,CIDEr-D,CIDEr-D std,CIDEr-D runs\nupdown,1,0.5,,1\n" in output
    assert main(["table", str(tmp_path / "nothing")]) == 1
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.json", "{", "metrics.json: cannot be read"),
        ("metrics.json", "[]", "metrics.json: must hold a dict"),
        ("config.yaml", "a: [", "config.yaml: cannot be read"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    folder = make_run(tmp_path, 0, 0.5)
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_runs([folder])


def test_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        read_runs([tmp_path])


def test_a_table_is_put_between_marks_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table -->\nold\n<!-- /table -->\nafter\n")
    put_between_marks(page, "new\n")
    assert page.read_text() == "before\n<!-- table -->\nnew\n<!-- /table -->\nafter\n"
    page.write_text("<!-- a -->\n<!-- /a -->\n<!-- b -->\n<!-- /b -->\n")
    put_between_marks(page, "new\n", "b")
    assert page.read_text() == "<!-- a -->\n<!-- /a -->\n<!-- b -->\nnew\n<!-- /b -->\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="one pair of marks"):
        put_between_marks(page, "new\n")
    assert page.read_text() == "no marks"


def test_percent_is_stated_once_and_leaves_what_is_no_fraction(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    make_run(tmp_path, 1, 0.6)
    names = ["CIDEr-D", "detection.auc", "timing.seconds"]
    table = table_of(read_runs([tmp_path]), metrics=names, percent=True)
    assert cells(table)[1][2:] == ["55.00 ± 7.07", "65.00 ± 7.07", "15.00 ± 0.00"]
    scales = [line for line in table.head if line.startswith("scale")]
    assert scales == ["scale: scores times 100, but not timing.seconds"]
    plain = table_of(read_runs([tmp_path]), metrics=names, digits=3)
    assert cells(plain)[1][2:] == ["0.550 ± 0.071", "0.650 ± 0.071", "15.000 ± 0.000"]
    assert "scale: as in metrics.json: fractions, CIDEr-D at most 10" in plain.head


def test_best_of_each_column_is_bold_and_what_prints_alike_too(tmp_path: Path) -> None:
    for name, cider in (("a", 0.5), ("b", 0.62), ("c", 0.62000001), ("d", None)):
        make_run(tmp_path, 0, cider, curation=name)
    names = ["CIDEr-D", "METEOR"]
    options = {"group": ["curation.name"], "metrics": names, "best": True}
    table = table_of(read_runs([tmp_path]), **options)
    assert [row[2] for row in cells(table)[1:]] == ["0.5000", "**0.6200**", "**0.6200**", "—"]
    assert r"b & 1 & $\mathbf{0.6200}$ & -- \\" in to_latex(table)
    low = table_of(read_runs([tmp_path]), **options, lower=["CIDEr-D"])
    assert [row[2] for row in cells(low)[1:]] == ["**0.5000**", "0.6200", "0.6200", "—"]
    fast = table_of(read_runs([tmp_path]), **options | {"metrics": ["timing.seconds"]})
    assert [row[2] for row in cells(fast)[1:]] == ["**15.0000**"] * 4
    alone = table_of(read_runs([tmp_path / "flickr8k-a-0"]), **options)
    assert cells(alone)[1][2] == "0.5000"


@pytest.mark.parametrize(
    ("name", "is_lower_better", "factor"),
    [
        ("CIDEr-D", False, 100),
        ("L", True, 1),
        ("LP", False, 100),
        ("Hal", True, 100),
        ("mBLEU-4", True, 100),
        ("novel-sentences", False, 1),
        ("FID(efficientnet_lite0)", True, 1),
        ("detection.auc@1", False, 100),
        ("detection.by_kind.swap.num_faults", False, 1),
        ("timing.captions_per_second", False, 1),
    ],
)
def test_which_scores_are_fractions_and_which_are_best_low(
    name: str, is_lower_better: bool, factor: float
) -> None:
    options = Options(percent=True)
    assert (options.is_lower_better(name), options.factor(name)) == (is_lower_better, factor)


def test_published_scores_are_rows_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    file.write_text("BLIP (Table 2):\n  CIDEr-D: 0.928\n")
    make_run(tmp_path / "runs", 0, 0.5)
    make_run(tmp_path / "runs", 0, 0.4, curation="remove")
    table = table_of(
        read_runs([tmp_path / "runs"]),
        group=["curation.name", "seed"],
        metrics=["CIDEr-D", "METEOR"],
        percent=True,
        best=True,
        published=read_published(file),
    )
    assert cells(table)[-1] == ["BLIP (Table 2)", "—", "—", "92.80", "—"]
    assert cells(table)[1][3] == "**50.00**"
    assert "rows without runs: published scores, not measured here" in table.head
    assert to_csv(table).splitlines()[-1] == "BLIP (Table 2),,,92.8,,0,,,0"
    file.write_text("BLIP:\n  CIDEr-D: high\n")
    with pytest.raises(ValueError, match="published.yaml: 'BLIP' must hold numbers"):
        read_published(file)
    with pytest.raises(FileNotFoundError, match="published"):
        read_published(tmp_path / "none.yaml")


def test_signs_of_the_formats_are_escaped(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5, curation=r"50%_a&b|c ~{x}^\y <$#")
    table = table_of(read_runs([tmp_path]), group=["curation.name"], metrics=["CIDEr-D"])
    expected = r"50\%\_a\&b\textbar{}c \textasciitilde{}\{x\}\textasciicircum{}\textbackslash{}y "
    assert expected + r"\textless{}\$\# & 1 & $0.5000$ \\" in to_latex(table)
    assert r"50%_a&b\|c" in to_markdown(table)
    lines = [line for line in to_csv(table).splitlines() if not line.startswith("#")]
    assert next(iter(csv.DictReader(lines)))["curation.name"] == r"50%_a&b|c ~{x}^\y <$#"


def test_a_line_break_ends_no_comment(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    table = table_of(read_runs([tmp_path]), metrics=["CIDEr-D"], command="one\ntwo")
    assert "% built by: one two\n" in to_latex(table)
    assert "# built by: one two\n" in to_csv(table)


@pytest.mark.parametrize(("form", "ending"), [("md", "md"), ("latex", "tex"), ("csv", "csv")])
def test_golden_tables(tmp_path: Path, form: str, ending: str, monkeypatch, capsys) -> None:
    """To make them anew: the command in their head, in this folder."""
    shutil.copytree(GOLDEN, tmp_path / "tables")
    monkeypatch.chdir(tmp_path / "tables")
    text = "runs --group curation.name --metrics BLEU-4 CIDEr-D SPICE detection.auc@1 --percent"
    options = [*text.split(), "--best", "--against", "none", "--published", "published.yaml"]
    monkeypatch.setattr(sys, "argv", ["captioning", "table", *options, "--format", form])
    assert main(sys.argv[1:]) == 0
    assert capsys.readouterr().out == (GOLDEN / f"table.{ending}").read_text()
