"""Captions of a text file."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.caption_lines import read_caption_lines


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
