"""The study's page: what it serves, to whom, and a set clicked through in a browser."""

from __future__ import annotations

import http.client
import json
import threading

import pytest

from captioning.commands.main import main
from curation.study.items import divide
from curation.study.manifest import read_items
from curation.study.server import Study, serve
from curation.study.store import Store
from tests.curation.study.studies import make_folder


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
    server = serve(study, host="127.0.0.1", port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server, method: str, path: str, body=None, **headers):
    """Status, type and content of an answer."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    sent = {"Content-Type": "application/json"} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    body = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, body=body, headers=sent)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers["Content-Type"], content


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


def test_other_names_and_other_sites_are_refused(server):
    port = server.server_address[1]
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example"):
        assert ask(server, "GET", "/", Host=host)[0] == 421
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        assert ask(server, "GET", "/", Host=host)[0] == 200
    sheet = {"annotator": "anna"}
    assert ask(server, "POST", "/api/sheet", sheet, Origin="http://evil.example")[0] == 403
    assert ask(server, "POST", "/api/sheet", sheet, Content_Type="text/plain")[0] == 415
    assert ask(server, "POST", "/api/sheet", sheet, Origin=f"http://127.0.0.1:{port}")[0] == 200


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
        serve(study, host="127.0.0.1", port=port)
    folder = str(study.roots[0])
    assert main(["curate", "study", folder, "--port", str(port)]) == 1
    assert "another program listens there" in capsys.readouterr().err
    assert main(["curate", "study", folder, "--port", "99999"]) == 1
    assert "--port from 1024 to 65535" in capsys.readouterr().err


def test_a_set_clicked_through(server, study, browser):
    url = "http://{}:{}/".format(*server.server_address)
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
