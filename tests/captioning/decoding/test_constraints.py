"""Words to machines: forms, phrases, and words that the vocabulary lacks."""

from __future__ import annotations

import pytest

from captioning.decoding.constraints import constrain
from captioning.text.tokenizers.words import WordTokenizer

TOKENIZER = WordTokenizer(words=["a", "dog", "dogs", "hot", "runs", "traffic", "light"])
ENCODE = TOKENIZER.spellings


def met(result, caption: str) -> int:
    machine = result.machine
    return machine.met[machine.run(TOKENIZER.encode(caption))]


def test_words_become_ids_without_special_tokens():
    assert ENCODE("dog") == [[TOKENIZER.words.index("dog")]]
    light = [TOKENIZER.words.index("traffic"), TOKENIZER.words.index("light")]
    assert ENCODE("Traffic light") == [light]


@pytest.mark.parametrize("text", ["zebra", "hot zebra", "", "."])
def test_what_the_vocabulary_lacks_has_no_sequence(text):
    assert ENCODE(text) == []


def test_one_boundary_token_is_taken_off_both_ends_only():
    class Boundary(WordTokenizer):
        pad_id = bos_id = eos_id = 1

    tokenizer = Boundary(words=["dog"])
    assert tokenizer.spellings("dog") == [[4]]


def test_captions_meet_constraints_by_any_alternative():
    result = constrain([("dog", "dogs"), ("traffic light",)], ENCODE)
    assert met(result, "a dog runs") == met(result, "dogs") == 1
    assert met(result, "a light traffic") == 0
    assert met(result, "a traffic light dogs") == 2
    assert result.machine.required == 2
    assert result.accepted == (("dog", "dogs"), ("traffic light",))
    assert result.dropped == ()


def test_missing_words_are_dropped_and_reported():
    result = constrain([("dog", "hound"), ("zebra", "zebras")], ENCODE)
    assert result.accepted == (("dog",),)
    assert result.dropped == (("zebra", "zebras"),)
    assert (result.machine.num_constraints, result.machine.required) == (1, 1)


def test_missing_words_can_be_refused():
    with pytest.raises(ValueError, match=r"vocabulary: \[\('zebra',\)\]; add one of their"):
        constrain([("dog", "hound"), ("zebra",)], ENCODE, missing="error")
    assert constrain([("dog", "hound")], ENCODE, missing="error").accepted == (("dog",),)
    with pytest.raises(ValueError, match="missing must be drop or error: got 'ignore'"):
        constrain([("dog",)], ENCODE, missing="ignore")


def test_all_words_missing_leaves_a_machine_that_accepts_everything():
    result = constrain([("zebra",), ("gnu",)], ENCODE)
    assert result.machine.accepting == (True,)


def test_a_sub_word_tokenizer_may_write_a_word_in_several_ways():
    pieces = {"zebra": [[10, 11], [20, 11]], "zebras": [[10, 11, 12], [20, 11, 12]], "dog": [[30]]}
    result = constrain([("zebra", "zebras"), ("dog",)], lambda text: pieces[text])
    machine = result.machine
    runs = ([10, 11], [20, 11], [10, 12], [10, 20, 11, 30], [10, 30, 11])
    assert [machine.met[machine.run(tokens)] for tokens in runs] == [1, 1, 0, 2, 1]


@pytest.mark.parametrize(("required", "expected"), [(0, 0), (1, 1), (2, 2), (5, 3)])
def test_at_least_k_of_n(required, expected):
    result = constrain([("dog",), ("hot",), ("runs",)], ENCODE, required=required)
    assert result.machine.required == expected
