"""People, animals, birds, insects, sea life."""

from __future__ import annotations

from captioning.miniworld.object_class import (
    AIR,
    CLOTHES,
    FUR,
    INDOORS,
    OUTDOORS,
    PALE,
    WATER,
    WILD,
    object_class,
)

# fmt: off
_PEOPLE = {"family": "people", "colours": CLOTHES, "places": (*OUTDOORS, *INDOORS), "head": True}
_DOING = ("walking", "running", "hiking", "cycling", "digging", "kneeling", "falling")
_DOING += ("skating", "skiing", "snowboarding", "swimming", "luggage", "cane")
PEOPLE = (
    object_class("person", "person-walking", "", height=0.40, actions=_DOING, **_PEOPLE),
    object_class("man", "person", "guy", height=0.42, actions=("standing",), **_PEOPLE),
    object_class("woman", "person-dress", "lady", height=0.41, actions=("standing",), **_PEOPLE),
    object_class("boy", "child", "young boy", height=0.32, actions=("standing",), **_PEOPLE),
    object_class("girl", "child-dress", "young girl", height=0.32, actions=("standing",),
        **_PEOPLE),
    object_class("child", "child-reaching", "kid", height=0.33, actions=("cheering",), **_PEOPLE),
    object_class("baby", "baby", "infant", height=0.24, **_PEOPLE),
)
# fmt: on

# fmt: off
_ANIMALS = {"family": "animals", "places": WILD, "trim": PALE}
_PET = {**_ANIMALS, "places": (*WILD, "city", "living_room", "kitchen")}
_LEGS = ("standing", "running", "jumping", "sleeping")
_CALM = ("standing", "sleeping", "running")
ANIMALS = (
    object_class("dog", "dog", "", height=0.30, colours=FUR, actions=_LEGS, small=True, **_PET),
    object_class("cat", "cat", "kitty", height=0.28, colours=(*FUR, "orange"), small=True,
        actions=("sitting", "jumping", "sleeping"), **_PET),
    object_class("cow", "cow", "", height=0.30, colours=FUR, actions=("grazing", "sleeping"),
        **_ANIMALS),
    object_class("horse", "horse", "", height=0.36, colours=FUR, actions=_LEGS, held_out=True,
        **_ANIMALS),
    object_class("hippo", "hippo", "hippopotamus", height=0.32, colours=("gray", "brown",
        "purple"), actions=_CALM, **_ANIMALS),
    object_class("frog", "frog", "", height=0.22, colours=("green", "brown", "yellow", "red"),
        actions=("sitting", "jumping"), small=True, held_out=True, **_ANIMALS),
    object_class("otter", "otter", "", height=0.24, colours=("brown", "gray", "black"),
        actions=("lying",), **{**_ANIMALS, "places": ("beach", "snow", "forest", "meadow")}),
    object_class("dragon", "dragon", "", height=0.36, colours=("green", "red", "purple", "black"),
        actions=("sitting",), **{**_ANIMALS, "places": ("desert", "mountains", "snow")}),
)
# fmt: on

# fmt: off
_BIRD = {"family": "birds", "trim": PALE}
_BUG = {"family": "insects", "places": ("forest", "meadow", "farm", "desert", "kitchen")}
BIRDS_AND_BUGS = (
    object_class("bird", "dove", "", height=0.20, zone="sky", actions=("flying",), places=AIR,
        colours=("white", "blue", "red", "yellow", "gray", "black"), **_BIRD),
    object_class("crow", "crow", "", height=0.24, actions=("perched",), colours=("black", "gray"),
        places=WILD, small=True, held_out=True, **_BIRD),
    object_class("kiwi bird", "kiwi-bird", "kiwi", height=0.26, actions=("standing", "running"),
        colours=("brown", "gray", "black"), places=WILD, small=True, **_BIRD),
    object_class("spider", "spider", "", height=0.22, colours=("black", "brown", "red", "purple"),
        small=True, **_BUG),
    object_class("beetle", "bug", "bug", height=0.20, colours=("red", "green", "blue", "black"),
        small=True, **_BUG),
    object_class("grasshopper", "locust", "", height=0.20, colours=("green", "brown", "yellow"),
        small=True, **_BUG),
    object_class("mosquito", "mosquito", "", height=0.19, colours=("black", "gray", "brown"),
        zone="sky", actions=("flying",), held_out=True, **{**_BUG, "places": ("forest", "meadow",
        "farm", "lake")}),
    object_class("worm", "worm", "", height=0.18, colours=("pink", "brown", "red", "green"),
        small=True, **_BUG),
)
# fmt: on

# fmt: off
_SEA_LIFE = {"family": "sea life", "places": WATER, "zone": "water", "actions": ("swimming",)}
SEA_LIFE = (
    object_class("fish", "fish-fins", "", height=0.18, trim=PALE, colours=("orange", "red",
        "yellow", "purple", "green", "black"), **_SEA_LIFE),
    object_class("shrimp", "shrimp", "prawn", height=0.20, trim=PALE, colours=("pink", "orange",
        "red"), **_SEA_LIFE),
)
# fmt: on
