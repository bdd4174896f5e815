"""A stand-in for the model hub: a server of this process that answers what huggingface_hub asks."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

TOKEN = "hf_" + "secret" * 5
SENDS_FILES_AS_DATA = "ignore:Use 'content=<...>':DeprecationWarning"  # huggingface_hub 2.4
LARGE = (".safetensors", ".jpg", ".png", ".parquet")
API = re.compile(r"/api/(model|dataset)s/([^/]+/[^/]+)/(tree|preupload|commit)/([^/?]+)")
FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
BATCH = re.compile(r".+\.git/info/lfs/objects/batch")


@dataclass
class Repository:
    """Commits of a repository: files by name, by commit; the last is the newest."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def files(self, revision: str) -> dict[str, bytes]:
        if revision != "main":
            return self.commits[revision]
        return next(reversed(self.commits.values()), {})


@dataclass
class Hub:
    """What was sent; ``flip`` names a file of which a bit is changed on its way out."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    flip: str = ""
    requests: list[str] = field(default_factory=list)


def git_digest(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: tests read what was asked from the hub."""

    def answer(self, value: Any, status: int = 200, **headers: str) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin(self) -> tuple[str, bytes] | None:
        """Path and body of a request; None: it was refused."""
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" and self.command != "PUT":
            self.answer({"error": "Invalid credentials"}, 401)
            return None
        return path, body

    def body(self) -> bytes:
        """Of known length, or in chunks, as files are sent."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def do_PUT(self) -> None:
        if request := self.begin():
            path, body = request
            self.hub.objects[path.rpartition("/")[2]] = body
            self.answer({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if not (request := self.begin()):
            return
        if match := API.fullmatch(request[0]):
            kind, name, _, revision = match.groups()
            files = self.hub.repositories[f"{kind} {name}"].files(revision)
            self.answer([self.entry(path, content) for path, content in files.items()])
        elif match := FILE.fullmatch(request[0]):
            kind = "dataset" if match[1] else "model"
            files = self.hub.repositories.get(f"{kind} {match[2]}", Repository(True)).files
            content = files(match[3]).get(match[4])
            if content is None:
                self.answer({}, 404, X_Error_Code="EntryNotFound")
                return
            large = match[4].endswith(LARGE)
            digest = hashlib.sha256(content).hexdigest() if large else git_digest(content)
            if match[4] == self.hub.flip:
                content = bytes([content[0] ^ 1]) + content[1:]
            self.answer(content, X_Repo_Commit=match[3], ETag=f'"{digest}"')
        else:
            self.answer({}, 404)

    @staticmethod
    def entry(path: str, content: bytes) -> dict[str, Any]:
        head = {"type": "file", "path": path, "size": len(content), "oid": git_digest(content)}
        if path.endswith(LARGE):
            digest = hashlib.sha256(content).hexdigest()
            head["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
        return head

    def do_POST(self) -> None:
        if not (request := self.begin()):
            return
        path, body = request
        if path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif BATCH.fullmatch(path):
            self.answer({"transfer": "basic", "objects": [*map(self.wanted, self.listed(body))]})
        elif (match := API.fullmatch(path)) and match[3] == "preupload":
            files = json.loads(body)["files"]
            self.answer({"files": [self.mode(file["path"]) for file in files]})
        elif match:
            self.commit(match[1], match[2], body)
        else:
            self.answer({}, 404)

    @staticmethod
    def mode(path: str) -> dict[str, Any]:
        mode = "lfs" if path.endswith(LARGE) else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False}

    @staticmethod
    def listed(body: bytes) -> list[dict[str, Any]]:
        return json.loads(body)["objects"]

    def wanted(self, entry: dict[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.hub.url}/objects/{entry['oid']}", "header": {}}
        return {"oid": entry["oid"], "size": entry["size"], "actions": {"upload": upload}}

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        kind = asked.get("type") or "model"
        status = 409 if f"{kind} {name}" in self.hub.repositories else 200
        private = asked.get("private", False) or asked.get("visibility") == "private"
        self.hub.repositories.setdefault(f"{kind} {name}", Repository(private))
        prefix = "datasets/" if kind == "dataset" else ""
        self.answer({"url": f"{self.hub.url}/{prefix}{name}", "name": name}, status)

    def commit(self, kind: str, name: str, body: bytes) -> None:
        repository = self.hub.repositories[f"{kind} {name}"]
        files = dict(repository.files("main"))
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        oid = hashlib.sha1(body).hexdigest()
        repository.commits[oid] = files
        prefix = "datasets/" if kind == "dataset" else ""
        url = f"{self.hub.url}/{prefix}{name}/commit/{oid}"
        self.answer({"commitUrl": url, "commitOid": oid})


@contextmanager
def running_hub(patch: pytest.MonkeyPatch, cache: Any) -> Iterator[Hub]:
    """A hub that huggingface_hub takes for its own, as HF_ENDPOINT would have it at its import."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = False  # they are waited for, so that all sockets are closed
    hub.url = f"http://127.0.0.1:{server.server_port}"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(constants, "ENDPOINT", hub.url)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its storage is no part of the stand-in
    patch.setenv("HF_TOKEN", TOKEN)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
