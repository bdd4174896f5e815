"""Accuracy of parses, counted out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from captioning.types import Token
from tools.assets.__main__ import main
from tools.assets.parser_accuracy import accuracy, read_parses


def token(text: str, pos: str, tag: str, dep: str, head: int) -> Token:
    return Token(text=text, lemma=text.lower(), pos=pos, tag=tag, dep=dep, head=head)


DOGS = (
    token("Dogs", "NOUN", "NNS", "nsubj", 1),
    token("watch", "VERB", "VBP", "ROOT", 1),
    token("cats", "NOUN", "NNS", "dobj", 1),
    token(".", "PUNCT", ".", "punct", 1),
)
# watch is taken for a noun; the full stop's head is not counted, the wrong relation of cats is.
WRONG = (
    replace(DOGS[0], dep="compound"),
    replace(DOGS[1], pos="NOUN", tag="NN"),
    replace(DOGS[2], head=0),
    replace(DOGS[3], head=0),
)


def test_the_truth_is_perfect() -> None:
    scores = accuracy([DOGS, ()], [DOGS, ()])
    assert scores.pop("words") == 4
    assert set(scores.values()) == {1.0}


def test_shares_are_counted_by_word() -> None:
    scores = accuracy([WRONG], [DOGS])
    assert scores["tag"] == scores["pos"] == 3 / 4
    assert scores["lemma"] == 1
    assert scores["UAS"] == 2 / 3
    assert scores["LAS"] == 1 / 3
    assert scores["nouns"] == scores["F1 NOUN"] == 2 * 2 / (3 + 2)
    assert scores["F1 VERB"] == 0
    assert scores["captions"] == 0


def test_other_words_count_as_wrong_throughout() -> None:
    scores = accuracy([DOGS[:2]], [DOGS])
    assert scores["tag"] == scores["UAS"] == 0
    assert scores["nouns"] == 2 / 3


def test_one_parse_a_caption() -> None:
    with pytest.raises(ValueError, match="got 1 for 2"):
        accuracy([DOGS], [DOGS, DOGS])


def record(split: str) -> dict[str, object]:
    columns = {"words": ["Dogs", "run"], "lemmas": ["dog", "run"], "tags": ["NNS", "VBP"]}
    return {"split": split, "caption": "Dogs run", **columns, "deps": ["nsubj", "ROOT"]}


def test_files_are_read_by_split(tmp_path: Path) -> None:
    lines = [json.dumps(record(split) | {"heads": [1, 1]}) for split in ("train", "held_out")]
    (tmp_path / "parses.jsonl").write_text("\n".join(lines))
    ((caption, parse),) = read_parses(tmp_path / "parses.jsonl", "held_out")
    assert caption == "Dogs run"
    assert [(t.text, t.pos, t.head) for t in parse] == [("Dogs", "NOUN", 1), ("run", "VERB", 1)]
    assert len(read_parses(tmp_path / "parses.jsonl")) == 2


@pytest.mark.parametrize("line", ["{", "[]", json.dumps(record("a"))])
def test_a_line_that_is_no_parse_is_named(line: str, tmp_path: Path) -> None:
    good = json.dumps(record("a") | {"heads": [1, 1]})
    (tmp_path / "parses.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(ValueError, match="parses.jsonl, line 2: not a parsed caption"):
        read_parses(tmp_path / "parses.jsonl")


def test_a_missing_file_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="docs/cards/caption_parser.md"):
        read_parses(tmp_path / "parses.jsonl")


def test_two_files_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("ours.jsonl", "truth.jsonl", "other.jsonl")]
    for file, heads in zip(files, ([0, 1], [1, 1], [1, 1]), strict=True):
        file.write_text(json.dumps(record("a") | {"heads": heads}))
    command = ["parser-accuracy"]
    assert main([*command, str(files[0]), str(files[1])]) == 0
    assert "tag 1.0000" in capsys.readouterr().out
    files[2].write_text(json.dumps(record("a") | {"heads": [1, 1], "caption": "Cats run"}))
    assert main([*command, str(files[2]), str(files[1])]) == 1
    assert "are not of the same captions" in capsys.readouterr().err
