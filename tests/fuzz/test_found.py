"""Inputs that ended in a traceback once, or in an error without a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.fuzz.harness import judge
from tests.fuzz.suite import TARGETS

BY_NAME = {target.name: target for target in TARGETS}


def changed(old: str, new: str) -> Callable[[bytes], bytes]:
    """A text in place of another, which must be there."""

    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode(errors="surrogateescape"), 1)

    return change


def with_tensor_for_config(content: bytes) -> bytes:
    del content
    path = Path("c.ckpt")
    torch.save({"epoch": 5, "global_step": 2, "config": torch.ones(2), "state_dict": {}}, path)
    return path.read_bytes()


def twice_in_a_listing(content: bytes) -> bytes:
    listing = json.loads(content)
    return json.dumps(listing | {"items": [listing["items"][0]] * 2}).encode()


FOUND = [
    ("journal", "curation.jsonl", lambda content: content + b'{"epoch": ' + b"1" * 5000 + b"}\n"),
    ("folder of another loop", "roster.jsonl", changed("caption", "cap\udc9etion")),
    ("folder of another loop", "roster.jsonl", changed('"caption": "', '"caption": " ", "x": "')),
    ("results, records, keep-lists", "records.jsonl", changed('"ids": ["1"]', '"ids": ["1", "2"]')),
    ("results, records, keep-lists", "records.jsonl", changed('"ids": ["1"]', '"ids": []')),
    ("checkpoints", "last.ckpt", with_tensor_for_config),
    ("run that goes on", "versions.json", lambda content: b'{"resumed": ["x"]}'),
    ("run that goes on", "versions.json", lambda content: b'{"torch": 1e999}'),
    ("run that goes on", "config.yaml", lambda content: b"a: " + b"[" * 3000 + b"]" * 3000),
    ("stores of parses and scores", ".jsonl", lambda content: b"[" * 100_000 + b"\n"),
    ("listing of tar shards in the cache", ".json", twice_in_a_listing),
]


@pytest.mark.parametrize(("target", "file", "change"), FOUND)
def test_what_was_found_is_read_or_refused(
    target: str, file: str, change: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    subject = BY_NAME[target].make(tmp_path / "data")
    path = next(path for path in subject.files if path.name.endswith(file))
    path.write_bytes(change(path.read_bytes()))
    names = (*subject.names, path.name, "data")
    assert judge(subject.call, names) in ("read", "refused")
