"""CLIPScore and RefCLIPScore: numbers worked by hand, and what must hold for any embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioning.metrics.clipscore import (
    clip_scores,
    evaluate_similarity,
    harmonic_mean,
    reference_scores,
    score_names,
)

vectors = st.integers(0, 2**31).map(
    lambda seed: torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
)


class Space:
    """Texts are put where a table says; remembers what it was asked for."""

    def __init__(self, table: dict[str, tuple[float, ...]]) -> None:
        self.table, self.asked = table, []

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        self.asked.extend(texts)
        return torch.tensor([self.table[text] for text in texts], dtype=torch.float32)


def test_numbers_worked_by_hand() -> None:
    images = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]])
    captions = torch.tensor([[5.0, 0.0], [-1.0, 0.5], [0.0, 7.0]])
    # cosines 3/5, below 0, and 1
    assert clip_scores(images, captions).tolist() == pytest.approx([1.5, 0.0, 2.5])
    assert clip_scores(images, captions, weight=1).tolist() == pytest.approx([0.6, 0.0, 1.0])
    references = [
        torch.tensor([[0.0, 1.0], [4.0, 3.0]]),  # cosines 0 and 4/5
        torch.tensor([[1.0, -0.5]]),  # -1
        torch.tensor([[1.0, 1.0], [-1.0, 0.0]]),  # 1/sqrt(2) and 0
    ]
    alike = reference_scores(captions, references)
    assert alike.tolist() == pytest.approx([0.8, 0.0, math.sqrt(0.5)])
    # 2 * 1.5 * .8 / 2.3; 0; 2 * 2.5 * sqrt(.5) / (2.5 + sqrt(.5))
    both = harmonic_mean(clip_scores(images, captions), alike)
    assert both.tolist() == pytest.approx([2.4 / 2.3, 0.0, 1.102406], abs=1e-5)


@given(vectors, st.randoms(use_true_random=False))
def test_pairs_are_scored_alone_whatever_their_order_and_length(images, random) -> None:
    captions = images.roll(1, dims=0) + 0.3
    scores = clip_scores(images, captions)
    order = random.sample(range(5), 5)
    assert torch.allclose(clip_scores(images[order], captions[order]), scores[order])
    assert torch.allclose(clip_scores(images * 3, captions / 7), scores, atol=1e-5)
    assert torch.allclose(clip_scores(images[:1], captions[:1]), scores[:1])
    assert bool(((scores >= 0) & (scores <= 2.5 + 1e-5)).all())


@given(vectors)
def test_a_perfect_caption_scores_highest(images) -> None:
    assert torch.allclose(clip_scores(images, images), torch.full((5,), 2.5))
    alike = reference_scores(images, [image[None] for image in images])
    assert torch.allclose(alike, torch.ones(5))


@given(vectors, vectors)
def test_more_references_never_lower_a_score(captions, references) -> None:
    few = reference_scores(captions, [references[:2]] * 5)
    many = reference_scores(captions, [references] * 5)
    assert bool((many >= few - 1e-6).all())


@given(vectors, vectors)
def test_references_given_twice_change_nothing(captions, references) -> None:
    once = reference_scores(captions, [references] * 5)
    twice = reference_scores(captions, [torch.cat([references] * 2)] * 5)
    # products of another size may be summed in another order
    torch.testing.assert_close(twice, once, atol=1e-6, rtol=1e-5)


@given(st.floats(0, 3), st.floats(0, 3))
def test_harmonic_mean_lies_between(first: float, second: float) -> None:
    mean = harmonic_mean(torch.tensor([first]), torch.tensor([second])).item()
    assert mean == pytest.approx(harmonic_mean(torch.tensor(second), torch.tensor(first)).item())
    assert min(first, second) - 1e-5 <= mean <= max(first, second) + 1e-5 or not first * second
    assert mean == 0 or (first > 0 and second > 0)


def test_names_say_the_space() -> None:
    assert score_names("ViT-B-32/openai") == (
        "CLIPScore(ViT-B-32/openai)",
        "RefCLIPScore(ViT-B-32/openai)",
    )
    names = score_names("joint-space")
    assert names == ("joint-space score", "joint-space reference score")
    assert not any("CLIP" in name.upper() for name in names)


def test_captions_get_the_papers_prompt_and_empty_ones_nothing() -> None:
    space = Space(
        {
            "A photo depicts a dog": (3.0, 4.0),
            "A photo depicts  ": (1.0, 0.0),
            "A photo depicts a puppy": (0.0, 1.0),
            "A photo depicts no cat": (1.0, 0.0),
        }
    )
    result = evaluate_similarity(
        {"1": "a dog", "2": " "},
        {"2": torch.tensor([1.0, 0.0]), "1": torch.tensor([1.0, 0.0]), "9": torch.ones(2)},
        embed_texts=space,
        space="ViT-B-32/openai",
        references={"1": ["a puppy", "", "no cat"], "2": ["a puppy"]},
    )
    # 2.5 * 3/5 = 1.5; the best reference has 4/5: 2 * 1.5 * .8 / 2.3
    plain, both = score_names("ViT-B-32/openai")
    assert result.per_image["1"] == pytest.approx({plain: 1.5, both: 2.4 / 2.3})
    assert result.per_image["2"] == {plain: 0, both: 0}
    assert result.corpus == pytest.approx({plain: 0.75, both: 1.2 / 2.3})
    assert list(result.per_image) == ["1", "2"]
    assert result.settings["num_empty_candidates"] == 1
    assert result.settings["prompt"] == "A photo depicts "
    assert all(text.startswith("A photo depicts ") for text in space.asked)


def test_the_joint_space_has_no_prompt_and_no_references_are_needed() -> None:
    result = evaluate_similarity(
        {"1": "a dog"},
        {"1": torch.tensor([1.0, 1.0])},
        embed_texts=Space({"a dog": (1.0, 0.0)}),
        space="joint-space",
        weight=1.0,
    )
    assert result.corpus == pytest.approx({"joint-space score": math.sqrt(0.5)})
    assert (result.settings["prompt"], result.settings["weight"]) == ("", 1.0)


@pytest.mark.parametrize(
    ("candidates", "images", "references", "message"),
    [
        ({}, {}, None, "candidates must hold at least one caption"),
        ({"1": "a"}, {"2": torch.ones(2)}, None, "without an embedding, such as '1'"),
        ({"1": "a"}, {"1": torch.ones(2)}, {"1": [" "]}, "without references, such as '1'"),
        ({"1": "a"}, {"1": torch.ones(2)}, {}, "without references, such as '1'"),
        ({"1": "a"}, {"1": torch.zeros(2)}, None, "images: 1 of 1 embeddings are 0"),
        ({"1": "a"}, {"1": torch.ones(3)}, None, r"got \(1, 3\) and \(1, 2\)"),
    ],
)
def test_bad_input_is_named(candidates, images, references, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_similarity(
            candidates,
            images,
            embed_texts=Space({"a": (1.0, 0.0), " ": (1.0, 0.0)}),
            space="joint-space",
            references=references,
        )


def test_wrong_references_are_named() -> None:
    captions = torch.ones(2, 3)
    with pytest.raises(ValueError, match="references must be 2 tensors: got 1"):
        reference_scores(captions, [captions])
    with pytest.raises(ValueError, match=r"references\[1\] must be \(r, 3\) with r >= 1"):
        reference_scores(captions, [captions, torch.ones(0, 3)])
    with pytest.raises(ValueError, match=r"references\[0\]: 1 of 2 embeddings are 0"):
        reference_scores(captions, [torch.tensor([[1.0, 0, 0], [0, 0, 0]]), captions])


def few_words(texts: Sequence[str]) -> list[bool]:
    return [len(text.split()) <= 3 for text in texts]


def test_what_does_not_fit_is_scored_by_its_sentences(caplog: pytest.LogCaptureFixture) -> None:
    places = {
        "A dog runs.": (1.0, 0.0),  # cosine .6, 3 words
        "It barks.": (0.0, 1.0),  # .8, 2 words
        "a cat": (1.0, 0.0),
        "one two": (1.0, 0.0),
        "three four": (0.0, 1.0),
        "Two.": (1.0, 0.0),
        "Three four five.": (0.0, 1.0),
    }
    images = {name: torch.tensor([3.0, 4.0]) for name in "abc"}
    captions = {"a": "A dog runs. It barks.", "b": "a cat", "c": "one two three four"}
    references = {"a": ["a cat"], "b": ["Two. Three four five."], "c": ["a cat"]}
    space = Space(places)
    options = {"space": "S", "prompt": "", "weight": 1.0, "references": references}
    result = evaluate_similarity(captions, images, embed_texts=space, fits=few_words, **options)
    scores = {name: row["CLIPScore(S)"] for name, row in result.per_image.items()}
    assert scores == pytest.approx({"a": (3 * 0.6 + 2 * 0.8) / 5, "b": 0.6, "c": 0.7})
    # likeness to the references: 3/5 of a's words are in the cat's place, half of c's; b's parts
    # are references of their own, the nearer of which counts
    reference = {name: row["RefCLIPScore(S)"] for name, row in result.per_image.items()}
    by_hand = {"a": 2 * 0.68 * 0.6 / 1.28, "b": 2 * 0.6 / 1.6, "c": 2 * 0.7 * 0.5 / 1.2}
    assert reference == pytest.approx(by_hand)
    settings = result.settings
    assert settings["num_captions_by_parts"] == 2
    assert settings["num_references_by_parts"] == 1
    assert "2 of 3 captions and 1 references are too long" in caplog.text


def test_what_fits_is_scored_as_published_to_the_bit(caplog: pytest.LogCaptureFixture) -> None:
    vectors = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    images = {str(number): vectors[number] for number in range(3)}
    captions = {str(number): f"text {number}" for number in range(3)}
    table = {f"text {number}": tuple(vectors[number + 3].tolist()) for number in range(3)}
    options = {"space": "S", "prompt": "", "references": {name: ["text 0"] for name in captions}}
    cut = evaluate_similarity(captions, images, embed_texts=Space(table), **options)
    parts = evaluate_similarity(
        captions, images, embed_texts=Space(table), fits=few_words, **options
    )
    assert parts.per_image == cut.per_image
    assert parts.settings["num_captions_by_parts"] == 0
    assert not caplog.text
    assert "num_captions_by_parts" not in cut.settings


def test_a_word_that_does_not_fit_stays_as_it_is() -> None:
    space = Space({"endless": (1.0, 0.0), "no": (1.0, 0.0)})
    result = evaluate_similarity(
        {"a": "endless no"},
        {"a": torch.tensor([1.0, 0.0])},
        embed_texts=space,
        space="S",
        prompt="",
        fits=lambda texts: [text == "no" for text in texts],
    )
    assert space.asked == ["endless", "no"]
    assert result.corpus == {"CLIPScore(S)": pytest.approx(2.5)}
