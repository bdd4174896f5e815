"""What readers of annotation files share."""

from __future__ import annotations

import itertools

import pytest

from captioning.data.readers.entries import numbered, plain_captions

PLAIN = ["A dog.", "a", '2 dogs\' "toys"']
UNUSUAL = ["", " ", " a", "a ", "a  b", "a\tb", "a\nb", "a\x7f", "a\x1f", "caf\xe9", ".", "'a'"]
REFUSED = ["\0", "a\0", "\ud800", "\u200b"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_captions_looked_at_together_are_those_looked_at_one_by_one(number: int) -> None:
    chosen = [*PLAIN, *UNUSUAL, *REFUSED]
    for texts in itertools.product(chosen, repeat=number):
        together = plain_captions(texts)
        assert (together is not None) == set(PLAIN).issuperset(texts)
        if together is not None:
            assert together == numbered((text, "here") for text in texts)


@pytest.mark.parametrize("texts", [[], [None], ["a", 3], [["a"]]])
def test_captions_that_are_no_texts_are_left_to_be_looked_at(texts: list) -> None:
    assert plain_captions(texts) is None
