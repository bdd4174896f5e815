"""Serve a page on this machine alone, with Python's ``http.server``.

It listens on loopback alone and answers only under an address that holds a token, so neither other
machines, nor other users of this one, nor other pages in the user's browser can ask for anything.
"""

from __future__ import annotations

import errno
import hmac
import io
import ipaddress
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, final
from urllib.parse import urlsplit

from PIL import Image

from curation.review.html_page import build_page, page_policy

MAX_REQUEST_BYTES = 64_000  # maximum bytes of a JSON object
SOURCES = "img-src 'self' data:; connect-src 'self'"
NOT_FRAMED = "frame-ancestors 'none'"
HTML, TEXT, JPEG = "text/html; charset=utf-8", "text/plain; charset=utf-8", "image/jpeg"
JSON, BYTES = "application/json", "application/octet-stream"
# Policy of all answers except the page: images and texts load nothing.
BARE = f"default-src 'none'; {NOT_FRAMED}; sandbox"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Refused(Exception):
    """Refusal of a request; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@final
class Request:
    """A request from the page; forms of other sites cannot send its two content types.

    Args:
        headers: the request's headers.
        stream: its content.
    """

    def __init__(self, headers: Message, stream: io.BufferedIOBase) -> None:
        self._headers, self._stream = headers, stream

    def content(self, kind: str, limit: int) -> bytes:
        """Read a body of one content type, such as `BYTES`, with at most ``limit`` bytes.

        Raises:
            Refused: the body has another type or is too long.
        """
        if self._headers.get_content_type() != kind:
            raise Refused(415, f"Content-Type must be {kind}")
        length = self._headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length):
            raise Refused(411, "Content-Length must be a number, and is missing or invalid")
        if int(length) > limit:
            raise Refused(413, f"the request must have at most {limit} bytes")
        return self._stream.read(int(length))

    def record(self) -> dict[str, Any]:
        """Read a JSON object from the body.

        Raises:
            Refused: the body is not a JSON object.
        """
        try:
            record = json.loads(self.content(JSON, MAX_REQUEST_BYTES))
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the request is not valid JSON: {error}") from error
        if not isinstance(record, dict):
            raise Refused(400, "the request must be a JSON object")
        return record


@dataclass(frozen=True, kw_only=True)
class ServedPage:
    """A page, and the security policy that is sent with the page."""

    content: bytes
    policy: str


def served_page(template: str, *, title: str, scripts: Sequence[str]) -> ServedPage:
    """Build a page that may send requests only to its own server; see `build_page`."""
    page = build_page(template, title=title, scripts=scripts, data="", sources=SOURCES)
    policy = f"{page_policy(scripts, SOURCES)}; {NOT_FRAMED}"
    return ServedPage(content=page.encode(), policy=policy)


class Application(Protocol):
    """Interface of the requests that a page can make.

    ``ValueError`` is answered by its text, ``OSError`` and ``RuntimeError`` stay in the terminal.
    """

    @property
    def page(self) -> ServedPage:
        """The page that the server sends for its address."""
        ...

    def get(self, path: str) -> tuple[str, bytes]:
        """Return content type and content of the resource at ``path``.

        Raises:
            Refused: the resource does not exist.
        """
        ...

    def post(self, path: str, request: Request) -> dict[str, Any]:
        """Answer a request with data from the page.

        Raises:
            Refused: the path does not exist, or the request is malformed.
        """
        ...


def as_jpeg(photo: Image.Image, *, max_side: int | None = None) -> bytes:
    """Encode an RGB image as JPEG, reduced if a side is above ``max_side``."""
    if max_side is not None and max(photo.size) > max_side:
        photo = photo.copy()
        photo.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=95)
    return file.getvalue()


def serve(application: Application, *, host: str, port: int, token: str) -> PageServer:
    """Build a listening server; call ``serve_forever`` to answer requests.

    Args:
        application: the application to serve.
        host: address of this machine that no other can reach, such as ``127.0.0.1``.
        port: 0 for any.
        token: the secret of the address, 32 characters or more.

    Raises:
        ValueError: other machines could reach the address.
        OSError: port or address cannot be used; the message names the remedy.
    """
    _check_loopback(host, port)
    try:
        server = PageServer((host, port), _Handler)
    except (OSError, OverflowError) as error:
        remedy = "choose another address with --host"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            remedy = "stop the program that uses this port, or choose another --port (0 for any)"
        elif isinstance(error, OverflowError) or error.errno == errno.EACCES:
            remedy = "choose a --port from 1024 to 65535"
        raise OSError(f"cannot listen on {host}, port {port} ({error}); {remedy}") from error
    server.application, server.token = application, token
    server.hosts = frozenset({*LOCAL_NAMES, host})
    return server


def serve_until_interrupted(server: PageServer, *, about: str, at_end: str) -> None:
    """Print the address and the served content, and answer requests until Ctrl+C."""
    print(f"{about}\nopen {server.url} (Ctrl+C ends)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print(at_end, file=sys.stderr)
    finally:
        server.server_close()


def _check_loopback(host: str, port: int) -> None:
    try:
        safe = host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        safe = False
    if not safe:
        raise ValueError(
            f"--host must be an address of this machine alone, such as 127.0.0.1: got {host!r}; "
            "from another machine, open the page through an SSH tunnel: "
            f"ssh -L {port}:127.0.0.1:{port} THIS_MACHINE"
        )


@final
class PageServer(ThreadingHTTPServer):
    """HTTP server that holds the application; http.server makes a handler for each request."""

    daemon_threads = True
    application: Application
    token: str
    hosts: frozenset[str]

    @property
    def url(self) -> str:
        """Address of the page, including the token."""
        host, port = self.server_address[:2]
        return f"http://{host}:{port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "page"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _get(self, path: str) -> tuple[str, bytes]:
        if path == "":
            return HTML, self.server.application.page.content
        return self.server.application.get(path)

    def _post(self, path: str) -> tuple[str, bytes]:
        request = Request(self.headers, self.rfile)
        return JSON, json.dumps(self.server.application.post(path, request)).encode()

    def _path(self) -> str:
        """Path of the request after the token; raise an error for a wrong token."""
        _, _, rest = urlsplit(self.path).path.partition("/")
        token, slash, path = rest.partition("/")
        if not (slash and hmac.compare_digest(token.encode(), self.server.token.encode())):
            raise Refused(404, "open the page with the complete address that the program printed")
        return path

    def _check_sender(self) -> None:
        """Raise an error for requests from other sites or with another host name."""
        host = self.headers.get("Host", "")
        if (urlsplit(f"//{host}").hostname or "") not in self.server.hosts:
            raise Refused(421, "open the page with the address that the program printed")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise Refused(403, "only the page of this program may send requests")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "only the page of this program may send requests")

    def _answer(self, make: Callable[[str], tuple[str, bytes]]) -> None:
        try:
            self._check_sender()
            kind, content = make(self._path())
            status = 200
        except Refused as refused:
            status, kind, content = refused.status, TEXT, str(refused).encode()
        except ValueError as error:
            status, kind, content = 400, TEXT, str(error).encode(errors="replace")
        except OSError as error:
            status, kind = 500, TEXT
            content = b"the program cannot read or write a file; its terminal says which"
            print(f"error: {error}", file=sys.stderr)
        except RuntimeError as error:
            status, kind, content = 500, TEXT, b"the program failed; its terminal says why"
            print(f"error: {error}", file=sys.stderr)
        try:
            self._send(status, kind, content)
        except ConnectionError:
            self.close_connection = True  # connection lost; decisions stay saved

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        policy = self.server.application.page.policy if kind == HTML else BARE
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
        """Send errors that http.server raises by itself with the same headers."""
        self.close_connection = True
        self._send(code, TEXT, b"this request is not answered")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing, because the address of a request contains the token."""
