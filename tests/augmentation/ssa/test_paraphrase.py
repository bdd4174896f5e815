"""Captions in other words keep their boxes; what the language model does wrong is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from augmentation.captions.caption_set import write_captions
from augmentation.ssa.paraphrase import PHOTOS_AT_ONCE, Paraphrase, transfer_phrases
from augmentation.writing.acceptance import COPY, REFUSAL
from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import TIMED_OUT, AbstractWriter, Answer
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.added_captions import read_added_captions
from captioning.types import Phrase, Region, Sample

CAPTION = "A boy in a red hat rides a horse."


class Changing(AbstractWriter):
    """Says "kid" for "boy"; the second of three answers is a copy, the third declines."""

    def __init__(self, *, dies_at: int = -1) -> None:
        self.calls, self.dies_at, self.seeds = 0, dies_at, []

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        if self.calls == self.dies_at:
            raise ConnectionError("gone")
        self.calls += 1
        self.seeds.append(seed)
        reply_texts = [
            (prompt.question.replace("boy", "kid"), prompt.question, "Sorry, I cannot do that.")
            for prompt in prompts
        ]
        return [Answer(text=texts[number % 3]) for number, texts in enumerate(reply_texts)]


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    samples = []
    regions = (Region(box=(0, 0, 20, 40), label="boy"), Region(box=(5, 0, 10, 5), label="hat"))
    for number in range(PHOTOS_AT_ONCE + 3):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (100, 100), (number, 0, 0)).save(path)
        for key in range(3):
            caption = f"{CAPTION[:-1]} number {'x' * (number + 1)}."
            phrases = (
                Phrase(start=0, text="A boy", chain_id="1", regions=(0,)),
                Phrase(start=9, text="a red hat", chain_id="2", regions=(1,)),
            )
            samples.append(
                Sample(row=0, sample_id=f"{number}#{key}", image_id=str(number), image_path=path,
                       caption=caption, regions=regions, phrases=phrases)
            )  # fmt: skip
    return build_roster("toy/train", samples)


def test_a_paraphrase_has_the_boxes_of_its_caption(roster: Roster, tmp_path: Path) -> None:
    counts = write_captions(
        Paraphrase(writer=Changing()), folder=tmp_path / "out", roster=roster, settings={}
    )
    photos = len(roster.rows_by_image)
    assert counts["captions"] == photos
    assert counts["left out"] == {COPY: photos, REFUSAL: photos}
    captions = read_added_captions(tmp_path / "out", roster)
    assert all("kid" in sample.caption for sample in captions)
    for sample in captions:
        hat, boy = sample.phrases  # no word of "a boy" is left: it stands for the whole text
        assert (hat.text, hat.regions) == ("hat", (1,))
        assert (boy.text, boy.regions) == (sample.caption, (0,))


def test_a_killed_set_goes_on_to_the_same_bytes(roster: Roster, tmp_path: Path) -> None:
    uninterrupted, later = Changing(), Changing()
    write_captions(
        Paraphrase(writer=uninterrupted), folder=tmp_path / "a", roster=roster, settings={}
    )
    with pytest.raises(ConnectionError):
        write_captions(
            Paraphrase(writer=Changing(dies_at=1)),
            folder=tmp_path / "b", roster=roster, settings={},
        )  # fmt: skip
    part = tmp_path / "b" / "captions.part.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:5]))  # in the midst of what is asked at once
    write_captions(Paraphrase(writer=later), folder=tmp_path / "b", roster=roster, settings={})
    assert (tmp_path / "a" / "captions.jsonl").read_bytes() == (
        tmp_path / "b" / "captions.jsonl"
    ).read_bytes()
    assert later.seeds == uninterrupted.seeds


def test_phrases_are_found_once_and_in_order() -> None:
    phrases = [
        Phrase(start=0, text="two dogs", chain_id="1", regions=(0,)),
        Phrase(start=9, text="other dogs", chain_id="2", regions=(1,)),
        Phrase(start=20, text="the sea", chain_id="3", regions=(2,)),
    ]
    moved = transfer_phrases(phrases, "By the sea Dogs play with dogs.")
    assert [(p.start, p.text, p.regions) for p in moved] == [
        (7, "sea", (2,)),
        (11, "Dogs", (0,)),
        (26, "dogs", (1,)),
    ]
    assert transfer_phrases((), "A dog.") == ()


class Busy(Changing):
    """Fails in some calls, at the first of their prompts or at all."""

    def __init__(self, *, fails_at: Sequence[int], number: int = 1) -> None:
        super().__init__()
        self.fails_at, self.number = fails_at, number

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        fails = self.calls in self.fails_at
        answers = super().answers(prompts, seed=seed)
        failures = [Answer(problem=TIMED_OUT)] * min(self.number, len(answers))
        return [*failures, *answers[self.number :]] if fails else answers


def test_a_set_goes_on_behind_a_busy_server(roster: Roster, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.raises(ConnectionError, match=r"failed on all \d+ prompts .*run the command again"):
        write_captions(
            Paraphrase(writer=Busy(fails_at=[1], number=99)),
            folder=folder, roster=roster, settings={},
        )  # fmt: skip
    assert not (folder / "captions.jsonl").exists()
    counts = write_captions(
        Paraphrase(writer=Changing()), folder=folder, roster=roster, settings={}
    )
    assert counts["captions"] == len(roster.rows_by_image)


def test_a_prompt_that_the_model_fails_at_ends_no_set(roster: Roster, tmp_path: Path) -> None:
    counts = write_captions(
        Paraphrase(writer=Busy(fails_at=[0])),
        folder=tmp_path / "out", roster=roster, settings={},
    )  # fmt: skip
    assert counts["captions"] == len(roster.rows_by_image) - 1
    assert counts["left out"][TIMED_OUT] == 1


def test_the_last_prompt_of_a_set_may_fail_alone(roster: Roster, tmp_path: Path) -> None:
    photos = list(roster.rows_by_image.values())[: PHOTOS_AT_ONCE + 1]
    last = build_roster("last", [roster.samples[rows[0]] for rows in photos])
    counts = write_captions(
        Paraphrase(writer=Busy(fails_at=[1])),
        folder=tmp_path / "out", roster=last, settings={},
    )  # fmt: skip
    assert counts["captions"]
    assert counts["left out"][TIMED_OUT] == 1


def test_nothing_made_says_so(roster: Roster, tmp_path: Path) -> None:
    class Silent(Changing):
        def answers(self, prompts, *, seed):
            return [Answer(problem="the model declined") for _ in prompts]

    with pytest.raises(ValueError, match="no caption was made; reasons: .*the model declined"):
        write_captions(
            Paraphrase(writer=Silent()), folder=tmp_path / "x", roster=roster, settings={}
        )
    line = json.loads((tmp_path / "x" / "captions.part.jsonl").read_text().splitlines()[0])
    assert line["refused"] == {"the model declined": 3}
