"""Sentences in doubt are masked or removed, one at a time, and come back with an undo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import MaskedSpan, Sample
from curation.amend.sentences import MaskSentences, RemoveSentences, removed_spans
from curation.base import Context, Selected, SentenceDoubt
from curation.journal.journal import undo
from curation.loop.policy import CurationPolicy
from curation.select.above import Above
from curation.select.random import Random
from tests.curation.toy_words import ToySentences

CAPTIONS = ("A dog runs. A cat sits. A bird sings.", "Two men talk. It rains.", "A red car")


DOUBTS = {"A dog": 1.0, "A cat": 3.0, "A bird": 2.0, "Two men": 0.5, "A red": 9.0}


def make_view(captions: Sequence[str] = CAPTIONS) -> CurationView:
    samples = [
        Sample(row=0, sample_id=name, image_id=name, image_path=Path(name), caption=caption)
        for name, caption in zip("abcdef", captions, strict=False)
    ]
    return CurationView(roster=build_roster("sentences", samples))


def context_of(view: CurationView) -> Context:
    number = len(view.roster)
    return Context(view=view, losses=torch.zeros(number), history=torch.zeros(1, number), epoch=0)


def everything(view: CurationView) -> list[Selected]:
    return [Selected(sample=sample, reason="bad") for sample in view.samples()]


def test_the_worst_sentence_is_masked_then_the_next_and_never_the_last() -> None:
    view, score = make_view(), ToySentences(DOUBTS)
    amend = MaskSentences(score=score, weight=0.2)
    assert score.scores(context_of(view)).tolist() == [3, 0.5, 9]
    amended = amend.amend(context_of(view), everything(view))
    assert [(e.sample_id, e.action, e.value) for e in amended.edits] == [
        ("a", "mask_words", "12-23:0.2"),
        ("b", "mask_words", "0-13:0.2"),
    ]
    assert amended.edits[0].reason == "bad; 'A cat sits.' (3)"
    assert amended.unchanged == ("c",)
    assert amended.notes == ("left alone: no other sentence would be left",)
    view = view.apply(amended.edits)
    assert view.samples()[0].masks == (MaskedSpan(start=12, stop=23, weight=0.2),)
    scores = score.scores(context_of(view))  # masked ones are in doubt no longer
    assert scores[0] == 2
    assert scores[1].isnan()
    again = amend.amend(context_of(view), everything(view))
    assert [(e.sample_id, e.value) for e in again.edits] == [("a", "12-23:0.2,24-37:0.2")]
    view = view.apply(again.edits)
    assert amend.amend(context_of(view), everything(view)).edits == ()


def test_removed_sentences_leave_the_caption_and_say_where_they_stood() -> None:
    view, score = make_view(), ToySentences(DOUBTS)
    amend = RemoveSentences(score=score, threshold=2.0, emptied="remove")
    amended = amend.amend(context_of(view), everything(view))
    assert [(e.sample_id, e.action, e.value, e.origin) for e in amended.edits] == [
        ("a", "replace_caption", "A dog runs.", "sentence:12-23,24-37"),
        ("c", "remove", None, "human"),
    ]
    assert amended.notes == ("left alone: no sentence in enough doubt",)
    assert [(s.start, s.stop) for s in removed_spans(amended.edits[0].origin)] == [
        (12, 23),
        (24, 37),
    ]
    assert removed_spans("sentence:of a model") == removed_spans("human") == ()
    after = view.apply(amended.edits)
    assert [sample.caption for sample in after.samples()] == ["A dog runs.", CAPTIONS[1]]
    assert score.scores(context_of(after))[0] == 1


def test_an_undo_brings_the_sentences_back() -> None:
    view, score = make_view(), ToySentences(DOUBTS)
    for amend in (MaskSentences(score=score), RemoveSentences(score=score)):
        after = view.apply(amend.amend(context_of(view), everything(view)).edits)
        assert after.samples() != view.samples()
        rest = undo(after.journal, sample_ids=["a"]).journal
        assert view.apply(rest).samples()[0] == view.samples()[0]
        assert view.apply(rest).samples()[1] == after.samples()[1]


def test_the_selectors_score_is_asked_and_its_signals_are_wanted() -> None:
    score = ToySentences(DOUBTS)
    policy = CurationPolicy(
        select=Above(threshold=2.5, score=score), amend=MaskSentences(), name="p"
    )
    policy.amend.start(make_view())
    decision = policy.deliberate(context_of(make_view()))
    assert [edit.sample_id for edit in decision.edits] == ["a"]
    for select in (Above(threshold=0), Random(ratio=0.5)):
        policy = CurationPolicy(select=select, amend=RemoveSentences(), name="p")
        with pytest.raises(
            ValueError, match=r"removing sentences needs .* curation/score=sentence_"
        ):
            policy.amend.start(make_view())


def test_wrong_settings_and_records_of_other_captions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weight must be below 1"):
        MaskSentences(weight=1)
    with pytest.raises(ValueError, match=r"emptied must be one of \('keep', 'remove'\): got 'x'"):
        RemoveSentences(emptied="x")  # pyright: ignore[reportArgumentType]

    class Late(ToySentences):
        def doubts(self, context: Context) -> list[SentenceDoubt]:
            return [SentenceDoubt(row=0, start=1, sentence="A dog runs.", suspicion=1.0)]

    view = make_view()
    with pytest.raises(ValueError, match=r"doubts 'A dog runs.' at character 1 of 'a', where"):
        MaskSentences(score=Late({})).amend(context_of(view), everything(view))
