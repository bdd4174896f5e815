"""Lists of large JSON files, read item by item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
        *['{"images": [{}]', '{"images": [{}],', "[1]"],
        *['{"images": [1]}', '{"images": 1}', '{"images": null}', '{"a": 1}', "{images: []}", "7"],
        *['{"images": [{}] "a": 1}', '{"images": [{}]} x', '{"images": [{"a": NaN}]}'],
        *['{"images": [{"a": 1, "a": 1}]}', '{"images": [], "images": []}', "[" * 9000],
    ],
)
def test_mistakes_are_told_as_for_the_whole_file(tmp_path: Path, text: str) -> None:
    streamed, whole = outcomes(tmp_path / "a.json", text)
    assert streamed == whole


@pytest.mark.parametrize("text", ['{"images": [{}],}', '{"images": [{},]}'])
def test_a_comma_too_many_is_told(tmp_path: Path, text: str) -> None:
    # Python 3.13 names the comma, others what they expect behind it.
    streamed, whole = (
        str(told).rpartition(" column ")[0] for told in outcomes(tmp_path / "a", text)
    )
    assert streamed == whole
    assert streamed.endswith("line 1")


def outcomes(path: Path, text: str) -> tuple[Any, Any]:
    """What a file's images are, or its mistake, one by one and at once."""
    path.write_text(text, encoding="utf-8")

    def outcome(read):
        try:
            return read()
        except ValueError as error:
            return str(error)

    streamed = outcome(lambda: list(stream_records(path, "images")))
    return streamed, outcome(lambda: list(load_json(path).records("images")))
