"""Preparing a data set: files, downloads, photos, features."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from captioning.commands.main import main
from captioning.data.features.store import FeatureStore
from captioning.metrics import spice
from captioning.training.prepare import NeededFile, download, fetch_files, prepare, unpack
from tests.task_calls import call

CONTENT = bytes(range(256)) * 400


class Server(ThreadingHTTPServer):
    """Serves one file; may break off after so many bytes, so many times."""

    content, etag, break_after, breaks, status = CONTENT, '"1"', 30_000, 0, 200
    ranges: tuple[str | None, ...] = ()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Server = self.server  # type: ignore[assignment]
        asked = self.headers.get("Range")
        server.ranges = (*server.ranges, asked)
        if server.status != 200:
            self.send_error(server.status)
            return
        resumed = asked is not None and self.headers.get("If-Range") == server.etag
        start = int(asked.split("=")[1].rstrip("-")) if resumed else 0
        body = server.content[start:]
        self.send_response(206 if resumed else 200)
        self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.breaks > 0:
            server.breaks -= 1
            body = body[: server.break_after]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def url(server: Server, name: str = "data.bin") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/{name}"


def fetch(server: Server, path: Path, **options: object) -> None:
    wanted = {"sha256": hashlib.sha256(server.content).hexdigest()} | options
    with Progress(disable=True) as bars:
        download(url(server), path, progress=bars, pause_seconds=0, **wanted)


def test_download_goes_on_after_broken_connections(server: Server, tmp_path: Path) -> None:
    server.breaks = 3
    digest = hashlib.sha256(CONTENT).hexdigest()
    fetch(server, tmp_path / "data.bin", sha256=digest)
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert server.ranges == (None, "bytes=30000-", "bytes=60000-", "bytes=90000-")
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_a_later_run_goes_on_and_a_changed_file_begins_anew(server: Server, tmp_path: Path) -> None:
    server.breaks, server.break_after = 9, 0
    with pytest.raises(ConnectionError, match="failed 2 times.*Run it again"):
        fetch(server, tmp_path / "data.bin", attempts=2)
    server.breaks, server.break_after = 1, 50_000
    with pytest.raises(ConnectionError):
        fetch(server, tmp_path / "data.bin", attempts=0)
    assert not (tmp_path / "data.bin").exists()
    server.content, server.etag = CONTENT[::-1], '"2"'
    fetch(server, tmp_path / "data.bin")
    assert (tmp_path / "data.bin").read_bytes() == CONTENT[::-1]


def test_wrong_digest_and_refusals(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="SHA-256 must be 00"):
        fetch(server, tmp_path / "data.bin", sha256="00")
    assert not any(path.suffix in (".part", ".bin") for path in tmp_path.iterdir())
    server.status = 404
    with pytest.raises(ConnectionError, match="404"):
        fetch(server, tmp_path / "data.bin")
    server.status = 503
    with pytest.raises(ConnectionError, match="refused 5 times"):
        fetch(server, tmp_path / "data.bin")
    with pytest.raises(ValueError, match="only http"), Progress(disable=True) as bars:
        download("file:///etc/passwd", tmp_path / "x", progress=bars, sha256="00")


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("photos/a.jpg", "a")
        file.writestr("photos/sub/b.jpg", "b")
        file.writestr("notes/c.json", "c")
        file.writestr("other.txt", "d")
    return path


def test_archives_are_fetched_once_and_unpacked(server: Server, tmp_path: Path) -> None:
    server.content = archive(tmp_path / "source.zip").read_bytes()
    root = tmp_path / "root"
    wanted = {"url": url(server, "all.zip"), "unpack": True}
    wanted |= {"sha256": hashlib.sha256(server.content).hexdigest()}
    files = [
        NeededFile(path=path, what="x", source="y", **wanted) for path in ("photos", "notes/c.json")
    ]
    assert fetch_files(files, root, Console()) == []
    assert len(server.ranges) == 1
    assert (root / "photos" / "sub" / "b.jpg").read_text() == "b"
    assert (root / "notes" / "c.json").read_text() == "c"
    assert not (root / "other.txt").exists()
    left = sorted(path.name for path in root.iterdir())
    assert left == [".prepare.lock", "notes", "photos"]


@pytest.mark.parametrize("unpack", [True, False])
def test_nothing_is_fetched_without_a_digest(server: Server, tmp_path: Path, unpack: bool) -> None:
    file = NeededFile(path="a.bin", what="x", source="y", url=url(server), unpack=unpack)
    (problem,) = fetch_files([file], tmp_path / "root", Console())
    assert "no SHA-256 of it is known" in problem
    assert f"put it at {tmp_path / 'root'}" in problem
    assert server.ranges == ()
    assert [path.name for path in (tmp_path / "root").iterdir()] == [".prepare.lock"]


def test_another_archive_is_refused_before_it_is_unpacked(server: Server, tmp_path: Path) -> None:
    server.content = archive(tmp_path / "source.zip").read_bytes()
    entry = {"url": url(server, "all.zip"), "unpack": True, "sha256": "0" * 64}
    file = NeededFile(path="photos", what="x", source="y", **entry)
    (problem,) = fetch_files([file], tmp_path / "root", Console())
    assert "SHA-256 must be 000" in problem
    assert [path.name for path in (tmp_path / "root").iterdir()] == [".prepare.lock"]


def test_damaged_archives_leave_nothing(tmp_path: Path) -> None:
    source = archive(tmp_path / "all.zip")
    with pytest.raises(ValueError, match="holds no movies"):
        unpack(source, tmp_path, ["photos", "movies"])
    source.write_bytes(source.read_bytes()[:-30])
    with pytest.raises(ValueError, match="damaged zip"):
        unpack(source, tmp_path, ["photos"])
    assert [path.name for path in tmp_path.iterdir()] == ["all.zip"]


def own_data(folder: Path) -> None:
    (folder / "images").mkdir(parents=True)
    for split in ("train", "val", "test"):
        Image.new("RGB", (40, 40), "red").save(folder / "images" / f"{split}.jpg")
        line = {"image": f"{split}.jpg", "caption": "a red square"}
        (folder / f"{split}.jsonl").write_text(json.dumps(line) + "\n")


def config_of(folder: Path, repository: Path, features: dict[str, object]) -> object:
    data = OmegaConf.load(repository / "configs" / "data" / "jsonl.yaml")
    data.root = str(folder)
    paths = {"data": str(folder), "cache": str(folder / "cache")}
    settings = {"data": data, "paths": paths, "features": features, "download": False}
    return OmegaConf.create(settings)


TINY = {
    "name": "tiny",
    "backbone": {
        "_target_": "captioning.vision.backbones.build_backbone",
        "name": "test_efficientnet",
        "weights": "random",
        "image_size": 64,
    },
    "kind": "grid",
    "folder": "${paths.cache}/features",
}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of a table is broken."""
    monkeypatch.setenv("COLUMNS", "200")


def test_own_photos_are_prepared(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    own_data(tmp_path)
    assert call(prepare, config_of(tmp_path, repository, TINY))
    said = capsys.readouterr().out
    assert "features of 3 photos are ready" in said
    stores = list((tmp_path / "cache" / "features").iterdir())
    assert [store.name.split("-")[0] for store in stores] == ["test_efficientnet"]
    config = config_of(tmp_path, repository, TINY)
    config.verify = True
    assert call(prepare, config)
    assert "records of" in capsys.readouterr().out

    def refuse(store: FeatureStore) -> None:
        raise ValueError(f"{store.folder}: damaged")

    with monkeypatch.context() as context:
        context.setattr(FeatureStore, "verify", refuse)
        with pytest.raises(ValueError, match=r"test_efficientnet\S+: damaged"):
            call(prepare, config)
    config = config_of(tmp_path, repository, {"name": "none", "kind": None})
    assert call(prepare, config)


def test_missing_files_are_listed_with_their_source(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_data(tmp_path)
    (tmp_path / "val.jsonl").unlink()
    assert not call(prepare, config_of(tmp_path, repository, TINY))
    said = capsys.readouterr().out
    assert "1 of 4 files of jsonl are missing" in said
    line = next(line for line in said.splitlines() if "val.jsonl" in line)
    assert "missing" in line
    assert "yourself" in line
    assert not (tmp_path / "cache").exists()


def test_command_ends_with_status_1_when_something_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["prepare", "data=flickr8k", f"paths.data={tmp_path}", f"paths.cache={tmp_path}"])
    assert ended.value.code == 1
    assert "5 of 5 files of flickr8k are missing" in capsys.readouterr().out


def test_metrics_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(spice, "prepare_spice", lambda: [Path("lib/corenlp.jar")])
    assert main(["prepare", "metrics"]) == 0
    assert "corenlp.jar" in capsys.readouterr().out

    def failing() -> list[Path]:
        raise FileNotFoundError("stanford-corenlp-3.6.0.jar could not be had")

    monkeypatch.setattr(spice, "prepare_spice", failing)
    assert main(["prepare", "metrics"]) == 1
    assert "could not be had" in capsys.readouterr().err
