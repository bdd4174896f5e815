"""Hooks of MkDocs: pages from outside of docs/, links to what is no page, and earlier addresses.

README.md is the start page. A link to a file outside of docs/ is shown by its path in the
repository, as the site has no such file; one to nothing stays, and MkDocs refuses it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
MOVED = REPOSITORY / ".ci" / "docs_moved.yaml"
# Pages of the site that are files outside of docs/.
TOP = {
    "index.md": "README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "tutorials/notebook.md": "examples/first_steps.ipynb",
}
# Code, which stays as it is; a link; or `[1] [2]`, notes that would be taken for a reference.
_PARTS = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]*`)|(?P<image>!?)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)"
    r"|(?P<notes>\] ?\[(?=\d+\]))",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside of docs/."""
    from mkdocs.structure.files import File  # where the site is built, and nowhere else

    for page, source in TOP.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        text = notebook_page(text) if source.endswith(".ipynb") else text
        files.append(File.generated(config, page, content=rewritten(text, source, page)))
    for old, new in moved().items():
        place = f"{old.removesuffix('.md')}/index.html"
        files.append(File.generated(config, place, content=redirect(place, new)))
    return files


def notebook_page(text: str) -> str:
    """Return a notebook's cells as Markdown, code in blocks; outputs are left out."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(
        f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells
    )


def moved() -> dict[str, str]:
    """Pages by their earlier names, both below docs/."""
    return yaml.safe_load(MOVED.read_text(encoding="utf-8"))


def redirect(place: str, new: str) -> str:
    """A page of HTML at an earlier address, which leads to the page and keeps the anchor."""
    folder = new.removesuffix("README.md").removesuffix(".md")
    to = os.path.relpath(folder, Path(place).parent) + "/"
    return (
        f'<!doctype html><meta charset="utf-8"><title>Moved</title>'
        f"<script>location.replace({to!r} + location.hash)</script>"
        f'<meta http-equiv="refresh" content="1; url={to}"><a href="{to}">{to}</a>\n'
    )


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page with its links."""
    name = page.file.src_uri
    return markdown if name in TOP else rewritten(markdown, f"docs/{name}", name)


def rewritten(text: str, source: str, page: str) -> str:
    """A text of the repository with links of the site.

    Args:
        text: Markdown.
        source: its file, below the repository.
        page: its file below docs/.
    """

    def replace(match: re.Match[str]) -> str:
        if match["notes"]:
            return match["notes"].replace("[", "\\[")
        target = match["target"] or ""
        if match["code"] or re.match(r"[a-z]+:|#", target):
            return match[0]
        name, mark, anchor = target.partition("#")
        path = os.path.normpath(Path(source).parent / name)
        there = _page(path)
        if there is not None:
            relative = os.path.relpath(there, Path(page).parent)
            return f"{match['image']}[{match['text']}]({relative}{mark}{anchor})"
        if not (REPOSITORY / path).exists():
            return match[0]
        return f"{match['text']} (`{path}`)"

    return _PARTS.sub(replace, text)


def _page(path: str) -> str | None:
    """The page of the site, below docs/, that a file of the repository is, if it is one."""
    for page, source in TOP.items():
        if path == source:
            return page
    if not path.startswith("docs/"):
        return None
    if (REPOSITORY / path / "README.md").is_file():
        path = f"{path}/README.md"
    is_shown = (REPOSITORY / path).is_file() and not path.endswith((".yaml", ".jsonl"))
    return path.removeprefix("docs/") if is_shown else None
