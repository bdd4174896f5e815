"""What every standard score keeps, Java's included: perfect, empty, repeated, order, one image."""

from __future__ import annotations

from functools import cache

import pytest

from captioning.metrics.cider import CiderStatistics
from captioning.metrics.coco import ALL_METRICS, BLEU, MetricResult, evaluate_captions
from captioning.metrics.java import JavaError, find_java
from captioning.metrics.spice import missing_jars, spice_folder

pytestmark = pytest.mark.slow  # SPICE loads its parser three times

HIGHEST = {**dict.fromkeys((*BLEU, "METEOR", "ROUGE-L", "SPICE"), 1.0), "CIDEr-D": 10, "CIDEr": 10}
REFERENCES = {
    "plain": ["a brown dog runs over the green grass", "the dog is running in a field"],
    "twice": ["a brown dog runs over the green grass", "the dog is running in a field"] * 2,
    "perfect": ["two young men ride red bicycles near the beach"],
    "empty": ["a woman holds a yellow umbrella in the rain"],
    "other": ["a small boat on a quiet lake", "people sit in a wooden boat", "boat on the water"],
    "poor": ["a cat sleeps on a white sofa", "the black cat lies on the couch"],
}
CANDIDATES = {
    "plain": "a dog runs on the grass",
    "twice": "a dog runs on the grass",
    "perfect": "two young men ride red bicycles near the beach",
    "empty": "",
    "other": "a wooden boat is on the quiet water",
    "poor": "several tall buildings at night",
}


def metrics_here() -> list[str]:
    """All standard metrics but those for which this machine lacks Java or jars."""
    try:
        missing = {"SPICE"} if missing_jars(spice_folder(), find_java()[1]) else set()
    except JavaError:
        missing = {"METEOR", "SPICE"}
    return [name for name in ALL_METRICS if name not in missing]


@cache
def scored(*image_ids: str, statistics: bool = False) -> MetricResult:
    """Some of the images, in this order; document frequencies of all images, or of those."""
    find_java.cache_clear()
    results = {}
    if statistics:
        groups = [[text.lower() for text in texts] for texts in REFERENCES.values()]
        results["cider_statistics"] = CiderStatistics.count(groups, source="all of them")
    # Of all images, other metrics are the same with and without the statistics.
    same = statistics and image_ids == tuple(REFERENCES)
    return evaluate_captions(
        {i: CANDIDATES[i] for i in image_ids},
        {i: REFERENCES[i] for i in image_ids},
        metrics=["CIDEr-D", "CIDEr"] if same else metrics_here(),
        tokenizer="python",
        **results,
    )


@pytest.fixture(params=HIGHEST)
def name(request: pytest.FixtureRequest) -> str:
    """A reported score; the test is skipped where the machine cannot compute it."""
    made = scored(*REFERENCES)
    assert made.missing == {}
    if request.param not in made.corpus:
        pytest.skip(f"{request.param} needs Java and `captioning prepare metrics`")
    return request.param


def of_image(result: MetricResult, name: str) -> dict[str, float]:
    return {image_id: scores[name] for image_id, scores in result.per_image.items()}


def test_perfect_captions_score_full_and_nothing_scores_more(name: str) -> None:
    scores = of_image(scored(*REFERENCES), name)
    assert scores["perfect"] == pytest.approx(HIGHEST[name], abs=1e-6)
    assert max(scores.values()) <= HIGHEST[name] + 1e-9
    assert scores["poor"] < scores["plain"] < scores["perfect"]


def test_empty_captions_score_nothing_and_nothing_scores_less(name: str) -> None:
    scores = of_image(scored(*REFERENCES), name)
    assert scores["empty"] == 0
    assert min(scores.values()) == 0


def test_repeated_references_change_nothing(name: str) -> None:
    scores = of_image(scored(*REFERENCES), name)
    assert scores["twice"] == pytest.approx(scores["plain"], rel=1e-12)
    assert scores["plain"] > 0


def test_order_of_images_changes_nothing(name: str) -> None:
    forth, back = scored(*REFERENCES), scored(*reversed(REFERENCES))
    assert list(back.per_image) == list(reversed(REFERENCES))
    assert of_image(back, name) == pytest.approx(of_image(forth, name), rel=1e-12)
    assert back.corpus[name] == pytest.approx(forth.corpus[name], rel=1e-12)


def test_one_image_scores_as_it_does_among_others(name: str) -> None:
    alone = scored("other", statistics=True)
    among = scored(*REFERENCES, statistics=name.startswith("CIDEr"))
    score = of_image(alone, name)["other"]
    assert score == pytest.approx(of_image(among, name)["other"])
    assert score > 0
    assert alone.corpus[name] == pytest.approx(score)


def test_corpus_scores_are_means_but_for_bleu_and_meteor(name: str) -> None:
    result = scored(*REFERENCES)
    scores = of_image(result, name)
    mean = sum(scores.values()) / len(scores)
    is_mean = name not in (*BLEU, "METEOR")
    assert (result.corpus[name] == pytest.approx(mean)) == is_mean
