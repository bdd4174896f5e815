"""Judgements of words on disk: read again, made anew where damaged, not needed where unwritable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from captioning.text.judged_words import JudgedWords, kept_judgement


def judged() -> JudgedWords:
    numbers = {name: np.arange(3) for name in ("captions", "starts", "rows", "meanings")}
    return JudgedWords(**numbers, log_probs=np.log(np.full((3, 2), 0.5, np.float32)))


def refused() -> JudgedWords:
    raise AssertionError("it was judged again")


def test_a_judgement_is_read_again(tmp_path: Path) -> None:
    made = kept_judgement(tmp_path, {"seed": 1}, judged)
    again = kept_judgement(tmp_path, {"seed": 1}, refused)
    assert np.array_equal(again.log_probs, made.log_probs)
    assert np.array_equal(again.starts, made.starts)
    with pytest.raises(AssertionError, match="judged again"):
        kept_judgement(tmp_path, {"seed": 2}, refused)


def test_a_damaged_one_is_told_and_made_anew(tmp_path: Path, caplog) -> None:
    kept_judgement(tmp_path, {}, judged)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-5])
    assert len(kept_judgement(tmp_path, {}, judged).captions) == 3
    assert f"{path}: " in caplog.text
    assert "the judgement is computed again" in caplog.text
    kept_judgement(tmp_path, {}, refused)


def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").write_text("")
    assert len(kept_judgement(tmp_path / "file" / "below", {}, judged).captions) == 3
    assert "cannot cache the judgement" in caplog.text
