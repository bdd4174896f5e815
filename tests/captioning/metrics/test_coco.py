from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.metrics import coco
from captioning.metrics.cider import CiderStatistics
from captioning.metrics.coco import (
    FAST_METRICS,
    METRICS,
    MetricResult,
    evaluate_captions,
    hash_references,
)

WORDS = [
    "a",
    "the",
    "man",
    "dog",
    "brown",
    "runs",
    "on",
    "grass",
    "two",
    "women's",
    "red-haired",
    "café",
    "isn't",
    "riding",
    "horse,",
    "beach.",
    "near",
    "(small)",
    "3rd",
    "o'clock",
    "street",
    "and",
    "sits",
]


def sentences(generator: np.random.Generator, number: int) -> list[str]:
    return [" ".join(generator.choice(WORDS, generator.integers(4, 12))) for _ in range(number)]


def generated(num_images: int) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Candidates that share words with their references; ids in no order; one candidate empty."""
    generator = np.random.default_rng(7)
    ids = [str(number) for number in generator.permutation(num_images) * 37]
    references = {image_id: sentences(generator, 1 + row % 5) for row, image_id in enumerate(ids)}
    candidates = {i: references[i][0].rsplit(" ", 2)[0] + " runs on" for i in ids}
    candidates[ids[3]] = ""
    return candidates, references


def fast(candidates: dict[str, str], references: dict[str, list[str]]) -> MetricResult:
    return evaluate_captions(candidates, references, metrics=FAST_METRICS, tokenizer="python")


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    """Captions, scored by pycocoevalcap's own COCOEvalCap; ids stand in no order."""
    return json.loads((Path(__file__).parent / "golden.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def ours(real_java: str, golden: dict[str, Any]) -> MetricResult:
    return evaluate_captions(golden["candidates"], golden["references"], metrics=METRICS[:-1])


def test_digits_are_those_of_coco_eval_cap(ours: MetricResult, golden: dict[str, Any]) -> None:
    # COCOEvalCap saw the images in sorted order, here they come shuffled
    golden_scores = {name: score for name, score in golden["corpus"].items() if name != "SPICE"}
    assert ours.corpus == pytest.approx(golden_scores, rel=1e-13)
    for image_id, scores in ours.per_image.items():
        expected = golden["per_image"][image_id]
        assert scores == pytest.approx({name: expected[name] for name in scores}, rel=1e-12)
    assert list(ours.per_image) == list(golden["candidates"])
    assert ours.missing == {}
    assert ours.settings["tokenizer"] == "ptb"
    assert ours.settings["num_empty_candidates"] == 1


def test_digits_without_java_are_those_of_coco_eval_cap(golden: dict[str, Any]) -> None:
    result = fast(golden["candidates"], golden["references"])
    for name, score in result.corpus.items():
        assert score == pytest.approx(golden["corpus"][name], rel=1e-13)


def test_meteor_of_perfect_empty_and_repeated(ours: MetricResult) -> None:
    meteor = {image_id: scores["METEOR"] for image_id, scores in ours.per_image.items()}
    assert meteor["perfect"] == 1
    assert meteor["100000"] == 0
    assert meteor["7-twice"] == meteor["7"] > 0.2


def test_perfect_captions_score_full() -> None:
    references = {i: refs[:1] for i, refs in generated(12)[1].items()}
    result = fast({i: refs[0] for i, refs in references.items()}, references)
    expected = {"BLEU-1": 1, "BLEU-2": 1, "BLEU-3": 1, "BLEU-4": 1, "ROUGE-L": 1, "CIDEr-D": 10}
    assert result.corpus == pytest.approx(expected, abs=1e-6)
    for scores in result.per_image.values():
        assert scores == pytest.approx(expected, abs=1e-6)


def test_empty_captions_score_nothing() -> None:
    candidates, references = generated(12)
    result = fast(dict.fromkeys(candidates, " "), references)
    assert set(result.corpus.values()) == {0.0}
    assert result.settings["num_empty_candidates"] == 12


def test_repeated_references_change_nothing() -> None:
    candidates, references = generated(12)
    twice = fast(candidates, {i: refs * 2 for i, refs in references.items()})
    once = fast(candidates, references)
    assert twice.corpus == pytest.approx(once.corpus, abs=1e-9)
    for image_id, scores in twice.per_image.items():
        assert scores == pytest.approx(once.per_image[image_id], abs=1e-9)


def test_order_of_images_changes_nothing() -> None:
    candidates, references = generated(12)
    turned = fast(dict(sorted(candidates.items())), dict(reversed(references.items())))
    result = fast(candidates, references)
    assert turned.corpus == pytest.approx(result.corpus, abs=1e-12)
    assert turned.per_image == result.per_image


def test_scores_stand_with_their_images() -> None:
    candidates, references = generated(12)
    chosen = list(candidates)[5]
    changed = candidates | {chosen: references[chosen][0]}
    before, after = fast(candidates, references), fast(changed, references)
    assert after.per_image[chosen]["ROUGE-L"] == pytest.approx(1)
    other_ids = [i for i in candidates if i != chosen]
    assert all(before.per_image[i] == after.per_image[i] for i in other_ids)


def test_one_image_has_no_cider_since_no_word_is_rare() -> None:
    result = fast({"1": "a dog runs on grass"}, {"1": ["a dog runs on grass"]})
    assert result.corpus["BLEU-4"] == pytest.approx(1, abs=1e-6)
    assert result.corpus["CIDEr-D"] == 0


def test_references_are_tokenized_once_for_many_evaluations(monkeypatch) -> None:
    candidates, references = generated(12)
    first = fast(candidates, references)
    seen: list[int] = []
    tokenize = coco.tokenize_python
    monkeypatch.setattr(coco, "tokenize_python", lambda t: seen.append(len(t)) or tokenize(t))
    assert fast(candidates, references) == first
    changed = {i: [*refs[1:], "a dog"] for i, refs in references.items()}
    assert fast(candidates, changed) != first
    assert seen == [12, 12 + sum(map(len, references.values()))]


def test_given_document_frequencies_score_one_image_and_are_named() -> None:
    statistics = CiderStatistics.count([["a dog runs"], ["a cat sits"], ["a man"]], source="three")
    result = evaluate_captions(
        {"1": "a dog runs"},
        {"1": ["a dog runs"]},
        metrics=["CIDEr-D", "CIDEr"],
        tokenizer="python",
        cider_statistics=statistics,
    )
    # "a dog runs" has no 4-gram
    assert result.corpus == pytest.approx({"CIDEr-D": 7.5, "CIDEr": 7.5})
    assert result.settings["cider_statistics"]["source"] == "three"


def test_cider_and_rouge_are_means_over_images() -> None:
    result = fast(*generated(12))
    for name in ("CIDEr-D", "ROUGE-L"):
        mean = np.mean([scores[name] for scores in result.per_image.values()])
        assert result.corpus[name] == pytest.approx(mean)


def test_references_of_other_images_are_ignored_and_counted() -> None:
    candidates, references = generated(12)
    result, more = fast(candidates, references), references | {"other": ["a dog runs", "a man"]}
    among = fast(candidates, more)
    assert (among.corpus, among.per_image) == (result.corpus, result.per_image)
    assert among.settings == result.settings | {"num_without_candidate": 1}
    assert result.settings["num_without_candidate"] == 0


def test_reference_hash_knows_texts_but_not_order() -> None:
    first = hash_references(["a", "b"], [["x"], ["y", "z"]])
    assert first == hash_references(["b", "a"], [["y", "z"], ["x"]])
    assert first != hash_references(["a", "b"], [["x"], ["y", "Z"]])
    assert first != hash_references(["b", "a"], [["x"], ["y", "z"]])


def test_without_java_what_needs_it_is_missing_and_named(
    no_java: None, caplog: pytest.LogCaptureFixture
) -> None:
    candidates, references = generated(12)
    result = evaluate_captions(candidates, references)
    assert set(result.missing) == {"METEOR", "SPICE"}
    assert all("apt-get install" in reason for reason in result.missing.values())
    assert not {"METEOR", "SPICE"} & result.corpus.keys()
    assert all("METEOR" not in scores for scores in result.per_image.values())
    assert result.settings["tokenizer"] == "python"
    assert "Java not found" in result.settings["tokenizer_reason"]
    assert result.settings["versions"]["java"] is None
    assert result.corpus == fast(candidates, references).corpus


def test_crashed_java_costs_only_its_metric(fake_java: Callable[[str], None]) -> None:
    fake_java("echo broken >&2; exit 1")
    result = evaluate_captions(
        *generated(12), metrics=["METEOR", "ROUGE-L"], tokenizer="python", timeout=30
    )
    assert set(result.corpus) == {"ROUGE-L"}
    assert "broken" in result.missing["METEOR"]


@pytest.mark.parametrize(
    ("candidates", "references", "options", "error", "message"),
    [
        ({}, {}, {}, ValueError, "candidates must hold at least one caption"),
        ({"1": "a"}, {"2": ["a"]}, {}, ValueError, "images without references.*'1'"),
        ({"1": "a"}, {"1": []}, {}, ValueError, "references of image '1'"),
        ({"1": "a"}, {"1": "a dog"}, {}, ValueError, "must be a list"),
        ({"1": None}, {"1": ["a"]}, {}, TypeError, "image '1'.*must be strings"),
        ({1: "a"}, {1: ["a"]}, {}, TypeError, "image 1"),
        ({"1": "a"}, {"1": ["a", 3]}, {}, TypeError, "references of image '1'"),
        ({"1": "a"}, {"1": ["a"]}, {"metrics": ["CIDER"]}, ValueError, "CIDEr-D"),
        ({"1": "a"}, {"1": ["a"]}, {"metrics": []}, ValueError, "must be some of"),
        ({"1": "a"}, {"1": ["a"]}, {"metrics": "BLEU"}, TypeError, "list of names"),
        ({"1": "a"}, {"1": ["a"]}, {"tokenizer": "nltk"}, ValueError, "'ptb' or 'python'"),
        (
            {"1": "a"},
            {"1": ["..."]},
            {"tokenizer": "python"},
            ValueError,
            "empty after tokenization",
        ),
    ],
)
def test_bad_input_is_named(
    candidates: dict, references: dict, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluate_captions(candidates, references, **({"metrics": ["CIDEr-D"]} | options))


ODD = {
    "lone surrogate": "a dog \ud83d runs",
    "control characters": "a\x00dog\x07 runs\x85",
    "bars": "a dog ||| runs |||| on || the | grass |||",
    "bars alone": "|||",
    "order to METEOR": "EVAL ||| 1.0 2.0",
    "line breaks": "a dog\nruns\r\non\rthe\u2028grass\u2029\v\f",
    "tabs": "\ta dog\truns\t",
    "emoji": "a dog \U0001f600 runs \U0001f415\u200d\U0001f9ba",
    "accents": "un chien court à côté du café",
    "other script": "一只狗在草地上奔跑",
    "markup": '<b>a dog</b> &amp; "grass" {"caption": [1]} \\',
    "punctuation": "... , ; -- ?",
    "blank": " \t\n ",
    "10,000 words": " ".join(f"word{number}" for number in range(10_000)),
}
PLAIN = {"first": "a brown dog runs", "middle": "two men sit on grass", "last": "a cat on a wall"}


@pytest.mark.parametrize("tokenizer", ["ptb", "python"])
def test_odd_captions_do_not_touch_the_scores_of_others(real_java: str, tokenizer: str) -> None:
    mixed = {"first": PLAIN["first"], **ODD, **PLAIN}
    references = {i: ["a dog runs on the grass", "a cat", ODD["bars"]] for i in mixed}
    metrics = ["BLEU", "METEOR", "ROUGE-L"]
    options = {"metrics": metrics, "tokenizer": tokenizer}
    result = evaluate_captions(mixed, references, **options)
    alone = evaluate_captions(PLAIN, references, **options)
    assert result.missing == {}
    assert {i: result.per_image[i] for i in PLAIN} == alone.per_image
    for name in ("blank", "punctuation"):
        assert set(result.per_image[name].values()) == {0.0}
    assert result.per_image["tabs"] == result.per_image["emoji"]
    assert result.per_image["tabs"]["METEOR"] > 0.3
    assert result.per_image["bars"]["ROUGE-L"] > 0.5


def test_empty_references_count_among_the_others() -> None:
    candidates = {"1": "a dog runs", "2": "a cat sits"}
    result = fast(candidates, {"1": ["", "a dog runs"], "2": ["a cat sits", "..."]})
    assert result.corpus["ROUGE-L"] == pytest.approx(1)
    assert result.corpus["CIDEr-D"] == pytest.approx(7.5 / 2)  # no 4-grams; half the references
