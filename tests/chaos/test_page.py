"""The page of what was tried is that of the records."""

from __future__ import annotations

from captioning.results.table_formats import marks
from tests.chaos.page import PAGE, built, tables


def test_the_page_is_built_from_the_records() -> None:
    begin, end = marks("records")
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(begin)[2].partition(end)[0] == f"\n{built()}"


def test_failures_are_shown() -> None:
    about = {"date": "d", "commit": "c", "machine": "m", "command": "x"}
    failed = {"scenario": "s", "kills": 1, "terms": 0, "rounds": 1, "failures": ["other\nbits"]}
    text = tables({"chaos": [failed | about], "fuzz": [], "soak": []})
    assert "1 of 1 commands failed" in text
    assert "- s: `other bits`" in text
