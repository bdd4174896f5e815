"""What MiniWorld speaks of: object classes by family, their looks, colours and held-out classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (212, 38, 38),
    "orange": (245, 130, 30),
    "yellow": (250, 208, 40),
    "green": (44, 150, 66),
    "blue": (36, 98, 212),
    "purple": (132, 66, 184),
    "pink": (242, 128, 182),
    "brown": (128, 78, 44),
    "black": (40, 40, 46),
    "white": (246, 246, 246),
    "gray": (142, 146, 152),
}

PAINT = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black", "white")
CLOTHES = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black", "white")
FUR = ("brown", "black", "white", "gray")

OUTDOORS = ("beach", "snow", "city", "forest", "desert", "mountains", "meadow", "farm")
LAND = ("city", "forest", "desert", "mountains", "meadow", "farm")
WILD = ("forest", "desert", "mountains", "meadow", "farm", "beach", "snow")
INDOORS = ("kitchen", "living_room")
WATER = ("lake",)
AIR = ("sky", "beach", "snow", "city", "desert", "mountains", "meadow", "farm", "lake")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectClass:
    """A kind of thing that can be drawn and named.

    Attributes:
        key: unique name, the label of its regions and the first word for it.
        family: the group of classes it belongs to.
        icon: name of its picture (see `icons`), when no action gives another.
        names: singular nouns for it, most usual first.
        height: usual height as a share of the picture's.
        colours: colours it comes in; a class of one colour is never called by it.
        places: where it is usually found, keys of `places.PLACES`.
        actions: what it can be seen doing, keys of `actions.ACTIONS`; empty for things that rest.
        zone: ``"ground"``, ``"water"`` or ``"sky"``: where a resting one is drawn.
        trim: colour of the enclosed gaps of its picture; None leaves them open.
        turns: whether its picture may be mirrored.
        head: whether the round part on top is a head, painted in a skin tone.
        carries: what other things can stand on: the height of its top as a share of its own.
        shelters: whether small things fit underneath.
        small: fits on what carries, and underneath what shelters.
        held_out: never seen in training; the near- and out-of-domain splits are made of these.
    """

    key: str
    family: str
    icon: str
    names: tuple[str, ...]
    height: float
    colours: tuple[str, ...]
    places: tuple[str, ...]
    actions: tuple[str, ...] = ()
    zone: str = "ground"
    trim: tuple[int, int, int] | None = None
    turns: bool = True
    head: bool = False
    carries: float = 0.0
    shelters: bool = False
    small: bool = False
    held_out: bool = False


GLASS = (206, 228, 240)
PALE = (250, 240, 214)
LIGHT = (255, 224, 120)


def _class(key: str, icon: str, names: str = "", **values: object) -> ObjectClass:
    nouns = (key, *(name.strip() for name in names.split(",") if name.strip()))
    return ObjectClass(key=key, icon=icon, names=nouns, **values)  # type: ignore[arg-type]


def _people() -> list[ObjectClass]:
    base = {"family": "people", "colours": CLOTHES, "places": (*OUTDOORS, *INDOORS), "head": True}
    doing = ("walking", "running", "hiking", "cycling", "digging", "kneeling", "falling")
    doing += ("skating", "skiing", "snowboarding", "swimming", "luggage", "cane")
    return [
        _class("person", "person-walking", "", height=0.40, actions=doing, **base),
        _class("man", "person", "guy", height=0.42, actions=("standing",), **base),
        _class("woman", "person-dress", "lady", height=0.41, actions=("standing",), **base),
        _class("boy", "child", "young boy", height=0.32, actions=("standing",), **base),
        _class("girl", "child-dress", "young girl", height=0.32, actions=("standing",), **base),
        _class("child", "child-reaching", "kid", height=0.33, actions=("cheering",), **base),
        _class("baby", "baby", "infant", height=0.24, **base),
    ]


def _animals() -> list[ObjectClass]:
    base = {"family": "animals", "places": WILD, "trim": PALE}
    pet = {**base, "places": (*WILD, "city", "living_room", "kitchen")}
    legs = ("standing", "running", "jumping", "sleeping")
    calm = ("standing", "sleeping", "running")
    return [
        _class("dog", "dog", "", height=0.30, colours=FUR, actions=legs, small=True, **pet),
        _class(
            "cat",
            "cat",
            "kitty",
            height=0.28,
            colours=(*FUR, "orange"),
            small=True,
            actions=("sitting", "jumping", "sleeping"),
            **pet,
        ),
        _class("cow", "cow", "", height=0.30, colours=FUR, actions=("grazing", "sleeping"), **base),
        _class("horse", "horse", "", height=0.36, colours=FUR, actions=legs, held_out=True, **base),
        _class(
            "hippo",
            "hippo",
            "hippopotamus",
            height=0.32,
            colours=("gray", "brown", "purple"),
            actions=calm,
            **base,
        ),
        _class(
            "frog",
            "frog",
            "",
            height=0.22,
            colours=("green", "brown", "yellow", "red"),
            actions=("sitting", "jumping"),
            small=True,
            held_out=True,
            **base,
        ),
        _class(
            "otter",
            "otter",
            "",
            height=0.24,
            colours=("brown", "gray", "black"),
            actions=("lying",),
            **{**base, "places": ("beach", "snow", "forest", "meadow")},
        ),
        _class(
            "dragon",
            "dragon",
            "",
            height=0.36,
            colours=("green", "red", "purple", "black"),
            actions=("sitting",),
            **{**base, "places": ("desert", "mountains", "snow")},
        ),
    ]


def _birds_and_bugs() -> list[ObjectClass]:
    bird = {"family": "birds", "trim": PALE}
    bug = {"family": "insects", "places": ("forest", "meadow", "farm", "desert", "kitchen")}
    return [
        _class(
            "bird",
            "dove",
            "",
            height=0.20,
            zone="sky",
            actions=("flying",),
            places=AIR,
            colours=("white", "blue", "red", "yellow", "gray", "black"),
            **bird,
        ),
        _class(
            "crow",
            "crow",
            "",
            height=0.24,
            actions=("perched",),
            colours=("black", "gray"),
            places=WILD,
            small=True,
            held_out=True,
            **bird,
        ),
        _class(
            "kiwi bird",
            "kiwi-bird",
            "kiwi",
            height=0.26,
            actions=("standing", "running"),
            colours=("brown", "gray", "black"),
            places=WILD,
            small=True,
            **bird,
        ),
        _class(
            "spider",
            "spider",
            "",
            height=0.22,
            colours=("black", "brown", "red", "purple"),
            small=True,
            **bug,
        ),
        _class(
            "beetle",
            "bug",
            "bug",
            height=0.20,
            colours=("red", "green", "blue", "black"),
            small=True,
            **bug,
        ),
        _class(
            "grasshopper",
            "locust",
            "",
            height=0.20,
            colours=("green", "brown", "yellow"),
            small=True,
            **bug,
        ),
        _class(
            "mosquito",
            "mosquito",
            "",
            height=0.19,
            colours=("black", "gray", "brown"),
            zone="sky",
            actions=("flying",),
            held_out=True,
            **{**bug, "places": ("forest", "meadow", "farm", "lake", "kitchen")},
        ),
        _class(
            "worm",
            "worm",
            "",
            height=0.18,
            colours=("pink", "brown", "red", "green"),
            small=True,
            **bug,
        ),
    ]


def _sea_life() -> list[ObjectClass]:
    base = {"family": "sea life", "places": WATER, "zone": "water", "actions": ("swimming",)}
    return [
        _class(
            "fish",
            "fish-fins",
            "",
            height=0.18,
            trim=PALE,
            colours=("orange", "red", "yellow", "purple", "green", "black"),
            **base,
        ),
        _class(
            "shrimp",
            "shrimp",
            "prawn",
            height=0.20,
            trim=PALE,
            colours=("pink", "orange", "red"),
            **base,
        ),
    ]


def _vehicles() -> list[ObjectClass]:
    base = {"family": "vehicles", "trim": GLASS, "colours": PAINT}
    road = {**base, "places": (*LAND, "snow"), "actions": ("parked", "driving")}
    front = {**base, "places": ("city", "snow", "mountains"), "turns": False}
    bike = {**base, "places": (*LAND, "beach"), "trim": None}
    return [
        _class("car", "car-side", "", height=0.25, **road),
        _class("van", "van-shuttle", "minivan", height=0.26, **road),
        _class("truck", "truck", "lorry", height=0.27, **road),
        _class("pickup truck", "truck-pickup", "pickup", height=0.25, **road),
        _class(
            "ambulance",
            "truck-medical",
            "",
            height=0.28,
            held_out=True,
            **{**road, "trim": (214, 38, 38), "colours": ("white", "yellow", "orange")},
        ),
        _class("monster truck", "truck-monster", "", height=0.28, **road),
        _class(
            "camper",
            "caravan",
            "caravan",
            height=0.28,
            **{**road, "actions": (), "places": (*LAND, "beach")},
        ),
        _class(
            "tractor",
            "tractor",
            "",
            height=0.30,
            held_out=True,
            **{**road, "places": ("farm", "meadow", "mountains")},
        ),
        _class(
            "snowplow",
            "snowplow",
            "",
            height=0.30,
            **{**road, "places": ("snow", "mountains", "city")},
        ),
        _class(
            "motorcycle",
            "motorcycle",
            "motorbike",
            height=0.25,
            held_out=True,
            **{**bike, "actions": ("parked", "driving")},
        ),
        _class("bicycle", "bicycle", "bike", height=0.25, **{**bike, "actions": ("parked",)}),
        _class("bus", "bus", "", height=0.34, **front),
        _class(
            "taxi",
            "taxi",
            "cab",
            height=0.27,
            **{**front, "colours": ("yellow", "black", "green", "white")},
        ),
        _class("train", "train", "", height=0.36, **front),
        _class("tram", "train-tram", "streetcar", height=0.38, **front),
    ]


def _air_and_sea() -> list[ObjectClass]:
    air = {"family": "aircraft", "zone": "sky", "places": AIR, "actions": ("flying",)}
    boat = {"family": "boats", "zone": "water", "places": WATER, "trim": GLASS}
    return [
        _class("airplane", "plane", "plane", height=0.24, colours=PAINT, **air),
        _class(
            "fighter jet",
            "jet-fighter",
            "jet",
            height=0.24,
            trim=GLASS,
            colours=("gray", "black", "green", "blue"),
            **air,
        ),
        _class(
            "helicopter",
            "helicopter",
            "",
            height=0.26,
            colours=PAINT,
            trim=GLASS,
            held_out=True,
            **air,
        ),
        _class(
            "rocket",
            "rocket",
            "",
            height=0.28,
            trim=GLASS,
            colours=("red", "white", "orange", "purple", "gray"),
            **air,
        ),
        _class(
            "parachute",
            "parachute-box",
            "",
            height=0.32,
            turns=False,
            trim=PALE,
            colours=PAINT,
            **{**air, "actions": ("floating",)},
        ),
        _class(
            "sailboat", "sailboat", "", height=0.36, colours=PAINT, actions=("sailing",), **boat
        ),
        _class(
            "ship",
            "ship",
            "",
            height=0.36,
            colours=PAINT,
            turns=False,
            actions=("sailing",),
            **boat,
        ),
        _class(
            "ferry",
            "ferry",
            "ferry boat",
            height=0.36,
            turns=False,
            held_out=True,
            actions=("sailing",),
            colours=("white", "red", "yellow", "orange"),
            **boat,
        ),
    ]


def _food() -> list[ObjectClass]:
    base = {"family": "food", "small": True, "places": ("kitchen", "kitchen", "meadow")}
    fixed = {**base, "turns": True}
    return [
        _class("apple", "apple-whole", "", height=0.20, colours=("red", "green", "yellow"), **base),
        _class(
            "pepper",
            "pepper-hot",
            "chili pepper",
            height=0.20,
            colours=("red", "green", "orange", "yellow"),
            **base,
        ),
        _class("carrot", "carrot", "", height=0.21, colours=("orange",), **fixed),
        _class("lemon", "lemon", "", height=0.19, colours=("yellow",), held_out=True, **fixed),
        _class("egg", "egg", "", height=0.18, colours=("white", "brown"), trim=PALE, **base),
        _class(
            "slice of cheese",
            "cheese",
            "piece of cheese",
            height=0.18,
            colours=("yellow",),
            **fixed,
        ),
        _class(
            "slice of bread",
            "bread-slice",
            "piece of bread",
            height=0.20,
            colours=("brown",),
            **fixed,
        ),
        _class(
            "burger",
            "burger",
            "hamburger",
            height=0.21,
            colours=("orange",),
            trim=(108, 60, 34),
            **fixed,
        ),
        _class(
            "hot dog", "hotdog", "", height=0.20, colours=("orange",), trim=(190, 50, 30), **fixed
        ),
        _class(
            "slice of pizza",
            "pizza-slice",
            "pizza slice",
            height=0.22,
            colours=("yellow",),
            trim=(206, 44, 36),
            held_out=True,
            **fixed,
        ),
        _class(
            "ice cream cone",
            "ice-cream",
            "ice cream",
            height=0.26,
            trim=PALE,
            colours=("pink", "brown", "white", "green"),
            **base,
        ),
        _class(
            "cake",
            "cake-candles",
            "birthday cake",
            height=0.26,
            trim=PALE,
            colours=("pink", "brown", "white", "purple"),
            **base,
        ),
        _class("cookie", "cookie", "", height=0.18, colours=("brown",), trim=(60, 34, 20), **fixed),
        _class(
            "chicken leg", "drumstick-bite", "drumstick", height=0.20, colours=("brown",), **fixed
        ),
        _class("mug", "mug-hot", "cup", height=0.20, colours=PAINT, **{**base, "family": "drinks"}),
        _class(
            "bottle",
            "bottle-water",
            "water bottle",
            height=0.26,
            trim=GLASS,
            colours=("blue", "green", "red", "pink"),
            **{**base, "family": "drinks"},
        ),
        _class(
            "wine glass",
            "wine-glass",
            "glass of wine",
            height=0.24,
            colours=("red", "purple", "yellow", "pink"),
            trim=GLASS,
            held_out=True,
            **{**base, "family": "drinks"},
        ),
        _class(
            "cocktail",
            "martini-glass",
            "drink",
            height=0.23,
            trim=GLASS,
            colours=("green", "blue", "pink", "orange"),
            **{**base, "family": "drinks"},
        ),
    ]


def _furniture() -> list[ObjectClass]:
    base = {"family": "furniture", "places": ("living_room",), "colours": PAINT}
    wood = {**base, "colours": ("brown", "white", "red", "blue", "green", "black")}
    return [
        _class(
            "table",
            "table*",
            "",
            height=0.27,
            carries=1.0,
            shelters=True,
            turns=False,
            **{**wood, "places": ("kitchen", "living_room", "kitchen", "meadow")},
        ),
        _class("chair", "chair", "", height=0.34, turns=False, **{**wood, "places": INDOORS}),
        _class(
            "couch",
            "couch",
            "sofa",
            height=0.30,
            carries=0.62,
            turns=False,
            trim=None,
            held_out=True,
            **base,
        ),
        _class("bed", "bed", "", height=0.30, trim=PALE, carries=0.0, **base),
        _class(
            "television",
            "tv",
            "tv",
            height=0.32,
            turns=False,
            trim=(120, 190, 230),
            **{**base, "colours": ("black", "gray", "white", "red"), "small": True},
        ),
        _class("bathtub", "bath", "bath", height=0.34, **base),
        _class(
            "sink",
            "sink",
            "",
            height=0.28,
            turns=False,
            **{**base, "places": ("kitchen",), "colours": ("gray", "white", "blue", "pink")},
        ),
        _class(
            "toilet",
            "toilet",
            "",
            height=0.30,
            **{**base, "trim": PALE, "colours": ("white", "pink", "blue", "green")},
        ),
    ]


def _objects() -> list[ObjectClass]:
    home = {"family": "household items", "places": (*INDOORS, "city"), "small": True}
    play = {"family": "sports", "places": ("meadow", "beach", "city", "living_room"), "small": True}
    return [
        _class(
            "laptop",
            "laptop",
            "laptop computer",
            height=0.22,
            trim=(150, 205, 240),
            colours=("gray", "black", "white", "pink"),
            turns=False,
            **home,
        ),
        _class("camera", "camera-retro", "", height=0.20, colours=PAINT, trim=GLASS, **home),
        _class("book", "book", "", height=0.22, colours=PAINT, trim=PALE, **home),
        _class(
            "guitar",
            "guitar",
            "",
            height=0.32,
            trim=PALE,
            held_out=True,
            colours=("red", "brown", "orange", "blue", "black"),
            **home,
        ),
        _class("drum", "drum", "", height=0.24, colours=PAINT, trim=PALE, **home),
        _class(
            "lamp",
            "lightbulb",
            "light bulb",
            height=0.24,
            trim=LIGHT,
            colours=("yellow", "white", "orange", "green"),
            turns=False,
            **home,
        ),
        _class(
            "gift",
            "gift",
            "present",
            height=0.23,
            trim=LIGHT,
            turns=False,
            colours=("red", "blue", "green", "purple", "pink"),
            **home,
        ),
        _class("suitcase", "suitcase-rolling", "bag", height=0.28, colours=PAINT, **home),
        _class(
            "box",
            "box",
            "",
            height=0.24,
            carries=1.0,
            trim=PALE,
            turns=False,
            colours=("brown", "red", "blue", "green", "purple"),
            **home,
        ),
        _class(
            "bucket",
            "bucket",
            "pail",
            height=0.24,
            turns=False,
            colours=("blue", "red", "green", "yellow", "pink"),
            **{**home, "places": ("beach", "farm", "kitchen")},
        ),
        _class(
            "trash can",
            "trash-can",
            "garbage can",
            height=0.28,
            turns=False,
            trim=PALE,
            colours=("gray", "green", "blue", "black"),
            **{**home, "places": ("city", "kitchen"), "small": False},
        ),
        _class(
            "shopping cart",
            "cart-shopping",
            "cart",
            height=0.28,
            held_out=True,
            colours=("red", "blue", "gray", "green", "yellow"),
            **{**home, "places": ("city", "kitchen"), "small": False},
        ),
        _class(
            "stroller",
            "baby-carriage",
            "baby carriage",
            height=0.30,
            colours=("blue", "pink", "purple", "red", "green"),
            **{**home, "places": ("city", "meadow", "living_room"), "small": False},
        ),
        _class(
            "basketball",
            "basketball",
            "",
            height=0.20,
            colours=("orange",),
            trim=(60, 30, 20),
            actions=("bouncing", "resting"),
            **play,
        ),
        _class(
            "soccer ball",
            "futbol",
            "",
            height=0.20,
            trim=(250, 250, 250),
            colours=("black", "blue", "red"),
            actions=("bouncing", "resting"),
            **play,
        ),
        _class(
            "football",
            "football",
            "",
            height=0.20,
            colours=("brown",),
            trim=PALE,
            actions=("bouncing", "resting"),
            **play,
        ),
        _class(
            "volleyball",
            "volleyball",
            "",
            height=0.20,
            trim=(250, 250, 250),
            colours=("yellow", "blue", "red", "pink"),
            actions=("bouncing", "resting"),
            held_out=True,
            **play,
        ),
        _class(
            "trophy",
            "trophy",
            "cup trophy",
            height=0.24,
            colours=("yellow", "gray"),
            trim=PALE,
            turns=False,
            **play,
        ),
    ]


def _outdoor_things() -> list[ObjectClass]:
    plant = {"family": "plants", "places": ("meadow", "mountains", "snow", "farm", "city")}
    house = {"family": "buildings", "trim": LIGHT, "turns": False, "colours": PAINT}
    land = ("snow", "mountains", "meadow", "farm", "desert")
    street = {"family": "outdoor things", "turns": False}
    return [
        _class("tree", "tree", "pine tree", height=0.46, colours=("green",), turns=False, **plant),
        _class("plant", "seedling", "seedling", height=0.24, colours=("green",), **plant),
        _class("house", "house-chimney", "", height=0.42, places=(*land, "beach"), **house),
        _class(
            "tent",
            "campground",
            "",
            height=0.34,
            places=(*land, "forest", "beach"),
            held_out=True,
            **house,
        ),
        _class("church", "church", "", height=0.44, places=land, **house),
        _class(
            "igloo",
            "igloo",
            "",
            height=0.32,
            places=("snow",),
            **{**house, "colours": ("blue", "gray"), "trim": (236, 246, 255)},
        ),
        _class("store", "store", "shop", height=0.36, places=("city",), **house),
        _class(
            "tower",
            "chess-rook",
            "castle tower",
            height=0.44,
            places=("mountains", "meadow", "desert", "snow"),
            **{**house, "colours": ("gray", "brown", "red", "purple")},
        ),
        _class(
            "windmill tower",
            "tower-observation",
            "lookout tower",
            height=0.46,
            places=("forest", "mountains", "farm", "desert"),
            **{**house, "colours": ("brown", "red", "gray"), "trim": None},
        ),
        _class(
            "snowman",
            "snowman",
            "",
            height=0.36,
            places=("snow",),
            trim=PALE,
            colours=("blue", "purple", "gray"),
            held_out=True,
            **street,
        ),
        _class(
            "traffic light",
            "traffic-light",
            "stoplight",
            height=0.36,
            places=("city",),
            colours=("black", "yellow"),
            trim=(240, 60, 40),
            **street,
        ),
        _class(
            "umbrella",
            "umbrella-beach",
            "beach umbrella",
            height=0.38,
            colours=PAINT,
            places=("beach",),
            family="outdoor things",
        ),
        _class(
            "campfire",
            "fire",
            "fire",
            height=0.24,
            colours=("orange",),
            trim=LIGHT,
            places=("forest", "beach", "mountains", "desert", "snow"),
            **street,
        ),
        _class(
            "gate",
            "torii-gate",
            "archway",
            height=0.38,
            colours=("red", "black", "orange"),
            places=("forest", "mountains", "meadow"),
            **street,
        ),
    ]


CLASSES: dict[str, ObjectClass] = {
    found.key: found
    for table in (_people, _animals, _birds_and_bugs, _sea_life, _vehicles, _air_and_sea, _food,
                  _furniture, _objects, _outdoor_things)
    for found in table()
}  # fmt: skip


@cache
def families() -> tuple[str, ...]:
    """Names of the families, in order of first appearance."""
    return tuple(dict.fromkeys(found.family for found in CLASSES.values()))


@cache
def held_out() -> frozenset[str]:
    """Keys of the classes that training never shows."""
    return frozenset(key for key, found in CLASSES.items() if found.held_out)
