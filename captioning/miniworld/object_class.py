"""Class of objects: its looks, names and places."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Class of objects that can be drawn and named.

    Attributes:
        key: unique name, the label of its regions and the first word for it.
        family: the group of classes it belongs to.
        icon: name of its icon (see `icons`), unless an action has its own.
        names: singular nouns for it, most usual first.
        height: usual height as a share of the image height.
        colours: colours of its objects; captions never name the only colour of a class.
        places: its usual places, keys of `places.PLACES`.
        actions: actions of its objects, keys of `actions.ACTIONS`; empty for objects that always
            rest.
        zone: ``"ground"``, ``"water"`` or ``"sky"``: where an object without action is drawn.
        trim: colour of the icon's enclosed gaps; None leaves them open.
        turns: whether its icon may be mirrored.
        head: whether the round part on top is a head, painted in a skin tone.
        carries: height of the surface that small objects can stand on, as a share of the object's
            height; 0: none.
        shelters: whether small objects fit underneath.
        small: whether it fits on objects that carry, and underneath objects that shelter.
        held_out: whether only the near- and out-of-domain splits show it, never training.
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


def object_class(key: str, icon: str, names: str = "", **values: object) -> ObjectClass:
    """Build a class that is called by its key first, then by the comma-separated ``names``."""
    nouns = (key, *(name.strip() for name in names.split(",") if name.strip()))
    return ObjectClass(key=key, icon=icon, names=nouns, **values)  # type: ignore[arg-type]
