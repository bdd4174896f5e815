"""What can be cut out, and what must stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_set import grounded

from augmentation.cutswap.descriptions import description_words
from augmentation.cutswap.patches import NO_AREA, SHARED, Areas, Patches, upright_size
from augmentation.regions.boxes import Limits
from augmentation.regions.mentions import find_mentions
from augmentation.regions.rendering import NO_PHOTO, UNREADABLE
from captioning.types import Region

DOG, HOLDER = Region(box=(0, 0, 20, 20), label="dog"), Region(box=(-5, -5, 40, 40), label="man")
BESIDE = Region(box=(15, 0, 40, 20), label="ball")


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A man in yellow is running in the snow.", {"yellow", "run"}),
        ("A man plays with a red ball.", {"play", "red", "ball"}),
        ("A man wearing a red hat.", {"wear", "red", "hat"}),
        ("A man is in the snow.", set()),
        ("A man", set()),
    ],
)
def test_what_is_said_of_a_man(parser, object_words, caption, expected):
    (parse,) = parser.parse([caption])
    mention = find_mentions(caption, parse, object_words)[0]
    assert mention.name == "man"
    assert description_words(parse, mention) == expected


def chosen(parser, object_words, caption: str, *regions: Region, areas=None, **more):
    """Patches of a caption's first object, for a target of 20 by 20 pixels."""
    (parse,) = parser.parse([caption])
    mention = find_mentions(caption, parse, object_words)[0]
    patches = Patches(limits=Limits(smallest_area=0), areas=areas or Areas())
    patches.add(grounded(caption, caption, *regions), parse, mention, range(len(regions)))
    options = {
        "plural": False,
        "descriptions": (),
        "image_id": "x",
        "num": 4,
        "targets": [DOG.box],
    } | more
    generator = np.random.default_rng(0)
    return [p.box for p in patches.choose("dog", "", generator=generator, **options)]


def test_one_thing_and_groups_are_told_apart(parser, object_words):
    other = Region(box=(30, 30, 50, 50), label="dog")
    single, two = ("A dog runs", DOG), ("Two dogs run", DOG, other)
    assert chosen(parser, object_words, *single) == [DOG.box]
    assert chosen(parser, object_words, *single, image_id="photo0") == []  # its own photo
    assert chosen(parser, object_words, "A dog runs", DOG, other) == []  # which of them?
    assert sorted(chosen(parser, object_words, *two)) == [DOG.box, other.box]
    assert chosen(parser, object_words, *two, plural=True) == []
    group = ("Two dogs run", DOG)
    assert chosen(parser, object_words, *group) == []
    assert chosen(parser, object_words, *group, plural=True) == [DOG.box]
    assert chosen(parser, object_words, *single, descriptions={"run"}) == [DOG.box]
    assert chosen(parser, object_words, *single, descriptions={"sit"}) == []
    assert chosen(parser, object_words, *single, targets=[(0, 0, 80, 80)]) == []
    assert chosen(parser, object_words, *single, targets=[DOG.box, (0, 0, 80, 80)]) == []


def test_groups_are_not_told_where_that_is_not_asked(parser, object_words):
    """As in the thesis: each box of a class is a patch, and plurals are classes of their own."""
    other, any_box = (
        Region(box=(30, 30, 50, 50), label="dog"),
        {"areas": Areas(separate_groups=False)},
    )
    both_boxes = sorted([DOG.box, other.box])
    assert sorted(chosen(parser, object_words, "A dog runs", DOG, other, **any_box)) == both_boxes
    two = ("Two dogs run", DOG, other)
    assert sorted(chosen(parser, object_words, *two, plural=True, **any_box)) == both_boxes
    assert chosen(parser, object_words, *two, **any_box) == []


def test_what_lies_behind_may_be_covered(parser, object_words):
    sample = grounded("A dog beside it.", "dog", DOG, HOLDER, BESIDE)
    (parse,) = parser.parse([sample.caption])
    for behind_share, expected in ((0.8, (BESIDE,)), (1.1, (HOLDER, BESIDE))):
        areas = Areas(behind_share=behind_share)
        assert areas.protected(sample, parse, (0,), (), {}) == expected


def test_what_is_little_larger_does_not_lie_behind():
    coat = Region(box=(0, 0, 25, 25), label="coat")
    sample = grounded("A dog in a coat.", "dog", DOG, coat)
    assert Areas().protected(sample, (), (0,), (), {}) == (coat,)


@pytest.mark.parametrize(
    ("box", "max_overlaid", "expected"),
    [
        ((0, 0, 10, 10), 0.2, True),  # a quarter of the dog
        ((0, 0, 10, 10), 0.25, False),
        ((15, 0, 40, 20), 0.2, False),  # a quarter, too, and most of it lies beside
    ],
)
def test_an_object_is_overlaid_by_what_lies_mostly_within_it(box, max_overlaid, expected):
    shirt = Region(box=box, label="shirt")
    assert Areas(max_overlaid=max_overlaid).is_overlaid([DOG.box], [shirt]) is expected


def test_boxes_with_people_before_them_show_no_thing_alone(parser, object_words):
    before = Region(box=(0, 0, 12, 12), label="girl")
    far = Region(box=(0, 0, 12, 12), label="ball")
    for other_regions, expected in (((before,), []), ((far,), [DOG.box]), ((HOLDER,), [DOG.box])):
        (parse,) = parser.parse(["A dog runs"])
        mention = find_mentions("A dog runs", parse, object_words)[0]
        patches = Patches(limits=Limits(smallest_area=0), areas=Areas())
        patches.add(grounded("A dog runs", "A dog", DOG, *other_regions), parse, mention, (0,))
        drawn = patches.choose("dog", "", [DOG.box], plural=False, descriptions=(), image_id="x",
                               num=4, generator=np.random.default_rng(0))  # fmt: skip
        assert [patch.box for patch in drawn] == expected


def test_a_box_of_two_things_is_left_alone():
    sample = grounded("A girl on a swing.", "A girl", DOG)
    twice = replace(sample, phrases=(*sample.phrases, replace(sample.phrases[0], start=10)))
    assert Areas().problem(twice, (0,)) == SHARED
    assert Areas(separate_groups=False).problem(twice, (0,)) == NO_PHOTO


@pytest.mark.parametrize("label", ["dog", "dogs", "puppy"])
def test_doubles_count_once(label):
    """A detector of Visual Genome's classes finds one box as dog and as dogs."""
    again = Region(box=(0, 0, 20, 21), label=label, score=0.5)
    assert Areas().targets(grounded("A dog.", "dog", DOG, again), (0, 1)) == (DOG.box,)


def test_photos_that_cannot_be_measured_give_reasons(tmp_path: Path):
    sample = grounded("A dog.", "dog", Region(box=(70, 70, 90, 90), label="dog"))
    path = tmp_path / "a.png"
    assert Areas().problem(replace(sample, image_path=path), (0,)) == NO_PHOTO
    (tmp_path / "b.png").write_bytes(b"nothing")
    assert Areas().problem(replace(sample, image_path=tmp_path / "b.png"), (0,)) == UNREADABLE
    Image.new("L", (64, 64)).save(path)
    assert Areas().problem(replace(sample, image_path=path), (0,)) == NO_AREA


def test_turned_photos_are_measured_upright(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    assert upright_size(tmp_path / "a.jpg") == (20, 40)
