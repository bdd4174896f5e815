from __future__ import annotations

import csv
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from captioning.evaluation.run import caption_columns, write_per_caption
from captioning.metrics.coco import MetricResult

CAPTIONS = {"7": 'a "red", bus\nhere', "é": "", "9": "a \ud800 cat"}
RESULT = MetricResult(
    corpus={},
    per_image={"7": {"BLEU-4": 0.5}, "é": {"BLEU-4": 0.0, "F1": 1.0}, "9": {"BLEU-4": 1 / 3}},
    settings={},
)
ROWS = [
    {"image_id": "7", "caption": 'a "red", bus\nhere', "BLEU-4": 0.5, "F1": None},
    {"image_id": "é", "caption": "", "BLEU-4": 0.0, "F1": 1.0},
    {"image_id": "9", "caption": "a ? cat", "BLEU-4": 1 / 3, "F1": None},
]


def test_rows_come_back_from_both_files(tmp_path: Path) -> None:
    assert write_per_caption(tmp_path, caption_columns(CAPTIONS, RESULT)) == []
    assert pyarrow.parquet.read_table(tmp_path / "per_caption.parquet").to_pylist() == ROWS
    with (tmp_path / "per_caption.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [{k: "" if v is None else str(v) for k, v in row.items()} for row in ROWS]
    assert rows == expected


def test_without_pyarrow_the_csv_is_written_and_the_remedy_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "per_caption.parquet").write_text("of earlier captions")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (line,) = write_per_caption(tmp_path, caption_columns(CAPTIONS, RESULT))
    assert line.startswith("left out: per_caption.parquet: the package pyarrow")
    assert "pip install" in line
    assert [path.name for path in tmp_path.iterdir()] == ["per_caption.csv"]
