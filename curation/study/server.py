"""The study's page on this machine: ``http.server``, nothing else."""

from __future__ import annotations

import errno
import io
import ipaddress
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from captioning.vision.photos import load_rgb
from curation.report.page import build_page
from curation.study.categories import CATEGORIES
from curation.study.items import checked_picture
from curation.study.store import Annotation, Store

MAX_REQUEST_BYTES = 64_000  # of a request
POLICY = "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'"


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
            styles=("base.css", "study.css"),
            scripts=("dom.js", "study.js"),
            data="",
            sources=POLICY,
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


def serve(study: Study, *, host: str, port: int) -> ThreadingHTTPServer:
    """A server that listens; ``serve_forever`` answers.

    Raises:
        OSError: the port is taken, or the address is not this machine's; says the remedy.
    """
    try:
        server = _Server((host, port), _Handler)
    except (OSError, OverflowError) as error:
        remedy = "choose another address with --host"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            remedy = "another program listens there: end it, or choose another --port (0 for any)"
        elif isinstance(error, OverflowError) or error.errno == errno.EACCES:
            remedy = "choose a --port from 1024 to 65535"
        raise OSError(f"cannot listen on {host}, port {port} ({error}); {remedy}") from error
    server.daemon_threads = True
    server.study = study
    server.hosts = frozenset({"localhost", host.lower()})
    return server


class _Server(ThreadingHTTPServer):
    """Holds what handlers need: http.server makes one for each request."""

    study: Study
    hosts: frozenset[str]


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "study"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _get(self) -> tuple[str, bytes]:
        path = urlsplit(self.path).path
        if path == "/":
            return "text/html; charset=utf-8", self.server.study.page
        if match := re.fullmatch(r"/image/(\d{1,6})", path):
            return "image/jpeg", self.server.study.picture(int(match[1]))
        raise Refused(404, "no such page")

    def _post(self) -> tuple[str, bytes]:
        record = self._body()
        path = urlsplit(self.path).path
        annotator = str(record.get("annotator", ""))
        if path == "/api/sheet":
            result = self.server.study.sheet(annotator, another=record.get("another") is True)
        elif path == "/api/annotation":
            result = self.server.study.save(record)
        else:
            raise Refused(404, "no such page")
        return "application/json", json.dumps(result).encode()

    def _body(self) -> dict[str, Any]:
        """The request's JSON object; forms of other sites cannot send one."""
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "Content-Type must be application/json")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != self.headers.get("Host"):
            raise Refused(403, "this page takes requests from itself alone")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            raise Refused(411, "Content-Length is missing")
        if int(length) > MAX_REQUEST_BYTES:
            raise Refused(413, f"at most {MAX_REQUEST_BYTES} bytes")
        try:
            record = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"not JSON: {error}") from error
        if not isinstance(record, dict):
            raise Refused(400, "must be a JSON object")
        return record

    def _check_host(self) -> None:
        """Refuse names that some other site may have pointed at this machine."""
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        if name in self.server.hosts:
            return
        try:
            ipaddress.ip_address(name)
        except ValueError as error:
            raise Refused(421, "open the page by the address that the program printed") from error

    def _answer(self, make: Any) -> None:
        try:
            self._check_host()
            kind, content = make()
            status = 200
        except Refused as refused:
            status, kind, content = refused.status, "text/plain; charset=utf-8", str(refused)
        except ValueError as error:
            status, kind, content = 400, "text/plain; charset=utf-8", str(error)
        except OSError as error:
            status, kind, content = 500, "text/plain; charset=utf-8", str(error)
            print(f"error: {error}", file=sys.stderr)
        content = content.encode() if isinstance(content, str) else content
        try:
            self._send(status, kind, content)
        except ConnectionError:
            self.close_connection = True  # the browser went away; what was saved is saved

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing of each request."""
