"""The oracle against scoring each sample by itself."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu

from captioning.metrics.cider import CiderStatistics
from captioning.metrics.coco import BLEU, FAST_METRICS, evaluate_captions
from captioning.metrics.diversity import OracleResult, evaluate_oracle
from captioning.metrics.java import JavaError
from captioning.metrics.spice import missing_jars, spice_folder
from captioning.metrics.tokenizer import tokenize_ptb, tokenize_python

REFERENCES = {
    "9": ["A man rides a brown horse.", "a man on a horse, near the beach"],
    "4": ["Two women sit at a table with food", "women eat at the table", "two women, eating"],
    "7": ["a dog runs on the green grass"],
    "5": ["the red bus drives down the street", "a red bus on a street"],
}
SAMPLES = {
    "9": ["a man on a horse", "A brown horse.", "a man rides a brown horse", "a man on a horse"],
    "4": ["", "two women sit at the table", "women at a table with food", "a dog"],
    "7": ["a dog runs", "the dog on the grass", "grass", "a dog runs on the green grass"],
    "5": ["a bus drives down the street", "a red bus on the street", "red bus", "the street"],
}


def oracle(samples: dict[str, list[str]] = SAMPLES, **options) -> OracleResult:
    arguments = {"metrics": FAST_METRICS, "tokenize": tokenize_python} | options
    return evaluate_oracle(samples, REFERENCES, **arguments)


def each_alone(samples: dict[str, list[str]] = SAMPLES) -> list[dict[str, dict[str, float]]]:
    """The field's way: the first samples of all images scored as a set, then the second ones."""
    number = max(map(len, samples.values()))
    return [
        evaluate_captions(
            {image_id: group[sample] for image_id, group in samples.items()},
            REFERENCES,
            metrics=FAST_METRICS,
            tokenizer="python",
        ).per_image
        for sample in range(number)
    ]


def test_the_oracle_is_the_highest_of_samples_scored_one_by_one() -> None:
    result, alone = oracle(), each_alone()
    for image_id in SAMPLES:
        for name in (*BLEU, "ROUGE-L", "CIDEr-D"):
            scores = [scored[image_id][name] for scored in alone]
            assert result.per_image[image_id][name] == pytest.approx(max(scores), abs=1e-12)
            assert scores[result.best[image_id][name]] == pytest.approx(max(scores), abs=1e-12)
    for name, mean in result.mean.items():
        assert mean == pytest.approx(np.mean([s[name] for s in result.per_image.values()]))


@pytest.mark.parametrize(
    "metric", ["CIDEr", "METEOR", pytest.param("SPICE", marks=pytest.mark.long)]
)
def test_every_metric_takes_the_highest_sample(metric: str, real_java: str) -> None:
    if metric == "SPICE" and (missing := missing_jars(spice_folder(), real_java)):
        pytest.skip(f"needs {missing[0]}: run `captioning prepare metrics`")
    samples = {image_id: SAMPLES[image_id][1:3] for image_id in ("9", "7", "5")}
    result = oracle(samples, metrics=[metric])
    alone = [
        evaluate_captions(
            {image_id: group[sample] for image_id, group in samples.items()},
            REFERENCES,
            metrics=[metric],
            tokenizer="python",
        ).per_image
        for sample in range(2)
    ]
    for image_id in samples:
        scores = [scored[image_id][metric] for scored in alone]
        assert result.per_image[image_id][metric] == pytest.approx(max(scores), abs=1e-12)
        assert result.best[image_id][metric] == scores.index(max(scores))
        assert max(scores) > 0
    highest = [image_scores[metric] for image_scores in result.per_image.values()]
    assert result.mean[metric] == pytest.approx(np.mean(highest))


def test_corpus_bleu_is_that_of_the_captions_chosen() -> None:
    result = oracle()
    ids = list(SAMPLES)
    references = {row: tokenize_python(REFERENCES[image_id]) for row, image_id in enumerate(ids)}
    for order, name in enumerate(BLEU):
        chosen = [SAMPLES[image_id][result.best[image_id][name]] for image_id in ids]
        texts = {row: [text] for row, text in enumerate(tokenize_python(chosen))}
        expected = Bleu(4).compute_score(references, texts, verbose=0)[0][order]
        assert result.corpus_bleu[name] == pytest.approx(expected, rel=1e-12)
    assert result.corpus_bleu["BLEU-4"] != pytest.approx(result.mean["BLEU-4"], abs=1e-3)


def test_each_metric_chooses_for_itself_and_the_first_of_equal_samples() -> None:
    best = oracle().best
    assert best["9"]["BLEU-4"] == 2  # equal to a reference
    assert oracle({"9": ["a horse", "a man", "A horse!"]}).best["9"]["ROUGE-L"] == 0
    assert best["7"] == dict.fromkeys(best["7"], 3)


def test_one_sample_is_what_evaluate_captions_says() -> None:
    first = {image_id: group[0] for image_id, group in SAMPLES.items()}
    usual = evaluate_captions(first, REFERENCES, metrics=FAST_METRICS, tokenizer="python")
    result = oracle({image_id: [text] for image_id, text in first.items()})
    for image_id, scores in usual.per_image.items():
        assert result.per_image[image_id] == pytest.approx(scores, abs=1e-12)
    for name in BLEU:
        assert result.corpus_bleu[name] == pytest.approx(usual.corpus[name])


def test_more_samples_never_score_less_and_repeated_ones_change_nothing() -> None:
    fewer = oracle({image_id: group[:2] for image_id, group in SAMPLES.items()})
    twice = oracle({image_id: group * 2 for image_id, group in SAMPLES.items()})
    result = oracle()
    assert all(result.mean[name] >= score for name, score in fewer.mean.items())
    assert (twice.mean, twice.best) == (result.mean, result.best)
    assert twice.settings["num_samples"] == 8


def test_perfect_and_empty_samples() -> None:
    perfect = {image_id: ["x", group[0], ""] for image_id, group in REFERENCES.items()}
    result = oracle(perfect)
    assert result.mean["BLEU-4"] == pytest.approx(1, abs=1e-6)
    assert result.corpus_bleu["BLEU-4"] == pytest.approx(1, abs=1e-6)
    assert {best["CIDEr-D"] for best in result.best.values()} == {1}
    nothing = oracle({image_id: ["", " "] for image_id in REFERENCES})
    assert set(nothing.mean.values()) == set(nothing.corpus_bleu.values()) == {0.0}


def test_order_of_images_and_other_numbers_of_samples() -> None:
    turned = oracle(dict(reversed(SAMPLES.items())))
    assert turned.mean == pytest.approx(oracle().mean)
    ragged = {"9": SAMPLES["9"][:1], "4": SAMPLES["4"], "7": SAMPLES["7"][:2], "5": SAMPLES["5"]}
    result = oracle(ragged).per_image
    assert result["4"] == pytest.approx(oracle().per_image["4"])
    assert result["7"]["BLEU-1"] < 1


def test_references_given_twice_change_nothing() -> None:
    twice = {image_id: [*group, *group] for image_id, group in REFERENCES.items()}
    result = evaluate_oracle(SAMPLES, twice, metrics=FAST_METRICS, tokenize=tokenize_python)
    assert result.mean == pytest.approx(oracle().mean)
    assert result.best == oracle().best


def test_one_image_with_frequencies_of_a_corpus() -> None:
    groups = [tokenize_python(group) for group in REFERENCES.values()]
    statistics = CiderStatistics.count(groups, source="four images")
    alone = {"9": SAMPLES["9"]}
    assert oracle(alone).mean["CIDEr-D"] == 0
    result = oracle(alone, statistics=statistics)
    assert result.mean["CIDEr-D"] == pytest.approx(oracle().per_image["9"]["CIDEr-D"])
    assert result.settings["cider_statistics"] == statistics.settings()
    assert oracle(alone).settings["cider_statistics"]["source"] == "the references scored"


def test_without_java_what_needs_it_is_missing_and_named(no_java: None) -> None:
    result = oracle(metrics=["ROUGE-L", "METEOR", "SPICE"])
    assert set(result.mean) == {"ROUGE-L"}
    assert set(result.settings["missing"]) == {"METEOR", "SPICE"}
    assert result.corpus_bleu == {}


def test_java_scorers_are_asked_once_a_caption(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def meteor(texts, references, **options: object) -> tuple[float, list[float]]:
        calls.extend(zip(texts, map(tuple, references), strict=True))
        return 0.0, [len(text.split()) / 10 for text in texts]

    def spice(ids, texts, references, **options: object) -> tuple[float, list[float]]:
        assert len(set(ids)) == len(ids)
        return 0.0, [-score for score in meteor(texts, references)[1]]

    monkeypatch.setattr("captioning.metrics.diversity.score_meteor", meteor)
    monkeypatch.setattr("captioning.metrics.diversity.score_spice", spice)
    result = oracle({"9": SAMPLES["9"], "7": SAMPLES["7"]}, metrics=["METEOR", "SPICE"])
    assert result.per_image["9"] == pytest.approx({"METEOR": 0.6, "SPICE": -0.3})
    assert result.best["9"] == {"METEOR": 2, "SPICE": 1}
    # "a man on a horse" comes twice among the samples
    assert len(calls) == 2 * 7
    expected = tuple(tokenize_python(REFERENCES["7"]))
    assert [refs for text, refs in calls if text == "grass"] == [expected, expected]


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ({}, {}, "candidates must hold at least one image"),
        ({"9": []}, {}, "candidates of image '9'"),
        ({"1": ["a"]}, {}, "references of image '1'"),
        ({"9": ["a"]}, {"metrics": ["WER"]}, "must be some of"),
        ({"9": ["a"]}, {"metrics": "BLEU"}, "must be some of"),
    ],
)
def test_bad_input_is_named(samples: dict, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        oracle(samples, **options)


@pytest.mark.parametrize("samples", [{"9": "a dog"}, {"9": ["a dog", None]}])
def test_samples_that_are_no_list_of_texts_are_named(samples: dict) -> None:
    with pytest.raises(TypeError, match="candidates of image '9' must be a list of texts"):
        oracle(samples)
    with pytest.raises(TypeError, match="references of image '1' must be a list of texts"):
        evaluate_oracle({"1": ["a"]}, {"1": "a dog"}, tokenize=tokenize_python)


def test_a_tokenizer_without_its_java_says_so(no_java: None) -> None:
    with pytest.raises(JavaError, match="Java not found"):
        oracle(tokenize=tokenize_ptb)
