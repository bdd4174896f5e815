"""The study's page on this machine: ``http.server``, nothing else.

It listens on loopback alone and answers only under an address that holds the study's token, so
neither other machines, nor other users of this one, nor other pages in the annotator's browser can
ask for anything.
"""

from __future__ import annotations

import errno
import hmac
import io
import ipaddress
import json
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from captioning.vision.photos import load_rgb
from curation.report.page import build_page, page_policy
from curation.study.categories import CATEGORIES
from curation.study.items import checked_picture
from curation.study.store import Annotation, Store

MAX_REQUEST_BYTES = 64_000  # of a request
SOURCES = "img-src 'self' data:; connect-src 'self'"
STYLES, SCRIPTS = ("base.css", "study.css"), ("dom.js", "study.js")
NOT_FRAMED = "frame-ancestors 'none'"
PAGE, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
# Of all answers but the page: a picture or a text needs nothing.
BARE = f"default-src 'none'; {NOT_FRAMED}; sandbox"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Refused(Exception):
    """A request that is not answered; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Study:
    """What the page can ask for. Annotators see neither losses nor scores.

    Args:
        store: the annotations.
        paths: file of each picture, by its name.
        roots: folders in which pictures may lie.
        num_required: annotations that each picture should get.
    """

    def __init__(
        self, *, store: Store, paths: Mapping[str, Path], roots: Sequence[Path], num_required: int
    ) -> None:
        self.store = store
        self.items = store.items()
        self.paths = paths
        self.roots = list(roots)
        self.num_required = num_required
        self.page = build_page(
            "study.html",
            title="Which errors does the picture show?",
            styles=STYLES,
            scripts=SCRIPTS,
            data="",
            sources=SOURCES,
        ).encode()

    def sheet(self, annotator: str, *, another: bool = False) -> dict[str, Any]:
        """The set that an annotator works on, with the annotations so far."""
        set_number = self.store.assign(annotator, another=another)
        annotations = {
            annotation.number: annotation for annotation in self.store.annotations(annotator)
        }
        empty = {"categories": [], "comment": "", "done": False}
        items = [
            {"number": item.number, "captions": item.captions}
            | (
                _annotation_fields(annotations[item.number])
                if item.number in annotations
                else empty
            )
            for item in self.items
            if item.set_number == set_number
        ]
        return {
            "annotator": annotator,
            "items": items,
            "categories": [asdict(category) for category in CATEGORIES],
            "missing": self.missing(),
        }

    def missing(self) -> int:
        """Number of annotations that are still required, over all pictures."""
        counts = Counter(
            annotation.number for annotation in self.store.annotations() if annotation.done
        )
        return sum(max(0, self.num_required - counts[item.number]) for item in self.items)

    def save(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write an annotation that the page sent."""
        categories = record.get("categories")
        if not isinstance(categories, list) or not all(isinstance(x, str) for x in categories):
            raise ValueError("categories must be a list of texts")
        number, done = record.get("number"), record.get("done")
        if type(number) is not int or type(done) is not bool:
            raise ValueError("number must be a whole number and done true or false")
        annotation = Annotation(
            annotator=str(record.get("annotator")),
            number=number,
            categories=tuple(categories),
            comment=str(record.get("comment", "")),
            done=done,
        )
        self.store.save(annotation)
        return {"saved": number}

    def picture(self, number: int) -> bytes:
        """A picture as JPEG: decoded first, so that nothing but pictures leaves the folder."""
        if number >= len(self.items):
            raise Refused(404, "no such picture")
        path = self.paths[self.items[number].name]
        try:
            photo = load_rgb(checked_picture(path, self.roots))
        except (OSError, ValueError) as error:
            raise Refused(404, "this picture cannot be shown") from error
        file = io.BytesIO()
        photo.save(file, "JPEG", quality=95)
        return file.getvalue()


def _annotation_fields(annotation: Annotation) -> dict[str, Any]:
    return {
        "categories": annotation.categories,
        "comment": annotation.comment,
        "done": annotation.done,
    }


def read_token(path: Path) -> str:
    """The secret of a study's address; made at first, and readable by this user alone.

    It stays the same, so that pages that are open go on when the program is started again.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read or written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = path.read_text(encoding="ascii", errors="replace").strip()
        if not re.fullmatch(r"[\w-]{32,100}", token, re.ASCII):
            raise ValueError(
                f"{path}: holds no token of a study; delete it, then the study gets a new address"
            ) from None
        return token
    token = secrets.token_urlsafe(24)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    return token


def serve(study: Study, *, host: str, port: int, token: str) -> StudyServer:
    """A server that listens; ``serve_forever`` answers.

    Args:
        study: what it serves.
        host: address of this machine that no other can reach, such as ``127.0.0.1``.
        port: 0 for any.
        token: see `read_token`.

    Raises:
        ValueError: other machines could reach the address.
        OSError: the port is taken, or the address is not this machine's; says the remedy.
    """
    _check_loopback(host, port)
    try:
        server = StudyServer((host, port), _Handler)
    except (OSError, OverflowError) as error:
        remedy = "choose another address with --host"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            remedy = "another program listens there: end it, or choose another --port (0 for any)"
        elif isinstance(error, OverflowError) or error.errno == errno.EACCES:
            remedy = "choose a --port from 1024 to 65535"
        raise OSError(f"cannot listen on {host}, port {port} ({error}); {remedy}") from error
    server.study, server.token = study, token
    server.hosts = frozenset({*LOCAL_NAMES, host})
    return server


def _check_loopback(host: str, port: int) -> None:
    try:
        safe = host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        safe = False
    if not safe:
        raise ValueError(
            f"--host must be an address of this machine alone, such as 127.0.0.1: got {host!r}; "
            "people at other machines come in by SSH, which knows who they are: "
            f"ssh -L {port}:127.0.0.1:{port} THIS_MACHINE"
        )


class StudyServer(ThreadingHTTPServer):
    """Holds what handlers need: http.server makes one for each request."""

    daemon_threads = True
    study: Study
    token: str
    hosts: frozenset[str]

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        host, port = self.server_address[:2]
        return f"http://{host}:{port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: StudyServer  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "study"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _get(self, path: str) -> tuple[str, bytes]:
        if path == "":
            return PAGE, self.server.study.page
        if match := re.fullmatch(r"image/(\d{1,6})", path):
            return "image/jpeg", self.server.study.picture(int(match[1]))
        raise Refused(404, "no such page")

    def _post(self, path: str) -> tuple[str, bytes]:
        record = self._body()
        annotator = str(record.get("annotator", ""))
        if path == "api/sheet":
            result = self.server.study.sheet(annotator, another=record.get("another") is True)
        elif path == "api/annotation":
            result = self.server.study.save(record)
        else:
            raise Refused(404, "no such page")
        return "application/json", json.dumps(result).encode()

    def _body(self) -> dict[str, Any]:
        """The request's JSON object; forms of other sites cannot send one."""
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "Content-Type must be application/json")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length):
            raise Refused(411, "Content-Length is missing, or no number")
        if int(length) > MAX_REQUEST_BYTES:
            raise Refused(413, f"at most {MAX_REQUEST_BYTES} bytes")
        try:
            record = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"not JSON: {error}") from error
        if not isinstance(record, dict):
            raise Refused(400, "must be a JSON object")
        return record

    def _path(self) -> str:
        """What is asked for, behind the token; refuses all who do not know it."""
        _, _, rest = urlsplit(self.path).path.partition("/")
        token, slash, path = rest.partition("/")
        if not (slash and hmac.compare_digest(token.encode(), self.server.token.encode())):
            raise Refused(404, "open the page by the whole address that the program printed")
        return path

    def _check_sender(self) -> None:
        """Refuse names that some other site may have pointed at this machine, and other sites."""
        host = self.headers.get("Host", "")
        if (urlsplit(f"//{host}").hostname or "") not in self.server.hosts:
            raise Refused(421, "open the page by the address that the program printed")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise Refused(403, "this page takes requests from itself alone")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "this page takes requests from itself alone")

    def _answer(self, make: Callable[[str], tuple[str, bytes]]) -> None:
        try:
            self._check_sender()
            kind, content = make(self._path())
            status = 200
        except Refused as refused:
            status, kind, content = refused.status, TEXT, str(refused).encode()
        except ValueError as error:
            status, kind, content = 400, TEXT, str(error).encode()
        except OSError as error:
            status, kind = 500, TEXT
            content = b"the program cannot read or write a file; its terminal says which"
            print(f"error: {error}", file=sys.stderr)
        try:
            self._send(status, kind, content)
        except ConnectionError:
            self.close_connection = True  # the browser went away; what was saved is saved

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        policy = f"{page_policy(STYLES, SCRIPTS, SOURCES)}; {NOT_FRAMED}" if kind == PAGE else BARE
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", policy),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself, such as other methods, with the same headers."""
        self.close_connection = True
        self._send(code, TEXT, b"this request is not answered")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of each request: its address holds the token."""
