"""Settings of pseudo-labels that make no sense; what they do is tested in whole runs."""

from __future__ import annotations

import pytest

from captioning.data.roster import CurationView, build_roster
from curation.amend.pseudo_label import PseudoLabel
from curation.base import Selected
from tests.contracts.test_policies import make_context


def test_a_search_is_needed_and_its_constraints() -> None:
    with pytest.raises(ValueError, match="need a search: give constrained, plain or both"):
        PseudoLabel()
    with pytest.raises(ValueError, match="constrained search needs constraints"):
        PseudoLabel(constrained=lambda: None)


def test_the_captioner_must_be_known() -> None:
    context = make_context()
    first = [Selected(sample=context.live[0], reason="")]
    with pytest.raises(ValueError, match="photo 0 has 4 samples for 1 pseudo-labels"):
        PseudoLabel(plain=lambda: None).amend(context, first)
    alone = CurationView(roster=build_roster("one", [context.live[0], context.live[4]]))
    with pytest.raises(RuntimeError, match=r"need attach\(trainer, module\)"):
        PseudoLabel(plain=lambda: None).amend(make_context(alone), first)
