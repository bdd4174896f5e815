"""Misspellings fail `make lint`, pages keep to British spelling, and texts to the field's words.

``python -m tests.test_spelling`` writes the list of files that still have other words.
"""

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


# What readers took two readings for, and what to write instead.
UNCLEAR = {
    r"(?:is|are|was|were) told(?! apart)": "name who tells: X logs, prints, raises, receives",
    r"go(?:es)? on(?! (?:to|the|a)\b)": "resumes, continues",
    r"anew": "again, from scratch",
    r"of then": "of that epoch, of that time",
    r"in the middle(?! of)|middle caption": "the median",
    r"(?<!/)stands(?!/| (?:for|out|alone|in for|sits|a lady|with raised))": "is, lies, appears",
    r"likewise": "too, also",
    r"at no remove": "not even indirectly",
    r"of one's own": "your own",
    r"comes? to(?! (?:hand|an end|mind))": "is, results in",
    r"so often": "as many times",
    r"some (?:thousand|hundred)s?": "about a thousand, hundreds of",
    r"processor (?:seconds?|time|cores?)|processors (?:alone|without)|for processors": "CPU, CPUs",
}
NUM_TO_CLEAN = 0
TO_CLEAN = Path(__file__).with_name("still_to_clean.txt")
CHECKED = ("captioning", "curation", "augmentation", "configs", "docs", "examples")


def american_words(text: str) -> list[str]:
    """Words of a page, outside code, that British spelling writes otherwise."""
    lines = AMERICAN.read_text(encoding="utf-8").splitlines()
    british = {}
    for line in lines:
        word, _, others = line.partition("->")
        british |= {other.strip(): word for other in others.split(",") if other.strip()}
    words = re.findall(r"[a-z]+", _CODE.sub(" ", text).lower())
    return sorted({word for word in words if word in british and word not in ALSO_BRITISH})


def unclear_words(text: str) -> dict[str, str]:
    """Words of a text, outside code of pages, that `UNCLEAR` lists, and what to write instead."""
    text = re.sub(r"[\s#]+", " ", text)
    found = {}
    for pattern, better in UNCLEAR.items():
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
            found[match[0].lower()] = better
    return found


def checked_files() -> dict[str, Path]:
    """Pages, modules and configs by their path in the repository; generated pages are left out."""
    found = [REPOSITORY / name for name in PAGES]
    for folder in CHECKED:
        for kind in ("*.md", "*.py", "*.yaml"):
            found += sorted((REPOSITORY / folder).rglob(kind))
    names = {path.relative_to(REPOSITORY).as_posix(): path for path in found}
    generated = ("docs/results/", "docs/papers/")
    return {name: path for name, path in names.items() if not name.startswith(generated)}


def with_unclear_words() -> dict[str, dict[str, str]]:
    """The words to change by file."""
    found = {}
    for name, path in checked_files().items():
        text = path.read_text(encoding="utf-8")
        found[name] = unclear_words(_CODE.sub(" ", text) if name.endswith(".md") else text)
    return {name: words for name, words in found.items() if words}


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


def test_texts_keep_to_words_that_are_clear_at_first_reading() -> None:
    """The list of files to clean only shrinks: a clean file may not stay on it."""
    found = with_unclear_words()
    listed = set(TO_CLEAN.read_text(encoding="utf-8").split())
    assert {name: found[name] for name in found.keys() - listed} == {}
    cleaned = sorted(listed - found.keys())
    assert cleaned == [], f"take these off {TO_CLEAN.name}: python -m tests.test_spelling"
    assert len(listed) <= NUM_TO_CLEAN


def test_start_pages_are_clean() -> None:
    listed = TO_CLEAN.read_text(encoding="utf-8").split()
    assert not {*PAGES, "docs/pages.md", "docs/log.md"} & set(listed)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The user is told\n    # so.", ["is told"]),
        ("A run goes on; the rest goes on to the next.", ["goes on"]),
        ("It begins anew, at no remove.", ["anew", "at no remove"]),
        ("It stands for a word, and stands at the end.", ["stands"]),
        ("Two are told apart in the middle of it.", []),
        ("Processor time, for processors.", ["processor time", "for processors"]),
    ],
)
def test_unclear_words_are_seen(text: str, words: list[str]) -> None:
    assert list(unclear_words(text)) == words


if __name__ == "__main__":
    names = sorted(with_unclear_words())
    TO_CLEAN.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    print(len(names))
