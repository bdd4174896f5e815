"""Sentences of given words with small words between them, by any language model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from augmentation.writing.causal_writer import CausalWriter
from augmentation.writing.gap_filling import (
    ANY_DETERMINERS,
    PARTICLES,
    PLURAL_DETERMINERS,
    SINGULAR_DETERMINERS,
    GapFilling,
)
from augmentation.writing.prompt import Prompt
from tests.causal_folder import save_causal

REQUIRED = (
    (("dogs", "N"), ("sitting", "VBG"), ("on", ""), ("orange", "J"), ("mats", "N"), (".", "")),
    (("apple", "N"), (",", ""), ("dog", "N"), ("are", "VBP"), ("red", "J"), (".", "")),
    (("there", ""), ("is", "VBZ"), ("very", "R"), ("large", "J"), ("trees", "N"), (".", "")),
)
SMALL = {*SINGULAR_DETERMINERS, *PLURAL_DETERMINERS, *ANY_DETERMINERS, *PARTICLES, "a", "an"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_causal(tmp_path_factory.mktemp("causal"))


def prompts() -> list[Prompt]:
    return [
        Prompt(
            instruction="Do.", examples=(), question="x", names=("T", "S"), required_tokens=required
        )
        for required in REQUIRED
    ]


@pytest.mark.long
@pytest.mark.parametrize("max_small", [0, 2])
def test_every_answer_has_all_words_in_order(folder: Path, max_small: int) -> None:
    writer = CausalWriter(
        name=str(folder), temperature=3.0, top_p=1.0, max_new_tokens=26, device="cpu",
        max_small_words=max_small,
    )  # fmt: skip
    all_small = set()
    for seed in range(5):
        for answer, required in zip(writer.answers(prompts(), seed=seed), REQUIRED, strict=True):
            words = answer.text.lower().replace(",", " ,").split()
            expected = [word for word, _ in required if word != "."]
            kept_words = [word for word in words if word in expected]
            assert kept_words == expected
            small = [word for word in words if word not in expected]
            assert set(small) <= SMALL
            assert len(small) <= max_small * len(expected)
            all_small.update(small)
            assert answer.text[0].isupper()
    assert bool(all_small) == bool(max_small)


def test_prompts_without_words_are_refused(folder: Path) -> None:
    writer = CausalWriter(name=str(folder), device="cpu", max_new_tokens=9, max_small_words=2)
    free = Prompt(instruction="Do.", examples=(), question="x", names=("T", "S"))
    with pytest.raises(ValueError, match="smollm2_free"):
        writer.answers([free], seed=0)


def allowed(filling: GapFilling, required: tuple, place: int) -> set[str]:
    """What may be written before the given word at a place, as text."""
    (line,) = filling.new_sentences([required])
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
    filling = GapFilling(Words(), end=0, max_small_words=2)
    plural = allowed(filling, REQUIRED[0], 3)
    assert {"the", "two", "some", "their"} <= plural
    assert not {"a", "an", "one", "each"} & plural
    assert {"An", "The"} <= allowed(filling, REQUIRED[1], 0)
    assert "A" not in allowed(filling, REQUIRED[1], 0)
    assert {"a", "another"} <= allowed(filling, REQUIRED[1], 2)
    # neither before prepositions and verbs nor before an adjective without a noun
    for required, place in ((REQUIRED[0], 2), (REQUIRED[1], 3), (REQUIRED[1], 4)):
        assert "the" not in allowed(filling, required, place)
        assert "up" in allowed(filling, required, place)
    assert "some" in allowed(filling, REQUIRED[2], 2)


def test_nothing_follows_a_determiner_but_the_word() -> None:
    filling = GapFilling(Words(), end=0, max_small_words=2)
    (line,) = filling.new_sentences([REQUIRED[1]])
    logits = torch.zeros(1, 200)
    the = filling._tokenizer.known.index(" The")
    logits[0, the] = 9
    assert filling.choose(logits, [line], lambda values: values.argmax(1)).item() == the
    assert [filling._tokenizer.decode([token]) for token in filling._allowed(line)] == [" apple"]


def test_no_preposition_ends_a_sentence() -> None:
    filling = GapFilling(Words(), end=0, max_small_words=2)
    lines = filling.new_sentences(
        [(*REQUIRED[0][:-1], ("near", ""), (",", ""), (".", "")), ((".", ""),)]
    )
    last = [filling._tokenizer.decode(word) for word in lines[0].words]
    assert last == [" dogs", " sitting", " on", " orange", " mats"]
    assert lines[1].words == []
    assert filling.choose(torch.zeros(1, 200), lines[1:], lambda values: values.argmax(1)) == 0


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="max_small_words"):
        GapFilling(Words(), end=0, max_small_words=-1)
