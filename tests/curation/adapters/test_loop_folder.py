"""What the folder of a loop says after it was begun anew, gone on with, or read again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from foreign import make_policy, make_roster
from PIL import Image
from plain_run import opened, run_epoch
from toy_source import ToySource

from captioning.data.roster import PlantedWord, build_roster, planted_origin
from captioning.types import Sample
from curation.amend.replace import ReplaceImage
from curation.amend.replace_word import ReplaceWord
from curation.base import AbstractWordScore, WordDoubt, highest
from curation.finished_run import read_run
from curation.loop.policy import Policy, Schedule
from curation.manifest import ROSTER_NAME, TRUTH_NAME
from curation.record import changes
from curation.review.edit_report import truth_facts
from curation.select.above import Above
from curation.select.share import Share


class Doubtful(AbstractWordScore):
    """Doubts the second word of the third caption."""

    name = "doubtful"

    def doubts(self, context):
        word = context.live[2].caption.split()[1]
        doubt = {"start": 2, "word": word, "alternative": "green", "log_odds": 3.0}
        return [WordDoubt(row=2, **doubt, probability=0.99)]

    def scores(self, context):
        return highest(self.doubts(context), len(context.view.roster))


def test_to_begin_anew_keeps_the_pictures_that_are_made_before_training(tmp_path):
    def begun(**options):
        policy = Policy(
            select=Share(ratio=0.5),
            amend=ReplaceImage(source=ToySource(folder=tmp_path / "source")),
            schedule=Schedule(from_epoch=-1, until_epoch=-1),
            name="pictures",
        )
        return opened(tmp_path / "run", policy=policy, **options)

    images = tmp_path / "run" / "curation" / "images"
    curation = begun()
    run_epoch(curation)
    curation.close()
    old = sorted(path.name for path in images.iterdir())
    curation = begun(first_epoch=0)
    new = {s.image_path for s in curation.samples() if s.image_path.parent == images}
    assert len(new) > 4
    assert all(path.is_file() for path in new)
    aside = tmp_path / "run" / "curation.old-1" / "images"
    assert sorted(path.name for path in aside.iterdir()) == old


@pytest.mark.parametrize("num_epochs", [0, 1])
def test_to_begin_anew_leaves_no_truth_of_the_old_run(tmp_path, num_epochs):
    first = opened(tmp_path, truth={"img2#1": "swap"})
    for _ in range(num_epochs):
        run_epoch(first)
    first.close()
    second = opened(tmp_path, first_epoch=0)
    run_epoch(second)
    second.finish()
    assert read_run(tmp_path).truth == {}
    assert (tmp_path / "curation.old-1" / TRUTH_NAME).is_file() == bool(num_epochs)


def test_a_wrongly_mended_word_is_read_again_as_one(tmp_path):
    samples = list(make_roster(num_images=2).samples)
    word = PlantedWord(start=2, wrong="red", right="blue")
    samples[2] = Sample(
        row=2,
        sample_id=samples[2].sample_id,
        image_id=samples[2].image_id,
        image_path=samples[2].image_path,
        caption="a red ball and a dog",
        origin=planted_origin("color", word),
    )
    policy = Policy(
        select=Above(threshold=0.5, score=Doubtful()),
        amend=ReplaceWord(threshold=0.9),
        schedule=Schedule(until_epoch=0),
        name="words",
    )
    curation = opened(tmp_path, samples=build_roster("toy", samples), policy=policy)
    curation.add(torch.arange(6), torch.ones(6))
    assert curation.end_epoch().record["detection"]["num_mended_wrong"] == 1
    curation.finish()
    record = read_run(tmp_path)
    assert record.view.roster.planted_words == {samples[2].sample_id: word}
    assert [change.mend for change in changes(record.view, record.truth)] == ["wrong"]
    (facts,) = truth_facts(record, list(changes(record.view, record.truth)))["kinds"]
    assert (facts["mended"], facts["mended_wrongly"]) == (0, 1)


def photos_in(folder: Path) -> list[dict[str, str]]:
    return [
        {"image": str(folder / f"{n // 2}.jpg"), "image_id": str(n // 2), "caption": f"a dog {n}"}
        for n in range(6)
    ]


def test_photos_that_were_moved_are_read_at_their_new_place(tmp_path):
    old, new, run = tmp_path / "old", tmp_path / "new", tmp_path / "run"
    old.mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8)).save(old / f"{number}.jpg")
    policy = make_policy(ratio=0.2)
    curation = opened(run, samples=photos_in(old), policy=policy)
    run_epoch(curation)
    curation.close()
    old.rename(new)
    curation = opened(run, samples=photos_in(new), policy=policy)
    curation.close()
    assert {s.image_path.parent for s in read_run(run).view.samples()} == {new}
    lines = (run / ROSTER_NAME).read_bytes()
    opened(run, samples=photos_in(Path("elsewhere")), policy=policy).close()
    assert (run / ROSTER_NAME).read_bytes() == lines  # no photo lies there
