"""Proposals for novel objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from augmentation.novel_objects import method as novel_objects
from augmentation.novel_objects import novel_captions
from augmentation.novel_objects.method import NovelObjects, in_turns
from augmentation.novel_objects.novel_captions import Radius
from augmentation.novel_objects.novel_class import Choices
from augmentation.regions.boxes import Limits
from augmentation.regions.proposal import file_name, finished_regions
from augmentation.run import augment
from captioning.config.compose import compose_config
from captioning.data.roster import Roster, build_roster
from captioning.runtime.files import write_json
from captioning.types import Region
from tests.augmentation.regions.scenes import region
from tests.task_calls import call

DOG = {"dog": {"candidates": ["cat"]}}


def method(parser, **more) -> NovelObjects:
    settings = {
        "classes": DOG,
        "limits": Limits(smallest_area=50),
        "radius": Radius(),
        "choices": Choices(),
        "seed": 0,
    }
    return NovelObjects(parser=parser, **settings | more)


def changed(roster: Roster, change) -> Roster:
    return build_roster(roster.name, [change(sample) for sample in roster.samples])


def with_regions(roster: Roster, image_id: str, *regions: Region) -> Roster:
    def change(sample):
        return replace(sample, regions=regions) if sample.image_id == image_id else sample

    return changed(roster, change)


def test_dogs_take_the_place_of_cats(parser, roster):
    proposals = {p.image_id: p for p in method(parser).proposals(roster)}
    assert sorted(proposals) == [f"cat{n}" for n in range(6)]
    proposal = proposals["cat2"]
    assert proposal.name == "dog-cat-cat2"
    assert proposal.captions == ("A dog sits near a bird.",)
    assert proposal.before == ("A small white cat sits near a bird.",)
    assert proposal.pastes[0].target_box == (10, 8, 30, 28)
    assert proposal.pastes[0].source.stem.startswith("dog")
    assert proposal.regions == (region("bird", 40, 40, 60, 60), region("dog", 10, 8, 30, 28))


def test_novel_photos_are_used_alike_and_reported(parser, roster):
    augmenter = method(parser)
    sources = [proposal.notes["source id"] for proposal in augmenter.proposals(roster)]
    assert sorted(sources) == ["dog0", "dog0", "dog1", "dog1", "dog2", "dog2"]
    class_report = augmenter.report()["classes"]["dog"]
    assert class_report["candidates"] == {"cat": 6}
    assert (class_report["photos used"], class_report["most uses of a photo"]) == (3, 2)


def test_the_order_of_the_roster_does_not_matter_but_the_seed_does(parser, roster):
    turned = build_roster("r", roster.samples[::-1])
    first = list(method(parser).proposals(roster))
    assert list(method(parser).proposals(turned)) == first
    other = list(method(parser, seed=1).proposals(roster))
    assert [p.name for p in other] != [p.name for p in first]


def test_those_that_have_more_go_on_when_others_have_come_to_their_end():
    assert "".join(in_turns([iter("ad"), iter("b"), iter(""), iter("cef")])) == "abcdef"


def test_k_is_shared_out_to_the_candidates_which_take_turns(parser, roster):
    def bird_named(sample):
        return replace(sample, caption=sample.caption.replace("Birds", "A bird sings"))

    classes = {"dog": {"candidates": ["cat", "bird"]}}
    augmenter = method(parser, classes=classes, choices=Choices(num_pictures=5))
    names = [p.notes["candidate"] for p in augmenter.proposals(changed(roster, bird_named))]
    assert names == ["cat", "bird", "cat", "bird"]


@pytest.mark.parametrize(("most", "number"), [(1, 6), (2, 12), (None, 15)])
def test_photos_are_taken_again_with_other_novel_photos_until_k_is_there(
    parser, roster, most, number
):
    choices = Choices(num_pictures=15, pictures_per_photo=most)
    augmenter = method(parser, choices=choices)
    proposals = list(augmenter.proposals(roster))
    assert len({proposal.name for proposal in proposals}) == len(proposals) == number
    assert len({(p.image_id, p.notes["source id"]) for p in proposals}) == number
    first = [p for p in proposals if "-turn" not in p.name]
    assert proposals[:6] == first == list(method(parser).proposals(roster))
    assert {p.name.rpartition("-")[2] for p in proposals[6:12]} <= {"turn2"}
    assert augmenter.report()["photos left out, by reason"] == {}
    sources_and_photos = 3 * 6
    endless = method(parser, choices=Choices(pictures_per_photo=None))
    assert len(list(endless.proposals(roster))) == sources_and_photos


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"pictures_per_photo": 0}, r"pictures_per_photo must be at least 1, or null .* got 0"),
        ({"not_counted": "person"}, r"not_counted must be a list, as in \[person\]"),
    ],
)
def test_wrong_choices_are_refused(setting: dict, told: str):
    with pytest.raises(ValueError, match=told):
        Choices(**setting)


@pytest.mark.parametrize(("number", "names"), [(1, ["cat"]), (2, ["cat", "bird"])])
def test_fewer_pictures_than_candidates_are_of_the_first_of_them(parser, roster, number, names):
    classes = {"dog": {"candidates": ["cat", "bird", "horse"]}}
    augmenter = method(parser, classes=classes, choices=Choices(num_pictures=number))
    birds = changed(roster, lambda s: replace(s, caption=s.caption.replace("Birds", "A bird")))
    assert [p.notes["candidate"] for p in augmenter.proposals(birds)] == names
    report = augmenter.report()["classes"]["dog"]
    assert report["candidates"] == {"cat": 0, "bird": 0} | dict.fromkeys(names, 1)
    assert report["candidates without boxes"] == ["horse"]


def test_several_things_at_once(parser, roster):
    cats = region("cat", 2, 2, 22, 22), region("cat", 30, 2, 50, 22), region("cat", 0, 50, 60, 60)
    several_cats = with_regions(roster, "cat0", *cats)
    proposals = {p.image_id: p for p in method(parser).proposals(several_cats)}
    assert [paste.target_box for paste in proposals["cat0"].pastes] == [cats[0].box, cats[1].box]
    all_of_them = method(parser, choices=Choices(min_replaced=1.0))
    assert "cat0" not in {p.image_id for p in all_of_them.proposals(several_cats)}
    one_alone = method(parser, choices=Choices(allow_several=False))
    assert "cat0" not in {p.image_id for p in one_alone.proposals(several_cats)}
    assert one_alone.report()["photos left out, by reason"][novel_objects.SEVERAL] == 1


def test_captions_of_more_things_than_are_replaced_are_left_out(parser, roster):
    def two_cats(sample):
        if sample.image_id == "cat0":
            return replace(sample, caption="Two cats sit near a bird.")
        return sample

    pairs = changed(roster, two_cats)
    augmenter = method(parser)
    assert "cat0" not in {p.image_id for p in augmenter.proposals(pairs)}
    assert augmenter.report()["photos left out, by reason"] == {novel_objects.TOO_FEW: 1}
    two_boxes = with_regions(
        pairs, "cat0", region("cat", 2, 2, 22, 22), region("cat", 30, 2, 50, 22)
    )
    proposals = {p.image_id: p for p in method(parser).proposals(two_boxes)}
    assert set(proposals["cat0"].captions) == {"Two dogs sit near a bird."}
    as_paper = method(parser, choices=Choices(match_counts=False))
    assert "cat0" in {p.image_id for p in as_paper.proposals(pairs)}


def test_a_box_around_others_is_neither_replaced_nor_taken(parser, roster):
    cat, inside = region("cat", 8, 8, 28, 28), region("bird", 10, 10, 20, 20)
    augmenter = method(parser)
    names = {p.image_id for p in augmenter.proposals(with_regions(roster, "cat0", cat, inside))}
    assert "cat0" not in names
    assert augmenter.report()["photos left out, by reason"][novel_objects.NO_BOXES] == 1
    loose = method(parser, choices=Choices(skip_containers=False))
    names = {p.image_id for p in loose.proposals(with_regions(roster, "cat0", cat, inside))}
    assert "cat0" in names


def test_boxes_of_one_pixel_and_captions_without_the_object_are_counted(parser, roster):
    def unnamed(sample):
        return replace(sample, caption="Grass.") if sample.image_id == "cat1" else sample

    bad = changed(with_regions(roster, "cat0", region("cat", 5, 5, 6, 6)), unnamed)
    augmenter = method(parser)
    assert len(list(augmenter.proposals(bad))) == 4
    reasons = augmenter.report()["photos left out, by reason"]
    assert reasons == {novel_objects.NO_BOXES: 1, novel_captions.NO_OBJECT: 1}


@pytest.mark.parametrize("key", ["words", "labels", "candidates", "likely"])
def test_text_in_the_place_of_a_list_is_refused_and_not_read_by_letters(parser, key: str):
    with pytest.raises(ValueError, match=f"{key} of the novel class 'dog' must be a list, as in "):
        method(parser, classes={"dog": {key: "cat"}})


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("method.names={cup: {forms: mug}}", r"method\.names\.cup\.forms: must be a list"),
        ("method.words={horse: pony}", r"method\.words\.horse: must be a list"),
    ],
)
def test_text_in_the_place_of_a_list_is_refused_before_data_are_read(setting: str, told: str):
    config = compose_config("augmentation", ["data=miniworld_tiny", setting])
    with pytest.raises(ValueError, match=told):
        call(augment, config)


def test_a_novel_class_without_boxes_gives_none(parser, roster):
    bare = changed(roster, lambda s: replace(s, regions=()) if s.image_id.startswith("dog") else s)
    augmenter = method(parser)
    assert list(augmenter.proposals(bare)) == []
    assert augmenter.report()["photos left out, by reason"] == {novel_objects.NO_SOURCE: 6}


def test_what_captions_name_is_kept_where_asked_for(parser, roster):
    choices = Choices(keep_mentioned=True)
    proposal = next(method(parser, choices=choices).proposals(roster))
    assert proposal.protected == ((40, 40, 60, 60),)


def test_a_hot_dog_is_no_dog(parser, roster):
    def renamed(sample):
        regions = [replace(r, label=r.label.replace("bird", "hot cat")) for r in sample.regions]
        text = "A hot cat." if sample.image_id == "cat0" else sample.caption
        return replace(sample, caption=text, regions=tuple(regions))

    augmenter = method(parser)
    assert "cat0" not in {p.image_id for p in augmenter.proposals(changed(roster, renamed))}
    assert augmenter.report()["photos left out, by reason"] == {novel_captions.OTHER_NAME: 1}


def test_candidates_are_counted_in_predictions(parser, roster, tmp_path):
    path = tmp_path / "predictions.json"
    write_json(path, [{"image_id": f"dog{n}", "caption": "Two birds."} for n in range(3)])
    augmenter = method(parser, classes={"dog": {}}, predictions=str(path))
    assert all(p.notes["candidate"] == "bird" for p in augmenter.proposals(roster))
    assert list(augmenter.report()["classes"]["dog"]["candidates"]) == ["bird"]


def test_labels_that_are_not_counted_are_no_candidates(parser, roster, tmp_path):
    path = tmp_path / "predictions.json"
    captions = ["Two birds.", "A bird.", "A cat."]
    write_json(path, [{"image_id": f"dog{n}", "caption": c} for n, c in enumerate(captions)])
    choices = Choices(not_counted=("bird",))
    settings = {"classes": {"dog": {}}, "predictions": str(path), "choices": choices}
    augmenter = method(parser, **settings)
    assert {p.notes["candidate"] for p in augmenter.proposals(roster)} == {"cat"}
    named = method(parser, classes={"dog": {"candidates": ["bird"]}}, choices=choices)
    list(named.proposals(roster))
    assert list(named.report()["classes"]["dog"]["candidates"]) == ["bird"]


def test_likely_candidates_stand_in_for_counted_ones(parser, roster, tmp_path):
    classes = {"dog": {"likely": ["horse", "cat"]}}
    names = {p.notes["candidate"] for p in method(parser, classes=classes).proposals(roster)}
    assert names == {"cat"}
    path = tmp_path / "predictions.json"
    write_json(path, [{"image_id": "dog0", "caption": "Two birds."}])
    counted = method(parser, classes=classes, predictions=str(path))
    assert {p.notes["candidate"] for p in counted.proposals(roster)} == {"bird"}


def test_a_class_that_gets_no_pictures_is_told(parser, roster, tmp_path, caplog):
    path = tmp_path / "predictions.json"
    write_json(path, [{"image_id": "dog0", "caption": "A tree."}])
    for settings, told in (
        (
            {"classes": {"dog": {}}, "predictions": str(path)},
            "captions of 'dog' mention no known object",
        ),
        (
            {"classes": {"dog": {"candidates": ["horse", "cow"]}}},
            "no box is labelled horse, cow",
        ),
        ({"classes": {"dog": {"candidates": []}}}, ""),
    ):
        caplog.clear()
        assert list(method(parser, **settings).proposals(roster)) == []
        assert caplog.messages == ([f"'dog' gets no images: {told}"] if told else [])


def test_a_candidate_without_boxes_takes_no_share_of_the_pictures(parser, roster):
    classes = {"dog": {"candidates": ["horse", "cat"]}}
    augmenter = method(parser, classes=classes, choices=Choices(num_pictures=4))
    assert len(list(augmenter.proposals(roster))) == 4


def test_a_list_of_words_holds_out_and_reports_what_it_lacks(parser, roster, tmp_path):
    (tmp_path / "words.txt").write_text("dog\n")
    plural = changed(
        roster, lambda s: replace(s, caption="Two dogs.") if s.image_id == "dog2" else s
    )
    augmenter = method(parser, words_file=str(tmp_path / "words.txt"))
    proposals = list(augmenter.proposals(plural))
    assert {p.notes["source id"] for p in proposals} == {"dog0", "dog1"}
    assert augmenter.report()["held-out words left in in-domain captions"] == {"dogs": 1}


def test_no_classes_and_no_candidates_are_refused(parser, roster):
    with pytest.raises(ValueError, match="name the novel classes"):
        method(parser, classes={})
    with pytest.raises(ValueError, match="no candidates"):
        next(method(parser, classes={"dog": None}).proposals(roster))
    with pytest.raises(ValueError, match="num_pictures"):
        Choices(num_pictures=0)


def test_hidden_regions_are_no_longer_there(parser, roster):
    (paste,) = next(method(parser).proposals(roster)).pastes
    x, y = paste.target_box[:2]
    hidden, visible = region("bird", x, y, x + 9, y + 9), region("bird", x - 9, y, x + 9, y + 9)
    assert finished_regions([hidden, visible], [paste], [])[:-1] == (visible,)
    assert finished_regions([hidden], [paste], [hidden])[:-1] == (hidden,)


def test_different_names_are_different_files():
    assert file_name("dog", "cat", "7") == "dog-cat-7"
    assert file_name("a/b") != file_name("a_b") != file_name("a b")
    assert "/" not in file_name("a/b")
