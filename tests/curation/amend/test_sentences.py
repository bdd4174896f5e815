"""Sentences in doubt are masked or removed, one at a time, and come back with an undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import MaskedSpan, Sample
from curation.amend.sentences import (
    MaskSentences,
    RemoveSentences,
    ReplaceSentences,
    parse_origin,
    removed_spans,
)
from curation.base import Context, Selected, SentenceDoubt
from curation.journal.journal import undo
from curation.loop.policy import Policy
from curation.select.above import Above
from curation.select.random import Random
from tests.curation.toy_captions import ToyCaptions, ToyFit
from tests.curation.toy_words import ToySentences

CAPTIONS = ("A dog runs. A cat sits. A bird sings.", "Two men talk. It rains.", "A red car")


DOUBTS = {"A dog": 1.0, "A cat": 3.0, "A bird": 2.0, "Two men": 0.5, "A red": 9.0}


def make_view(captions: Sequence[str] = CAPTIONS, image: str = "") -> CurationView:
    samples = [
        Sample(
            row=0, sample_id=name, image_id=image or name, image_path=Path(name), caption=caption
        )
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
    source = ToyCaptions({"a": ["A cow."], "b": ["Three men talk."]})
    for amend in (
        MaskSentences(score=score),
        RemoveSentences(score=score),
        ReplaceSentences(score=score, source=source),
    ):
        after = view.apply(amend.amend(context_of(view), everything(view)).edits)
        assert after.samples() != view.samples()
        rest = undo(after.journal, sample_ids=["a"]).journal
        assert view.apply(rest).samples()[0] == view.samples()[0]
        assert view.apply(rest).samples()[1] == after.samples()[1]


def test_a_sentence_of_another_caption_takes_the_place() -> None:
    captions = ("A dog runs. A cat sits!", "Two men talk. a cat sits. It rains", "A red car.")
    view, amend = make_view(captions, image="photo"), ReplaceSentences(score=ToySentences(DOUBTS))
    amended = amend.amend(context_of(view), everything(view)[:1])
    (edit,) = amended.edits
    options = ("Two men talk.", "It rains!", "A red car.")
    assert edit.value in [f"A dog runs. {one}" for one in options]
    assert edit.reason == "bad; 'A cat sits!' (3)"
    told = parse_origin(edit.origin)
    assert told is not None
    assert (told.old[0].start, told.source[:8]) == (12, "sibling:")
    assert told.origin == edit.origin
    new = edit.value.removeprefix("A dog runs. ")
    assert told.pieces(captions[0], edit.value) == ["A dog runs. ", "A cat sits!", new, ""]
    assert told.pieces("Another caption.", edit.value) is None
    again = amend.amend(context_of(view), everything(view)[:1])
    assert again == amended
    drawn = {
        amend.amend(replace(context_of(view), seed=seed), everything(view)[:1]).edits[0].value
        for seed in range(20)
    }
    assert len(drawn) == 3
    # what is in doubt at the same time, or was there before, never comes in
    view = make_view(("A dog runs. A cat sits.", "A bird sings. Two men talk."), image="photo")
    both = ReplaceSentences(score=ToySentences({"A cat": 1.0, "A bird": 1.0}))
    for seed in range(8):
        edits = both.amend(replace(context_of(view), seed=seed), everything(view)).edits
        assert [edit.value for edit in edits] == ["A dog runs. Two men talk."] * 2
    view = view.apply(both.amend(context_of(view), everything(view)).edits)
    late = ReplaceSentences(score=ToySentences({"Two men": 1.0}))
    assert (
        late.amend(context_of(view), everything(view)).notes
        == ("left alone: no other sentence for it",) * 2
    )


def test_a_captioner_continues_the_sentences_before() -> None:
    view, score = make_view(("A dog runs. A cat sits. It rains. A bird sings.",)), None
    score = ToySentences(DOUBTS)
    source = ToyCaptions({"a": ["a dog runs. a cow eats. It snows.", "It hails. A man"]})
    amend = ReplaceSentences(score=score, source=source)
    (edit,) = amend.amend(context_of(view), everything(view)).edits
    assert source.calls == [["a"], ["A dog runs."], ["released"]]
    # the first sentence that is written is one that the caption has
    assert edit.value == "A dog runs. It hails. It rains. A bird sings."
    assert edit.origin == "sentence:12-23>12-21;model:toy"
    every = ReplaceSentences(score=score, source=source, threshold=2.0, continued=False)
    (edit,) = every.amend(context_of(view), everything(view)).edits
    assert edit.value == "A dog runs. A cow eats. It rains. It snows."
    assert edit.origin == "sentence:12-23>12-23,34-47>34-43;model:toy"
    told = parse_origin(edit.origin)
    assert told is not None
    assert told.pieces(view.samples()[0].caption, edit.value) == [
        *("A dog runs. ", "A cat sits.", "A cow eats."),
        *(" It rains. ", "A bird sings.", "It snows.", ""),
    ]
    source.calls.clear()
    both = ReplaceSentences(score=score, source=source, threshold=2.0)
    both.amend(context_of(view), everything(view))
    assert source.calls[1] == ["A dog runs.", "A dog runs. It rains."]


def test_a_sentence_comes_in_only_if_it_fits_better() -> None:
    view = make_view(("A dog runs 9 times. A cat sits 5 times.",))
    score = ToySentences({"A cat": 1.0})
    source = ToyCaptions({"a": ["A cow eats 6 times. An owl sees 8 times. A fox is 4 times."]})
    fit = ToyFit(word=-2)
    amend = ReplaceSentences(score=score, source=source, accept=fit, continued=False)
    (edit,) = amend.amend(context_of(view), everything(view)).edits
    assert edit.value == "A dog runs 9 times. An owl sees 8 times."
    worse = ToyCaptions({"a": ["A fox is 4 times."]})
    amend = ReplaceSentences(score=score, source=worse, accept=fit)
    assert amend.amend(context_of(view), everything(view)).unchanged == ("a",)


def test_the_selectors_score_is_asked_and_its_signals_are_wanted() -> None:
    score = ToySentences(DOUBTS)
    policy = Policy(select=Above(threshold=2.5, score=score), amend=MaskSentences(), name="p")
    policy.amend.start(make_view())
    decision = policy.deliberate(context_of(make_view()))
    assert [edit.sample_id for edit in decision.edits] == ["a"]
    for select in (Above(threshold=0), Random(ratio=0.5)):
        policy = Policy(select=select, amend=RemoveSentences(), name="p")
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
    with pytest.raises(ValueError, match=r"doubts 'A dog runs.' at character 1 of 'a', but"):
        MaskSentences(score=Late({})).amend(context_of(view), everything(view))
