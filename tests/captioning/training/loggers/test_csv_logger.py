"""Curves in CSV: columns that grow, rows that a resumed run keeps, and files that were cut off."""

from __future__ import annotations

import csv
from pathlib import Path

from captioning.training.loggers import CsvLogger, read_rows


def logger_in(folder: Path) -> CsvLogger:
    return CsvLogger(save_dir=folder)


def logged(folder: Path) -> list[dict[str, str]]:
    with (folder / "logs" / "csv" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_new_name_adds_a_column(tmp_path: Path) -> None:
    logger = logger_in(tmp_path)
    logger.begin(0)
    logger.log_metrics({"loss": 2.0}, 0)
    logger.log_metrics({"loss": 1.0}, 1)
    logger.log_metrics({"score": 0.5, "epoch": 0}, 1)
    logger.log_metrics({"loss": 0.5}, 2)
    rows = logged(tmp_path)
    assert [row["loss"] for row in rows] == ["2.0", "1.0", "", "0.5"]
    assert [row["score"] for row in rows] == ["", "", "0.5", ""]
    assert [row["step"] for row in rows] == ["0", "1", "1", "2"]


def test_a_resumed_run_drops_what_it_does_again(tmp_path: Path) -> None:
    first = logger_in(tmp_path)
    first.begin(0)
    for step in range(6):
        first.log_metrics({"loss": float(step)}, step)
    with first.path.open("a") as file:
        file.write('0,"6,')  # killed while writing
    again = logger_in(tmp_path)
    again.begin(4)
    again.log_metrics({"loss": 40.0}, 4)
    assert [row["loss"] for row in logged(tmp_path)] == ["0.0", "1.0", "2.0", "3.0", "40.0"]
    anew = logger_in(tmp_path)
    anew.begin(0)
    assert logged(tmp_path) == []


def test_damaged_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"epoch,step,loss\n0,0,1.5\n0,x,2.5\n0\n0,1,2,3,4\n0,2,\xff\n0,3,7")
    assert [row["step"] for row in read_rows(path)] == ["0", "2"]
    assert read_rows(tmp_path / "none.csv") == []
