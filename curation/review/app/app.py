"""What the page of ``captioning app`` can ask for."""

from __future__ import annotations

import re
from typing import Any, final

from curation.review.app.captions import PhotoCaptions
from curation.review.app.review import Review
from curation.review.app.uploads import MAX_BYTES, Uploads
from curation.review.page_server import BYTES, JPEG, Refused, Request, ServedPage, served_page

TITLE = "Captions"
STYLES = ("base.css", "app.css")
SCRIPTS = ("dom.js", "ask.js", "attention.js", "app_photo.js", "app_review.js", "app.js")


@final
class App:
    """The page's answers.

    Args:
        captions: of photos.
        uploads: photos that the page sent.
        review: suspected captions; None: there are none to look through.
    """

    def __init__(self, *, captions: PhotoCaptions, uploads: Uploads, review: Review | None) -> None:
        self._captions, self._uploads, self._review = captions, uploads, review
        self.page: ServedPage = served_page("app.html", title=TITLE, styles=STYLES, scripts=SCRIPTS)

    def get(self, path: str) -> tuple[str, bytes]:
        """A photo that was sent, or that of a suspect, by its number."""
        if match := re.fullmatch(r"photo/(\d{1,9})", path):
            return JPEG, self._uploads.photo(int(match[1])).picture
        if (match := re.fullmatch(r"suspect/(\d{1,9})", path)) and self._review is not None:
            return JPEG, self._review.picture(int(match[1]))
        raise Refused(404, "no such page")

    def post(self, path: str, request: Request) -> dict[str, Any]:
        """Take a photo, caption it, or write a decision."""
        if path == "api/photo":
            number = self._uploads.add(request.content(BYTES, MAX_BYTES))
            width, height = self._uploads.photo(number).size
            return {"photo": number, "width": width, "height": height}
        record = request.record()
        if path == "api/start":
            review = None if self._review is None else self._review.sheet()
            return {"models": self._captions.models(), "review": review, "max_bytes": MAX_BYTES}
        if path == "api/caption":
            return self._caption(record)
        if path == "api/decide" and self._review is not None:
            return self._review.decide(record)
        if path == "api/suggest" and self._review is not None:
            photo = self._review.photo(record.get("number"))
            return {"caption": self._captions.suggest(photo, record)}
        raise Refused(404, "no such page")

    def _caption(self, record: dict[str, Any]) -> dict[str, Any]:
        number, name = record.get("photo"), record.get("name", "")
        if type(number) is not int or not isinstance(name, str):
            raise ValueError("photo must be a number and name a text")
        upload = self._uploads.photo(number)
        return self._captions.caption(upload.path, upload.size, name, record)
