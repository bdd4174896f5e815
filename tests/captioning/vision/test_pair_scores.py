"""Scores of pairs are computed once, and again only where a pair changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from captioning.vision.pair_scores import PairScores


class Brightness:
    """Scores a pair by the photo's mean level and the caption's length; counts what it did."""

    is_probability, name = False, "brightness"

    def __init__(self, identity: str = "brightness") -> None:
        self.identity = identity
        self.photos: list[int] = []
        self.captions: list[str] = []
        self.stop_after: int | None = None

    def score_pairs(self, photos, captions, photo_of):
        if self.stop_after is not None and len(self.photos) >= self.stop_after:
            raise KeyboardInterrupt
        self.photos += [len(photos)]
        self.captions += captions
        levels = [np.asarray(photo).mean() for photo in photos]
        pairs = zip(captions, photo_of, strict=True)
        return torch.tensor([levels[p] + len(text) / 100 for text, p in pairs])


@pytest.fixture
def photos(tmp_path):
    paths = [tmp_path / f"{level}.png" for level in (10, 20, 30)]
    for path in paths:
        Image.new("RGB", (4, 4), (int(path.stem),) * 3).save(path)
    return paths


def pairs_of(photos):
    return [(path, f"{path.stem} {'x' * k}") for path in photos for k in range(1, 3)]


def test_a_pair_is_scored_once_and_kept_for_other_runs(photos, tmp_path):
    scorer, pairs = Brightness(), pairs_of(photos)
    first = PairScores(scorer=scorer, cache_folder=tmp_path / "cache", photos_at_once=2)
    scores = first.scores([*pairs, pairs[0]])
    assert scores[:-1].tolist() == pytest.approx([10.04, 10.05, 20.04, 20.05, 30.04, 30.05])
    assert scores[-1] == scores[0]
    assert (scorer.photos, len(scorer.captions)) == ([2, 1], 6)
    again = Brightness()
    second = PairScores(scorer=again, cache_folder=tmp_path / "cache")
    assert torch.equal(second.scores(pairs), scores[:-1])
    assert again.photos == []


def test_only_pairs_that_changed_are_scored_anew(photos, tmp_path):
    pairs = pairs_of(photos)
    PairScores(scorer=Brightness(), cache_folder=tmp_path / "cache").scores(pairs)
    Image.new("RGB", (5, 5), (90,) * 3).save(photos[1])
    pairs[0] = (photos[0], "another text")
    scorer = Brightness()
    scores = PairScores(scorer=scorer, cache_folder=tmp_path / "cache").scores(pairs)
    assert sorted(scorer.captions) == ["20 x", "20 xx", "another text"]
    assert scores[2] == pytest.approx(90.04)
    other = Brightness("other weights")
    PairScores(scorer=other, cache_folder=tmp_path / "cache").scores(pairs)
    assert len(other.captions) == 6


def test_copies_of_a_photo_are_scored_once(photos, tmp_path):
    copy = tmp_path / "copy.png"
    copy.write_bytes(photos[0].read_bytes())
    scorer = Brightness()
    scores = PairScores(scorer=scorer, photos_at_once=1)
    pairs = [(photos[0], "a dog"), (copy, "a dog"), (copy, "a cat!"), (photos[1], "a dog")]
    assert scores.scores(pairs).tolist() == pytest.approx([10.05, 10.05, 10.06, 20.05])
    assert scorer.captions == ["a dog", "a cat!", "a dog"]
    requested = []

    def elsewhere(records):
        requested.extend(records)
        yield [[0.5] * len(captions) for _, captions in records]

    filled = PairScores(scorer=Brightness(), cache_folder=tmp_path / "cache")
    filled.fill(pairs, elsewhere)
    assert requested == [(photos[0], ["a dog"]), (copy, ["a cat!"]), (photos[1], ["a dog"])]
    assert filled.scores(pairs).tolist() == [0.5] * 4


def test_a_stopped_scoring_goes_on(photos, tmp_path):
    scorer, pairs = Brightness(), pairs_of(photos)
    scorer.stop_after = 2
    stopped = PairScores(scorer=scorer, cache_folder=tmp_path / "cache", photos_at_once=1)
    with pytest.raises(KeyboardInterrupt):
        stopped.scores(pairs)
    file = next((tmp_path / "cache").glob("[!p]*/*.jsonl"))
    file.write_text(file.read_text()[:-5])  # what a kill leaves of the last line
    again = Brightness()
    PairScores(scorer=again, cache_folder=tmp_path / "cache").scores(pairs)
    assert again.captions == ["20 xx", "30 x", "30 xx"]


def test_what_cannot_be_scored_is_named(photos, tmp_path):
    scores = PairScores(scorer=Brightness())
    with pytest.raises(FileNotFoundError, match=r"gone\.png: no such photo"):
        scores.scores([(tmp_path / "gone.png", "a dog")])
    with pytest.raises(ValueError, match=r"10\.png: a blank caption cannot be scored"):
        scores.scores([(photos[0], " ")])
    broken = Brightness()
    broken.score_pairs = lambda photos, captions, photo_of: torch.tensor([1.0, torch.nan])
    with pytest.raises(ValueError, match=r"10\.png: brightness is nan for '10 xx'; try .*float32"):
        PairScores(scorer=broken).scores(pairs_of(photos)[:2])


def test_a_cache_that_cannot_be_written_is_named(photos, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError, match="set CAPTIONING_CACHE or paths.cache= to another"):
        PairScores(scorer=Brightness(), cache_folder=tmp_path / "cache").scores(pairs_of(photos))
