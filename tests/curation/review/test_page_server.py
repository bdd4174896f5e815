"""The server of pages: what it answers, and to whom."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from curation.review.page_server import (
    JPEG,
    PageServer,
    Refused,
    Request,
    as_jpeg,
    serve,
    served_page,
)

TOKEN = "t0ken-" * 6


class Notes:
    """A page with a picture, which keeps what it is sent."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.page = served_page("app.html", title="Notes", scripts=("dom.js", "ask.js"))

    def get(self, path: str) -> tuple[str, bytes]:
        if path == "image/0":
            return JPEG, as_jpeg(Image.new("RGB", (12, 8)))
        raise Refused(404, "no such page")

    def post(self, path: str, request: Request) -> dict[str, Any]:
        record = request.record()
        if path != "api/keep":
            raise Refused(404, "no such page")
        if "text" not in record:
            raise ValueError("text is missing")
        self.kept.append(record)
        return {"kept": len(self.kept)}


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def server(notes: Notes) -> Iterator[PageServer]:
    server = serve(notes, host="127.0.0.1", port=0, token=TOKEN)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server, method: str, path: str, body=None, **headers):
    """Status, type and content of an answer to one who knows the token."""
    status, answered, content = ask_plainly(server, method, f"/{TOKEN}{path}", body, **headers)
    return status, answered["Content-Type"], content


def ask_plainly(server, method: str, path: str, body=None, **headers):
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    sent = {"Content-Type": "application/json"} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    body = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, body=body, headers=sent)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def raw(server, request: bytes) -> bytes:
    """The answer to bytes that no browser would send."""
    with socket.create_connection(server.server_address, timeout=30) as link:
        link.sendall(request)
        return b"".join(iter(lambda: link.recv(65536), b""))


def test_the_page_and_its_pictures(server, notes):
    status, kind, content = ask(server, "GET", "/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert b"default-src 'none'" in content
    status, kind, content = ask(server, "GET", "/image/0")
    assert (status, kind) == (200, "image/jpeg")
    assert content.startswith(b"\xff\xd8")
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/image/../../../etc/passwd",
        "/image/..%2f..%2fetc%2fpasswd",
        "/../decisions.json",
        "//etc/passwd",
        "/decisions.json",
        "/tasks.json",
        "/image/0.png",
        "/image/1",
        "/image/-1",
        "/image/999999999",
        "/image/1%00",
        "/pages/ask.js",
    ],
)
def test_nothing_else_is_served(server, path):
    status, _, content = ask(server, "GET", path)
    assert status == 404
    assert len(content) < 60


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/image/0",
        "/api/keep",
        f"/{TOKEN}",
        f"/{TOKEN[:-1]}/",
        f"/{TOKEN.upper()}/",
        f"/x/../{TOKEN}/",
        f"/?{TOKEN}/",
        f"/%74{TOKEN[1:]}/",
        f"/{TOKEN}\u00e9/",
    ],
)
def test_who_does_not_know_the_token_gets_nothing(server, notes, path):
    for method in ("GET", "POST"):
        answer = raw(
            server,
            f"{method} {path or '*'} HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nContent-Length: 17\r\n\r\n"
            '{"text": "hello"}'.encode("latin-1"),
        )
        assert answer.startswith(b"HTTP/1.0 404 ")
        assert answer.endswith(b"open the page with the complete address that the program printed")
    assert notes.kept == []


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "", "::", "192.168.1.2", "example.org", "127.1", "::1"]
)
def test_no_other_machine_can_reach_it(notes, host):
    with pytest.raises(ValueError, match="this machine alone.*ssh -L"):
        serve(notes, host=host, port=0, token=TOKEN)


def test_other_names_and_other_sites_are_refused(server):
    port = server.server_address[1]
    others = ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "10.0.0.1", "[")
    for host in others:
        assert ask(server, "GET", "/", Host=host)[0] in (400, 421)
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        assert ask(server, "GET", "/", Host=host)[0] == 200
    note = {"text": "hello"}
    own = f"http://127.0.0.1:{port}"
    for origin in (
        "http://evil.example",
        "null",
        "",
        f"https://127.0.0.1:{port}",
        f"{own}.evil.example",
    ):
        assert ask(server, "POST", "/api/keep", note, Origin=origin)[0] == 403
        assert ask(server, "GET", "/image/0", Origin=origin)[0] == 403
    for site in ("cross-site", "same-site"):
        assert ask(server, "GET", "/image/0", Sec_Fetch_Site=site)[0] == 403
    assert ask(server, "POST", "/api/keep", note, Content_Type="text/plain")[0] == 415
    form = "application/x-www-form-urlencoded"
    assert ask(server, "POST", "/api/keep", "text=hello", Content_Type=form)[0] == 415
    assert (
        ask(server, "POST", "/api/keep", note, Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
    )


def test_every_answer_has_the_headers_that_shut_others_out(server):
    requests = [
        ("GET", f"/{TOKEN}/"),
        ("GET", f"/{TOKEN}/image/0"),
        ("GET", f"/{TOKEN}/image/77"),
        ("GET", "/"),
        ("POST", f"/{TOKEN}/api/keep"),
        ("OPTIONS", f"/{TOKEN}/api/keep"),
        ("PUT", f"/{TOKEN}/image/0"),
        ("<script>", f"/{TOKEN}/"),
    ]
    for method, path in requests:
        _, headers, content = ask_plainly(server, method, path, {"text": "hello"})
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert b"<script>" not in content or method == "GET"
    _, headers, content = ask_plainly(server, "GET", f"/{TOKEN}/")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert TOKEN.encode() not in content


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Content-Length: 99999999", 413),
        ("Content-Length: 9999999999999999999999", 411),
        ("Content-Length: -1", 411),
        ("Content-Length: ²", 411),
        ("Transfer-Encoding: chunked", 411),
        ("X: " + "x" * 70_000, 431),
        ("\r\n".join(f"X{number}: x" for number in range(200)), 431),
    ],
)
def test_large_requests_are_not_read(server, head, status):
    request = (
        f"POST /{TOKEN}/api/keep HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\n{head}\r\n\r\n"
    )
    assert raw(server, request.encode("latin-1")).startswith(f"HTTP/1.0 {status} ".encode())
    assert raw(server, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 414")


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/api/keep", "{", 400, "not valid JSON"),
        ("/api/keep", "[1]", 400, "must be a JSON object"),
        ("/api/keep", "[" * 50_000, 400, "not valid JSON"),
        ("/api/keep", {"comment": "x"}, 400, "text is missing"),
        ("/api/other", {"text": "x"}, 404, "no such page"),
        ("/api/keep", {"text": "x" * 70_000}, 413, "at most"),
    ],
)
def test_bad_requests_are_answered_and_change_nothing(server, notes, path, body, status, message):
    got, _, content = ask(server, "POST", path, body)
    assert got == status
    assert message in content.decode()
    assert notes.kept == []


def test_a_taken_port_names_the_remedy(server, notes):
    port = server.server_address[1]
    with pytest.raises(OSError, match=rf"port {port} .*choose another --port"):
        serve(notes, host="127.0.0.1", port=port, token=TOKEN)
    for port in (99_999, 80_000):
        with pytest.raises(OSError, match="--port from 1024 to 65535"):
            serve(notes, host="127.0.0.1", port=port, token=TOKEN)
