"""Vehicles, aircraft and boats."""

from __future__ import annotations

from captioning.miniworld.object_class import (
    AIR,
    GLASS,
    LAND,
    PAINT,
    PALE,
    WATER,
    object_class,
)

# fmt: off
_VEHICLES = {"family": "vehicles", "trim": GLASS, "colours": PAINT}
_ROAD = {**_VEHICLES, "places": (*LAND, "snow"), "actions": ("parked", "driving")}
_FRONT = {**_VEHICLES, "places": ("city", "snow", "mountains"), "turns": False}
_BIKE = {**_VEHICLES, "places": (*LAND, "beach"), "trim": None}
VEHICLES = (
    object_class("car", "car-side", "", height=0.25, **_ROAD),
    object_class("van", "van-shuttle", "minivan", height=0.26, **_ROAD),
    object_class("truck", "truck", "lorry", height=0.27, **_ROAD),
    object_class("pickup truck", "truck-pickup", "pickup", height=0.25, **_ROAD),
    object_class("ambulance", "truck-medical", "", height=0.28, held_out=True, **{**_ROAD, "trim":
        (214, 38, 38), "colours": ("white", "yellow", "orange")}),
    object_class("monster truck", "truck-monster", "", height=0.28, **_ROAD),
    object_class("camper", "caravan", "caravan", height=0.28, **{**_ROAD, "actions": (), "places":
        (*LAND, "beach")}),
    object_class("tractor", "tractor", "", height=0.30, held_out=True, **{**_ROAD, "places":
        ("farm", "meadow", "mountains")}),
    object_class("snowplow", "snowplow", "", height=0.30, **{**_ROAD, "places": ("snow",
        "mountains", "city")}),
    object_class("motorcycle", "motorcycle", "motorbike", height=0.25, held_out=True, **{**_BIKE,
        "actions": ("parked", "driving")}),
    object_class("bicycle", "bicycle", "bike", height=0.25, **{**_BIKE, "actions": ("parked",)}),
    object_class("bus", "bus", "", height=0.34, **_FRONT),
    object_class("taxi", "taxi", "cab", height=0.27, **{**_FRONT, "colours": ("yellow", "black",
        "green", "white")}),
    object_class("train", "train", "", height=0.36, **_FRONT),
    object_class("tram", "train-tram", "streetcar", height=0.38, **_FRONT),
)
# fmt: on

# fmt: off
_AIR = {"family": "aircraft", "zone": "sky", "places": AIR, "actions": ("flying",)}
_BOAT = {"family": "boats", "zone": "water", "places": WATER, "trim": GLASS}
AIR_AND_SEA = (
    object_class("airplane", "plane", "plane", height=0.24, colours=PAINT, **_AIR),
    object_class("fighter jet", "jet-fighter", "jet", height=0.24, trim=GLASS, colours=("gray",
        "black", "green", "blue"), **_AIR),
    object_class("helicopter", "helicopter", "", height=0.26, colours=PAINT, trim=GLASS,
        held_out=True, **_AIR),
    object_class("rocket", "rocket", "", height=0.28, trim=GLASS, colours=("red", "white",
        "orange", "purple", "gray"), **_AIR),
    object_class("parachute", "parachute-box", "", height=0.32, turns=False, trim=PALE,
        colours=PAINT, **{**_AIR, "actions": ("floating",)}),
    object_class("sailboat", "sailboat", "", height=0.36, colours=PAINT, actions=("sailing",),
        **_BOAT),
    object_class("ship", "ship", "", height=0.36, colours=PAINT, turns=False, actions=("sailing",),
        **_BOAT),
    object_class("ferry", "ferry", "ferry boat", height=0.36, turns=False, held_out=True,
        actions=("sailing",), colours=("white", "red", "yellow", "orange"), **_BOAT),
)
# fmt: on
