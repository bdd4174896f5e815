"""``captioning docs``: print the documentation pages in the package."""

from __future__ import annotations

import difflib
from argparse import ArgumentParser, Namespace
from pathlib import Path

from captioning.commands.command import PlainCommand
from captioning.config.folders import shipped_folder


def docs_folder() -> Path:
    """Folder of the documentation pages; for errors see `shipped_folder`."""
    return shipped_folder("pages", "pages.md", installed="docs", checkout="docs")


def topics() -> dict[str, Path]:
    """Pages by topic, such as ``guides/policies``; a folder's README has the folder's name."""
    folder = docs_folder()
    found = {}
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        found[name.removesuffix("/README")] = path
    return found


def find_page(topic: str) -> Path:
    """Find the page of a topic; the last part of the topic is enough if it is unique.

    Raises:
        ValueError: no page or several pages have the name; the message gives similar names.
    """
    pages = topics()
    topic = topic.removeprefix("docs/").removesuffix(".md").strip("/")
    if topic in pages:
        return pages[topic]
    ends: dict[str, list[str]] = {}
    for name in pages:
        ends.setdefault(name.rpartition("/")[2], []).append(name)
    same = ends.get(topic, [])
    if len(same) == 1:
        return pages[same[0]]
    near = difflib.get_close_matches(topic.rpartition("/")[2], ends, cutoff=0.5)
    near = same or [name for end in near for name in ends[end]]
    near = near or [name for name in pages if topic.lower() in name]
    asked = f"{topic!r} matches several pages" if same else f"no page is called {topic!r}"
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise ValueError(f"{asked}; {hint}`captioning docs` lists all")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="a page, such as guides/policies or policies")


def _call(options: Namespace) -> None:
    if options.topic is not None:
        print(find_page(options.topic).read_text(encoding="utf-8"), end="")
        return
    pages = topics()
    width = max(map(len, pages))
    for name, path in pages.items():
        with path.open(encoding="utf-8") as lines:
            print(f"{name:{width}}  {next(lines).removeprefix('# ').strip()}")


DOCS = PlainCommand(
    name="docs",
    summary="Print a page of the documentation, or list all pages.",
    add_arguments=_add_arguments,
    call=_call,
    examples=("docs", "docs guides/policies"),
)
