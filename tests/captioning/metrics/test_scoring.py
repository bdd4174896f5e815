"""Scores of any lists: the digits of pycocoevalcap, intervals that cover, and refusals."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from torch import Tensor

from captioning.metrics import Bootstrap, CaptionScores, score
from captioning.metrics.bleu import count_bleu, pooled_bleu, prepare_bleu, score_bleu
from captioning.metrics.bootstrap import Pooled, intervals, pooled_mean, resampled
from captioning.metrics.meteor import count_meteor, measure_meteor, pooled_meteor

TEXT = "a the man dog brown runs on green grass two women riding horse beach near street sits"
WORDS = TEXT.split()
FAST = ("BLEU", "ROUGE-L", "CIDEr-D")
Lists = tuple[list[str], list[list[str]]]


def random_lists(number: int, seed: int = 3) -> Lists:
    """Candidates that share words with their references, of which there are 1 to 5."""
    generator = np.random.default_rng(seed)

    def sentence() -> str:
        return " ".join(generator.choice(WORDS, generator.integers(3, 12)))

    references = [[sentence() for _ in range(1 + row % 5)] for row in range(number)]
    candidates = [f"{texts[0].rsplit(' ', 2)[0]} {sentence()}" for texts in references]
    candidates[0], candidates[-1] = references[0][0], ""
    return candidates, references


def fast(candidates: Any, references: Any, **options: Any) -> CaptionScores:
    return score(candidates, references, **{"metrics": FAST, "tokenizer": "python"} | options)


def of_pycocoevalcap(scorer: Any, lists: Lists) -> tuple[Any, Any]:
    candidates, references = lists
    groups = dict(enumerate(references))
    return scorer.compute_score(groups, {i: [text] for i, text in enumerate(candidates)})


@pytest.mark.parametrize("seed", range(3))
def test_digits_are_those_of_pycocoevalcap(seed: int) -> None:
    lists = random_lists(60, seed)
    ours = fast(*lists)
    bleu, bleu_each = of_pycocoevalcap(Bleu(4), lists)
    expected = {f"BLEU-{n}": (bleu[n - 1], bleu_each[n - 1]) for n in (1, 2, 3, 4)}
    expected["ROUGE-L"] = of_pycocoevalcap(Rouge(), lists)
    expected["CIDEr-D"] = of_pycocoevalcap(Cider(), lists)
    assert ours.corpus.keys() == expected.keys()
    for name, (corpus, per_caption) in expected.items():
        assert ours.corpus[name] == pytest.approx(float(corpus), abs=1e-6), name
        assert ours.per_caption[name] == pytest.approx(list(map(float, per_caption)), abs=1e-6)


@pytest.mark.long
def test_meteor_is_pycocoevalcaps_and_its_sums_are_java_s(real_java: str) -> None:
    candidates, references = random_lists(60)
    result = score(candidates, references, metrics=["METEOR"], tokenizer="python")
    meteor = Meteor()
    corpus, per_caption = of_pycocoevalcap(meteor, (candidates, references))
    meteor.meteor_p.stdin.close()
    meteor.meteor_p.stdout.close()
    meteor.meteor_p.wait()
    meteor.meteor_p.stderr.close()
    assert result.corpus["METEOR"] == pytest.approx(corpus, abs=1e-6)
    assert result.per_caption["METEOR"] == pytest.approx(per_caption, abs=1e-6)
    for chosen in next(resampled(60, 2, np.random.default_rng(0))):
        texts, groups = [candidates[i] for i in chosen], [references[i] for i in chosen]
        of_java, each, lines = measure_meteor(texts, groups)
        counts = count_meteor(lines)
        assert pooled_meteor(counts.sum(0)[None]).item() == pytest.approx(of_java, abs=1e-12)
        assert pooled_meteor(counts).ravel() == pytest.approx(each, abs=1e-12)


def test_resamples_are_as_many_as_asked_for_in_whatever_blocks(monkeypatch) -> None:
    monkeypatch.setattr("captioning.metrics.bootstrap._CHUNK", 20 * 7)
    blocks = list(resampled(20, 50, np.random.default_rng(0)))
    assert [block.shape for block in blocks] == [(7, 20)] * 7 + [(1, 20)]


def test_an_interval_of_bleu_is_that_of_resampled_lists_scored_anew() -> None:
    candidates, references = random_lists(20)
    draws = np.concatenate(list(resampled(20, 50, np.random.default_rng(5))))
    corpora = [
        score_bleu([candidates[i] for i in row], prepare_bleu([references[i] for i in row]))[0]
        for row in draws
    ]
    expected = np.quantile(np.array(corpora), [0.05, 0.95], axis=0).T
    bootstrap = Bootstrap(resamples=50, confidence=0.9, seed=5)
    result = fast(candidates, references, bootstrap=bootstrap)
    for n in (1, 2, 3, 4):
        assert result.intervals[f"BLEU-{n}"] == pytest.approx(expected[n - 1], abs=1e-9)
        assert result.corpus[f"BLEU-{n}"] != pytest.approx(np.mean(result.per_caption[f"BLEU-{n}"]))


def test_document_frequencies_stay_those_of_all_references() -> None:
    lists = random_lists(40)
    bootstrap = Bootstrap(resamples=200, seed=1)
    result = fast(*lists, bootstrap=bootstrap)
    each = np.array(result.per_caption["CIDEr-D"])
    draws = np.concatenate(list(resampled(40, 200, np.random.default_rng(1))))
    expected = np.quantile(each[draws].mean(1), [0.025, 0.975])
    assert result.intervals["CIDEr-D"] == pytest.approx(expected, abs=1e-12)


def test_equal_seeds_give_equal_intervals_and_none_gives_none() -> None:
    lists = random_lists(30)
    first, again, other = (fast(*lists, bootstrap=Bootstrap(seed=s)).intervals for s in (0, 0, 1))
    assert first == again == fast(*lists).intervals
    assert all(first[name] != other[name] for name in first)
    bare = fast(*lists, bootstrap=None)
    assert bare.intervals == {}
    assert "bootstrap" not in bare.settings
    assert bare.corpus == fast(*lists).corpus


def covered(draw: Callable[[np.random.Generator], Pooled], truth: float) -> float:
    """Share of 200 samples whose interval holds the score of the population."""
    generator, hits = np.random.default_rng(11), 0
    for trial in range(200):
        part = draw(generator)
        low, high = intervals([part], Bootstrap(resamples=200, seed=trial))[part.names[0]]
        hits += low <= truth <= high
    return hits / 200


def test_intervals_of_a_mean_cover_the_population() -> None:
    share = covered(lambda g: pooled_mean("x", g.gamma(2.0, 0.5, 80)), 1.0)
    assert 0.9 <= share <= 0.98


def test_intervals_of_bleu_cover_the_population() -> None:
    candidates, references = random_lists(2000)
    counts = count_bleu(candidates, prepare_bleu(references))
    truth = pooled_bleu(counts.sum(0)[None])[0]

    def draw(generator: np.random.Generator) -> Pooled:
        sample = counts[generator.integers(0, len(counts), 80)]
        return Pooled(names=("1", "2", "3", "4"), statistics=sample, pool=pooled_bleu)

    assert 0.9 <= covered(draw, float(truth[0])) <= 0.98


class Colours:
    """Photos and texts as the mean colour: red, green, blue."""

    space = "colours"

    def embed_photos(self, photos: Sequence[Image.Image]) -> Tensor:
        means = [torch.tensor(photo.resize((1, 1)).getpixel((0, 0))).float() for photo in photos]
        return torch.nn.functional.normalize(torch.stack(means), dim=1)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        rows = [[float(c in text) for c in ("red", "green", "blue")] for text in texts]
        return torch.nn.functional.normalize(torch.tensor(rows) + 0.01, dim=1)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    for name in ("red", "green", "blue"):
        Image.new("RGB", (4, 4), name).save(tmp_path / f"{name}.png")
    return [tmp_path / f"{name}.png" for name in ("red", "green", "blue")]


def test_clipscore_is_of_the_photo_beside_the_caption(photos: list[Path]) -> None:
    lists = (["red", "blue", ""], [["red"], ["green"], ["blue"]])
    options: dict[str, Any] = {"photos": photos, "encoder": Colours()}
    alone = fast(*lists, metrics=["CLIPScore"], **options)
    assert alone.corpus.keys() == {"CLIPScore(colours)", "RefCLIPScore(colours)"}
    right, wrong, empty = alone.per_caption["CLIPScore(colours)"]
    assert right > 2.4
    assert wrong < 0.1
    assert empty == 0
    low, high = alone.intervals["CLIPScore(colours)"]
    assert low <= alone.corpus["CLIPScore(colours)"] <= high
    beside = fast(*lists, metrics=["ROUGE-L", "CLIPScore"], **options)
    assert beside.per_caption["RefCLIPScore(colours)"] == alone.per_caption["RefCLIPScore(colours)"]
    assert beside.intervals == alone.intervals | {"ROUGE-L": beside.intervals["ROUGE-L"]}


def test_without_java_scores_are_missing_with_the_remedy(no_java: None) -> None:
    result = score(*random_lists(5))
    assert result.corpus.keys() == fast(*random_lists(5)).corpus.keys()
    assert result.missing.keys() == {"METEOR", "SPICE"}
    assert "install Java" in str(result)
    assert result.settings["tokenizer"] == "python"


def test_scores_print_a_line_each() -> None:
    text = str(fast(["a dog", "a cat"], [["a dog"], ["a cat"]], metrics=["ROUGE-L"]))
    assert text == "ROUGE-L  1.0000  [1.0000, 1.0000]"


@pytest.mark.parametrize(
    ("candidates", "references", "options", "error", "message"),
    [
        ("a dog", [["a dog"]], {}, TypeError, "candidates must be a list of captions: got str"),
        ({"1": "a dog"}, [["a dog"]], {}, TypeError, "candidates must be a list .* got dict"),
        ([], [], {}, ValueError, "candidates must hold at least one caption"),
        (["a", None], [["a"], ["a"]], {}, TypeError, r"candidates\[1\] must be a string: got None"),
        (["a", 1.5], [["a"], ["a"]], {}, TypeError, r'got 1.5; give "" for a missing caption'),
        (["a", "b"], [["a"]], {}, ValueError, "for each of 2 candidates: got 1 lists"),
        (["a", "b"], [["a", "b"]] * 5, {}, ValueError, "got 5 lists; .* sacreBLEU"),
        (["a"], ["a dog"], {}, TypeError, r"references\[0\] must be a list of captions"),
        (["a"], {"0": ["a"]}, {}, TypeError, "evaluate_captions"),
        (
            ["a", "b"],
            [["a"], []],
            {},
            ValueError,
            r"references\[1\] must hold at least one caption",
        ),
        (
            ["a", "b"],
            [["a"], [" "]],
            {},
            ValueError,
            r"references\[1\] must hold at least one caption",
        ),
        (["a"], [["a", b"b"]], {}, TypeError, r"references\[0\]\[1\] must be a string: got b'b'"),
        (["a"], [["a"]], {"metrics": "BLEU"}, ValueError, "metrics must be a list"),
        (["a"], [["a"]], {"metrics": ["BLEU-4"]}, ValueError, '"BLEU" gives BLEU-1 to BLEU-4'),
        (["a"], [["a"]], {"metrics": []}, ValueError, "metrics must be a list with some of"),
        (["a"], [["a"]], {"tokenizer": "c"}, ValueError, "tokenizer must be 'ptb' or 'python'"),
        (["a"], [["a"]], {"metrics": ["CLIPScore"]}, ValueError, "photos must be a list of 1"),
        (
            ["a"],
            [["a"]],
            {"metrics": ["CLIPScore"], "photos": ["a.jpg"]},
            ValueError,
            r"encoder=build_clip\(\)",
        ),
    ],
)
def test_what_cannot_be_scored_is_named(
    candidates: Any, references: Any, options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        fast(candidates, references, **options)


@pytest.mark.parametrize("wrong", [{"resamples": 0}, {"confidence": 1}, {"seed": -1}])
def test_settings_of_the_bootstrap_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="resamples must be at least 1"):
        Bootstrap(**wrong)


def test_the_page_shows_what_is_printed(repository: Path) -> None:
    failed, tried = doctest.testfile(
        str(repository / "docs" / "guides" / "metrics.md"), module_relative=False
    )
    assert tried >= 4
    assert failed == 0
