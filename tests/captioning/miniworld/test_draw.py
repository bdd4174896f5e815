"""Drawing: boxes are tight around what is drawn, at every size, and nothing depends on caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from captioning.miniworld.draw import backdrop, draw_scene
from captioning.miniworld.icons import aspect, masks, mirrored
from captioning.miniworld.places import PLACES, TIMES
from captioning.miniworld.sample import sample_scene
from captioning.miniworld.scene import Scene


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image, dtype=np.int16)


def without(scene: Scene, node: int) -> Scene:
    """The scene with a thing made invisible: no boxes, the rest as it was."""
    objects = tuple(
        replace(item, boxes=()) if item.node == node else item for item in scene.objects
    )
    return replace(scene, objects=objects, relations=())


@pytest.mark.long
@pytest.mark.parametrize("size", [64, 128, 224])
def test_boxes_are_tight_around_what_is_drawn(size: int) -> None:
    checked = 0
    for index in range(60):
        scene = sample_scene(seed=0, split="train", index=index)
        drawing = draw_scene(scene, size=size)
        if len(scene.objects) > 1 or len(scene.objects[0].boxes) > 1:
            continue
        checked += 1
        (x1, y1, x2, y2) = drawing.boxes[0][0]
        assert 0 <= x1 < x2 <= size
        assert 0 <= y1 < y2 <= size
        bare = draw_scene(without(scene, 0), size=size).image
        changed = np.abs(pixels(drawing.image) - pixels(bare)).max(axis=2) > 8
        inside = changed[y1:y2, x1:x2]
        assert inside[:2].any(), scene.scene_id
        assert inside[-2:].any(), scene.scene_id
        assert inside[:, :2].any(), scene.scene_id
        assert inside[:, -2:].any(), scene.scene_id
        assert inside.mean() > 0.12, scene.scene_id
        above = changed[: max(0, y1), x1:x2]
        assert not above.any() or scene.objects[0].action == "sleeping", scene.scene_id
    assert checked > 8


def test_boxes_are_where_the_scene_puts_them() -> None:
    for index in range(40):
        scene = sample_scene(seed=6, split="train", index=index)
        drawing = draw_scene(scene, size=128)
        for item in scene.objects:
            for box, drawn in zip(item.boxes, drawing.boxes[item.node], strict=True):
                far = np.abs(np.array(box) * 128 - drawn).max()
                assert far <= 2.5, (scene.scene_id, item.key)


def test_things_are_recognisable_sizes() -> None:
    for index in range(150):
        drawing = draw_scene(sample_scene(seed=4, split="train", index=index), size=128)
        for boxes in drawing.boxes:
            for x1, y1, x2, y2 in boxes:
                assert y2 - y1 >= 7
                assert x2 - x1 >= 6


def test_every_thing_is_seen() -> None:
    """Taking a thing away changes a good part of its boxes, even where others stand in front."""
    for index in range(60):
        scene = sample_scene(seed=5, split="train", index=index)
        drawing = draw_scene(scene, size=96)
        for item in scene.objects:
            bare = draw_scene(without(scene, item.node), size=96).image
            changed = np.abs(pixels(drawing.image) - pixels(bare)).max(axis=2) > 8
            for x1, y1, x2, y2 in drawing.boxes[item.node]:
                assert changed[y1:y2, x1:x2].mean() > 0.12, (scene.scene_id, item.key)


def test_drawing_twice_gives_the_same_pixels() -> None:
    scene = sample_scene(seed=0, split="val", index=11)
    first = draw_scene(scene, size=96)
    masks.cache_clear()
    backdrop.cache_clear()
    again = draw_scene(scene, size=96)
    assert first.image.tobytes() == again.image.tobytes()
    assert first.boxes == again.boxes


def test_backdrops_are_not_drawn_on() -> None:
    scene = sample_scene(seed=0, split="train", index=3)
    variant = scene.backdrop_seed % 12
    before = backdrop(scene.place, scene.time, variant, 96).tobytes()
    draw_scene(scene, size=96)
    assert backdrop(scene.place, scene.time, variant, 96).tobytes() == before


def test_places_and_times_look_different() -> None:
    means = {
        (place, time): pixels(backdrop(place, time, 0, 64)).reshape(-1, 3).mean(axis=0)
        for place in PLACES
        for time in (TIMES if PLACES[place].outdoors else ("day",))
    }
    for place, place_ in PLACES.items():
        if place_.outdoors:
            assert means[place, "night"].mean() < 0.75 * means[place, "day"].mean(), place
    pictures = {pixels(backdrop(place, "day", 0, 64)).tobytes() for place in PLACES}
    assert len(pictures) == len(PLACES)


def test_mirror_keeps_the_size() -> None:
    first, second = masks("dog", 40, 1), mirrored("dog", 40, 1)
    assert first.outline.size == second.outline.size
    flipped = first.fill.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    assert flipped.tobytes() == second.fill.tobytes()
    assert 0.5 < aspect("dog") < 2


def test_people_have_heads() -> None:
    for icon in ("person", "person-running", "person-skiing", "person-swimming", "person-biking"):
        head = masks(icon, 80, 1, head=True).head
        assert head is not None, icon
        assert head.getbbox() is not None, icon


@pytest.mark.parametrize("size", [0, 31, 513])
def test_sizes_out_of_range_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=rf"size must be in .*{size}"):
        draw_scene(sample_scene(seed=0, split="train", index=0), size=size)


def test_unknown_icon_is_named() -> None:
    with pytest.raises(ValueError, match="no icon 'unicorn'"):
        masks("unicorn", 40, 1)
