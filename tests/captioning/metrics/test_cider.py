"""CIDEr-D against pycocoevalcap, CIDEr against its definition, statistics kept in a file."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.cider.cider import Cider

from captioning.metrics.cider import (
    CaptionVectors,
    CiderReferences,
    CiderStatistics,
    count_ngrams,
    number_images,
)
from captioning.metrics.tokenizer import tokenize_python

# few words, so that n-grams are shared and repeated; "caf\u00e9" and a lone surrogate too
caption = st.lists(st.sampled_from(["a", "b", "c", "café", "\ud83d"]), max_size=7).map(" ".join)
image = st.tuples(caption, st.lists(caption, min_size=1, max_size=3))
images = st.lists(image, min_size=1, max_size=5).filter(
    lambda pairs: any(reference for _, references in pairs for reference in references)
)
Images = list[tuple[str, list[str]]]
few = settings(max_examples=30)


def ours(pairs: Images, statistics: CiderStatistics | None = None, **options: str) -> np.ndarray:
    prepared = CiderReferences.prepare([references for _, references in pairs], statistics)
    return prepared.score([candidate for candidate, _ in pairs], **options)


def theirs(pairs: Images) -> np.ndarray:
    gts = {row: list(references) for row, (_, references) in enumerate(pairs)}
    return Cider().compute_score(gts, {row: [text] for row, (text, _) in enumerate(pairs)})[1]


def plain_cider(pairs: Images, frequency: Counter[tuple[str, ...]], num_images: int) -> list[float]:
    """The definition of CIDEr (Vedantam et al., 2015, equations 1 to 3), times 10."""

    def vector(text: str, n: int) -> dict[tuple[str, ...], float]:
        words = text.split()
        grams = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        return {g: c * math.log(num_images / max(1, frequency[g])) for g, c in grams.items()}

    def cosine(vector: dict, other_vector: dict) -> float:
        norm = math.hypot(*vector.values()) * math.hypot(*other_vector.values())
        return sum(v * other_vector.get(g, 0) for g, v in vector.items()) / norm if norm else 0.0

    return [
        10
        * sum(cosine(vector(text, n), vector(ref, n)) for n in range(1, 5) for ref in references)
        / (4 * len(references))
        for text, references in pairs
    ]


def document_frequency(groups: list[list[str]]) -> Counter[tuple[str, ...]]:
    frequency: Counter[tuple[str, ...]] = Counter()
    for group in groups:
        words = [text.split() for text in group]
        frequency.update(
            {tuple(w[i : i + n]) for w in words for n in range(1, 5) for i in range(len(w) - n + 1)}
        )
    return frequency


@few
@given(images)
def test_cider_d_is_that_of_pycocoevalcap(pairs: Images) -> None:
    np.testing.assert_allclose(ours(pairs), theirs(pairs), atol=1e-9)


@few
@given(images, images)
def test_cider_with_frequencies_of_others_is_its_definition(
    pairs: Images, other_images: Images
) -> None:
    groups = [references for _, references in other_images]
    statistics = CiderStatistics.count(groups, source="others")
    expected = plain_cider(pairs, document_frequency(groups), len(groups))
    np.testing.assert_allclose(ours(pairs, statistics, variant="CIDEr"), expected, atol=1e-9)


@few
@given(images)
def test_frequencies_are_counts_of_images(pairs: Images) -> None:
    groups = [references for _, references in pairs]
    statistics = CiderStatistics.count(groups, source="")
    counts = count_ngrams(["a b c café", "c b b a"])
    weights = statistics.inverse_frequency(counts.table)
    frequency = document_frequency(groups)
    for text, row in (("a b c café", 0), ("c b b a", 1)):
        words = text.split()
        grams = {tuple(words[i : i + n]) for n in range(1, 5) for i in range(5 - n)}
        expected = sorted(math.log(len(groups) / max(1, frequency[gram])) for gram in grams)
        assert sorted(weights[counts.gram[counts.caption == row]]) == pytest.approx(expected)


def coco_sample(folder: Path, number: int) -> Images:
    """Real captions: the first of an image is its candidate, the others its references."""
    captions_by_image: dict[int, list[str]] = {}
    annotations = json.loads((folder / "coco" / "captions_val2017.json").read_text("utf-8"))
    for annotation in annotations["annotations"]:
        captions_by_image.setdefault(annotation["image_id"], []).append(annotation["caption"])
    groups = [tokenize_python(captions) for captions in list(captions_by_image.values())[:number]]
    return [(group[0], group[1:]) for group in groups]


def test_cider_d_of_real_captions_is_that_of_pycocoevalcap(shared_data: Path) -> None:
    pairs = coco_sample(shared_data, 400)
    scores = ours(pairs)
    np.testing.assert_allclose(scores, theirs(pairs), atol=1e-9)
    assert scores.mean() > 0.3


def test_golden_scores_of_the_field() -> None:
    golden = json.loads((Path(__file__).parent / "golden.json").read_text("utf-8"))
    ids = list(golden["candidates"])
    references = [tokenize_python(golden["references"][image_id]) for image_id in ids]
    prepared = CiderReferences.prepare(references)
    scores = prepared.score(tokenize_python([golden["candidates"][image_id] for image_id in ids]))
    assert scores.mean() == pytest.approx(golden["corpus"]["CIDEr-D"], rel=1e-12)
    for image_id, score in zip(ids, scores, strict=True):
        assert score == pytest.approx(golden["per_image"][image_id]["CIDEr-D"], abs=1e-9)


def test_a_score_worked_by_hand() -> None:
    # Four images. "x" stands in one of them (weight log 4), "a" in two (log 2).
    statistics = CiderStatistics.count([["a x"], ["a"], ["y"], ["z"]], source="by hand")
    prepared = CiderReferences.prepare([["a x"]], statistics)
    # 1-grams of "a a x": (2 log 2, log 4) = (2, 2) log 2, of the reference (1, 2) log 2.
    # CIDEr: cosine 6 / sqrt(8 * 5) for n = 1. For n = 2: (1, 1) log 4 against (0, 1) log 4.
    cosines = [6 / math.sqrt(40), 1 / math.sqrt(2)]
    assert prepared.score(["a a x"], variant="CIDEr") == pytest.approx(10 * sum(cosines) / 4)
    # CIDEr-D clips 2 log 2 of "a" at log 2, and the captions differ by one word: e^(-1/72).
    clipped = [(1 * 1 + 2 * 2) / math.sqrt(40), 1 / math.sqrt(2)]
    assert prepared.score(["a a x"]) == pytest.approx(10 * sum(clipped) / 4 * math.exp(-1 / 72))


def test_perfect_empty_and_unknown_captions() -> None:
    pairs = [("a b c d e", ["a b c d e"]), ("", ["f g h i"]), ("x y z w", ["j k l m"])]
    assert ours(pairs) == pytest.approx([10, 0, 0])
    assert ours(pairs, variant="CIDEr") == pytest.approx([10, 0, 0])


@few
@given(images)
def test_repeated_references_change_nothing(pairs: Images) -> None:
    twice = [(text, references * 2) for text, references in pairs]
    np.testing.assert_allclose(ours(twice), ours(pairs), atol=1e-9)


@few
@given(images, st.randoms(use_true_random=False))
def test_order_of_images_changes_nothing(pairs: Images, random: Any) -> None:
    order = list(range(len(pairs)))
    random.shuffle(order)
    turned = [pairs[row] for row in order]
    np.testing.assert_allclose(ours(turned), ours(pairs)[order], atol=1e-12)
    digests = {
        CiderStatistics.count([refs for _, refs in each], source="").digest()
        for each in (pairs, turned)
    }
    assert len(digests) == 1


@few
@given(images)
def test_scores_lie_between_0_and_10(pairs: Images) -> None:
    for variant in ("CIDEr-D", "CIDEr"):
        scores = ours(pairs, variant=variant)
        assert scores.min() >= 0
        assert scores.max() <= 10 + 1e-9


def test_one_image_scores_0_by_itself_and_its_score_with_frequencies_of_a_corpus() -> None:
    corpus = [["a man rides a horse", "a man on a horse"], ["a dog runs"], ["two dogs", "a dog"]]
    statistics = CiderStatistics.count(corpus, source="corpus")
    alone = [("a man rides a horse", corpus[0])]
    assert ours(alone) == [0]
    # all images scored together need no saved frequencies: the same score
    together = [*alone, ("", corpus[1]), ("", corpus[2])]
    assert ours(alone, statistics)[0] == pytest.approx(theirs(together)[0])
    assert theirs(together)[0] > 3


def test_several_captions_an_image_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = [["a b c d"], ["b c d e", "f"], ["a e f g"]]
    captions, numbers = ["b c d", "a b c d", "a e", "f", "f g", ""], [1, 0, 0, 1, 2, 2]
    prepared = CiderReferences.prepare(corpus)
    expected = [
        prepared.score([text if row == number else "" for row in range(3)])[number]
        for text, number in zip(captions, numbers, strict=True)
    ]
    assert prepared.score(captions, numbers) == pytest.approx(expected)
    # captions are scored in blocks
    monkeypatch.setattr("captioning.metrics.cider._BLOCK", 2)
    assert prepared.score(captions, numbers) == pytest.approx(expected)


def test_references_chosen_from_a_collection_are_those_prepared_alone() -> None:
    collection = [["a b c d"], ["b c d e", "f"], ["a e f g", "a b", "c d e"]]
    statistics = CiderStatistics.count(collection, source="")
    counts = count_ngrams([text for group in collection for text in group])
    vectors = CaptionVectors.build(counts, statistics)
    chosen = [[4, 1, 1], [0]]  # of the flat captions, one of them twice
    picked = CiderReferences.choose(
        vectors, np.array([4, 1, 1, 0]), number_images(chosen), statistics
    )
    alone = CiderReferences.prepare([["a b", "b c d e", "b c d e"], ["a b c d"]], statistics)
    captions = ["a b c d", "b c d"]
    assert picked.score(captions) == pytest.approx(alone.score(captions))
    assert (picked.score(captions) > 0.5).all()


@few
@given(images, images)
def test_saved_statistics_score_the_same(
    tmp_path_factory: pytest.TempPathFactory, pairs: Images, other_images: Images
) -> None:
    statistics = CiderStatistics.count([refs for _, refs in other_images], source="ü others")
    path = tmp_path_factory.mktemp("statistics") / "cider.npz"
    statistics.save(path)
    loaded = CiderStatistics.load(path)
    assert loaded.settings() == statistics.settings()
    assert np.array_equal(ours(pairs, loaded), ours(pairs, statistics))
    again = path.with_name("again.npz")
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_digest_knows_the_counts() -> None:
    def digest(*groups: list[str]) -> str:
        return CiderStatistics.count(list(groups), source="").digest()

    first = digest(["a b", "c"], ["a b"])
    assert first == digest(["a b"], ["c", "a b"])
    assert first != digest(["a b", "c"], ["a b"], ["c d"])  # one image more
    assert first != digest(["a b", "c"], ["a b c"])


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cider.npz"
    CiderStatistics.count([["a b c"], ["a b c d"]], source="x").save(path)
    content = path.read_bytes()
    for place in range(0, len(content), 11):
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        # some bytes, such as dates, mean nothing
        with contextlib.suppress(ValueError):
            assert CiderStatistics.load(path).settings()["num_images"] == 2
    foreign = {"text": b"{}", "empty": b"", "cut": content[: len(content) // 2]}
    for name, file_bytes in foreign.items():
        (tmp_path / name).write_bytes(file_bytes)
        with pytest.raises(ValueError, match=f"{name}: invalid CIDEr statistics"):
            CiderStatistics.load(tmp_path / name)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match="array.npy: invalid CIDEr statistics"):
        CiderStatistics.load(tmp_path / "array.npy")
    with pytest.raises(FileNotFoundError):
        CiderStatistics.load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([], "all are missing"),
        ([[""], [" "]], "empty after tokenization"),
        ([["a"], []], "image 1"),
    ],
)
def test_bad_references_are_named(references: list[list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CiderReferences.prepare(references)


@pytest.mark.parametrize("numbers", [[0], [0, 2], [0, -1], None])
def test_captions_of_no_image_are_named(numbers: list[int] | None) -> None:
    prepared = CiderReferences.prepare([["a b"], ["c"]])
    captions = ["a", "b"] if numbers else ["a"]
    with pytest.raises(ValueError, match="images must give each of"):
        prepared.score(captions, numbers)


def test_another_variant_is_named() -> None:
    with pytest.raises(ValueError, match="variant must be one of.*got 'CIDEr-R'"):
        CiderReferences.prepare([["a"]]).score(["a"], variant="CIDEr-R")
