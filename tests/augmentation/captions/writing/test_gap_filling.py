"""Sentences of given words with small words between them, by any language model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from augmentation.captions.writing.causal_writer import CausalWriter
from augmentation.captions.writing.gap_filling import (
    OF_ANY,
    OF_ONE,
    OF_SEVERAL,
    PARTICLES,
    GapFilling,
)
from augmentation.captions.writing.prompt import Prompt
from tests.causal_folder import save_causal

GIVEN = (
    (("dogs", "N"), ("sitting", "VBG"), ("on", ""), ("orange", "J"), ("mats", "N"), (".", "")),
    (("apple", "N"), (",", ""), ("dog", "N"), ("are", "VBP"), ("red", "J"), (".", "")),
    (("there", ""), ("is", "VBZ"), ("very", "R"), ("large", "J"), ("trees", "N"), (".", "")),
)
SMALL = {*OF_ONE, *OF_SEVERAL, *OF_ANY, *PARTICLES, "a", "an"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("causal"))


def prompts() -> list[Prompt]:
    return [
        Prompt(instruction="Do.", examples=(), question="x", names=("T", "S"), given=given)
        for given in GIVEN
    ]


@pytest.mark.parametrize("most", [0, 2])
def test_every_answer_has_all_words_in_order(folder: Path, most: int) -> None:
    writer = CausalWriter(
        name=str(folder), temperature=3.0, top_p=1.0, max_new_tokens=26, device="cpu",
        most_small_words=most,
    )  # fmt: skip
    seen = set()
    for seed in range(5):
        for answer, given in zip(writer.answers(prompts(), seed=seed), GIVEN, strict=True):
            words = answer.text.lower().replace(",", " ,").split()
            wanted = [word for word, _ in given if word != "."]
            left = [word for word in words if word in wanted]
            assert left == wanted
            small = [word for word in words if word not in wanted]
            assert set(small) <= SMALL
            assert len(small) <= most * len(wanted)
            seen.update(small)
            assert answer.text[0].isupper()
    assert bool(seen) == bool(most)


def test_prompts_without_words_are_refused(folder: Path) -> None:
    writer = CausalWriter(name=str(folder), device="cpu", max_new_tokens=9, most_small_words=2)
    free = Prompt(instruction="Do.", examples=(), question="x", names=("T", "S"))
    with pytest.raises(ValueError, match="smollm2_free"):
        writer.answers([free], seed=0)


def allowed(filling: GapFilling, given: tuple, place: int) -> set[str]:
    """What may be written before the given word at a place, as text."""
    (line,) = filling.lines([given])
    for _ in range(place):
        line.words.pop(0)
        line.determiners.pop(0)
        line.capital = []
    return {filling._tokenizer.decode([token]).strip() for token in filling._allowed(line)[1:]}


class Words:
    """A tokenizer with a token a word."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        if text not in self.known:
            self.known.append(text)
        return {"input_ids": [self.known.index(text)]}

    def decode(self, ids: list[int]) -> str:
        return self.known[ids[0]]


def test_determiners_agree_with_their_noun() -> None:
    filling = GapFilling(Words(), end=0, most=2)
    plural = allowed(filling, GIVEN[0], 3)
    assert {"the", "two", "some", "their"} <= plural
    assert not {"a", "an", "one", "each"} & plural
    assert {"An", "The"} <= allowed(filling, GIVEN[1], 0)
    assert "A" not in allowed(filling, GIVEN[1], 0)
    assert {"a", "another"} <= allowed(filling, GIVEN[1], 2)
    # neither before prepositions and verbs nor before an adjective without a noun
    for given, place in ((GIVEN[0], 2), (GIVEN[1], 3), (GIVEN[1], 4)):
        assert "the" not in allowed(filling, given, place)
        assert "up" in allowed(filling, given, place)
    assert "some" in allowed(filling, GIVEN[2], 2)


def test_nothing_follows_a_determiner_but_the_word() -> None:
    filling = GapFilling(Words(), end=0, most=2)
    (line,) = filling.lines([GIVEN[1]])
    logits = torch.zeros(1, 200)
    the = filling._tokenizer.known.index(" The")
    logits[0, the] = 9
    assert filling.choose(logits, [line], lambda values: values.argmax(1)).item() == the
    assert [filling._tokenizer.decode([token]) for token in filling._allowed(line)] == [" apple"]


def test_no_preposition_ends_a_sentence() -> None:
    filling = GapFilling(Words(), end=0, most=2)
    lines = filling.lines([(*GIVEN[0][:-1], ("near", ""), (",", ""), (".", "")), ((".", ""),)])
    last = [filling._tokenizer.decode(word) for word in lines[0].words]
    assert last == [" dogs", " sitting", " on", " orange", " mats"]
    assert lines[1].words == []
    assert filling.choose(torch.zeros(1, 200), lines[1:], lambda values: values.argmax(1)) == 0


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="most_small_words"):
        GapFilling(Words(), end=0, most=-1)
