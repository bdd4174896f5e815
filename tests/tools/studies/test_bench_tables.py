"""The tables of results/vlm.md and guides/gpu.md say what the records of benchmarks say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "studies"))
import bench_tables


@pytest.mark.parametrize(
    ("page", "name", "build", "keys"),
    [
        (
            "results/vlm.md",
            "fine_tuning",
            bench_tables.fine_tuning,
            ("form", "captions", "words", "way"),
        ),
        ("guides/gpu.md", "memory", bench_tables.memory, ("form", "words", "change")),
    ],
)
def test_pages_hold_what_records_hold(page, name, build, keys) -> None:
    lines = build(bench_tables.latest(f"bench_{name}", keys))
    assert len(lines) > 2
    assert "\n".join(lines) in (bench_tables.ROOT / "docs" / page).read_text("utf-8")


def test_rows_are_of_the_fastest_other_way() -> None:
    slow = {"form": "smolvlm", "captions": 1, "words": 10, "way": "trl", "captions_per_s": 1.0}
    slow |= {"first_epoch": 1.0, "gib": 2.0, "gib_above_start": 1.0, "commit": "a"}
    fast = {**slow, "way": "trainer", "captions_per_s": 2.0, "gib": 4.0}
    ours = {**slow, "way": "ours", "captions_per_s": 5.0, "gib": 3.0, "first_epoch": 0.5}
    *_, row = bench_tables.fine_tuning([slow, fast, ours])
    assert (
        row
        == "| SmolVLM's, 1 x 10 words | 2.00 | 5.00 | 2.50 | 0.50 | 4.00, 3.00 | 75%, 100% | a |"
    )
