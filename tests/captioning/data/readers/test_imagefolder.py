from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.readers.entries import UNNAMED
from captioning.data.readers.imagefolder import read_imagefolder

LINES = """{"file_name": "a.jpg", "captions": ["A dog.", "Dogs."], "licence": 4}
{"file_name": "below/b.png", "text": "A cat."}

{"file_name": "c.jpg", "caption": "A bird."}
"""


def write(folder: Path, lines: str = LINES) -> dict:
    (folder / "below").mkdir()
    for name in ("a.jpg", "below/b.png", "c.jpg", "z.webp", "below/notes.txt"):
        (folder / name).touch()
    (folder / "metadata.jsonl").write_text(lines)
    return {"name": "i", "folder": folder}


def test_every_form_of_a_line(tmp_path):
    roster = read_imagefolder(**write(tmp_path))
    assert [(s.sample_id, s.caption) for s in roster.samples] == [
        ("a.jpg#0", "A dog."),
        ("a.jpg#1", "Dogs."),
        ("below/b.png#0", "A cat."),
        ("c.jpg#0", "A bird."),
    ]
    assert roster.samples[2].image_path == tmp_path / "below" / "b.png"
    assert [(d.item, d.rule) for d in roster.dropped] == [("z.webp", UNNAMED)]


def test_lines_of_a_photo_add_their_captions(tmp_path):
    line = '{"file_name": "a.jpg", "caption": "More dogs."}'
    roster = read_imagefolder(**write(tmp_path, LINES + line + "\n"))
    assert roster.references()["a.jpg"] == ["A dog.", "Dogs.", "More dogs."]


def test_a_table_of_metadata(tmp_path):
    arguments = write(tmp_path)
    (tmp_path / "metadata.csv").write_text('file_name,text\nbelow/b.png,"A cat, asleep."\n')
    with pytest.raises(ValueError, match=r"has both metadata.jsonl and metadata.csv; keep one"):
        read_imagefolder(**arguments)
    (tmp_path / "metadata.jsonl").unlink()
    roster = read_imagefolder(**arguments)
    assert roster.references() == {"below/b.png": ["A cat, asleep."]}


def test_bad_lines_are_left_out_where_that_is_said(tmp_path):
    lines = '{"file_name": "a.jpg", "captions": [" ", "A dog."]}\n{"file_name": "c.jpg"}\n'
    rules = {"missing_captions": "drop", "bad_captions": "drop"}
    roster = read_imagefolder(**write(tmp_path, lines), **rules)
    assert [sample.sample_id for sample in roster.samples] == ["a.jpg#1"]
    assert {"caption empty", "photo without caption", UNNAMED} == {
        drop.rule for drop in roster.dropped
    }


def test_without_photos(tmp_path):
    arguments = write(tmp_path)
    (tmp_path / "a.jpg").unlink()
    with pytest.raises(ValueError, match="metadata.jsonl:1: no photo 'a.jpg'"):
        read_imagefolder(**arguments)
    assert len(read_imagefolder(**arguments, missing_photos="drop")) == 2
    assert len(read_imagefolder(**arguments, with_photos=False)) == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"file_name": "d.jpg"}', "needs exactly one of the keys .*: has none"),
        ('{"file_name": "d.jpg", "text": "x", "caption": "y"}', "exactly one .*'caption', 'text'"),
        ('{"file_name": "d.jpg", "captions": []}', "'captions' is empty"),
        ('{"file_name": "d.jpg", "captions": ["x", 3]}', r"'captions' must be texts \(item 1"),
        ('{"file_name": "d.jpg", "captions": ["x", " "]}', r"captions\[1\]: the caption is empty"),
        ('{"file_name": "d.jpg", "text": "x"', "not JSON"),
        ('"d.jpg"', "must be an object"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    with pytest.raises(ValueError, match=rf"metadata.jsonl:5.*{message}"):
        read_imagefolder(**write(tmp_path, LINES + line + "\n"))


def test_missing_metadata_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"metadata.jsonl: no such file"):
        read_imagefolder(name="i", folder=tmp_path)
