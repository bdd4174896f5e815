from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioning.metrics.run_folders import read_runs
from captioning.metrics.table import (
    build_table,
    main,
    put_between_marks,
    to_csv,
    to_latex,
    to_markdown,
)


def make_run(
    root: Path, seed: int, cider: float | None, *, curation: str = "none", **changes: Any
) -> Path:
    """A run folder; ``cider=None`` is a run that was stopped before its test."""
    folder = root / f"{changes.get('data', 'flickr8k')}-{curation}-{seed}"
    (folder / "curation").mkdir(parents=True)
    config = {
        "run_name": "updown",
        "seed": seed,
        "data": {"name": changes.get("data", "flickr8k")},
        "curation": {"name": curation},
        "noise": {"ratio": 0.2},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    versions = {
        "commit": "abc123",
        "date": f"2026-11-2{seed}",
        "machine": "2 cores",
        "command": f"train.py seed={seed}",
    }
    (folder / "versions.json").write_text(json.dumps(versions))
    if cider is not None:
        settings = {
            "tokenizer": changes.get("tokenizer", "ptb"),
            "references_hash": changes.get("references", "ffff"),
        }
        metrics = {"test": {"corpus": {"CIDEr-D": cider}, "settings": settings}}
        (folder / "metrics.json").write_text(json.dumps(metrics))
    detection = [{"epoch": 0, "auc": 0.5}, {"epoch": 1, "auc": 0.6 + seed / 10}]
    (folder / "curation" / "detection.json").write_text(json.dumps(detection))
    timing = {"epochs": [{"seconds": 10.0}, {"seconds": 20.0}]}
    (folder / "timing.json").write_text(json.dumps(timing))
    return folder


def test_rows_are_means_and_spreads_over_seeds(tmp_path: Path) -> None:
    for seed, cider in enumerate([0.50, 0.52, 0.54]):
        make_run(tmp_path, seed, cider)
    make_run(tmp_path, 0, 0.6, curation="remove")
    table = build_table(
        read_runs([tmp_path]),
        group=["curation.name", "noise.ratio"],
        metrics=["CIDEr-D", "METEOR", "detection.auc", "timing.seconds"],
    )
    assert table.columns[:3] == ("curation.name", "noise.ratio", "runs")
    assert table.rows == (
        ("none", "0.2", "3", "0.5200 ± 0.0200", "missing", "0.7000 ± 0.1000", "15.0000 ± 0.0000"),
        ("remove", "0.2", "1", "0.6000", "missing", "0.6000", "15.0000"),
    )


def test_unfinished_runs_are_counted_as_missing(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    make_run(tmp_path, 1, 0.7)
    make_run(tmp_path, 2, None)
    make_run(tmp_path, 0, None, curation="remove")
    table = build_table(read_runs([tmp_path]), group=["curation.name"], metrics=["CIDEr-D"])
    assert [row[2] for row in table.rows] == ["0.6000 ± 0.1414 (1 missing)", "missing"]


def test_head_carries_what_is_needed_to_repeat(tmp_path: Path) -> None:
    folders = [make_run(tmp_path, seed, 0.5) for seed in (3, 1)]
    table = build_table(read_runs(folders), metrics=["CIDEr-D"], command="the command")
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
        build_table(runs, group=["curation.name"])
    table = build_table(runs, group=["data.name"], metrics=["CIDEr-D"])
    assert [row[0] for row in table.rows] == ["flickr8k", "miniworld"]


@pytest.mark.parametrize("change", [{"tokenizer": "python"}, {"references": "other"}])
def test_scores_made_differently_are_refused(tmp_path: Path, change: dict[str, str]) -> None:
    runs = read_runs([make_run(tmp_path, 0, 0.5), make_run(tmp_path, 1, 0.5, **change)])
    with pytest.raises(ValueError, match="are not comparable"):
        build_table(runs)


def test_the_same_seed_twice_in_a_row_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    make_run(tmp_path, 0, 0.6, curation="remove")
    with pytest.raises(ValueError, match="seed 0 occurs twice.*--group"):
        build_table(read_runs([tmp_path]), group=["run_name"])


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, 0, 0.5)
    assert len(read_runs([folder, tmp_path, folder])) == 1


def test_formats_hold_the_same_cells(tmp_path: Path) -> None:
    make_run(tmp_path, 0, 0.5)
    make_run(tmp_path, 1, 0.5)
    table = build_table(read_runs([tmp_path]), metrics=["CIDEr-D"])
    markdown = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in markdown[2].strip("|").split("|")] == list(table.rows[0])
    lines = [line for line in to_csv(table).splitlines() if not line.startswith("#")]
    assert [tuple(row) for row in csv.reader(lines)] == [table.columns, *table.rows]
    latex = to_latex(table)
    assert r"updown & 2 & 0.5000 $\pm$ 0.0000 \\" in latex
    assert r"run\_name & runs & CIDEr-D \\" in latex


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, 0, 0.5)
    assert main([str(tmp_path), "--metrics", "CIDEr-D", "--format", "csv"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("# built by: python -m captioning.metrics.table ")
    assert "updown,1,0.5000\n" in output
    assert main([str(tmp_path / "nothing")]) == 1
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
    page.write_text("no marks")
    with pytest.raises(ValueError, match="one pair of marks"):
        put_between_marks(page, "new\n")
    assert page.read_text() == "no marks"
