"""The study's page: what it serves, to whom, and a set clicked through in a browser."""

from __future__ import annotations

import http.client
import json
import socket
import threading

import pytest
from hostile_texts import HOSTILE

from captioning.commands.main import main
from curation.review.page_server import serve
from curation.study.items import divide
from curation.study.manifest import read_items
from curation.study.server import Study, read_token
from curation.study.store import Store
from tests.curation.study.studies import make_folder

TOKEN = "t0ken-" * 6


@pytest.fixture
def study(tmp_path):
    folder = make_folder(tmp_path / "pictures", 4)
    items = read_items(folder)
    store = Store(path=folder / "study.sqlite")
    store.fill(divide(items))
    paths = {item.name: item.path for item in items}
    return Study(store=store, paths=paths, roots=[folder], num_required=3)


@pytest.fixture
def server(study):
    server = serve(study, host="127.0.0.1", port=0, token=TOKEN)
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


def test_the_page_and_its_pictures(server, study):
    status, kind, content = ask(server, "GET", "/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert b"default-src 'none'" in content
    status, kind, content = ask(server, "GET", "/image/3")
    assert (status, kind) == (200, "image/jpeg")
    assert content.startswith(b"\xff\xd8")
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "path",
    [
        "/image/../../../etc/passwd",
        "/image/..%2f..%2fetc%2fpasswd",
        "/../study.sqlite",
        "//etc/passwd",
        "/study.sqlite",
        "/manifest.jsonl",
        "/image/0.png",
        "/image/4",
        "/image/-1",
        "/image/999999999",
        "/image/1%00",
        "/pages/study.js",
    ],
)
def test_nothing_else_is_served(server, path):
    status, _, content = ask(server, "GET", path)
    assert status == 404
    assert len(content) < 60


def test_a_picture_exchanged_for_a_link_is_not_served(server, study, tmp_path):
    outside = make_folder(tmp_path / "outside", 1) / "0.png"
    number = next(item.number for item in study.items if item.name == "2.png")
    path = study.paths["2.png"]
    path.unlink()
    path.symlink_to(outside)
    assert ask(server, "GET", f"/image/{number}")[0] == 404
    path.unlink()
    path.write_text("a text that is no picture")
    assert ask(server, "GET", f"/image/{number}")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/image/0",
        "/api/sheet",
        f"/{TOKEN}",
        f"/{TOKEN[:-1]}/",
        f"/{TOKEN.upper()}/",
        f"/x/../{TOKEN}/",
        f"/?{TOKEN}/",
        f"/%74{TOKEN[1:]}/",
        f"/{TOKEN}\u00e9/",
    ],
)
def test_who_does_not_know_the_token_gets_nothing(server, study, path):
    for method in ("GET", "POST"):
        answer = raw(
            server,
            f"{method} {path or '*'} HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n"
            '{"annotator": "anna"}'.encode("latin-1"),
        )
        assert answer.startswith(b"HTTP/1.0 404 ")
        assert answer.endswith(b"open the page by the whole address that the program printed")
    assert study.store.assign("anna", another=True) == 0  # nobody has taken a set


def test_the_token_is_secret_and_stays(tmp_path):
    path = tmp_path / "study.sqlite.token"
    token = read_token(path)
    assert len(token) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == token
    assert read_token(tmp_path / "other.token") != token
    for text in ("", "short", "../" * 20, "x" * 200, "é" * 40):
        path.write_text(text)
        with pytest.raises(ValueError, match="delete it"):
            read_token(path)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "", "::", "192.168.1.2", "example.org", "127.1", "::1"]
)
def test_no_other_machine_can_reach_it(study, host):
    with pytest.raises(ValueError, match="this machine alone.*ssh -L"):
        serve(study, host=host, port=0, token=TOKEN)


def test_other_names_and_other_sites_are_refused(server):
    port = server.server_address[1]
    others = ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "10.0.0.1", "[")
    for host in others:
        assert ask(server, "GET", "/", Host=host)[0] in (400, 421)
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        assert ask(server, "GET", "/", Host=host)[0] == 200
    sheet = {"annotator": "anna"}
    own = f"http://127.0.0.1:{port}"
    for origin in (
        "http://evil.example",
        "null",
        "",
        f"https://127.0.0.1:{port}",
        f"{own}.evil.example",
    ):
        assert ask(server, "POST", "/api/sheet", sheet, Origin=origin)[0] == 403
        assert ask(server, "GET", "/image/0", Origin=origin)[0] == 403
    for site in ("cross-site", "same-site"):
        assert ask(server, "GET", "/image/0", Sec_Fetch_Site=site)[0] == 403
    assert ask(server, "POST", "/api/sheet", sheet, Content_Type="text/plain")[0] == 415
    form = "application/x-www-form-urlencoded"
    assert ask(server, "POST", "/api/sheet", "annotator=anna", Content_Type=form)[0] == 415
    assert (
        ask(server, "POST", "/api/sheet", sheet, Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
    )


def test_every_answer_has_the_headers_that_shut_others_out(server):
    requests = [
        ("GET", f"/{TOKEN}/"),
        ("GET", f"/{TOKEN}/image/0"),
        ("GET", f"/{TOKEN}/image/77"),
        ("GET", "/"),
        ("POST", f"/{TOKEN}/api/sheet"),
        ("OPTIONS", f"/{TOKEN}/api/sheet"),
        ("PUT", f"/{TOKEN}/image/0"),
        ("<script>", f"/{TOKEN}/"),
    ]
    for method, path in requests:
        _, headers, content = ask_plainly(server, method, path, {"annotator": "anna"})
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
        f"POST /{TOKEN}/api/sheet HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\n{head}\r\n\r\n"
    )
    assert raw(server, request.encode("latin-1")).startswith(f"HTTP/1.0 {status} ".encode())
    assert raw(server, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 414")


def test_annotators_are_told_neither_losses_nor_halves(server):
    status, _, content = ask(server, "POST", "/api/sheet", {"annotator": "anna"})
    assert status == 200
    assert not any(word in content for word in (b"loss", b"half", b"high", b"clip", b".png"))
    sheet = json.loads(content)
    assert len(sheet["items"]) == 4
    assert len(sheet["categories"]) == 25
    assert sheet["missing"] == 12


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/api/annotation", "{", 400, "not JSON"),
        ("/api/annotation", "[1]", 400, "must be a JSON object"),
        ("/api/annotation", "[" * 50_000, 400, "not JSON"),
        ("/api/annotation", {"annotator": "anna"}, 400, "categories must be"),
        (
            "/api/annotation",
            {"categories": [], "number": True, "done": True},
            400,
            "number must be",
        ),
        (
            "/api/annotation",
            {"annotator": "anna", "categories": ["x"], "number": 0, "done": True},
            400,
            "unknown categories",
        ),
        (
            "/api/annotation",
            {"annotator": "who", "categories": [], "number": 0, "done": True},
            400,
            "in no set of 'who'",
        ),
        ("/api/sheet", {"annotator": "a b"}, 400, "annotator must be"),
        ("/api/other", {"annotator": "a"}, 404, "no such page"),
        ("/api/annotation", {"comment": "x" * 70_000}, 413, "at most"),
    ],
)
def test_bad_requests_are_answered_and_change_nothing(server, study, path, body, status, message):
    got, _, content = ask(server, "POST", path, body)
    assert got == status
    assert message in content.decode()
    assert study.store.annotations() == []


def test_a_taken_port_names_the_remedy(server, study, capsys):
    port = server.server_address[1]
    with pytest.raises(OSError, match=rf"port {port} .*choose another --port"):
        serve(study, host="127.0.0.1", port=port, token=TOKEN)
    folder = str(study.roots[0])
    assert main(["curate", "study", folder, "--port", str(port)]) == 1
    assert "another program listens there" in capsys.readouterr().err
    assert main(["curate", "study", folder, "--port", "99999"]) == 1
    assert "--port from 1024 to 65535" in capsys.readouterr().err


def test_hostile_captions_are_shown_as_texts(tmp_path, browser):
    # as the reader takes them: spaces are one, and NUL is refused
    captions = [" ".join(text.replace("\0", "").split()) for text in HOSTILE]
    folder = make_folder(tmp_path / "pictures", 2, captions=captions)
    store = Store(path=folder / "study.sqlite")
    items = read_items(folder)
    store.fill(divide(items))
    paths = {item.name: item.path for item in items}
    study = Study(store=store, paths=paths, roots=[folder], num_required=1)
    server = serve(study, host="127.0.0.1", port=0, token=TOKEN)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    browser.open(server.url)
    browser.wait("document.body.dataset.ready")
    browser.run("document.getElementById('annotator').value = 'anna'")
    browser.click("#begin")
    browser.wait("document.body.dataset.item && document.getElementById('picture').naturalWidth")
    texts = "[...document.querySelectorAll('#captions bdi')].map(x => x.textContent)"
    shown = browser.run(f"return {texts}")
    server.shutdown()
    server.server_close()
    assert shown == captions
    assert browser.run("return window.hacked") is None
    assert browser.run("return document.querySelectorAll('#captions *').length") == 2 * len(HOSTILE)


def test_a_set_clicked_through(server, study, browser):
    url = server.url
    browser.open(url)
    browser.wait("document.body.dataset.ready")
    browser.run("localStorage.clear()")
    browser.run("document.getElementById('annotator').value = ''")
    browser.type("#annotator", "anna")
    browser.click("#begin")
    shown = "document.getElementById('picture').naturalWidth === 12 && document.body.dataset.item"
    first = int(browser.wait(shown))
    assert browser.text("#captions li:last-child") == "<b>second</b>"
    assert browser.text("#next") == "No error, next"
    browser.click("input[value='weird-face']")
    browser.click("input[value='number']")
    browser.wait("document.getElementById('status').textContent === 'anna · saved'")
    (draft,) = study.store.annotations()
    assert (draft.number, draft.categories, draft.done) == (first, ("weird-face", "number"), False)

    # stopped in the midst of it, and gone on with
    browser.open(url)
    browser.wait("document.body.dataset.ready")
    assert browser.run("return document.getElementById('annotator').value") == "anna"
    browser.click("#begin")
    assert int(browser.wait(shown)) == first
    assert browser.run("return document.querySelectorAll('input:checked').length") == 2
    browser.click("input[value='number']")
    browser.type("#comment", "six fingers")
    browser.click("#next")
    for place in (2, 3, 4):
        browser.wait(f"document.getElementById('place').textContent === '{place} of 4'")
        browser.click("#next")
    browser.wait("!document.getElementById('finished').hidden")
    browser.wait("document.getElementById('more').textContent")
    assert browser.text("#more") == "The study still wants 8 annotations."
    annotations = {annotation.number: annotation for annotation in study.store.annotations()}
    assert len(annotations) == 4
    assert all(annotation.done for annotation in annotations.values())
    assert (annotations[first].categories, annotations[first].comment) == (
        ("weird-face",),
        "six fingers",
    )
    assert sum(len(annotation.categories) for annotation in annotations.values()) == 1
    browser.click("#another")
    browser.wait("document.getElementById('another').hidden")
    assert browser.text("#more") == "You have done every set."
