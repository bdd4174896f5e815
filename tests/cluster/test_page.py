"""The page of runs on clusters is that of the record."""

from __future__ import annotations

from tests.cluster.page import PAGE, page, read_record


def test_the_page_is_built_from_the_record() -> None:
    records = read_record()
    assert PAGE.read_text(encoding="utf-8") == page(records)
    assert {record["outcome"] for record in records} == {"passed"}
