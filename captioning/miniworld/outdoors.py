"""Plants, buildings and other things that stand outdoors."""

from __future__ import annotations

from captioning.miniworld.object_class import LIGHT, PAINT, PALE, object_class

# fmt: off
_PLANT = {"family": "plants", "places": ("meadow", "mountains", "snow", "farm", "city")}
_HOUSE = {"family": "buildings", "trim": LIGHT, "turns": False, "colours": PAINT}
_LAND = ("snow", "mountains", "meadow", "farm", "desert")
_STREET = {"family": "outdoor things", "turns": False}
OUTDOOR_THINGS = (
    object_class("tree", "tree", "pine tree", height=0.46, colours=("green",), turns=False,
        **_PLANT),
    object_class("plant", "seedling", "seedling", height=0.24, colours=("green",), **_PLANT),
    object_class("house", "house-chimney", "", height=0.42, places=(*_LAND, "beach"), **_HOUSE),
    object_class("tent", "campground", "", height=0.34, places=(*_LAND, "forest", "beach"),
        held_out=True, **_HOUSE),
    object_class("church", "church", "", height=0.44, places=_LAND, **_HOUSE),
    object_class("igloo", "igloo", "", height=0.32, places=("snow",), **{**_HOUSE, "colours":
        ("blue", "gray"), "trim": (236, 246, 255)}),
    object_class("store", "store", "shop", height=0.36, places=("city",), **_HOUSE),
    object_class("tower", "chess-rook", "castle tower", height=0.44, places=("mountains", "meadow",
        "desert", "snow"), **{**_HOUSE, "colours": ("gray", "brown", "red", "purple")}),
    object_class("watchtower", "tower-observation", "lookout tower", height=0.46, places=("forest",
        "mountains", "farm", "desert"), **{**_HOUSE, "colours": ("brown", "red", "gray"), "trim":
        None}),
    object_class("snowman", "snowman", "", height=0.36, places=("snow",), trim=PALE,
        colours=("blue", "purple", "gray"), held_out=True, **_STREET),
    object_class("traffic light", "traffic-light", "stoplight", height=0.36, places=("city",),
        colours=("black", "yellow"), trim=(240, 60, 40), **_STREET),
    object_class("umbrella", "umbrella-beach", "beach umbrella", height=0.38, colours=PAINT,
        places=("beach",), family="outdoor things"),
    object_class("campfire", "fire", "fire", height=0.24, colours=("orange",), trim=LIGHT,
        places=("forest", "beach", "mountains", "desert", "snow"), **_STREET),
    object_class("gate", "torii-gate", "archway", height=0.38, colours=("red", "black", "orange"),
        places=("forest", "mountains", "meadow"), **_STREET),
)
# fmt: on
