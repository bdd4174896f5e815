"""Which photo a thing is taken from."""

from __future__ import annotations

from pathlib import Path

from augmentation.novel_objects.method import SourcePhoto, SourcePool
from augmentation.regions.boxes import Limits

SQUARE, LARGER, FLAT = (0.0, 0.0, 40.0, 40.0), (0.0, 0.0, 60.0, 60.0), (0.0, 0.0, 80.0, 20.0)


def pool(**boxes) -> SourcePool:
    photos = [
        SourcePhoto(image_id=name, image_path=Path(name), boxes=tuple(photo_boxes))
        for name, photo_boxes in boxes.items()
    ]
    return SourcePool(photos=photos, limits=Limits(), seed=0)


def test_photos_are_used_in_turns():
    photos = pool(a=[SQUARE], b=[SQUARE], c=[SQUARE], flat=[FLAT])
    chosen = [photos.choose([SQUARE], min_targets=1, key=str(n))[0].image_id for n in range(6)]
    assert sorted(chosen[:3]) == sorted(chosen[3:]) == ["a", "b", "c"]


def test_what_is_replaced_again_gets_another_photo():
    photos = pool(a=[SQUARE], b=[SQUARE])
    chosen = [photos.choose([SQUARE], min_targets=1, key="same") for _ in range(3)]
    assert {c[0].image_id for c in chosen[:2]} == {"a", "b"}
    assert chosen[2] is None
    assert photos.choose([SQUARE], min_targets=1, key="other") is not None


def test_the_choice_does_not_depend_on_the_order_given():
    keys = [str(n) for n in range(8)]
    first_pool, second_pool = pool(a=[SQUARE], b=[SQUARE]), pool(b=[SQUARE], a=[SQUARE])
    first = [first_pool.choose([SQUARE], min_targets=1, key=key)[0].image_id for key in keys]
    assert first == [
        second_pool.choose([SQUARE], min_targets=1, key=key)[0].image_id for key in keys
    ]
    assert len(set(first[::2])) == 2  # ties are drawn by the key


def test_things_of_one_photo_replace_those_of_another():
    photos = pool(a=[SQUARE, LARGER, FLAT])
    _, boxes = photos.choose([SQUARE, LARGER, (0, 0, 10, 10)], min_targets=1, key="")
    assert boxes == (SQUARE, LARGER, None)


def test_a_class_with_one_instance_replaces_several():
    _, boxes = pool(a=[SQUARE]).choose([SQUARE, SQUARE], min_targets=2, key="")
    assert boxes == (SQUARE, SQUARE)


def test_as_many_as_asked_or_none():
    photos = pool(a=[SQUARE])
    assert photos.choose([SQUARE, FLAT], min_targets=2, key="") is None
    assert photos.uses.tolist() == [0]
    assert pool().choose([SQUARE], min_targets=1, key="") is None
