"""The pool of captions: what was found bad is never seen again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.amend.remove import Remove
from curation.amend.replace import ReplaceCaption
from curation.base import Context, Selected


def make_view(sizes: list[int], *, doubles: bool = False) -> CurationView:
    samples = [
        Sample(
            row=0,
            sample_id=f"{image}#{k}",
            image_id=str(image),
            image_path=Path("x.jpg"),
            caption=f"{image} {k // 2 if doubles else k}",
        )
        for image, size in enumerate(sizes)
        for k in range(size)
    ]
    return CurationView(roster=build_roster("pools", samples))


def context_of(view: CurationView, epoch: int = 0, seed: int = 0) -> Context:
    losses = torch.zeros(len(view.roster))
    return Context(view=view, losses=losses, history=losses[None], epoch=epoch, seed=seed)


def selected_of(view: CurationView, ids: list[str]) -> list[Selected]:
    by_id = {sample.sample_id: sample for sample in view.samples()}
    return [Selected(sample=by_id[sample_id], reason="test") for sample_id in ids]


@st.composite
def histories(draw):
    """Image sizes, and for each epoch an amender and a choice of samples by number."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    choices = st.lists(st.integers(0, sum(sizes) - 1), unique=True, max_size=sum(sizes))
    epochs = draw(st.lists(st.tuples(st.booleans(), choices), max_size=5))
    return sizes, epochs, draw(st.booleans()), draw(st.integers(0, 5))


@given(histories())
def test_condemned_captions_never_come_back(history):
    sizes, epochs, doubles, seed = history
    view = make_view(sizes, doubles=doubles)
    condemned: set[str] = set()
    for epoch, (remove, numbers) in enumerate(epochs):
        live = view.samples()
        ids = [live[number].sample_id for number in numbers if number < len(live)]
        if remove and len(ids) == len(live):
            ids = ids[1:]
        selected = selected_of(view, ids)
        held = {sample_id: view.held_id(sample_id) for sample_id in ids}
        amender = Remove() if remove else ReplaceCaption()
        amended = amender.amend(context_of(view, epoch, seed), selected)
        changed = {edit.sample_id for edit in amended.edits}
        assert changed.isdisjoint(amended.unchanged)
        assert changed | set(amended.unchanged) == set(ids)
        condemned |= {held[sample_id] for sample_id in changed}
        for edit in amended.edits:
            if edit.action == "replace_caption":
                source = edit.origin.removeprefix("sibling:")
                assert source not in condemned | set(held.values())
                assert edit.value == view.roster.by_id[source].caption
                old = next(
                    sample_id.sample
                    for sample_id in selected
                    if sample_id.sample.sample_id == edit.sample_id
                )
                assert edit.value != old.caption
                assert view.roster.by_id[source].image_id == old.image_id
        size_before = len(live)
        view = view.apply(amended.edits)
        assert remove or len(view.samples()) == size_before
        for image in range(len(sizes)):
            assert condemned.isdisjoint(sample_id.sample_id for sample_id in view.pool(str(image)))


def test_none_left_keeps_the_sample():
    view = make_view([1, 2])
    amended = ReplaceCaption().amend(context_of(view), selected_of(view, ["0#0", "1#0"]))
    assert amended.unchanged == ("0#0",)
    assert [(edit.sample_id, edit.value) for edit in amended.edits] == [("1#0", "1 1")]


def test_captions_condemned_together_do_not_replace_each_other():
    view = make_view([3])
    amended = ReplaceCaption().amend(context_of(view), selected_of(view, ["0#0", "0#1"]))
    assert {edit.value for edit in amended.edits} == {"0 2"}
    everything = selected_of(view, ["0#0", "0#1", "0#2"])
    amended = ReplaceCaption().amend(context_of(view), everything)
    assert (amended.edits, len(amended.unchanged)) == ((), 3)
    assert len(view.apply(amended.edits).pool("0")) == 3


def test_the_authors_code_avoids_worse_captions_alone():
    view = make_view([3])
    drawn = [
        ReplaceCaption(avoid="worse").amend(
            context_of(view, seed=seed), selected_of(view, ["0#0", "0#1"])
        )
        for seed in range(20)
    ]
    assert {amended.edits[0].value for amended in drawn} == {"0 1", "0 2"}
    assert {amended.edits[1].value for amended in drawn} == {"0 2"}
    edited = view.apply(next(a.edits for a in drawn if a.edits[0].value == "0 1"))
    assert [sample.sample_id for sample in edited.pool("0")] == ["0#2"]
    with pytest.raises(ValueError, match=r"avoid must be one of .* got 'none'"):
        ReplaceCaption(avoid="none")


def test_a_borrowed_caption_that_is_bad_too_leaves_the_pool():
    view = make_view([3])
    view = view.apply(ReplaceCaption().amend(context_of(view), selected_of(view, ["0#0"])).edits)
    borrowed = view.held_id("0#0")
    assert borrowed in {"0#1", "0#2"}
    again = ReplaceCaption().amend(context_of(view, 1), selected_of(view, ["0#0"])).edits
    edited = view.apply(again)
    assert {sample.sample_id for sample in edited.pool("0")} == {"0#1", "0#2"} - {borrowed}
    assert edited.held_id("0#0") not in {"0#0", borrowed}


def test_all_siblings_are_drawn_about_equally_often():
    view = make_view([4])
    drawn = [
        ReplaceCaption().amend(context_of(view, seed=seed), selected_of(view, ["0#0"])).edits[0]
        for seed in range(300)
    ]
    counts = [sum(edit.value == f"0 {k}" for edit in drawn) for k in range(4)]
    assert counts[0] == 0
    assert all(70 < count < 130 for count in counts[1:])


def test_a_sample_without_a_sibling_shifts_nobodys_draw():
    def second(sizes: list[int], seed: int) -> str:
        view = make_view(sizes)
        selected = selected_of(view, ["0#0", "1#0"])
        return ReplaceCaption().amend(context_of(view, seed=seed), selected).edits[-1].value

    assert [second([1, 5], seed) for seed in range(9)] == [second([2, 5], s) for s in range(9)]


def test_replaced_images_leave_the_captions_in_the_pool():
    view = make_view([2]).apply([Edit(sample_id="0#0", action="replace_image", value="new.png")])
    assert len(view.pool("0")) == 2
