"""Captions of a text file."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.readers.caption_lines import read_caption_lines


def test_one_caption_a_line(tmp_path: Path) -> None:
    file = tmp_path / "captions.txt"
    file.write_text("A dog runs.\n\n  two  cats \n", encoding="utf-8")
    roster = read_caption_lines(name="lines", path=file)
    assert [sample.caption for sample in roster.samples] == ["A dog runs.", "two cats"]
    assert [sample.image_id for sample in roster.samples] == ["1", "3"]


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "captions.txt"
    file.write_text("\n \n")
    with pytest.raises(ValueError, match=r"captions\.txt: holds no caption; write one a line"):
        read_caption_lines(name="lines", path=file)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_caption_lines(name="lines", path=tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '["A dog runs.", " two  cats"]'),
        ("a.json", '[{"caption": "A dog runs."}, {"caption": "two cats", "style": "humor"}]'),
        ("a.json", '{"annotations": [{"caption": "A dog runs."}, {"caption": "two cats"}]}'),
        ("a.json", '{"videos": [], "sentences": [{"caption": "A dog runs."}, "two cats"]}'),
        ("a.jsonl", '{"caption": "A dog runs."}\n\n"two cats"\n'),
    ],
)
def test_captions_of_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    roster = read_caption_lines(name="lines", path=tmp_path / name)
    assert [sample.caption for sample in roster.samples] == ["A dog runs.", "two cats"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": []}', r"a\.json: key 'annotations' is missing"),
        ("3", r"a\.json: must be a list of captions: got 3"),
        ('[{"text": "A dog."}]', r"a\.json\[0\]: key 'caption' is missing"),
        ('["A dog", 7]', r"a\.json\[1\]: must be an object"),
        ("[]", "holds no caption"),
    ],
)
def test_other_json_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_caption_lines(name="lines", path=tmp_path / "a.json")
