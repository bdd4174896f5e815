"""Sample scenes as a pure function of (seed, split, index)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.object_class import ObjectClass
from captioning.miniworld.placement import JUMP, Plan, arrange, decorate
from captioning.miniworld.places import NIGHT_AVOID, PLACES, TIMES, Place
from captioning.miniworld.relations import INVERSE as INVERSES
from captioning.miniworld.relations import (
    Relation,
    between_flying,
    between_ground,
    between_levels,
    union,
)
from captioning.miniworld.scene import Scene, SceneObject
from captioning.miniworld.vocabulary import CLASSES

SPLITS = ("train", "val", "test_in", "test_near", "test_out")
WEIGHTS = {
    "person": 18.0, "man": 2.0, "woman": 2.0, "dog": 3.0, "cat": 2.0, "cow": 2.0, "bird": 2.0,
    "food": 0.6, "drinks": 0.6, "household items": 0.8,
}  # fmt: skip
"""Weight of a class or a family as the main object, 1 by default; most photos show people."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Pool:
    """Classes that a split may show, as the main object and as other objects."""

    main: tuple[ObjectClass, ...]
    others: tuple[ObjectClass, ...]


def pool_of(split: str, rng: np.random.Generator) -> Pool:
    """Classes of a scene of ``split``.

    A near-domain scene shows a held-out class beside a training class, in any order.

    Raises:
        ValueError: the split is unknown.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}: got {split!r}")
    seen = tuple(kind for kind in CLASSES.values() if not kind.held_out)
    unseen = tuple(kind for kind in CLASSES.values() if kind.held_out)
    if split == "test_out":
        return Pool(unseen, unseen)
    if split == "test_near":
        return Pool(unseen, seen) if rng.random() < 0.5 else Pool(seen, unseen)
    return Pool(seen, seen)


def pick(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    """Draw one of ``items`` uniformly."""
    return items[int(rng.integers(len(items)))]


def weighted(rng: np.random.Generator, items: Sequence[Item], weights: Sequence[float]) -> Item:
    """Draw one of ``items`` by weight."""
    mark = rng.random() * sum(weights)
    for item, weight in zip(items, weights, strict=True):
        mark -= weight
        if mark < 0:
            return item
    return items[-1]


def sample_scene(*, seed: int, split: str, index: int) -> Scene:
    """Sample scene number ``index`` of a split.

    Args:
        seed: seed of the whole dataset, at least 0.
        split: one of `SPLITS`.
        index: index from 0.

    Raises:
        ValueError: the split is unknown, or seed or index is negative.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}: got {split!r}")
    if seed < 0 or index < 0:
        raise ValueError(f"seed and index must be at least 0: got seed {seed}, index {index}")
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    while True:
        scene = _attempt(rng, split, f"{split}_{seed}_{index:06d}")
        if scene is not None:
            return scene


def scene_graph(*, seed: int, split: str, index: int) -> dict[str, Any]:
    """Graph of a scene as plain values: nodes with attributes and boxes, and relations."""
    return sample_scene(seed=seed, split=split, index=index).graph()


def _attempt(rng: np.random.Generator, split: str, scene_id: str) -> Scene | None:
    pool = pool_of(split, rng)
    kind = weighted(rng, pool.main, [_weight(candidate) for candidate in pool.main])
    action = pick(rng, kind.actions) if kind.actions else ""
    place = _choose_place(rng, kind, action)
    if place is None:
        return None
    time = weighted(rng, TIMES, (0.72, 0.13, 0.15)) if place.outdoors else "day"
    avoid = (*place.avoid, *(NIGHT_AVOID if time == "night" else ()))
    plans = [_plan(rng, kind, action, place, avoid)]
    plans += _companions(rng, pool, plans[0], place, avoid, forced=split == "test_near")
    objects, structural = arrange(rng, plans, place)
    if not objects or (split == "test_near" and len(objects) < 2):
        return None
    weather, decor = decorate(rng, objects, place, time)
    return Scene(
        scene_id=scene_id, place=place.key, time=time, weather=weather, decor=decor,
        objects=objects, relations=find_relations(objects, structural),
        backdrop_seed=int(rng.integers(2**31)),
    )  # fmt: skip


def _weight(kind: ObjectClass) -> float:
    return WEIGHTS.get(kind.key, WEIGHTS.get(kind.family, 1.0))


def _choose_place(rng: np.random.Generator, kind: ObjectClass, action: str) -> Place | None:
    doing = ACTIONS[action] if action else None
    zone = (doing.zone if doing else None) or kind.zone
    places: Sequence[str] = kind.places
    if doing and doing.places:
        places = doing.places
    elif zone == "ground" and rng.random() < 0.08:
        places = tuple(PLACES)
    fits = [key for key in places if zone in PLACES[key].zones]
    return PLACES[pick(rng, fits)] if fits else None


def _tint(rng: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = rng.integers(-12, 13, 3).tolist()
    return red, green, blue


def _plan(
    rng: np.random.Generator, kind: ObjectClass, action: str, place: Place,
    avoid: Sequence[str], *, beside: str = "",
) -> Plan:  # fmt: skip
    counts = (0.62, 0.19, 0.11, 0.08) if not beside else (0.78, 0.13, 0.06, 0.03)
    size = weighted(rng, ("", "small", "large"), (0.66, 0.17, 0.17))
    colours = [colour for colour in kind.colours if colour not in avoid] or kind.colours
    colours = [colour for colour in colours if colour != beside] or colours
    doing = ACTIONS[action] if action else None
    return Plan(
        key=kind.key, action=action, size=size, colour=pick(rng, colours),
        count=weighted(rng, (1, 2, 3, 4), counts),
        zone=(doing.zone if doing else None) or kind.zone,
        mirrored=bool(kind.turns and rng.random() < 0.5),
        tint=_tint(rng),
        skin=int(rng.integers(4)),
    )  # fmt: skip


def _companions(
    rng: np.random.Generator, pool: Pool, main: Plan, place: Place, avoid: Sequence[str],
    *, forced: bool,
) -> list[Plan]:  # fmt: skip
    count = weighted(rng, (0, 1, 2), (0.0 if forced else 0.18, 0.52, 0.30))
    plans: list[Plan] = []
    used_keys = {main.key}
    for _ in range(12):
        if len(plans) == count:
            break
        kind = _companion_kind(rng, pool, main, place)
        fits = [name for name in kind.actions if _fits(kind, name, place)]
        if kind.key in used_keys or (kind.actions and not fits) or not _fits(kind, "", place):
            continue
        plan = _plan(rng, kind, pick(rng, fits) if fits else "", place, avoid, beside=main.colour)
        used_keys.add(kind.key)
        plans.append(plan)
    return plans


def _fits(kind: ObjectClass, action: str, place: Place) -> bool:
    if action:
        doing = ACTIONS[action]
        zone = doing.zone or kind.zone
        return zone in place.zones and (not doing.places or place.key in doing.places)
    return place.key in kind.places or kind.family == "people"


def _companion_kind(rng: np.random.Generator, pool: Pool, main: Plan, place: Place) -> ObjectClass:
    """Class to stand beside the main object, often a class that can carry or shelter it."""
    if CLASSES[main.key].small and rng.random() < 0.5:
        bearers = [kind for kind in pool.others if kind.carries and place.key in kind.places]
        if bearers:
            return pick(rng, bearers)
    native = [kind for kind in pool.others if place.key in kind.places]
    return (
        weighted(rng, native, [_share(kind) for kind in native])
        if native
        else pick(rng, pool.others)
    )


def _share(kind: ObjectClass) -> float:
    return 1.0 if kind.family != "people" else 0.6


def find_relations(
    objects: Sequence[SceneObject], structural: dict[tuple[int, int], str]
) -> tuple[Relation, ...]:
    """All relations of objects by their boxes; ``structural`` has "on" and "under"."""
    relations: list[Relation] = []
    for first in objects:
        for second in objects[first.node + 1 :]:
            relations += _pair(first, second, structural)
    return tuple(relations)


def _pair(
    first: SceneObject, second: SceneObject, structural: dict[tuple[int, int], str]
) -> list[Relation]:
    for subject, other in ((first, second), (second, first)):
        name = structural.get((subject.node, other.node))
        if name is not None:
            return [Relation(subject.node, name, other.node)]
    if first.zone == second.zone == "sky":
        names = between_flying(first.box, second.box)
    elif first.zone == second.zone:
        names = between_ground(footing(first), footing(second))
    elif "sky" in (first.zone, second.zone):
        high, low = (first, second) if first.zone == "sky" else (second, first)
        names = between_levels(high.box, low.box)
        first, second = high, low
    else:
        names = ()
    pairs = [Relation(first.node, name, second.node) for name in names]
    return pairs + [Relation(second.node, INVERSES[name], first.node) for name in names]


def footing(item: SceneObject) -> tuple[float, float, float, float]:
    """Box of an object, extended down to its shadow if the object is in mid-air."""
    lift = JUMP if item.action and ACTIONS[item.action].mark == "jump" else 0.0
    x1, y1, x2, y2 = union(item.boxes)
    return x1, y1, x2, y2 + lift
