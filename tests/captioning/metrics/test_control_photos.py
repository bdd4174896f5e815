"""Scores of control on real captions, with the packaged parser and table of vectors."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from captioning.metrics.control import ControlledCaption, ControlScores, score_control
from captioning.metrics.detection import area_under_roc
from captioning.metrics.noun_overlap import find_nouns
from captioning.text.parser import build_caption_parser
from captioning.text.word_tables import build_token_table


@pytest.fixture(scope="module")
def captions(shared_data: Path) -> list[list[str]]:
    """Captions of 150 photos of Flickr8k's test split, five each."""
    folder = shared_data / "flickr8k"
    photos = set((folder / "Flickr_8k.testImages.txt").read_text().split())
    captions_by_image: dict[str, list[str]] = {}
    for line in (folder / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        key, caption = line.split("\t")
        if key.partition("#")[0] in photos:
            captions_by_image.setdefault(key.partition("#")[0], []).append(caption)
    return list(islice(captions_by_image.values(), 150))


@pytest.mark.long
def test_captions_agree_with_the_nouns_of_their_own_photo(captions: list[list[str]]) -> None:
    parser, vectors = build_caption_parser(), build_token_table()
    requested = [find_nouns(parse) for parse in parser.parse([group[0] for group in captions])]
    named = [number for number, nouns in enumerate(requested) if nouns]
    assert len(named) > 140

    def score(sentences: list[str]) -> ControlScores:
        samples = [
            ControlledCaption(
                sample_id=str(n), image_id=str(n), caption=sentences[n], nouns=requested[n]
            )
            for n in named
        ]
        return score_control(samples, parser=parser, vectors=vectors)

    perfect = score([group[0] for group in captions]).corpus
    assert {name: perfect[name] for name in ("IoU", "Hal")} == pytest.approx(
        {"IoU": 1, "Hal": 0}, abs=1e-6
    )
    same = score([group[1] for group in captions])
    other = score([group[1] for group in [*captions[1:], captions[0]]])
    assert same.corpus["IoU"] > other.corpus["IoU"] + 0.1
    assert same.corpus["Hal"] < other.corpus["Hal"] - 0.1
    columns = [[row["IoU"] for row in scores.per_caption.values()] for scores in (same, other)]
    truth = [True] * len(named) + [False] * len(named)
    assert area_under_roc(columns[0] + columns[1], truth) > 0.85
