"""BART's sub-words with control tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.decoding.image_constraints import ImageConstraints
from captioning.text.control_tokens import CONTROL_TOKENS, level_id, place_id
from captioning.text.tokenizers.bart import BartTokenizer
from captioning.text.tokenizers.restore import restored
from tests.captioning.data.byte_pairs import write_byte_pairs


@pytest.mark.parametrize("parts", [False, True])
def test_captions_there_and_back(tmp_path: Path, parts: bool) -> None:
    known = write_byte_pairs(tmp_path, parts=parts)
    (tmp_path / "config.json").write_text("{}")
    words = BartTokenizer.of_bart(name=str(tmp_path))
    assert len(words) == known + 200
    caption = "A dog runs, a DOG sleeps."
    ids = words.encode(caption)
    assert ids[:2] == [2, 0]
    assert ids[-1] == words.eos_id == words.bos_id == 2
    assert words.decode(ids) == words.decode(ids[1:]) == words.decode([*ids, 5, 6]) == caption
    assert words.decode([*ids[:-1], len(words) - 1]) == caption  # a control token is no word
    again = restored(json.loads(json.dumps(words.state())))
    assert again.state() == words.state()
    assert again.encode(caption) == ids


def test_words_count_as_said_at_the_beginning_and_before_a_full_stop(tmp_path: Path) -> None:
    write_byte_pairs(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    words = BartTokenizer.of_bart(name=str(tmp_path))
    machines = ImageConstraints(words={"a": [("dog", "dogs")]}).machines(["a"], words)
    for caption, met in {
        "a boy and a dog": 1,
        "a boy and a dog.": 1,
        "a boy and a dog, runs": 1,
        "dog runs": 1,
        "dogs": 1,
        "a doghouse": 0,
        "doghouse": 0,
        "a boy runs": 0,
    }.items():
        said = words.encode(caption)[1:-1]
        assert machines[0].met[machines[0].run(said)] == met, caption


def test_control_tokens_are_counted_from_the_end(tmp_path: Path) -> None:
    known = write_byte_pairs(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    words = BartTokenizer.of_bart(name=str(tmp_path))
    token_ids = [words.token_id(token) for token in CONTROL_TOKENS]
    assert token_ids == list(range(known, known + 200))
    assert words.token_id("<extra_id_94>") == known
    assert words.token_id("<cap_len_level_1>") == level_id(len(words), 1) == len(words) - 101
    assert words.token_id("<cap_len_level_5>") == level_id(len(words), 5) == known + 95
    assert words.token_id("<vis_extra_id_7>") == place_id(len(words), 7) == len(words) - 8


def test_long_captions_and_spellings(tmp_path: Path) -> None:
    write_byte_pairs(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    words = BartTokenizer.of_bart(name=str(tmp_path), max_tokens=6)
    assert len(words.encode("a dog runs and runs")) == 6
    first, behind = words.spellings("dog")
    assert [words.token_id("dog")] == first
    assert [words.token_id("Ġdog")] == behind
    assert first[0] in words.continuing()
    assert behind[0] not in words.continuing()


def test_other_tokenizers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"no tokenizer\.json, nor vocab\.json"):
        BartTokenizer.of_bart(name=str(tmp_path))
    write_byte_pairs(tmp_path)
    definition = (tmp_path / "tokenizer.json").read_text()
    with pytest.raises(ValueError, match="last 200 tokens"):
        BartTokenizer(definition=definition)
    with pytest.raises(ValueError, match="lacks <pad>"):
        BartTokenizer(definition=definition.replace("<pad>", "<bad>"))
