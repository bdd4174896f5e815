"""One HTML file from its parts in ``pages``: no network, and only its own script runs."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib.resources import files

PICTURES_INSIDE = "img-src data:"
FRAME = "frame.html"  # of every page: head, script and data
_SLOT = re.compile(r"\{\{(\w+)\}\}")
# Control characters, and marks that embed, override or isolate directions.
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def page_file(name: str) -> str:
    """A text of ``curation/review/pages``."""
    return (files("curation.review") / "pages" / name).read_text(encoding="utf-8")


def build_page(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: str,
    sources: str = PICTURES_INSIDE,
) -> str:
    """The template with style, script and data in it.

    It carries its content security policy, see `page_policy`.

    Args:
        template: what the page shows, without frame; name in ``curation/review/pages``.
        title: of the page, any text.
        styles, scripts: names in ``curation/review/pages``, joined in order.
        data: markup of the data blocks; base64 alone.
        sources: what else the page may load, as the policy says it.
    """
    slots = {
        "policy": page_policy(styles, scripts, sources),
        "title": html.escape(isolated(title)),
        "style": _joined(styles),
        "data": data,
        "script": _joined(scripts),
    }
    page = page_file(FRAME).replace("{{body}}", page_file(template))
    return _SLOT.sub(lambda match: slots[match[1]], page)


def page_policy(
    styles: Sequence[str], scripts: Sequence[str], sources: str = PICTURES_INSIDE
) -> str:
    """The content security policy of a page of these parts.

    It names style and script by their hashes, so that text of a data set could neither run nor
    load or restyle anything even if it got into the page as markup. For arguments see `build_page`.
    """
    return (
        f"default-src 'none'; {sources}; style-src {_hash(_joined(styles))}; "
        f"script-src {_hash(_joined(scripts))}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def isolated(text: str) -> str:
    """Any text for a place that holds plain text alone, such as a window's title.

    Control characters and marks of direction become U+FFFD; the rest is set apart by U+2068 and
    U+2069, so that it cannot reorder the text around it.
    """
    return f"\u2068{_MARKS.sub(chr(0xFFFD), text)}\u2069"


def _joined(names: Sequence[str]) -> str:
    return "\n" + "\n".join(page_file(name) for name in names)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"
