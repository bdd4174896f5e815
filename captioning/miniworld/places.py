"""Places of MiniWorld: words, colours to avoid, and where objects can stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Kind of place.

    Attributes:
        key: unique name.
        ground: ``(preposition, noun phrase)`` pairs for objects that stand there.
        scenery: noun phrases for the view itself, with article.
        avoid: colours that would hardly be visible there.
        horizon: height of the horizon as a share of the image height, from the top.
        zones: zones that exist there.
        outdoors: whether there is a sky, and so a time of day and weather.
    """

    key: str
    ground: tuple[tuple[str, str], ...]
    scenery: tuple[str, ...]
    avoid: tuple[str, ...]
    horizon: float
    zones: tuple[str, ...] = ("ground", "sky")
    outdoors: bool = True


PLACES: dict[str, Place] = {
    place.key: place
    for place in (
        Place(
            key="beach",
            ground=(("on", "the beach"), ("on", "a sandy beach"), ("at", "the beach"),
                    ("on", "the sand"), ("by", "the sea")),
            scenery=("a sandy beach", "a beach", "a beach by the sea"),
            avoid=("yellow",), horizon=0.52,
        ),
        Place(
            key="snow",
            ground=(("in", "the snow"), ("on", "the snow"), ("on", "a snowy hill"),
                    ("in", "a snowy landscape")),
            scenery=("a snowy landscape", "a snowy hill", "a winter scene"),
            avoid=("white",), horizon=0.55,
        ),
        Place(
            key="city",
            ground=(("on", "a city street"), ("on", "the street"), ("in", "the city"),
                    ("on", "a road"), ("in front of", "tall buildings")),
            scenery=("a city street", "a street with tall buildings", "a road in the city"),
            avoid=("gray", "black"), horizon=0.58,
        ),
        Place(
            key="forest",
            ground=(("in", "the forest"), ("in", "the woods"), ("in", "a forest"),
                    ("in front of", "some trees")),
            scenery=("a forest", "the woods", "a green forest"),
            avoid=("green",), horizon=0.56, zones=("ground",),
        ),
        Place(
            key="desert",
            ground=(("in", "the desert"), ("in", "a desert"), ("among", "the cacti")),
            scenery=("a desert", "a desert with cacti", "a dry desert"),
            avoid=("orange", "yellow"), horizon=0.54,
        ),
        Place(
            key="mountains",
            ground=(("in", "the mountains"), ("in front of", "the mountains"),
                    ("near", "snowy mountains"), ("at", "the foot of the mountains")),
            scenery=("snowy mountains", "a mountain landscape", "tall mountains"),
            avoid=("green",), horizon=0.60,
        ),
        Place(
            key="meadow",
            ground=(("in", "a meadow"), ("in", "a green field"), ("on", "the grass"),
                    ("in", "the grass"), ("in", "a field of flowers")),
            scenery=("a green meadow", "a field of flowers", "a grassy field"),
            avoid=("green",), horizon=0.52,
        ),
        Place(
            key="farm",
            ground=(("on", "a farm"), ("in front of", "a barn"), ("near", "a red barn"),
                    ("in", "a plowed field")),
            scenery=("a farm", "a farm with a red barn", "a plowed field"),
            avoid=("brown",), horizon=0.54,
        ),
        Place(
            key="lake",
            ground=(("in", "the water"), ("on", "the water"), ("in", "a lake"),
                    ("on", "a lake"), ("on", "the lake")),
            scenery=("a lake", "a blue lake", "the water of a lake"),
            avoid=("blue",), horizon=0.42, zones=("water", "sky"),
        ),
        Place(
            key="sky",
            ground=(("in", "the sky"), ("among", "the clouds"), ("above", "the clouds")),
            scenery=("the sky", "a sky full of clouds"),
            avoid=("blue", "white"), horizon=1.0, zones=("sky",),
        ),
        Place(
            key="kitchen",
            ground=(("in", "a kitchen"), ("in", "the kitchen"), ("on", "the kitchen floor"),
                    ("on", "a tiled floor")),
            scenery=("a kitchen", "a kitchen with cabinets"),
            avoid=("white",), horizon=0.66, zones=("ground",), outdoors=False,
        ),
        Place(
            key="living_room",
            ground=(("in", "a living room"), ("in", "the living room"), ("in", "a room"),
                    ("on", "a wooden floor"), ("in", "a room with a window")),
            scenery=("a living room", "a room with a window", "a room with a wooden floor"),
            avoid=("brown",), horizon=0.66, zones=("ground",), outdoors=False,
        ),
    )
}  # fmt: skip

TIMES = ("day", "sunset", "night")
WEATHER = ("clear", "sunny", "cloudy")

#: Colours that hardly show at night.
NIGHT_AVOID = ("black", "purple", "brown")
