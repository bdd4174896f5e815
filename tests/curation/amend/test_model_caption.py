"""REPLACECAP with captions by a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.data.roster import CurationView, build_roster
from captioning.types import Sample
from curation.amend.model_caption import ModelCaption
from curation.amend.replace import ReplaceBoth
from curation.loop.curation_files import CurationFiles
from curation.loop.curator import Curator
from curation.loop.policy import Policy, Schedule
from curation.select.random import Random
from tests.curation.amend.test_replace_caption import context_of, selected_of
from tests.curation.toy_captions import ToyCaptions, ToyFit
from tests.curation.toy_source import ToySource


def view_of(captions: dict[str, list[str]]) -> CurationView:
    samples = [
        Sample(
            row=0,
            sample_id=f"{image}#{k}",
            image_id=image,
            image_path=Path(f"{image}.jpg"),
            caption=text,
        )
        for image, texts in captions.items()
        for k, text in enumerate(texts)
    ]
    return CurationView(roster=build_roster("toy", samples))


def amended(view, ids, source, accept=None, epoch=0):
    amender = ModelCaption(source=source, accept=accept)
    return amender.amend(context_of(view, epoch), selected_of(view, ids))


def test_selected_samples_alone_get_the_models_captions():
    view = view_of({"a": ["old 1", "old 2"], "b": ["bad 3"], "c": ["bad 4"]})
    source = ToyCaptions({"a": ["new 5"], "b": ["new 6"]})
    outcome = amended(view, ["a#1", "b#0"], source)
    assert [(e.sample_id, e.value, e.origin) for e in outcome.edits] == [
        ("a#1", "new 5", "model:toy"),
        ("b#0", "new 6", "model:toy"),
    ]
    assert source.calls == [["a", "b"], ["released"]]


def test_an_equal_or_missing_caption_leaves_the_sample_alone():
    view = view_of({"a": ["same 1"], "b": ["bad 3"]})
    outcome = amended(view, ["a#0", "b#0"], ToyCaptions({"a": ["same 1"]}))
    assert (outcome.edits, outcome.unchanged) == ((), ("a#0", "b#0"))
    assert outcome.notes == ("left alone: no other caption", "left alone: toy wrote nothing")


def test_a_caption_never_comes_back_and_samples_of_a_photo_get_different_ones():
    view = view_of({"a": ["old 1", "old 2"]})
    source = ToyCaptions({"a": ["new 1", "new 2", "old 1"]})
    first = amended(view, ["a#0", "a#1"], source)
    assert [edit.value for edit in first.edits] == ["new 1", "new 2"]
    view = view.apply(first.edits)
    second = amended(view, ["a#0"], source, epoch=1)
    assert [edit.value for edit in second.edits] == ["new 2"]
    view = view.apply(second.edits)
    third = amended(view, ["a#0"], source, epoch=2)
    assert third.unchanged == ("a#0",)


def test_accept_takes_the_best_caption_and_only_a_better_one():
    view = view_of({"a": ["old 5"], "b": ["old 5"], "c": ["old 9"]})
    source = ToyCaptions({"a": ["x 6", "y 8", "z 2"], "b": ["x 5"], "c": []})
    outcome = amended(view, ["a#0", "b#0", "c#0"], source, ToyFit())
    assert [(edit.sample_id, edit.value) for edit in outcome.edits] == [("a#0", "y 8")]
    assert outcome.notes == ("left alone: no better caption", "left alone: toy wrote nothing")


def test_replace_both_makes_the_picture_for_the_models_caption():
    view = view_of({"a": ["old 1"]})
    source = ToySource()
    amender = ReplaceBoth(source=source, caption=ModelCaption(source=ToyCaptions({"a": ["new 1"]})))
    edits = amender.amend(context_of(view), selected_of(view, ["a#0"])).edits
    assert [(e.action, e.value is not None) for e in edits] == [
        ("replace_caption", True),
        ("replace_image", True),
    ]
    assert edits[0].value == "new 1"


def test_replace_both_writes_no_captions_while_an_epoch_is_under_way():
    """Processes would ask for other photos, each by its own losses, and training would wait."""
    view = view_of({"a": ["old 1"], "b": ["old 2"]})
    source, captions = ToySource(), ToyCaptions({"a": ["new 1"], "b": ["new 2"]})
    amender = ReplaceBoth(source=source, caption=ModelCaption(source=captions))
    assert not amender.works_ahead
    amender.expect(context_of(view), selected_of(view, ["a#0"]))
    assert (captions.calls, source.expected) == ([], [])


@pytest.mark.parametrize(
    ("written", "level", "told"),
    [
        ({}, "WARNING", "2 of 2 selected samples were left alone, so nothing was changed: "),
        ({"a": ["new 5"]}, "WARNING", "1 of 2 selected samples were left alone: toy wrote nothing"),
        ({"a": ["new 5"], "b": ["bad 3"]}, "INFO", "were left alone: no other caption (1)"),
    ],
)
def test_captions_that_stay_are_counted_on_the_console(tmp_path, caplog, written, level, told):
    """A model that writes blanks would change nothing, and say so in a file alone."""
    view = view_of({"a": ["old 1"], "b": ["bad 3"]})
    policy = Policy(
        select=Random(ratio=1),
        amend=ModelCaption(source=ToyCaptions(written)),
        schedule=Schedule(from_epoch=-1, until_epoch=-1),
        name="model",
    )
    curator = Curator(policy=policy, view=view, seed=0)
    outcome = curator.begin()
    assert outcome is not None
    files = CurationFiles(path=tmp_path)
    files.start(curator, resumed=False)
    with caplog.at_level("INFO"):
        files.write(curator, outcome, plot=False)
    (record,) = caplog.records
    assert record.levelname == level
    assert "policy 'model', epoch -1: " in record.message
    assert told in record.message
    assert ("toy wrote nothing" in record.message) == (level == "WARNING")
