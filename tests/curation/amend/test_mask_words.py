"""Words in doubt are masked, stay so, and come back with an undo or another caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster, masks_text, parse_masks
from captioning.types import Edit, MaskedSpan, Sample
from curation.adapters.curation import Curation
from curation.amend.mask_words import MaskWords
from curation.base import Context, Selected, WordDoubt
from curation.journal.journal import undo
from curation.loop.policy import Policy
from curation.select.above import Above
from curation.select.random import Random
from tests.curation.toy_words import ToyWords

CAPTIONS = ("a red dog and a red ball", "two dogs", "a blue bird")
RIVALS = {"red": ("brown", 0.9), "two": ("three", 0.6), "blue": ("black", 0.3)}


def colours() -> ToyWords:
    return ToyWords(RIVALS)


def make_view(captions: Sequence[str] = CAPTIONS) -> CurationView:
    samples = [
        Sample(row=0, sample_id=name, image_id=name, image_path=Path(name), caption=caption)
        for name, caption in zip("abcdef", captions, strict=False)
    ]
    return CurationView(roster=build_roster("masks", samples))


def context_of(view: CurationView) -> Context:
    number = len(view.roster)
    return Context(view=view, losses=torch.zeros(number), history=torch.zeros(1, number), epoch=0)


def everything(view: CurationView) -> list[Selected]:
    return [Selected(sample=sample, reason="bad") for sample in view.samples()]


def mask(sample_id: str, value: str, epoch: int = 0) -> Edit:
    return Edit(sample_id=sample_id, action="mask_words", value=value, policy="p", epoch=epoch)


def test_words_in_enough_doubt_are_masked_and_named() -> None:
    view, amend = make_view(), MaskWords(score=colours(), weight=0.2)
    amended = amend.amend(context_of(view), everything(view))
    assert [(e.sample_id, e.value) for e in amended.edits] == [
        ("a", "2-5:0.2,16-19:0.2"),
        ("b", "0-3:0.2"),
    ]
    assert amended.edits[1].reason == "bad; 'two' is likely 'three' (0.60)"
    assert amended.unchanged == ("c",)
    assert amended.notes == ("left alone: no word in enough doubt",)
    after = view.apply(amended.edits)
    assert after.samples()[1].masks == (MaskedSpan(start=0, stop=3, weight=0.2),)
    assert [s.caption for s in after.samples()] == list(CAPTIONS)
    again = amend.amend(context_of(after), everything(after))
    assert again.edits == ()
    assert again.unchanged == ("a", "b", "c")


def test_what_was_masked_before_stays_so_beside_new_words() -> None:
    view = make_view().apply([mask("a", "1-4:0.5")])  # in part the first "red"
    (edit,) = MaskWords(score=colours()).amend(context_of(view), everything(view)[:1]).edits
    assert edit.value == "1-4:0.5,16-19"


def test_of_words_that_overlap_the_surest_is_masked_and_beside_it_any() -> None:
    class Spans(ToyWords):
        def doubts(self, context: Context) -> list[WordDoubt]:
            sure = {(0, "a red"): 0.6, (2, "red dog"): 0.9, (9, " and"): 0.7}
            fields = {"row": 0, "alternative": "x", "log_odds": 1.0}
            return [
                WordDoubt(start=start, word=word, probability=probability, **fields)
                for (start, word), probability in sure.items()
            ]

    view = make_view()
    (edit,) = MaskWords(score=Spans({})).amend(context_of(view), everything(view)).edits
    assert edit.value == "2-9,9-13"


def test_the_selectors_score_is_asked() -> None:
    policy = Policy(
        select=Above(threshold=0.5, score=colours()), amend=MaskWords(threshold=0.95), name="p"
    )
    policy.amend.start(make_view())
    decision = policy.deliberate(context_of(make_view()))
    assert len(decision.selected) == len(decision.unchanged) == 3
    own = MaskWords(score=colours())
    expected, policy = own.score, Policy(select=Above(threshold=0), amend=own, name="p")
    assert policy.amend.score is expected


def test_without_a_score_of_words_training_does_not_begin() -> None:
    for select in (Above(threshold=0), Random(ratio=0.5)):
        policy = Policy(select=select, amend=MaskWords(), name="p")
        with pytest.raises(ValueError, match=r"choose curation/score=words"):
            policy.amend.start(make_view())


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weight must be below 1"):
        MaskWords(weight=1)
    with pytest.raises(ValueError, match=r"threshold must be a fraction"):
        MaskWords(threshold=1.5)


def test_records_of_other_captions_are_refused() -> None:
    class Late(ToyWords):
        def doubts(self, context: Context) -> list[WordDoubt]:
            return [replace(doubt, start=doubt.start + 1) for doubt in super().doubts(context)]

    class Empty(ToyWords):
        def doubts(self, context: Context) -> list[WordDoubt]:
            return [replace(doubt, word="") for doubt in super().doubts(context)]

    view = make_view()
    with pytest.raises(
        ValueError, match=r"doubts 'red' at character 3 of 'a'.*score the present captions"
    ):
        MaskWords(score=Late(RIVALS)).amend(context_of(view), everything(view))
    with pytest.raises(ValueError, match=r"doubts '' at character 2 of 'a'"):
        MaskWords(score=Empty(RIVALS)).amend(context_of(view), everything(view))


def test_another_caption_has_no_masks_and_another_photo_keeps_them() -> None:
    view = make_view().apply([mask("a", "2-5"), mask("b", "0-3")])
    new_caption = Edit(sample_id="a", action="replace_caption", value="a dog", epoch=1)
    new_photo = Edit(sample_id="b", action="replace_image", value="new.png", epoch=1)
    after = view.apply([new_caption, new_photo])
    assert [sample.masks for sample in after.samples()][:2] == [(), parse_masks("0-3")]
    assert after.apply([mask("a", "2-5:0.25", epoch=2)]).samples()[0].masks[0].weight == 0.25


def test_undoing_the_later_masks_brings_the_earlier_ones_back() -> None:
    view = make_view().apply([mask("a", "2-5"), mask("b", "0-3"), mask("a", "16-19", epoch=1)])
    assert masks_text(view.samples()[0].masks) == "16-19"
    for epochs, left in (([1], "2-5"), ([0], "")):
        rest = undo(view.journal, epochs=epochs).journal
        assert masks_text(make_view().apply(rest).samples()[0].masks) == left


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("red", r"edit 1 \(line 2\): masked words of 'b': .* such as 12-17,30-34:0.2: got 'red'"),
        ("0-3:1", r"weight of a masked span must be in \[0, 1\): got 1.0"),
        ("3-3", r"0 <= start < stop: got 3-3"),
        ("0-3,2-5", r"in order and not overlap: got 0-3,2-5"),
        ("4-9", r"'b': 4-9 ends outside of the caption, which has 8 characters: 'two dogs'"),
        (" ", "mask_words of 'b' needs a value"),
        ("0-3:nan", "START-STOP:WEIGHT"),
    ],
)
def test_spans_that_are_none_are_refused(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_view().apply([mask("b", value)])


@pytest.mark.parametrize("value", ["0-3", "0-1,2-3:0.25,3-4:1e-05", "0-4:0.123457"])
def test_spans_are_written_as_they_are_read(value: str) -> None:
    assert masks_text(parse_masks(value)) == value


def test_other_loops_refuse_to_mask(tmp_path: Path) -> None:
    policy = Policy(select=Random(ratio=0.5), amend=MaskWords(score=colours()), name="p")
    with pytest.raises(ValueError, match=r"'p' masks words in the loss, which another loop"):
        Curation.open(tmp_path, samples=make_view().roster, policy=policy)
