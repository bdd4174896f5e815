"""Settings of pseudo-labels that make no sense; what they do is tested in whole runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from captioning.data.roster import CurationView, build_roster
from captioning.types import Prediction, Sample
from curation.amend.pseudo_label import PseudoLabel
from curation.base import Selected
from tests.contracts.test_policies import make_context


def test_a_search_is_needed_and_its_constraints() -> None:
    with pytest.raises(ValueError, match="need a search: give constrained, plain or both"):
        PseudoLabel()
    with pytest.raises(ValueError, match="constrained search needs constraints"):
        PseudoLabel(constrained=lambda: None)


def both() -> PseudoLabel:
    return PseudoLabel(constrained=lambda: None, plain=lambda: None, constraints=lambda _: None)


def test_searches_take_turns_over_the_samples_of_a_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def write(self: PseudoLabel, kind: str, samples: Sequence[Sample]) -> dict[str, Prediction]:
        requests.append((kind, [sample.sample_id for sample in samples]))
        return {s.image_id: Prediction(image_id=s.image_id, caption=kind) for s in samples}

    monkeypatch.setattr(PseudoLabel, "_write", write)
    context = make_context()
    photo = [Selected(sample=sample, reason="") for sample in map(context.live.get, range(4))]
    edits = both().amend(context, photo).edits
    assert [edit.value for edit in edits] == ["constrained", "plain"] * 2
    names = [candidate.sample.sample_id for candidate in photo]
    assert requests == [("constrained", names[::2]), ("plain", names[1::2])]


def test_the_captioner_must_be_known() -> None:
    context = make_context()
    alone = CurationView(roster=build_roster("one", [context.live[0], context.live[4]]))
    selected = [Selected(sample=context.live[0], reason="")]
    with pytest.raises(ValueError, match=r"1 samples for 2 .*: steps.hold_out.samples_per_photo"):
        both().amend(make_context(alone), selected)
    with pytest.raises(RuntimeError, match=r"need attach\(trainer, module\)"):
        PseudoLabel(plain=lambda: None).amend(make_context(alone), selected)
