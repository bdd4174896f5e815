"""One HTML file from its parts in ``curation/pages``: no network, and only its own script runs."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib.resources import files

_SLOT = re.compile(r"\{\{(\w+)\}\}")


def page_file(name: str) -> str:
    """A text of ``curation/pages``."""
    return (files("curation") / "pages" / name).read_text(encoding="utf-8")


def build_page(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: str,
    sources: str = "img-src data:",
) -> str:
    """The template with style, script and data in it.

    Its content security policy names the script by its hash, so that text of a data set could not
    run even if it got into the page as markup.

    Args:
        template: name in ``curation/pages``.
        title: of the page, any text.
        styles, scripts: names in ``curation/pages``, joined in order.
        data: markup of the data blocks; base64 alone.
        sources: what else the page may load, as the policy says it.
    """
    script = "\n" + "\n".join(page_file(name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    slots = {
        "policy": (
            f"default-src 'none'; {sources}; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'"
        ),
        "title": html.escape(title),
        "style": "\n".join(page_file(name) for name in styles),
        "data": data,
        "script": script,
    }
    return _SLOT.sub(lambda match: slots[match[1]], page_file(template))
