"""Build one HTML file from parts in ``pages``: no network access, and no foreign scripts."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from captioning.vision.photos import load_rgb

PICTURES_INSIDE = "img-src data:"
STYLE = "page.css"  # style sheet of every page
FRAME = "frame.html"  # template of every page: head, script and data
MAX_TEXT_LENGTH = 2400  # maximum characters of a text: over 300 words
SIDE = 220  # longest side of a thumbnail in pixels
QUALITY = 72
_SLOT = re.compile(r"\{\{(\w+)\}\}")
# Control characters, and marks that embed, override or isolate directions.
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def page_file(name: str) -> str:
    """Read a text file from ``curation/review/pages``."""
    return (files("curation.review") / "pages" / name).read_text(encoding="utf-8")


def build_page(
    template: str,
    *,
    title: str,
    scripts: Sequence[str],
    data: str,
    sources: str = PICTURES_INSIDE,
) -> str:
    """Fill a page template with style, script and data.

    It carries its content security policy, see `page_policy`.

    Args:
        template: template of the page's content, without frame; a name in
            ``curation/review/pages``.
        title: the page's title, any text.
        scripts: names in ``curation/review/pages``, joined in order.
        data: markup of the data blocks; base64 alone.
        sources: further sources that the page may load, in the syntax of its security policy.
    """
    slots = {
        "policy": page_policy(scripts, sources),
        "page": Path(template).stem,
        "title": html.escape(isolated(title)),
        "style": _joined([STYLE]),
        "data": data,
        "script": _joined(scripts),
    }
    page = page_file(FRAME).replace("{{body}}", page_file(template))
    return _SLOT.sub(lambda match: slots[match[1]], page)


def page_policy(scripts: Sequence[str], sources: str = PICTURES_INSIDE) -> str:
    """Content security policy of a page with the given scripts.

    It names style and script by their hashes, so that text of a dataset could neither run nor
    load or restyle anything even if it got into the page as markup. For arguments see `build_page`.
    """
    return (
        f"default-src 'none'; {sources}; style-src {_hash(_joined([STYLE]))}; "
        f"script-src {_hash(_joined(scripts))}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def isolated(text: str) -> str:
    """Isolate untrusted text for places that hold plain text, such as a window's title.

    Control characters and marks of direction become U+FFFD; the rest is set apart by U+2068 and
    U+2069, so that it cannot reorder the text around it.
    """
    return f"\u2068{_MARKS.sub(chr(0xFFFD), text)}\u2069"


def _joined(names: Sequence[str]) -> str:
    return "\n" + "\n".join(page_file(name) for name in names)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def block(kind: str, text: str) -> str:
    """Markup of a data block with packed data, which is base64."""
    return f'<script type="text/plain" data-kind="{kind}">{text}</script>'


def pack(value: Any) -> str:
    """Pack plain values as JSON, gzip and base64, so that no text can act as HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = gzip.compress(text.encode("utf-8", errors="replace"), compresslevel=6, mtime=0)
    return base64.b64encode(data).decode("ascii")


def short(text: str) -> str:
    """Shorten a text to at most `MAX_TEXT_LENGTH` characters."""
    return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 1] + "…"


def thumbnail(path: str | Path) -> bytes | None:
    """JPEG thumbnail of at most `SIDE` pixels per side; None if the photo cannot be opened."""
    try:
        photo = load_rgb(path)
    except (OSError, ValueError):
        return None
    photo.thumbnail((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=QUALITY, optimize=True)
    return file.getvalue()


def thumbnails(paths: Iterable[Path], *, max_pictures: int, max_bytes: int) -> dict[Path, str]:
    """Base64 thumbnails of the first ``max_pictures`` photos that can be opened.

    Args:
        paths: photos, the important ones first; repeats are taken once.
        max_pictures: how many.
        max_bytes: size of all texts together.
    """
    texts: dict[Path, str] = {}
    remaining = max_bytes
    for path in dict.fromkeys(paths):
        if len(texts) == max_pictures:
            break
        picture = thumbnail(path)
        if picture is None:
            continue
        text = base64.b64encode(picture).decode("ascii")
        if len(text) > remaining:
            break
        remaining -= len(text)
        texts[path] = text
    return texts
