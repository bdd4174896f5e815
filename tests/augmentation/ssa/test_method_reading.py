"""What the method reads before the first photo: graphs and word vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from torch import Tensor

from augmentation.ssa.amr_models import AbstractGraphWriter
from augmentation.ssa.method import UNREADABLE
from captioning.data.roster import Roster, build_roster
from captioning.interfaces import AbstractWordVectors
from captioning.text.word_tables import build_token_table
from captioning.types import Phrase
from tests.augmentation.ssa.conftest import Known, ssa


def test_captions_whose_not_is_lost_make_none(roster: Roster):
    caption = "A boy not in a red hat rides a brown horse."
    boy = (Phrase(start=2, text="boy", chain_id="boy", regions=(0,)),)
    samples = [replace(sample, caption=caption, phrases=boy) for sample in roster.samples]
    method = ssa()
    method.rules = replace(method.rules, grounded=False)
    photos = list(method.captions(build_roster("toy/train", samples)))
    assert [photo.captions for photo in photos] == [[]] * 3
    assert [photo.refused[UNREADABLE] for photo in photos] == [2] * 3


class CountingVectors(AbstractWordVectors):
    """Vectors that count the calls with new words, as each reads a file."""

    def __init__(self) -> None:
        self.table, self.known, self.reads = build_token_table(), set[str](), 0
        self.name = "counting"

    def vectors(self, words: Sequence[str]) -> Tensor:
        self.reads += bool(set(words) - self.known)
        self.known |= set(words)
        return self.table.vectors(words)


@pytest.mark.parametrize(("writer", "reads"), [(None, 1), (Known(), 2)])
def test_word_vectors_are_read_at_once(
    roster: Roster, writer: AbstractGraphWriter | None, reads: int
):
    method = ssa(graph_writer=writer)
    vectors = CountingVectors()
    method._similarity._vectors = vectors
    assert list(method.captions(roster))
    assert vectors.known >= {"boy", "horse", "ride", "hat"}
    assert vectors.reads <= reads  # one more for new words ("cat") of a writer
