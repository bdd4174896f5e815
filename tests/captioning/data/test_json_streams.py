"""Lists of large JSON files, read item by item."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.data.json_files import load_json
from captioning.data.json_streams import stream_records

DOCUMENT = {"info": {"a": [1, {}]}, "images": [{"x": "ü"}, {"y": []}, {}], "end": None}


@pytest.mark.parametrize("indent", [None, 2])
def test_items_are_those_of_the_whole_file(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(DOCUMENT, indent=indent), encoding="utf-8")
    assert list(stream_records(path, "images")) == list(load_json(path).records("images"))


@pytest.mark.parametrize(
    "text",
    [
        *['{"images": []}', ' {"images" : [ ] , "b": 1} ', '{"images": [{}]}'],
        *["", "{", '{"images"', '{"images":', '{"images": [', '{"images": [{}', '{"images": [{},'],
        *['{"images": [{}]', '{"images": [{}],', '{"images": [{}],}', '{"images": [{},]}', "[1]"],
        *['{"images": [1]}', '{"images": 1}', '{"images": null}', '{"a": 1}', "{images: []}", "7"],
        *['{"images": [{}] "a": 1}', '{"images": [{}]} x', '{"images": [{"a": NaN}]}'],
        *['{"images": [{"a": 1, "a": 1}]}', '{"images": [], "images": []}', "[" * 9000],
    ],
)
def test_mistakes_are_told_as_for_the_whole_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")

    def outcome(read):
        try:
            return read()
        except ValueError as error:
            return str(error)

    expected = outcome(lambda: list(load_json(path).records("images")))
    assert outcome(lambda: list(stream_records(path, "images"))) == expected
