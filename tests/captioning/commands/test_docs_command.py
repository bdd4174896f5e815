"""``captioning docs``: lists pages, prints one, and names the nearest of an unknown one."""

from __future__ import annotations

import pytest

from captioning.commands.docs import docs_folder, find_page, topics
from captioning.commands.main import main


def test_it_lists_all_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(topics()) == len(list(docs_folder().rglob("*.md")))
    assert [line for line in lines if line.split() == ["pages", "All", "pages"]]


@pytest.mark.parametrize("topic", ["guides/policies", "policies", "docs/guides/policies.md"])
def test_it_prints_a_page(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", topic]) == 0
    page = (docs_folder() / "guides" / "policies.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out == page


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("polices", "no page is called 'polices'; did you mean guides/policies"),
        ("toca", "'toca' matches several pages; did you mean cards/toca, papers/toca?"),
        ("zzz", "no page is called 'zzz'; `captioning docs` lists all"),
    ],
)
def test_it_names_the_nearest_pages(topic: str, said: str) -> None:
    with pytest.raises(ValueError, match="`captioning docs` lists all") as caught:
        find_page(topic)
    assert str(caught.value).startswith(said)
