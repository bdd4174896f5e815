from __future__ import annotations

import json
from dataclasses import replace

import pytest
from foreign import make_roster

from captioning.data.roster import CurationView, PlantedWord, build_roster, planted_origin
from captioning.types import Edit
from curation.amend.replace_word import ReplaceWord
from curation.base import Context
from curation.loop.planted_faults import count_mends, faulty_kinds, load_truth
from curation.loop.policy import Policy, Schedule
from curation.record import changes
from curation.score.truth import Truth
from curation.select.above import Above


def faulty_ids(view, truth):
    kinds = faulty_kinds(view, truth)
    return [sample.sample_id for sample in view.roster.samples if sample.row in kinds]


def test_a_replaced_caption_is_sound_unless_its_source_is_faulty():
    view = CurationView(roster=make_roster())
    truth = {"img0#0": "swap", "img0#1": "swap", "img2#0": "overlong"}
    assert faulty_ids(view, truth) == ["img0#0", "img0#1", "img2#0"]
    edits = [
        Edit(
            sample_id="img0#0",
            action="replace_caption",
            value=view.roster.by_id[source].caption,
            origin=f"sibling:{source}",
        )
        for source in ("img0#1", "img0#2")
    ]
    assert faulty_ids(view.apply(edits[:1]), truth) == ["img0#0", "img0#1", "img2#0"]
    assert faulty_ids(view.apply(edits), truth) == ["img0#1", "img2#0"]
    taken = faulty_kinds(view.apply(edits[:1]), truth)
    assert [taken[view.roster.by_id[i].row] for i in ("img0#0", "img2#0")] == ["swap", "overlong"]
    gone = Edit(sample_id="img2#0", action="remove")
    assert faulty_ids(view.apply([gone]), truth) == ["img0#0", "img0#1"]


def test_a_caption_of_nobodys_is_sound():
    view = CurationView(roster=make_roster())
    edit = Edit(sample_id="img0#0", action="replace_caption", value="new", origin="model:x")
    assert faulty_ids(view.apply([edit]), {"img0#0": "swap"}) == []


def test_a_wrong_photo_stays_wrong_until_it_is_replaced():
    view = CurationView(roster=make_roster())
    truth = {"img1#0": "image of another photo"}
    words = Edit(sample_id="img1#0", action="replace_caption", value="new")
    photo = Edit(sample_id="img1#0", action="replace_image", value="other.png")
    assert faulty_ids(view.apply([words]), truth) == ["img1#0"]
    assert faulty_ids(view.apply([photo]), truth) == []


def test_bad_truth_is_named(tmp_path):
    path = tmp_path / "truth.json"
    with pytest.raises(FileNotFoundError, match=r"truth\.json"):
        load_truth(path)
    for content in ("{", json.dumps(["a"]), json.dumps({"a": 1})):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"truth\.json"):
            load_truth(path)


BLUE = "a blue ball and an old dog"
RED = PlantedWord(start=2, wrong="blue", right="red")


@pytest.fixture
def worded() -> CurationView:
    """The first caption has a wrong word, "blue" for "red"; the second is sound."""
    roster = make_roster(num_images=1, num_captions=2)
    wrong = replace(roster.samples[0], caption=BLUE, origin=planted_origin("color", RED))
    samples = [wrong, replace(roster.samples[1], caption="two dogs")]
    return CurationView(roster=build_roster("worded", samples))


def mended(view: CurationView, sample_id: str, caption: str, origin="word:2:blue>x"):
    edit = Edit(sample_id=sample_id, action="replace_caption", value=caption, origin=origin)
    return view.apply([edit])


def test_origins_tell_the_planted_word(worded):
    assert worded.roster.planted == {"img0#0": "color"}
    assert worded.roster.planted_words == {"img0#0": RED}
    phrase = PlantedWord(start=3, wrong="with a: 3>2", right="")
    for kind, word in (("swap", None), ("a:b", None), ("color", RED), ("phrase", phrase)):
        sample = replace(worded.roster.samples[0], origin=planted_origin(kind, word))
        roster = build_roster("one", [sample])
        assert roster.planted == {"img0#0": kind}
        if kind != "phrase":  # whose text may hold the mark itself
            assert roster.planted_words == ({"img0#0": word} if word else {})


@pytest.mark.parametrize(
    ("caption", "fault"),
    [
        ("a red ball and an old dog", ""),
        ("a Red ball and an old cat", ""),  # what else changed does not matter
        ("a green ball and an old dog", "color"),
        ("an orange ball and an old dog", "color"),  # the article goes with the word
        ("a blue ball and an old cat", "color"),  # another word was changed
        ("a ball and an old dog", ""),  # another caption: nothing is known of it
        ("two men run past some green trees", ""),
    ],
)
def test_only_the_right_word_repairs_a_wrong_one(worded, caption, fault):
    after = mended(worded, "img0#0", caption)
    assert faulty_kinds(after, worded.roster.planted).get(0, "") == fault
    counts = count_mends(worded, after, worded.roster.planted)
    right, wrong = int(not fault), int(bool(fault))
    expected = {"num_mended_right": right, "num_mended_wrong": wrong, "num_mended_needless": 0}
    assert counts == expected
    (change,) = changes(after, worded.roster.planted)
    assert change.mend == ("wrong" if fault else "right")


def test_a_caption_is_another_one_if_most_of_its_words_are(worded):
    first, second = worded.roster.samples
    first = replace(first, caption="a blue ball rolls")
    view = CurationView(roster=build_roster("even", [first, second]))
    for caption, fault in (("a green ball stops", "color"), ("the green ball stops", "")):
        after = mended(view, "img0#0", caption)
        assert faulty_kinds(after, view.roster.planted).get(0, "") == fault


def test_words_of_one_meaning_repair(worded):
    grey = PlantedWord(start=2, wrong="blue", right="grey")
    sample = replace(worded.roster.samples[0], origin=planted_origin("color", grey))
    view = CurationView(roster=build_roster("grey", [sample]))
    after = mended(view, "img0#0", "a gray ball and an old dog")
    assert faulty_kinds(after, view.roster.planted) == {}


def test_words_of_sound_captions_are_mended_needlessly(worded):
    after = mended(worded, "img0#1", "two cats", "word:4:dogs>cats")
    assert count_mends(worded, after, worded.roster.planted)["num_mended_needless"] == 1
    written = mended(worded, "img0#1", "two cats", "model:x")
    assert set(count_mends(worded, written, worded.roster.planted).values()) == {0}


def test_an_oracle_mends_every_planted_word(worded):
    context = Context.before_training(worded)
    policy = Policy(
        select=Above(score=Truth(), threshold=0.5),
        amend=ReplaceWord(),
        schedule=Schedule(from_epoch=-1),
        name="oracle",
    )
    after = worded.apply(policy.deliberate(context).edits)
    captions = [sample.caption for sample in after.samples()]
    assert captions == ["a red ball and an old dog", "two dogs"]
    assert Truth().doubts(replace(context, view=after)) == []
