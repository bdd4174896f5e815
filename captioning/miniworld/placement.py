"""Positions of objects: rejection sampling until no object hides another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from captioning.miniworld.actions import ACTIONS, SCALES
from captioning.miniworld.icons import aspect
from captioning.miniworld.places import Place
from captioning.miniworld.relations import area, between_ground, overlap
from captioning.miniworld.scene import SceneObject, icon_of
from captioning.miniworld.vocabulary import CLASSES
from captioning.types import Box

JUMP = 0.10
"""Height of a jumping object above its shadow, as a share of the image height."""

SIZES = {"": 1.0, "small": 0.62, "large": 1.42}
GROUPS = (1.0, 0.88, 0.78, 0.70)
FLOOR = 0.10
"""Minimum height of an object as a share of the image height, so that it is recognisable."""

TRAIL = 0.14
"""Length of the lines behind a moving object, as a share of the image width."""

MARGIN = 0.03
TRIES = 40

Boxes = list[Box]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Object without a position; fields as in `scene.SceneObject`."""

    key: str
    action: str
    size: str
    colour: str
    count: int
    zone: str
    mirrored: bool
    tint: tuple[int, int, int]
    skin: int

    def placed(self, node: int, boxes: Sequence[Box]) -> SceneObject:
        """Place a planned object at ``boxes``."""
        return SceneObject(
            node=node, key=self.key, boxes=tuple(boxes), colour=self.colour, size=self.size,
            action=self.action, zone=self.zone, mirrored=self.mirrored, tint=self.tint,
            skin=self.skin,
        )  # fmt: skip


def measure(plan: Plan, crowd: int) -> tuple[float, float]:
    """Width and height of one instance of an object, if ``crowd`` objects share the image."""
    kind = CLASSES[plan.key]
    scale = SCALES.get((plan.key, plan.action)) or (
        ACTIONS[plan.action].scale if plan.action else 1.0
    )
    height = kind.height * scale * SIZES[plan.size] * GROUPS[plan.count - 1]
    height = max(height * (1.0, 0.96, 0.88)[crowd - 1], FLOOR)
    wide = aspect(icon_of(plan.key, plan.action))
    limit = min(0.56, 0.86 / (plan.count * 1.15))
    return (height * wide, height) if height * wide <= limit else (limit, limit / wide)


def arrange(
    rng: np.random.Generator, plans: Sequence[Plan], place: Place
) -> tuple[tuple[SceneObject, ...], dict[tuple[int, int], str]]:
    """Place planned objects in an image; objects that find no room are left out.

    Returns:
        the objects, and ``{(subject, object): "on" or "under"}`` for stacked objects.
    """
    plans, joint = _stack(rng, list(plans), place)
    crowd = len(plans)
    if joint:
        objects, structural = _stacked(rng, plans, place, joint)
    else:
        boxes = _place_free(rng, plans[0], place, [], crowd)
        objects = [] if boxes is None else [plans[0].placed(0, boxes)]
        structural = {}
    if not objects:
        return (), {}
    for plan in plans[len(objects) :]:
        behind = rng.random() < 0.3 and not structural and plan.zone == objects[0].zone != "sky"
        boxes = None
        if behind and len(objects) == 1:
            boxes = _place_deep(rng, plan, place, objects[0], crowd)
        occupied = [
            reach(box, item.action, item.mirrored) for item in objects for box in item.boxes
        ]
        boxes = boxes or _place_free(rng, plan, place, occupied, crowd)
        if boxes is not None:
            objects.append(plan.placed(len(objects), boxes))
    return tuple(objects), structural


def _stack(rng: np.random.Generator, plans: list[Plan], place: Place) -> tuple[list[Plan], str]:
    """Choose whether the first object is on or under the second; both get the usual size."""
    if len(plans) < 2 or plans[0].zone != "ground" or plans[1].zone != "ground":
        return plans, ""
    first, second = CLASSES[plans[0].key], CLASSES[plans[1].key]
    still = plans[0].action in (
        "",
        "standing",
        "sitting",
        "sleeping",
        "lying",
        "perched",
        "resting",
    )
    if not (first.small and still and second.carries and plans[0].count <= 2):
        return plans, ""
    joint = "under" if second.shelters and rng.random() < 0.35 else "on"
    plans[0] = replace(plans[0], size="")
    plans[1] = replace(plans[1], size="", count=1)
    return plans, joint


def _stacked(
    rng: np.random.Generator, plans: Sequence[Plan], place: Place, joint: str
) -> tuple[list[SceneObject], dict[tuple[int, int], str]]:
    upper, bearer = plans[0], plans[1]
    kind = CLASSES[bearer.key]
    height = kind.height * 1.35
    width = height * aspect(icon_of(bearer.key, ""))
    base = rng.uniform(0.86, 0.94)
    x1 = rng.uniform(MARGIN, 1 - MARGIN - width)
    below = (x1, base - height, x1 + width, base)
    tall = CLASSES[upper.key].height * 0.86
    room = width * (0.9 if joint == "on" else 0.76)
    wide = tall * aspect(icon_of(upper.key, upper.action))
    limit = height * 0.74 if joint == "under" else 1.0
    shrink = min(1.0, room / (upper.count * wide * 1.08), limit / tall)
    wide, tall = wide * shrink, tall * shrink
    span = wide * (upper.count + 0.08 * (upper.count - 1))
    left = x1 + (width - span) / 2 + rng.uniform(-0.5, 0.5) * (room - span)
    foot = base if joint == "under" else base - kind.carries * height + 0.012
    boxes = [
        (left + step * wide * 1.08, foot - tall, left + step * wide * 1.08 + wide, foot)
        for step in range(upper.count)
    ]
    objects = [upper.placed(0, boxes), bearer.placed(1, [below])]
    return objects, {(0, 1): joint}


def _row(rng: np.random.Generator, plan: Plan, place: Place, crowd: int) -> list[Box] | None:
    """Boxes of an object or a group in its zone; None if there is no room."""
    width, height = measure(plan, crowd)
    trail = TRAIL if _mark(plan.action) == "speed" else 0.0
    step = width * rng.uniform(1.06, 1.3) + 0.8 * trail
    span = step * (plan.count - 1) + width
    if span > 1 - 2 * MARGIN:
        step = (1 - 2 * MARGIN - width) / max(1, plan.count - 1)
        span = 1 - 2 * MARGIN
        if step < width * 1.02:
            return None
    low, high = _baseline(plan, place, height)
    if low > high:
        return None
    first, last = _side_room(trail, plan.mirrored, span)
    left, base = rng.uniform(first, last), rng.uniform(low, high)
    boxes = []
    for number in range(plan.count):
        x1 = left + number * step
        foot = min(max(base + rng.uniform(-0.025, 0.025), low), high)
        boxes.append((x1, foot - height, x1 + width, foot))
    return boxes


def _mark(action: str) -> str:
    return ACTIONS[action].mark if action else ""


def _side_room(trail: float, mirrored: bool, span: float) -> tuple[float, float]:
    """Range of positions where a row and its trail fit into the image."""
    first, last = MARGIN, 1 - MARGIN - span + 1e-9
    if trail > last - first:
        return first, last
    return (first, last - trail) if mirrored else (first + trail, last)


def reach(box: Box, action: str, mirrored: bool) -> Box:
    """Box extended by the lines that trail behind a moving object."""
    if _mark(action) != "speed":
        return box
    x1, y1, x2, y2 = box
    return (x1, y1, x2 + TRAIL, y2) if mirrored else (x1 - TRAIL, y1, x2, y2)


def _baseline(plan: Plan, place: Place, height: float) -> tuple[float, float]:
    """Range of heights for an object's foot, as shares of the image height."""
    if plan.zone == "sky":
        high = 0.92 if place.key == "sky" else place.horizon * 0.86
        return height + MARGIN, max(high, height + MARGIN)
    low = max(place.horizon + 0.14, height + MARGIN)
    if plan.zone == "water":
        return low, 0.92
    lift = JUMP if _mark(plan.action) == "jump" else 0.0
    return low - lift if low - lift > height + MARGIN else low, 0.95 - lift


def _place_free(
    rng: np.random.Generator, plan: Plan, place: Place, occupied: Boxes, crowd: int
) -> list[Box] | None:
    for _ in range(TRIES):
        boxes = _row(rng, plan, place, crowd)
        if boxes is None:
            return None
        reached = [reach(box, plan.action, plan.mirrored) for box in boxes]
        if all(_clear(box, other) for box in reached for other in occupied):
            return boxes
    return None


def _clear(first: Box, second: Box) -> bool:
    return overlap(first, second) <= 0.02 * min(area(first), area(second))


def _place_deep(
    rng: np.random.Generator, plan: Plan, place: Place, other: SceneObject, crowd: int
) -> list[Box] | None:
    """Box in front of or behind ``other`` that overlaps it, with both still recognisable."""
    if plan.count > 1 or len(other.boxes) > 1 or _mark(plan.action) or _mark(other.action):
        return None
    width, height = measure(plan, crowd)
    x1, y1, x2, y2 = other.box
    for _ in range(TRIES):
        side, shift = (1 if rng.random() < 0.5 else -1), rng.uniform(0.3, 0.62)
        centre = (x1 + x2) / 2 + side * shift * max(width, x2 - x1)
        foot = y2 + (1 if height < y2 - y1 else -1) * rng.uniform(0.07, 0.13)
        box = (centre - width / 2, foot - height, centre + width / 2, foot)
        low, high = _baseline(plan, place, height)
        inside = box[0] >= MARGIN and box[2] <= 1 - MARGIN and low <= foot <= high
        rear = box if foot < y2 else other.box
        deep = between_ground(box, other.box) in (("behind",), ("in front of",))
        if inside and deep and overlap(box, other.box) <= 0.3 * area(rear):
            return [box]
    return None


def decorate(
    rng: np.random.Generator, objects: Sequence[SceneObject], place: Place, time: str
) -> tuple[str, tuple[tuple[str, Box], ...]]:
    """Add weather, and the sun, moon or clouds for it where the sky is free."""
    mark = rng.random()
    if not place.outdoors or "sky" not in place.zones or place.key == "sky" or mark < 0.35:
        return "clear", ()
    occupied = [box for item in objects for box in item.boxes]
    if mark < 0.68 or time == "night":
        label = "moon" if time == "night" else "sun"
        sky_boxes = _sky_boxes(rng, occupied, place, 1, 0.13, 0.13, low=time == "sunset")
        return ("sunny", ((label, sky_boxes[0]),)) if sky_boxes else ("clear", ())
    sky_boxes = _sky_boxes(rng, occupied, place, 3, 0.24, 0.15, low=False)
    if len(sky_boxes) < 2:
        return "clear", ()
    return "cloudy", tuple(("cloud", box) for box in sky_boxes)


def _sky_boxes(
    rng: np.random.Generator, occupied: list[Box], place: Place, count: int,
    width: float, height: float, *, low: bool,
) -> list[Box]:  # fmt: skip
    boxes: list[Box] = []
    for _ in range(12):
        if len(boxes) == count:
            break
        x1 = rng.uniform(MARGIN, 1 - MARGIN - width)
        y1 = place.horizon - 0.16 if low else rng.uniform(MARGIN, place.horizon * 0.45)
        box = (x1, y1, x1 + width, y1 + height)
        if all(overlap(box, other) == 0 for other in (*occupied, *boxes)):
            boxes.append(box)
    return boxes
