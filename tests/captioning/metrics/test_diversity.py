"""Diversity measures against pycocoevalcap, brute force and numbers worked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider_scorer import CiderScorer, cook_refs, cook_test

from captioning.metrics import diversity
from captioning.metrics.cider import CiderStatistics
from captioning.metrics.coco import MetricResult
from captioning.metrics.diversity import evaluate_diversity, select_best, self_cider
from captioning.metrics.tokenizer import tokenize_python

CORPUS = [
    ["a man rides a horse on the beach", "a man on a brown horse"],
    ["a dog runs on the grass", "a brown dog runs"],
    ["two women sit at a table", "women eat food"],
    ["a red bus drives on the street"],
    ["the cat sleeps"],
]
STATISTICS = CiderStatistics.count(CORPUS, source="five images")
WORDS = ["a", "man", "dog", "horse", "on", "the", "brown"]
caption = st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join)
groups = st.lists(st.lists(caption, min_size=2, max_size=4), min_size=1, max_size=4)
few = settings(max_examples=25)


def measure(captions: Sequence[Sequence[str]], **options) -> MetricResult:
    captions_by_image = {str(row): group for row, group in enumerate(captions)}
    return evaluate_diversity(
        captions_by_image, **({"statistics": STATISTICS, "tokenize": None} | options)
    )


class Counted(list):
    """References of one image that pass for those of all: pycocoevalcap asks for their number."""

    def __len__(self) -> int:
        return len(CORPUS)


def cider_d(candidate: str, reference: str) -> float:
    """pycocoevalcap's CIDEr-D of one caption against one other with the corpus's frequencies."""
    corpus = CiderScorer()
    for references in CORPUS:
        corpus.cook_append("", references)
    corpus.compute_doc_freq()
    scorer = CiderScorer()
    scorer.document_frequency = corpus.document_frequency
    scorer.ctest, scorer.crefs = [cook_test(candidate)], Counted([cook_refs([reference])])
    return scorer.compute_cider()[0]


def plain_self_cider(group: Sequence[str]) -> float:
    """Wang and Chan (2019) with the singular values of a matrix of pairs, one at a time."""
    kernel = np.zeros((len(group), len(group)))
    for i in range(len(group)):
        for j in range(i, len(group)):
            kernel[i, j] = kernel[j, i] = cider_d(group[i], group[j])
    roots = np.sqrt(np.linalg.svd(kernel)[1])
    if not roots.sum():
        return 0.0
    return -math.log(roots.max() / roots.sum()) / math.log(len(group))


@few
@given(groups)
def test_self_cider_is_that_of_pairs_scored_by_pycocoevalcap(
    caption_groups: list[list[str]],
) -> None:
    expected = [plain_self_cider(group) for group in caption_groups]
    # square roots of eigenvalues that are 0 but for rounding are of the order of 1e-8
    np.testing.assert_allclose(self_cider(caption_groups, STATISTICS), expected, atol=1e-6)
    scores = [image["self-CIDEr"] for image in measure(caption_groups).per_image.values()]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_self_cider_worked_by_hand() -> None:
    # no shared n-gram: the matrix is diagonal, its entries equal for captions of four words
    apart = ["cat sleeps brown dog", "women eat red bus", "two sit drives runs"]
    assert self_cider([apart], STATISTICS) == pytest.approx([1])
    # equal captions: one eigenvalue
    assert self_cider([["a brown dog runs"] * 3], STATISTICS) == pytest.approx([0], abs=1e-6)
    # two equal and one apart: eigenvalues 20 and 10
    mixed = ["cat sleeps brown dog", "cat sleeps brown dog", "women eat red bus"]
    ratio = math.sqrt(20) / (math.sqrt(20) + math.sqrt(10))
    expected = pytest.approx([-math.log(ratio) / math.log(3)], abs=1e-6)
    assert self_cider([mixed], STATISTICS) == expected


def test_kernel_of_the_paper_is_symmetric() -> None:
    group = ["a dog a dog on the grass", "a dog runs", "the dog the dog the cat sleeps on"]
    turned = group[::-1]
    score, score_of_turned = (
        self_cider([each], STATISTICS, variant="CIDEr") for each in (group, turned)
    )
    assert score == pytest.approx(score_of_turned, abs=1e-9)
    assert 0 < score < 1
    # CIDEr-D, of which only pairs in order are computed, is not
    score, score_of_turned = (self_cider([each], STATISTICS) for each in (group, turned))
    assert abs(score - score_of_turned) > 1e-4


def mutual_bleu(
    caption_groups: Sequence[Sequence[str]], position: int
) -> tuple[float, list[float]]:
    chosen = [group for group in caption_groups if len(group) > position]
    gts = {row: [*g[:position], *g[position + 1 :]] for row, g in enumerate(chosen)}
    res = {row: [group[position]] for row, group in enumerate(chosen)}
    corpus, per_image = Bleu(4).compute_score(gts, res, verbose=0)
    return corpus[3], per_image[3]


@few
@given(groups)
def test_mutual_bleu_is_that_of_pycocoevalcap(caption_groups: list[list[str]]) -> None:
    scores = [
        mutual_bleu(caption_groups, position) for position in range(max(map(len, caption_groups)))
    ]
    result = measure(caption_groups)
    assert result.corpus["mBLEU-4"] == pytest.approx(np.mean([corpus for corpus, _ in scores]))
    rest = [iter(per_image) for _, per_image in scores]
    for group, image in zip(caption_groups, result.per_image.values(), strict=True):
        expected = np.mean([next(rest[position]) for position in range(len(group))])
        assert image["mBLEU-4-sentence"] == pytest.approx(expected, abs=1e-12)


@few
@given(groups)
def test_shares_are_those_of_sets(caption_groups: list[list[str]]) -> None:
    training = {"a man", "dog on the", ""}
    result = measure(caption_groups, training_captions=training)
    for group, image in zip(caption_groups, result.per_image.values(), strict=True):
        words = [text.split() for text in group]
        total = max(1, sum(map(len, words)))
        pairs = {pair for w in words for pair in pairwise(w)}
        assert image["Div-1"] == pytest.approx(len(set().union(*words)) / total)
        assert image["Div-2"] == pytest.approx(len(pairs) / total)
        assert image["uniqueness"] == len(set(group)) / len(group)
        assert image["novelty"] == sum(text not in training for text in group) / len(group)
    count = sum(text not in training for group in caption_groups for text in group)
    assert result.corpus["novel-sentences"] == count


@few
@given(groups)
def test_all_lie_between_0_and_1_and_are_means_over_images(caption_groups: list[list[str]]) -> None:
    result = measure(caption_groups, training_captions=["a"])
    fractions = {name: x for name, x in result.corpus.items() if name != "novel-sentences"}
    assert all(0 <= score <= 1 + 1e-9 for score in fractions.values())
    for name in fractions.keys() - {"mBLEU-4"}:
        mean = np.mean([scores[name] for scores in result.per_image.values()])
        assert result.corpus[name] == pytest.approx(mean)


def test_equal_captions_have_no_diversity() -> None:
    result = measure([["a brown dog runs"] * 5, ["the cat sleeps here"] * 5])
    expected = {"uniqueness": 0.2, "mBLEU-4": 1, "mBLEU-4-sentence": 1, "self-CIDEr": 0}
    expected |= {"Div-1": 0.2, "Div-2": 0.15}
    assert result.corpus == pytest.approx(expected, abs=1e-6)


def test_captions_without_a_common_word_are_as_diverse_as_can_be() -> None:
    result = measure([["cat sleeps brown dog", "women eat red bus"]])
    expected = {"uniqueness": 1, "mBLEU-4": 0, "mBLEU-4-sentence": 0, "self-CIDEr": 1}
    assert result.corpus == pytest.approx(expected | {"Div-1": 1, "Div-2": 0.75}, abs=1e-5)


def test_empty_captions_count_as_captions_and_add_nothing() -> None:
    result = measure([["", "", ""]])
    names = ("mBLEU-4", "mBLEU-4-sentence", "self-CIDEr", "Div-1", "Div-2")
    assert {result.corpus[name] for name in names} == {0.0}
    assert result.corpus["uniqueness"] == pytest.approx(1 / 3)
    assert self_cider([["a dog runs", ""]], STATISTICS) == pytest.approx([0])


def test_order_of_images_and_size_of_blocks_change_nothing(monkeypatch) -> None:
    caption_groups = [
        ["a dog", "a man on a horse", "a"],
        ["the cat", "the cat sleeps"],
        ["", "a dog"],
    ]
    first = measure(caption_groups, training_captions=["a dog"])
    turned = measure(caption_groups[::-1], training_captions=["a dog"])
    assert turned.corpus == pytest.approx(first.corpus)
    for image, scores in zip(reversed(first.per_image), turned.per_image.values(), strict=True):
        assert scores == pytest.approx(first.per_image[image])
    monkeypatch.setattr(diversity, "_MAX_CAPTIONS", 3)
    assert measure(caption_groups, training_captions=["a dog"]).corpus == pytest.approx(
        first.corpus
    )


def test_one_image_is_measured_by_the_statistics_given() -> None:
    group = ["a man on a brown horse", "a man on a horse", "the dog"]
    alone = measure([group])
    among = measure([group, ["a dog", "the cat"]])
    assert alone.per_image["0"] == pytest.approx(among.per_image["0"])
    assert 0 < alone.corpus["self-CIDEr"] < 1
    statistics = CiderStatistics.count([group], source="one image")
    with pytest.raises(ValueError, match="at least 2 images"):
        measure([group], statistics=statistics)


def test_order_of_an_images_captions_changes_nothing_but_cider_d() -> None:
    group = ["a man on a horse", "a brown dog runs", "the dog", "a man on a horse"]
    here, there = measure([group], variant="CIDEr"), measure([group[::-1]], variant="CIDEr")
    assert there.per_image["0"] == pytest.approx(here.per_image["0"])


def test_novel_sentences_are_counted_over_all_captions() -> None:
    caption_groups = [["a dog", "a cat", "a cow"], ["a dog", "a dog", "a horse"]]
    result = measure(caption_groups, training_captions=["a dog", "a cat"])
    assert result.corpus["novel-sentences"] == 2
    assert result.corpus["novelty"] == pytest.approx(1 / 3)


def test_raw_captions_are_tokenized_and_settings_say_how() -> None:
    raw = {"1": ["A dog, runs.", "a dog runs"], "2": ["Two cats", "a man's hat"]}
    result = evaluate_diversity(
        raw, statistics=STATISTICS, training_captions=["Two cats!"], tokenize=tokenize_python
    )
    assert result.per_image["1"]["uniqueness"] == 0.5
    assert result.per_image["2"]["novelty"] == 0.5
    assert result.settings["tokenizer"] == "python"
    assert result.settings["cider_statistics"] == STATISTICS.settings()
    assert (result.settings["num_images"], result.settings["num_captions"]) == (2, 4)
    assert measure([["a", "b"]]).settings["tokenizer"] == "given"
    assert "novelty" not in measure([["a", "b"]]).corpus


@pytest.mark.parametrize("captions", [{}, {"1": ["a", "b"], "7": ["a"]}])
def test_too_few_captions_are_named(captions: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match=r"at least two captions.*\['7'\]|got \[\]"):
        evaluate_diversity(captions, statistics=STATISTICS)


@pytest.mark.parametrize("texts", ["a dog runs", ["a dog", None]])
def test_texts_that_are_no_list_are_named(texts: object) -> None:
    with pytest.raises(TypeError, match="captions of image '1' must be a list of texts"):
        evaluate_diversity({"1": texts}, statistics=STATISTICS)


def test_the_best_come_first_and_equal_ones_keep_their_order() -> None:
    captions = {"1": ["a", "b", "c", "d"], "2": ["e"]}
    best = select_best(captions, {"2": [0.0], "1": [1, 3, 1, 3]}, k=3)
    assert best == {"1": ["b", "d", "a"], "2": ["e"]}


@pytest.mark.parametrize(
    ("scores", "k", "message"),
    [({"1": [1, 2]}, 0, "at least 1"), ({}, 1, "every image"), ({"1": [1]}, 1, "image '1'")],
)
def test_scores_that_do_not_fit_are_named(scores: dict, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_best({"1": ["a", "b"]}, scores, k=k)
