"""The site: its navigation has every page, and every link of the pages leads somewhere."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))


def load(name: str) -> ModuleType:
    """A program of .ci."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The hooks of the site."""
    return load("docs_site")


def test_generated_pages_say_what_the_code_says() -> None:
    reference = load("docs_reference")
    for name, page in reference.PAGES.items():
        text = (reference.REFERENCE / name).read_text(encoding="utf-8")
        assert text == page(), "write it again: make reference"


def files_of(entries: list[object]) -> list[str]:
    """Files of a navigation, in order."""
    found: list[str] = []
    for entry in entries:
        if isinstance(entry, dict):
            (below,) = entry.values()
            found += files_of(below) if isinstance(below, list) else [below]
        else:
            found.append(str(entry))
    return found


def lost_links(text: str, folder: Path) -> list[str]:
    """Links of a text to files that are not there, code aside."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    names = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:", target)]
    return [name for name in names if name and not (folder / name).exists()]


def test_every_page_is_in_the_navigation(site: ModuleType) -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    pages = files_of(yaml.safe_load(text)["nav"])
    assert len(pages) == len(set(pages))
    there = {page.relative_to(REPOSITORY / "docs").as_posix() for page in PAGES}
    assert set(pages) == there | set(site.TOP)


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    assert lost_links(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_lost_link_is_seen(tmp_path: Path) -> None:
    text = "[here](there.md#part) and `[no](link)`\n```\n[nor](this)\n```\n[web](https://a.b)"
    assert lost_links(text, tmp_path) == ["there.md"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[pages](docs/tutorials/check.md#the-checks)", "[pages](tutorials/check.md#the-checks)"),
        ("[all](docs/results)", "[all](results/README.md)"),
        ("[how](CONTRIBUTING.md)", "[how](contributing.md)"),
        ("[cells](examples/first_steps.ipynb)", "[cells](tutorials/notebook.md)"),
        ("[short](examples)", "short (`examples`)"),
        ("[lost](nowhere.md)", "[lost](nowhere.md)"),  # MkDocs refuses it
        ("![photo](docs/images/app.jpg)", "![photo](images/app.jpg)"),
        ("[web](https://a.b) [part](#part)", "[web](https://a.b) [part](#part)"),
        ("`[x](docs/tutorials/check.md)`", "`[x](docs/tutorials/check.md)`"),
        ("0.3 [5] [6]", r"0.3 [5] \[6]"),
    ],
)
def test_links_of_the_start_page_are_those_of_the_site(
    site: ModuleType, text: str, expected: str
) -> None:
    assert site.rewritten(text, "README.md", "index.md") == expected


def test_links_out_of_a_folder_are_relative_to_it(site: ModuleType) -> None:
    links = site.rewritten(
        "[a](../log.md) [b](../../Makefile)", "docs/results/a.md", "results/a.md"
    )
    assert links == "[a](../log.md) b (`Makefile`)"


def test_a_notebook_is_a_page_of_its_cells(site: ModuleType) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Steps\n", "First."]},
        {"cell_type": "code", "source": ["a = 1\n", "a"], "outputs": [{"text": "1"}]},
    ]
    page = site.notebook_page(json.dumps({"cells": cells}))
    assert page == "# Steps\nFirst.\n\n```python\na = 1\na\n```"


def test_earlier_addresses_lead_to_pages(site: ModuleType) -> None:
    there = {page.relative_to(REPOSITORY / "docs").as_posix() for page in PAGES}
    assert set(site.moved().values()) <= there
    assert not set(site.moved()) & there
    assert 'url=../guides/policies/"' in site.redirect("curation/index.html", "guides/policies.md")
    assert 'url=../../papers/"' in site.redirect("a/b/index.html", "papers/README.md")


def test_pages_that_code_and_configs_name_are_there() -> None:
    folders = (
        "captioning",
        "curation",
        "augmentation",
        "configs",
        "papers",
        "tools",
        "tests",
        ".ci",
    )
    files = [path for name in folders for path in (REPOSITORY / name).rglob("*.*")]
    lost = {
        name
        for path in files
        if path.suffix in (".py", ".yaml") and path != Path(__file__)
        for name in re.findall(r"\bdocs/[a-z_/]+\.md", path.read_text(encoding="utf-8"))
        if not (REPOSITORY / name).is_file()
    }
    assert not lost
