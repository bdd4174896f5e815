"""``curation=recommended``: how many captions are wrong is estimated from the set itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from captioning.config.compose import compose_config
from captioning.data.roster import CurationView, Roster, build_roster
from captioning.types import Sample
from curation import Curation
from curation.amend.remove import Remove
from curation.base import Context
from curation.loop.policy import Policy, Schedule
from curation.score.fit import Fit
from curation.select.above import Above

DIM = 24
THRESHOLD = 0.3  # of curation=recommended


class Numbers:
    """A space in which a photo and a caption are alike where they hold the same number.

    Args:
        noise: share of random values in each vector; 1: nothing is told.
    """

    space = identity = "numbers"

    def __init__(self, noise: float = 0.3) -> None:
        self.noise = noise

    def _vectors(self, numbers: Sequence[int], seeds: Sequence[int]) -> Tensor:
        rows = []
        for number, seed in zip(numbers, seeds, strict=True):
            own, other = np.random.default_rng(number), np.random.default_rng(10_000 + seed)
            rows.append(
                (1 - self.noise) * own.normal(size=DIM) + self.noise * other.normal(size=DIM)
            )
        return normalize(torch.tensor(np.array(rows), dtype=torch.float32), dim=-1)

    def embed_photos(self, photos: Sequence[Image.Image]) -> Tensor:
        pixels = [photo.getpixel((0, 0)) for photo in photos]
        numbers = [red + 256 * green for red, green, _ in pixels]
        return self._vectors(numbers, numbers)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        found = [re.findall(r"\d+", text) for text in texts]
        return self._vectors([int(n) for n, _ in found], [int(n) * 7 + int(k) for n, k in found])


def photos_in(folder: Path, number: int, per_photo: Sequence[int]) -> list[Sample]:
    samples = []
    for image in range(number):
        path = folder / f"{image}.png"
        colour = (image % 256, image // 256, 0)
        Image.new("RGB", (40, 40), colour).save(path)
        samples += [
            Sample(
                row=0,
                sample_id=f"{image}#{own}",
                image_id=str(image),
                image_path=path,
                caption=f"photo {image} in words {own}",
            )
            for own in range(per_photo[image % len(per_photo)])
        ]
    return samples


def swapped(samples: list[Sample], share: float) -> tuple[Roster, set[str]]:
    """Captions exchanged between photos, and the ids of those that are wrong now."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(samples))[: round(share * len(samples))].tolist()
    wrong = set()
    changed = list(samples)
    for row, other in zip(rows, [*rows[1:], *rows[:1]], strict=True):
        if samples[row].image_id != samples[other].image_id:
            changed[row] = replace(samples[row], caption=samples[other].caption)
            wrong.add(samples[row].sample_id)
    return build_roster("numbers", changed), wrong


def selected(roster: Roster, score: Fit) -> set[str]:
    context = Context.before_training(CurationView(roster=roster), seed=0)
    return {c.sample.sample_id for c in Above(threshold=THRESHOLD, score=score).select(context)}


@pytest.mark.long
@pytest.mark.parametrize("per_photo", [(5,), (1,), (1, 4)], ids=["several", "single", "mixed"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_about_as_many_are_selected_as_are_wrong(tmp_path: Path, per_photo, share) -> None:
    roster, wrong = swapped(photos_in(tmp_path, 150, per_photo), share)
    found = selected(roster, Fit(space=Numbers()))
    assert len(found & wrong) >= 0.8 * len(found)
    assert len(found & wrong) >= 0.7 * len(wrong)


@pytest.mark.long
@pytest.mark.parametrize("per_photo", [(5,), (1,), (1, 4)], ids=["several", "single", "mixed"])
def test_hardly_anything_is_selected_where_nothing_is_wrong(tmp_path: Path, per_photo) -> None:
    roster, _ = swapped(photos_in(tmp_path, 150, per_photo), 0.0)
    assert len(selected(roster, Fit(space=Numbers()))) <= 0.01 * len(roster)


def test_a_space_that_tells_nothing_selects_nothing(tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO")
    roster, _ = swapped(photos_in(tmp_path, 60, (1,)), 0.2)
    assert selected(roster, Fit(space=Numbers(noise=1.0))) == set()
    assert "so nothing is flagged" in caplog.text


def test_a_few_photos_are_left_alone(tmp_path: Path) -> None:
    roster, _ = swapped(photos_in(tmp_path, 12, (3,)), 0.2)
    assert selected(roster, Fit(space=Numbers())) == set()


def test_removed_captions_have_no_score_and_the_others_keep_theirs(tmp_path: Path) -> None:
    roster, wrong = swapped(photos_in(tmp_path, 60, (5,)), 0.1)
    view = CurationView(roster=roster)
    context = Context.before_training(view, seed=0)
    score = Fit(space=Numbers())
    before = score.scores(context)
    chosen = Above(threshold=THRESHOLD, score=score).select(context)
    after = view.apply(Remove().amend(context, chosen).edits)
    scores = score.scores(Context.before_training(after, seed=0))
    gone = [roster.by_id[c.sample.sample_id].row for c in chosen]
    assert torch.isnan(scores[gone]).all()
    kept = [row for row in range(len(roster)) if row not in gone]
    torch.testing.assert_close(scores[kept], before[kept], rtol=0, atol=0)
    assert wrong


def test_a_loop_of_ones_own_begins_without_them(tmp_path: Path) -> None:
    roster, wrong = swapped(photos_in(tmp_path, 60, (1, 4)), 0.2)
    policy = Policy(
        select=Above(threshold=THRESHOLD, score=Fit(space=Numbers())),
        amend=Remove(),
        schedule=Schedule(from_epoch=-1, until_epoch=-1),
        name="recommended",
    )
    curation = Curation.open(tmp_path / "run", samples=roster, policy=policy)
    left = {sample.sample_id for sample in curation.samples()}
    assert curation.first_epoch == 0
    assert len(wrong - left) >= 0.7 * len(wrong)
    assert len(left) >= 0.75 * len(roster)
    curation.finish()


def test_no_space_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an embedding space of photos and texts"):
        Fit(space="none")


def test_the_policy_acts_once_before_training() -> None:
    config = compose_config("train", ["curation=recommended"])
    assert config.curation.schedule.from_epoch == config.curation.schedule.until_epoch == -1
    assert config.curation.select.threshold == THRESHOLD
    assert config.curation.score.space == "joint_space"
