"""New pictures for samples: the caption kept, or replaced with the picture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import Edit, Sample
from curation.amend.replace import ReplaceBoth, ReplaceCaption, ReplaceImage, image_request
from curation.base import Context, Selected
from tests.curation.toy_source import ToySource

CAPTIONS = ("a dog", "a hound", "an animal")


def view_of(*edits: Edit, root: Path = Path()) -> CurationView:
    samples = [
        Sample(
            row=0,
            sample_id=f"{image}#{k}",
            image_id=image,
            image_path=Path(f"{image}.jpg"),
            caption=f"{caption} {image}",
        )
        for image in ("x", "y")
        for k, caption in enumerate(CAPTIONS)
    ]
    return CurationView(roster=build_roster("toy", samples), image_root=root).apply(edits)


def context(view: CurationView, losses=(3.0, 1.0, 2.0, 1.0, 2.0, 3.0)) -> Context:
    values = torch.tensor(losses)
    return Context(view=view, losses=values, history=values[None], epoch=0, seed=5)


def select(where: Context, *sample_ids: str) -> list[Selected]:
    by_id = where.view.roster.by_id
    return [Selected(sample=where.live[by_id[i].row], reason="bad") for i in sample_ids]


def test_the_picture_is_replaced_and_the_caption_kept(tmp_path):
    where = context(view_of())
    amended = ReplaceImage(source=ToySource(folder=tmp_path)).amend(where, select(where, "x#0"))
    assert [edit.action for edit in amended.edits] == ["replace_image"]
    assert Path(amended.edits[0].value).parent == tmp_path
    after = where.view.apply(amended.edits)
    assert len(after.samples()) == 6
    assert after.samples()[0].caption == "a dog x"
    assert after.samples()[0].image_path == Path(amended.edits[0].value)
    assert after.samples()[0].image_id == "x"
    assert after.samples()[0].origin == "toy:5 x#0 a dog x 1"
    assert after.samples()[1] == where.view.samples()[1]
    assert amended.notes == ("drawn",)


def test_what_gets_no_picture_is_kept_and_counted():
    where = context(view_of())
    source = ToySource(refuses=("a dog x",))
    amended = ReplaceImage(source=source).amend(where, select(where, "x#0", "y#0"))
    assert [edit.sample_id for edit in amended.edits] == ["y#0"]
    assert amended.unchanged == ("x#0",)
    assert amended.notes == ("left alone: refused", "drawn")


def test_a_sample_that_comes_again_gets_another_picture(tmp_path):
    amend = ReplaceImage(source=ToySource(folder=tmp_path))
    where = context(view_of())
    first = amend.amend(where, select(where, "x#0")).edits
    again = context(where.view.apply(first))
    second = amend.amend(again, select(again, "x#0")).edits
    assert first[0].value != second[0].value
    assert again.view.apply(second).photos("x#0") == (
        Path("x.jpg"),
        Path(first[0].value),
        Path(second[0].value),
    )


def test_a_request_tells_the_own_caption_first_and_all_pictures():
    edit = Edit(sample_id="x#1", action="replace_image", value="curation/images/a.png")
    worse = Edit(sample_id="x#2", action="replace_caption", value="a dog x", origin="sibling:x#0")
    view = view_of(edit, worse, root=Path("runs/a"))
    expected = image_request(view, view.samples()[1])
    assert expected.captions == ("a hound x", "a dog x")  # the condemned one says nothing
    assert expected.photos == (Path("x.jpg"), Path("runs/a/curation/images/a.png"))
    assert expected.sample.image_path == Path("runs/a/curation/images/a.png")


def test_both_are_replaced_by_a_sibling_and_a_picture_for_it(tmp_path):
    where = context(view_of())
    amend = ReplaceBoth(source=ToySource(folder=tmp_path))
    amended = amend.amend(where, select(where, "x#0", "y#2"))
    assert [(e.sample_id, e.action) for e in amended.edits] == [
        ("x#0", "replace_caption"),
        ("x#0", "replace_image"),
        ("y#2", "replace_caption"),
        ("y#2", "replace_image"),
    ]
    after = where.view.apply(amended.edits).samples()
    assert after[0].caption in ("a hound x", "an animal x")
    assert after[0].origin == f"toy:5 x#0 {after[0].caption} 1"
    assert after[5].caption in ("a dog y", "a hound y")
    assert len(after) == 6


def test_both_or_neither():
    where = context(view_of())
    none = ReplaceBoth(source=ToySource(refuses=("a hound x", "an animal x")))
    amended = none.amend(where, select(where, "x#0"))
    assert (amended.edits, amended.unchanged) == ((), ("x#0",))
    alone = [edit("x#1"), edit("x#2")]
    where = context(view_of(*alone), (3.0, torch.nan, torch.nan, 1, 1, 1))
    amended = ReplaceBoth(source=ToySource()).amend(where, select(where, "x#0"))
    assert (amended.edits, amended.unchanged) == ((), ("x#0",))


def edit(sample_id: str) -> Edit:
    return Edit(sample_id=sample_id, action="remove")


def test_the_caption_of_lowest_loss_is_chosen_if_it_is_lower():
    amend = ReplaceBoth(source=ToySource(), caption=ReplaceCaption(choice="lower_loss"))
    where = context(view_of(), (3.0, 2.0, 1.0, 1.0, 2.0, torch.nan))
    amended = amend.amend(where, select(where, "x#0", "y#0"))
    assert amended.edits[0].value == "an animal x"
    assert amended.unchanged == ("y#0",)
    unknown = context(view_of(), (torch.nan,) * 6)
    assert amend.amend(unknown, select(unknown, "x#0")).unchanged == ("x#0",)
    with pytest.raises(ValueError, match="choice must be one of"):
        ReplaceCaption(choice="best")


def test_a_loss_beside_another_picture_tells_nothing_of_a_caption():
    amend = ReplaceCaption(choice="lower_loss")
    picture = Edit(sample_id="x#2", action="replace_image", value="new.png")
    where = context(view_of(picture), (3.0, 2.0, 1.0, 1.0, 2.0, 3.0))
    assert [e.value for e in amend.amend(where, select(where, "x#0")).edits] == ["a hound x"]
    equal = context(view_of(), (2.0,) * 6)
    assert amend.amend(equal, select(equal, "x#0")).unchanged == ("x#0",)


@pytest.mark.parametrize("amender", [ReplaceImage, ReplaceBoth])
def test_what_is_expected_is_passed_on_and_the_source_closed(amender):
    source = ToySource()
    amend = amender(source=source)
    where = context(view_of())
    assert amend.works_ahead
    amend.expect(where, select(where, "x#0", "y#1"))
    amend.close()
    assert source.expected == [["x#0", "y#1"]]
    assert source.num_closed == 1
    with pytest.raises(ValueError, match="needs an image source"):
        amender(source=None)


@pytest.mark.parametrize("amender", [ReplaceImage, ReplaceBoth])
def test_the_source_leaves_the_accelerator_to_training(amender, tmp_path):
    source, where = ToySource(folder=tmp_path), context(view_of())
    amender(source=source).amend(where, select(where, "x#0", "y#0"))
    assert (source.num_released, source.num_closed) == (1, 0)
