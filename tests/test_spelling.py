"""Misspellings fail `make lint`, and pages keep to British spelling."""

from __future__ import annotations

import re
from pathlib import Path

import codespell_lib
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
AMERICAN = Path(codespell_lib.__file__).parent / "data" / "dictionary_en-GB_to_en-US.txt"
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
# Words that are right in British texts too: nouns beside verbs, and terms of computing.
ALSO_BRITISH = {"practice", "license", "meter", "program", "check", "story", "disk", "analog"}
ALSO_BRITISH |= {"licensed", "draft", "dialog", "math", "tire", "inquiry"}
ALSO_BRITISH |= {"localized"}  # the data set Localized Narratives
MISSPELT = "recieved"  # codespell:ignore recieved
# Names in code, and what it prints, stand as they are.
# Code, links, and the commands that stand above tables of `captioning table`.
_CODE = re.compile(
    r"^```.*?^```|`[^`]*`|\]\([^)]*\)|<[^>]*>|^- (run|built by): [^\n]*", re.MULTILINE | re.DOTALL
)


def american_words(text: str) -> list[str]:
    """Words of a page, outside code, that British spelling writes otherwise."""
    lines = AMERICAN.read_text(encoding="utf-8").splitlines()
    british = {}
    for line in lines:
        word, _, others = line.partition("->")
        british |= {other.strip(): word for other in others.split(",") if other.strip()}
    words = re.findall(r"[a-z]+", _CODE.sub(" ", text).lower())
    return sorted({word for word in words if word in british and word not in ALSO_BRITISH})


def pages() -> list[Path]:
    """Those that people write; tables of results have the names of kinds of faults, as in code."""
    found = [REPOSITORY / name for name in PAGES]
    docs = sorted((REPOSITORY / "docs").rglob("*.md"))
    return found + [page for page in docs if page.parent.name != "results"]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages_keep_to_british_spelling(page: Path) -> None:
    assert american_words(page.read_text(encoding="utf-8")) == []


def test_american_spelling_is_seen() -> None:
    assert american_words("The color and `color=` of its behavior.") == ["behavior", "color"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.md", f"The captions that are {MISSPELT}."),
        ("code.py", f'"""What is {MISSPELT}."""'),
        ("part.yaml", f"size: 3 # of what is {MISSPELT}"),
    ],
)
def test_a_misspelling_fails(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    arguments = ["--toml", str(REPOSITORY / "pyproject.toml"), str(tmp_path)]
    assert codespell_lib.main(*arguments) != 0
    assert f"{MISSPELT} ==> received" in capsys.readouterr().out


def test_british_spelling_and_names_of_metrics_pass(tmp_path: Path) -> None:
    text = "ROUGE-L of a coloured centre; the behaviour is normalised."
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    arguments = ["--toml", str(REPOSITORY / "pyproject.toml"), str(tmp_path)]
    assert codespell_lib.main(*arguments) == 0
