"""Sentence templates completed by the trigrams of a corpus, without a language model."""

from __future__ import annotations

import pytest
from hydra.utils import instantiate

from augmentation.writing.gap_filling import (
    ANY_DETERMINERS,
    PARTICLES,
    PLURAL_DETERMINERS,
    SINGULAR_DETERMINERS,
)
from augmentation.writing.prompt import Prompt
from augmentation.writing.trigram_writer import TrigramWriter
from captioning.config.compose import compose_config

CORPUS = ["a dog sits on the mat", "the dog is sitting on the mat", "a cat sits on a mat"] * 3
REQUIRED = (
    (("dogs", "N"), ("sitting", "VBG"), ("on", ""), ("orange", "J"), ("mats", "N"), (".", "")),
    (("apple", "N"), (",", ""), ("dog", "N"), ("are", "VBP"), ("red", "J"), (".", "")),
    (("dog", "N"), ("sits", "VBZ"), ("on", ""), ("mat", "N"), ("of", ""), (".", "")),
)
SMALL = {*SINGULAR_DETERMINERS, *PLURAL_DETERMINERS, *ANY_DETERMINERS, *PARTICLES, "a", "an"}


def prompts(*required: tuple[tuple[str, str], ...]) -> list[Prompt]:
    return [
        Prompt(instruction="", examples=(), question="x", names=("T", "S"), required_tokens=words)
        for words in required
    ]


def writer(**settings: float) -> TrigramWriter:
    trigrams = TrigramWriter(**settings)
    trigrams.learn(CORPUS)
    return trigrams


def in_order(words: list[str], sentence: list[str]) -> bool:
    remaining = iter(sentence)
    return all(word in remaining for word in words)


@pytest.mark.parametrize("max_small", [0, 1, 2])
def test_every_answer_has_all_words_in_order_and_small_words_alone(max_small: int) -> None:
    for seed in range(5):
        answers = writer(temperature=5.0, max_small_words=max_small).answers(
            prompts(*REQUIRED), seed=seed
        )
        for answer, required in zip(answers, REQUIRED, strict=True):
            sentence = answer.text.replace(",", " ,").split()
            lexical = max(place for place, (_, slot) in enumerate(required) if slot)
            words = [word for word, _ in required[: lexical + 1]]
            assert in_order(words, sentence)
            assert set(sentence) - set(words) <= SMALL
            assert len(sentence) <= len(words) * (max_small + 1)
            assert answer.likelihood < 0


def test_likeliest_words_are_those_of_the_corpus() -> None:
    (answer,) = writer(temperature=0).answers(prompts(REQUIRED[2]), seed=0)
    assert answer.text == "dog sits on the mat" or answer.text == "a dog sits on the mat"


def test_draws_depend_on_the_seed_alone() -> None:
    texts = [
        [a.text for a in writer(temperature=5.0).answers(prompts(*REQUIRED), seed=seed)]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_prompts_without_given_words_name_a_language_model() -> None:
    with pytest.raises(ValueError, match="writer@method.writer=smollm2_free"):
        writer().answers(prompts(()), seed=0)
    with pytest.raises(ValueError, match="method=toca"):
        TrigramWriter().answers(prompts(REQUIRED[0]), seed=0)


@pytest.mark.parametrize("settings", [{"temperature": -1}, {"max_small_words": 3}])
def test_wrong_settings_are_named(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be 0 to 2: got"):
        TrigramWriter(**settings)


def test_default_writer_of_toca_needs_nothing_to_install() -> None:
    config = compose_config("augmentation", ["method=toca", "out=x"])
    assert isinstance(instantiate(config.method.writer), TrigramWriter)
