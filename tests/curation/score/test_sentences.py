"""Sentences are compared with the others of their caption, by any scorer of pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from captioning.data.roster import CurationView, build_roster
from captioning.types import UNPAIRED, Sample
from curation.base import Context
from curation.score.sentences import SentenceFit, SentenceJoint, SentenceLoss
from tests.curation.toy_words import ToySentences

CAPTIONS = ("One 1. Two 5. Three 3.", "Alone 9.", "Four 4. Six 6.")


class Numbers:
    """The probability of a match is the text's number, in tenths."""

    name, is_probability = "numbers", True

    def __init__(self) -> None:
        self.released = 0

    def scores(self, pairs) -> Tensor:
        return torch.tensor([int(text.split()[1].rstrip(".")) / 10 for _, text in pairs])

    def release(self) -> None:
        self.released += 1


def make_context(captions=CAPTIONS, **options) -> Context:
    samples = [
        Sample(row=0, sample_id=name, image_id=name, image_path=Path(name), caption=text, **options)
        for name, text in zip("abc", captions, strict=True)
    ]
    view = CurationView(roster=build_roster("sentences", samples))
    return Context(view=view, losses=torch.zeros(3), history=torch.zeros(1, 3), epoch=0)


def test_fit_is_compared_within_the_caption_and_single_sentences_with_nothing() -> None:
    pairs, context = Numbers(), make_context()
    own = SentenceFit(pairs=pairs, within_caption=False)
    assert own.name == "1 - numbers of a sentence"
    assert [round(d.suspicion, 3) for d in own.doubts(context)] == [0.9, 0.5, 0.7, 0.1, 0.6, 0.4]
    within = SentenceFit(pairs=pairs)
    assert within.name == "1 - numbers of a sentence above its caption's others"
    doubts = within.doubts(context)
    assert [d.sentence for d in doubts] == ["One 1.", "Two 5.", "Three 3.", "Four 4.", "Six 6."]
    assert [round(d.suspicion, 3) for d in doubts] == [0.3, -0.3, 0.0, 0.2, -0.2]
    torch.testing.assert_close(
        within.scores(context), torch.tensor([0.3, torch.nan, 0.2]), equal_nan=True
    )
    assert pairs.released == 3
    assert within.doubts(make_context(origin=UNPAIRED)) == []


def test_losses_that_nobody_measured_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sentence_loss needs the loss of each sentence, which"):
        SentenceLoss().doubts(make_context())
    with pytest.raises(ValueError, match="num_epochs must be at least 1: got 0"):
        SentenceLoss(num_epochs=0)


def test_a_joint_score_needs_parts_and_weights_of_their_names() -> None:
    part = ToySentences({})
    with pytest.raises(ValueError, match=r"needs at least two parts: got \['a'\]"):
        SentenceJoint(parts={"a": part})
    with pytest.raises(ValueError, match=r"each of \['a', 'b'\] needs one positive weight"):
        SentenceJoint(parts={"a": part, "b": part}, weights={"a": 1.0})
