"""Run folders, and tables of them as texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from captioning.results.runs import Run
from captioning.results.table import Options, build_table
from captioning.results.table_formats import Table, to_markdown


def table_of(runs: Sequence[Run], **options: Any) -> Table:
    return build_table(runs, Options(**options))


def cells(table: Table, form: Callable[[Table], str] = to_markdown) -> list[list[str]]:
    """Texts of a Markdown table's rows, the column names first."""
    lines = [line for line in form(table).splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [rows[0], *rows[2:]]


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
        if "statistics" in changes:
            settings["cider_statistics"] = changes["statistics"]
        metrics = {"test": {"corpus": {"CIDEr-D": cider}, "settings": settings}}
        if "images" in changes:
            images = {name: {"CIDEr-D": score} for name, score in changes["images"].items()}
            metrics["test"] |= {"per_image": images}
        (folder / "metrics.json").write_text(json.dumps(metrics))
    detection = [{"epoch": 0, "auc": 0.5}, {"epoch": 1, "auc": 0.6 + seed / 10}]
    (folder / "curation" / "detection.json").write_text(json.dumps(detection))
    timing = {"epochs": [{"seconds": 10.0}, {"seconds": 20.0}]}
    (folder / "timing.json").write_text(json.dumps(timing))
    return folder
