"""Food, drinks, furniture, household items and sports gear."""

from __future__ import annotations

from captioning.miniworld.object_class import GLASS, INDOORS, LIGHT, PAINT, PALE, object_class

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
