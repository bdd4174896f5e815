"""Words give way to surer ones; the journal tells where, and can be undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import Sample
from curation.amend.replace_word import ReplaceWord
from curation.base import AbstractWordScore, Context, Selected, WordDoubt
from curation.journal.journal import Header, read_journal, replay, undo, write_journal
from curation.journal.journal import encode as encoded
from curation.loop.policy import Policy
from curation.select.above import Above

CAPTIONS = ("A red ball", "two dogs", "nothing")


class Doubts(AbstractWordScore):
    """Records as given."""

    name = "doubts"

    def __init__(self, *doubts: WordDoubt) -> None:
        self._doubts = list(doubts)

    def scores(self, context):
        scores = torch.full((len(context.view.roster),), torch.nan)
        for doubt in self._doubts:
            scores[doubt.row] = doubt.log_odds
        return scores

    def doubts(self, context):
        return self._doubts


def doubt(row: int, start: int, word: str, alternative: str, probability: float) -> WordDoubt:
    fields = {"row": row, "start": start, "word": word, "alternative": alternative}
    return WordDoubt(**fields, log_odds=1.0, probability=probability)


RED = doubt(0, 2, "red", "orange", 0.9)
BALL = doubt(0, 6, "ball", "kite", 0.6)
TWO = doubt(1, 0, "two", "three", 0.3)


@pytest.fixture
def view() -> CurationView:
    samples = [
        Sample(row=0, sample_id=f"i#{k}", image_id="i", image_path=Path("i.jpg"), caption=text)
        for k, text in enumerate(CAPTIONS)
    ]
    return CurationView(roster=build_roster("toy", samples))


def context_of(view: CurationView) -> Context:
    return Context(view=view, losses=torch.zeros(3), history=torch.zeros(1, 3), epoch=-1)


def selected(view: CurationView) -> list[Selected]:
    return [Selected(sample=sample, reason="suspect") for sample in view.samples()]


def test_the_surest_word_is_replaced_and_others_stay(view):
    amended = ReplaceWord(score=Doubts(BALL, RED, TWO)).amend(context_of(view), selected(view))
    (edit,) = amended.edits
    assert (edit.action, edit.value) == ("replace_caption", "An orange ball")
    assert edit.origin == "word:2:red>orange"
    assert edit.reason == "suspect; 'red' is wrong with probability 0.90"
    assert amended.unchanged == ("i#1", "i#2")


def test_of_words_as_sure_the_one_of_the_higher_odds_is_replaced(view):
    ball = replace(BALL, probability=RED.probability, log_odds=2.0)
    for doubts in ((RED, ball), (ball, RED)):
        (edit,) = ReplaceWord(score=Doubts(*doubts)).amend(context_of(view), selected(view)).edits
        assert edit.value == "A red kite"


def test_a_caption_that_is_selected_again_counts_less_still(view):
    amend = ReplaceWord(score=Doubts(), factor=0.5)
    for weight in (0.5, 0.25):
        view = view.apply(amend.amend(context_of(view), selected(view)).edits)
        assert [sample.weight for sample in view.samples()] == [weight] * 3


def test_captions_without_a_sure_word_may_count_less(view):
    amend = ReplaceWord(score=Doubts(RED, TWO), factor=0.5)
    edits = amend.amend(context_of(view), selected(view)).edits
    assert [(edit.action, edit.value) for edit in edits[1:]] == [("down_weight", "0.5")] * 2
    low = ReplaceWord(score=Doubts(RED, TWO), threshold=0.3)
    assert [e.value for e in low.amend(context_of(view), selected(view)).edits] == [
        "An orange ball",
        "three dogs",
    ]


def test_a_policy_replays_and_undoes_its_edits(view, tmp_path):
    score = Doubts(RED, TWO)
    policy = Policy(
        select=Above(threshold=0, score=score), amend=ReplaceWord(), name="replace_word"
    )
    policy.amend.start(view)
    context = replace(context_of(view), epoch=0)
    edits = policy.decide(context)
    header = Header(roster="toy", fingerprint=view.roster.fingerprint)
    write_journal(tmp_path / "curation.jsonl", header, map(encoded, edits))
    again = replay(view.roster, tmp_path)
    assert [sample.caption for sample in again.samples()] == ["An orange ball", *CAPTIONS[1:]]
    assert undo(read_journal(tmp_path)[1], sample_ids=["i#0"]).journal == ()


def test_what_cannot_work_is_refused(view):
    with pytest.raises(ValueError, match="curation/score=words"):
        ReplaceWord().start(view)
    with pytest.raises(ValueError, match="threshold must be a fraction"):
        ReplaceWord(threshold=2)
    elsewhere = ReplaceWord(score=Doubts(doubt(0, 3, "red", "blue", 0.9)))
    with pytest.raises(ValueError, match="the doubted words of 'i#0' belong to another caption"):
        elsewhere.amend(context_of(view), selected(view))
