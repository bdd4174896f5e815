"""Further metrics as `evaluate.py` takes them: what they hand on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from captioning.metrics.extra import Diversity, Oracle
from captioning.types import Sample

REFERENCES = {
    "1": ["a man rides a horse", "a man on a horse"],
    "2": ["a dog runs on the grass", "the dog runs"],
    "3": ["two women eat food", "women at a table"],
}
CAPTIONS = {
    "1": ["a man on a horse", "a brown horse", "a man on a horse", "a hat"],
    "2": ["a dog runs", "a dog runs", "the dog runs", "grass"],
    "3": ["women eat", "two women at a table", "food", "a table"],
}


def samples(references: dict[str, list[str]]) -> list[Sample]:
    pairs = [(image_id, text) for image_id, texts in references.items() for text in texts]
    return [
        Sample(row=r, sample_id=f"{i}#{r}", image_id=i, image_path=Path(f"{i}.jpg"), caption=text)
        for r, (i, text) in enumerate(pairs)
    ]


def test_diversity_is_that_of_the_first_captions_alone() -> None:
    roster = samples(REFERENCES)
    best = Diversity(most=2).score(CAPTIONS, roster)
    cut = {image_id: group[:2] for image_id, group in CAPTIONS.items()}
    assert best == Diversity().score(cut, roster)
    assert best.settings["num_captions"] == 6
    assert best.corpus["uniqueness"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert Diversity().score(CAPTIONS, roster).settings["num_captions"] == 12


def test_training_captions_say_what_is_novel_and_how_words_weigh() -> None:
    training = SimpleNamespace(samples=samples(REFERENCES | {"4": ["A hat!", "a brown horse"]}))
    found = Diversity(training=training).score(CAPTIONS, samples(REFERENCES))
    # known: "a man on a horse" twice, "a brown horse", "a hat", "the dog runs"
    assert found.corpus["novel-sentences"] == 12 - 5
    assert found.settings["cider_statistics"]["source"] == "the training captions"
    alone = Diversity().score(CAPTIONS, samples(REFERENCES))
    assert "novelty" not in alone.corpus
    assert alone.settings["cider_statistics"]["source"] == "the references"


def test_oracle_scores_have_names_of_their_own() -> None:
    found = Oracle(metrics=["BLEU", "CIDEr-D"], tokenizer="python").score(
        CAPTIONS, samples(REFERENCES)
    )
    assert {"oracle BLEU-4", "oracle corpus BLEU-4", "oracle CIDEr-D"} <= found.corpus.keys()
    assert found.per_image["1"]["oracle CIDEr-D"] > 0
    assert all(name.startswith("oracle ") for name in found.corpus)
