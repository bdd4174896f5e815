"""Object classes of MiniWorld by family, and the classes that training never shows."""

from __future__ import annotations

from functools import cache

from captioning.miniworld.object_class import (
    AIR,
    CLOTHES,
    FUR,
    GLASS,
    INDOORS,
    LAND,
    LIGHT,
    OUTDOORS,
    PAINT,
    PALE,
    WATER,
    WILD,
    ObjectClass,
    object_class,
)

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


# fmt: off
_FOOD = {"family": "food", "small": True, "places": ("kitchen", "kitchen", "meadow")}
_FOOD_FIXED = {**_FOOD, "turns": True}
FOOD = (
    object_class("apple", "apple-whole", "", height=0.20, colours=("red", "green", "yellow"),
        **_FOOD),
    object_class("pepper", "pepper-hot", "chili pepper", height=0.20, colours=("red", "green",
        "orange", "yellow"), **_FOOD),
    object_class("carrot", "carrot", "", height=0.21, colours=("orange",), **_FOOD_FIXED),
    object_class("lemon", "lemon", "", height=0.19, colours=("yellow",), held_out=True,
        **_FOOD_FIXED),
    object_class("egg", "egg", "", height=0.18, colours=("white", "brown"), trim=PALE, **_FOOD),
    object_class("slice of cheese", "cheese", "piece of cheese", height=0.18, colours=("yellow",),
        **_FOOD_FIXED),
    object_class("slice of bread", "bread-slice", "piece of bread", height=0.20,
        colours=("brown",), **_FOOD_FIXED),
    object_class("burger", "burger", "hamburger", height=0.21, colours=("orange",), trim=(108, 60,
        34), **_FOOD_FIXED),
    object_class("hot dog", "hotdog", "", height=0.20, colours=("orange",), trim=(190, 50, 30),
        **_FOOD_FIXED),
    object_class("slice of pizza", "pizza-slice", "pizza slice", height=0.22, colours=("yellow",),
        trim=(206, 44, 36), held_out=True, **_FOOD_FIXED),
    object_class("ice cream cone", "ice-cream", "ice cream", height=0.26, trim=PALE,
        colours=("pink", "brown", "white", "green"), **_FOOD),
    object_class("cake", "cake-candles", "birthday cake", height=0.26, trim=PALE, colours=("pink",
        "brown", "white", "purple"), **_FOOD),
    object_class("cookie", "cookie", "", height=0.18, colours=("brown",), trim=(60, 34, 20),
        **_FOOD_FIXED),
    object_class("chicken leg", "drumstick-bite", "drumstick", height=0.20, colours=("brown",),
        **_FOOD_FIXED),
    object_class("mug", "mug-hot", "cup", height=0.20, colours=PAINT, **{**_FOOD, "family":
        "drinks"}),
    object_class("bottle", "bottle-water", "water bottle", height=0.26, trim=GLASS,
        colours=("blue", "green", "red", "pink"), **{**_FOOD, "family": "drinks"}),
    object_class("wine glass", "wine-glass", "glass of wine", height=0.24, colours=("red",
        "purple", "yellow", "pink"), trim=GLASS, held_out=True, **{**_FOOD, "family": "drinks"}),
    object_class("cocktail", "martini-glass", "drink", height=0.23, trim=GLASS, colours=("green",
        "blue", "pink", "orange"), **{**_FOOD, "family": "drinks"}),
)
# fmt: on

# fmt: off
_FURNITURE = {"family": "furniture", "places": ("living_room",), "colours": PAINT}
_WOOD = {**_FURNITURE, "colours": ("brown", "white", "red", "blue", "green", "black")}
FURNITURE = (
    object_class("table", "table*", "", height=0.27, carries=1.0, shelters=True, turns=False,
        **{**_WOOD, "places": ("kitchen", "living_room", "kitchen", "meadow")}),
    object_class("chair", "chair", "", height=0.34, turns=False, **{**_WOOD, "places": INDOORS}),
    object_class("couch", "couch", "sofa", height=0.30, carries=0.62, turns=False, trim=None,
        held_out=True, **_FURNITURE),
    object_class("bed", "bed", "", height=0.30, trim=PALE, carries=0.0, **_FURNITURE),
    object_class("television", "tv", "tv", height=0.32, turns=False, trim=(120, 190, 230),
        **{**_FURNITURE, "colours": ("black", "gray", "white", "red"), "small": True}),
    object_class("bathtub", "bath", "bath", height=0.34, **_FURNITURE),
    object_class("sink", "sink", "", height=0.28, turns=False, **{**_FURNITURE, "places":
        ("kitchen",), "colours": ("gray", "white", "blue", "pink")}),
    object_class("toilet", "toilet", "", height=0.30, **{**_FURNITURE, "trim": PALE, "colours":
        ("white", "pink", "blue", "green")}),
)
# fmt: on

# fmt: off
_HOME = {"family": "household items", "places": (*INDOORS, "city"), "small": True}
_PLAY = {"family": "sports", "places": ("meadow", "beach", "city", "living_room"), "small": True}
OBJECTS = (
    object_class("laptop", "laptop", "laptop computer", height=0.22, trim=(150, 205, 240),
        colours=("gray", "black", "white", "pink"), turns=False, **_HOME),
    object_class("camera", "camera-retro", "", height=0.20, colours=PAINT, trim=GLASS, **_HOME),
    object_class("book", "book", "", height=0.22, colours=PAINT, trim=PALE, **_HOME),
    object_class("guitar", "guitar", "", height=0.32, trim=PALE, held_out=True, colours=("red",
        "brown", "orange", "blue", "black"), **_HOME),
    object_class("drum", "drum", "", height=0.24, colours=PAINT, trim=PALE, **_HOME),
    object_class("lamp", "lightbulb", "light bulb", height=0.24, trim=LIGHT, colours=("yellow",
        "white", "orange", "green"), turns=False, **_HOME),
    object_class("gift", "gift", "present", height=0.23, trim=LIGHT, turns=False, colours=("red",
        "blue", "green", "purple", "pink"), **_HOME),
    object_class("suitcase", "suitcase-rolling", "bag", height=0.28, colours=PAINT, **_HOME),
    object_class("box", "box", "", height=0.24, carries=1.0, trim=PALE, turns=False,
        colours=("brown", "red", "blue", "green", "purple"), **_HOME),
    object_class("bucket", "bucket", "pail", height=0.24, turns=False, colours=("blue", "red",
        "green", "yellow", "pink"), **{**_HOME, "places": ("beach", "farm", "kitchen")}),
    object_class("trash can", "trash-can", "garbage can", height=0.28, turns=False, trim=PALE,
        colours=("gray", "green", "blue", "black"), **{**_HOME, "places": ("city", "kitchen"),
        "small": False}),
    object_class("shopping cart", "cart-shopping", "cart", height=0.28, held_out=True,
        colours=("red", "blue", "gray", "green", "yellow"), **{**_HOME, "places": ("city",
        "kitchen"), "small": False}),
    object_class("stroller", "baby-carriage", "baby carriage", height=0.30, colours=("blue",
        "pink", "purple", "red", "green"), **{**_HOME, "places": ("city", "meadow", "living_room"),
        "small": False}),
    object_class("basketball", "basketball", "", height=0.20, colours=("orange",), trim=(60, 30,
        20), actions=("bouncing", "resting"), **_PLAY),
    object_class("soccer ball", "futbol", "", height=0.20, trim=(250, 250, 250), colours=("black",
        "blue", "red"), actions=("bouncing", "resting"), **_PLAY),
    object_class("football", "football", "", height=0.20, colours=("brown",), trim=PALE,
        actions=("bouncing", "resting"), **_PLAY),
    object_class("volleyball", "volleyball", "", height=0.20, trim=(250, 250, 250),
        colours=("yellow", "blue", "red", "pink"), actions=("bouncing", "resting"), held_out=True,
        **_PLAY),
    object_class("trophy", "trophy", "", height=0.24, colours=("yellow", "gray"), trim=PALE,
        turns=False, **_PLAY),
)
# fmt: on


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
