"""The page of the last run on clusters, from its record: ``python -m tests.cluster.page``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RECORD, PAGE = RESULTS / "records" / "cluster.jsonl", RESULTS / "cluster.md"


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: what was tried, what it came to, in how many seconds."""
    first = records[0]
    lines = [
        "# Runs on clusters",
        "`make cluster-test` starts a Slurm of two nodes, with accounting, on one machine and",
        "trains under it. Runs that are stopped end with the same bits as undisturbed ones:",
        "weights, optimiser, journal, losses, scores, captions and report. Then it starts a Ray",
        "cluster of two nodes, whose outputs are the same bytes as those of one process.",
        "Only what the last run tried is listed.",
        "",
        "| on | what was tried | outcome | seconds |",
        "|---|---|---|---|",
        *(
            f"| {r.get('suite', 'Slurm')} | {r['test']} | {r['outcome']} | {r['seconds']} |"
            for r in records
        ),
        "",
        f"{sum(r['seconds'] for r in records)} seconds in all; {first['date']}, commit "
        f"{first['commit']}, {first['slurm']}, {first.get('ray', 'without Ray')}, Python "
        f"{first['python']}, torch {first['torch']};",
        f"{first['machine']}{_load(first)}. Record: `records/cluster.jsonl`.",
    ]
    return "\n".join(lines) + "\n"


def _load(record: Mapping[str, Any]) -> str:
    """How busy the machine was, where that is known."""
    return f", load average {record['load_average']}" if "load_average" in record else ""


def read_record() -> list[dict[str, Any]]:
    """The record's lines."""
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    PAGE.write_text(page(read_record()), encoding="utf-8")
