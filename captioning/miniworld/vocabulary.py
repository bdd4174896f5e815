"""The object classes of MiniWorld by family, and those that training never shows."""

from __future__ import annotations

from functools import cache

from captioning.miniworld.goods import FOOD, FURNITURE, OBJECTS
from captioning.miniworld.living import ANIMALS, BIRDS_AND_BUGS, PEOPLE, SEA_LIFE
from captioning.miniworld.machines import AIR_AND_SEA, VEHICLES
from captioning.miniworld.object_class import ObjectClass
from captioning.miniworld.outdoors import OUTDOOR_THINGS

_TABLES = (
    PEOPLE, ANIMALS, BIRDS_AND_BUGS, SEA_LIFE, VEHICLES, AIR_AND_SEA, FOOD, FURNITURE, OBJECTS,
    OUTDOOR_THINGS,
)  # fmt: skip

CLASSES: dict[str, ObjectClass] = {kind.key: kind for table in _TABLES for kind in table}
"""Object classes by key."""


@cache
def families() -> tuple[str, ...]:
    """Names of the families, in order of first appearance."""
    return tuple(dict.fromkeys(kind.family for kind in CLASSES.values()))


@cache
def held_out() -> frozenset[str]:
    """Keys of the classes that training never shows."""
    return frozenset(key for key, kind in CLASSES.items() if kind.held_out)
