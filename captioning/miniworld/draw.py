"""Draw a scene: backdrop, then objects from far to near, with shadow, outline and marks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.icons import Masks, masks, mirrored
from captioning.miniworld.object_class import COLOURS
from captioning.miniworld.placement import JUMP
from captioning.miniworld.places import PLACES
from captioning.miniworld.scene import Scene, SceneObject
from captioning.types import Box

VARIANTS = 12
"""Number of different backdrops per place and time of day; each is cached once drawn."""

SKIES = {
    "day": ((92, 168, 236), (206, 232, 248)),
    "sunset": ((104, 74, 146), (255, 170, 92)),
    "night": ((10, 14, 44), (48, 58, 110)),
}
DIM = {"day": 0.0, "sunset": 0.18, "night": 0.52}
DIM_COLOUR = {"day": (0, 0, 0), "sunset": (150, 70, 60), "night": (14, 18, 54)}


class Canvas:
    """Image of twice the final size, with coordinates as shares of its sides.

    Args:
        size: side of the final picture in pixels.
        rng: random generator for the details of a backdrop.
    """

    def __init__(self, *, size: int, rng: np.random.Generator) -> None:
        self.side = 2 * size
        self.rng = rng
        self.image = Image.new("RGB", (self.side, self.side))
        self.pen = ImageDraw.Draw(self.image)

    def shade(self, top: tuple, bottom: tuple, y1: float, y2: float) -> None:
        """Draw a band from ``y1`` to ``y2`` with a colour gradient."""
        first, last = round(y1 * self.side), round(y2 * self.side)
        column = ImageOps.colorize(Image.linear_gradient("L").crop((0, 0, 1, 256)), top, bottom)
        band = column.resize((self.side, max(1, last - first)), Image.Resampling.BILINEAR)
        self.image.paste(band, (0, first))

    def polygon(self, points: list[tuple[float, float]], colour: tuple) -> None:
        """Draw a filled polygon."""
        self.pen.polygon([(x * self.side, y * self.side) for x, y in points], fill=colour)

    def box(self, x1: float, y1: float, x2: float, y2: float, colour: tuple) -> None:
        """Draw a filled rectangle."""
        left, top, right, foot = (value * self.side for value in (x1, y1, x2, y2))
        self.pen.rectangle((left, top, max(left, right - 1), max(top, foot - 1)), fill=colour)

    def disc(self, x: float, y: float, rx: float, ry: float, colour: tuple) -> None:
        """Draw a filled ellipse around ``(x, y)``."""
        side = self.side
        corners = ((x - rx) * side, (y - ry) * side, (x + rx) * side, (y + ry) * side)
        self.pen.ellipse(corners, fill=colour)

    def line(self, points: list[tuple[float, float]], colour: tuple, width: float) -> None:
        """Draw a line through points."""
        scaled = [(x * self.side, y * self.side) for x, y in points]
        self.pen.line(scaled, fill=colour, width=max(1, round(width * self.side)), joint="curve")

    def hills(self, base: float, height: float, colour: tuple, steps: int = 24) -> None:
        """Draw a rolling line of hills that reaches down to ``base``."""
        phase, waves = self.rng.uniform(0, 6.28, 2), self.rng.uniform(1.2, 2.6, 2)
        points = [(0.0, 1.0)]
        for step in range(steps + 1):
            x = step / steps
            wave = np.sin(phase[0] + 6.28 * waves[0] * x) + np.sin(phase[1] + 3.1 * waves[1] * x)
            points.append((x, base - height * (0.5 + 0.25 * float(wave))))
        self.polygon([*points, (1.0, 1.0)], colour)

    def scatter(self, number: int, y1: float, y2: float) -> list[tuple[float, float]]:
        """Random points between two heights, farther points first."""
        xs, ys = self.rng.random(number), np.sort(self.rng.uniform(y1, y2, number))
        return [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]


def _pines(canvas: Canvas, number: int, y1: float, y2: float, height: float) -> None:
    for x, y in canvas.scatter(number, y1, y2):
        tall = height * float(canvas.rng.uniform(0.7, 1.2))
        tone = int(canvas.rng.integers(-14, 15))
        canvas.box(x - 0.012, y - 0.05, x + 0.012, y, (84, 58, 40))
        for part in range(3):
            top, wide = y - 0.03 - tall + part * tall * 0.24, tall * (0.16 + 0.06 * part)
            colour = (28 + tone, 92 + tone - 8 * part, 58 + tone)
            canvas.polygon([(x - wide, top + tall * 0.44), (x, top), (x + wide, top + tall * 0.44)],
                           colour)  # fmt: skip


def _beach(canvas: Canvas, horizon: float) -> None:
    canvas.shade((44, 128, 196), (88, 188, 214), horizon, horizon + 0.13)
    for _, y in canvas.scatter(5, horizon + 0.02, horizon + 0.11):
        x = float(canvas.rng.random())
        canvas.line([(x, y), (x + 0.14, y)], (186, 226, 240), 0.006)
    canvas.shade((240, 218, 160), (226, 192, 122), horizon + 0.12, 1.0)
    points = [(step / 16, horizon + 0.13 + 0.008 * (-1) ** step) for step in range(17)]
    canvas.line(points, (250, 250, 246), 0.018)
    for x, y in canvas.scatter(30, horizon + 0.2, 0.98):
        canvas.disc(x, y, 0.007, 0.004, (206, 170, 108))
    _palm(canvas, 0.06 if canvas.rng.random() < 0.5 else 0.94, horizon + 0.17)


def _palm(canvas: Canvas, x: float, foot: float) -> None:
    lean = 0.05 if x < 0.5 else -0.05
    top = (x + lean, foot - 0.36)
    canvas.line([(x, foot), (x + lean * 0.4, foot - 0.18), top], (132, 92, 56), 0.026)
    for dx, dy in ((-0.14, 0.05), (-0.11, -0.05), (0.0, -0.09), (0.11, -0.05), (0.14, 0.05)):
        tip, middle = (top[0] + dx, top[1] + dy), (top[0] + dx * 0.5, top[1] + dy * 0.4 - 0.05)
        canvas.line([top, middle, tip], (46, 136, 72), 0.024)


def _snow(canvas: Canvas, horizon: float) -> None:
    canvas.hills(horizon + 0.02, 0.12, (196, 214, 234))
    canvas.shade((232, 240, 250), (250, 252, 255), horizon, 1.0)
    canvas.hills(horizon + 0.07, 0.07, (238, 244, 252))
    for x, y in canvas.scatter(46, 0.0, 1.0):
        canvas.disc(x, y, 0.008, 0.008, (255, 255, 255) if y < horizon else (214, 226, 242))


def _city(canvas: Canvas, horizon: float) -> None:
    x = -0.02
    while x < 1.0:
        wide, tall = canvas.rng.uniform(0.11, 0.19), canvas.rng.uniform(0.2, 0.46)
        tone = int(canvas.rng.integers(0, 40))
        colour = (112 + tone, 122 + tone, 148 + tone)
        canvas.box(x, horizon - tall, x + wide, horizon + 0.05, colour)
        for row in np.arange(horizon - tall + 0.03, horizon - 0.02, 0.055):
            for column in np.arange(x + 0.02, x + wide - 0.03, 0.04):
                lit = canvas.rng.random() < 0.6
                pane = (250, 232, 160) if lit else (84, 94, 120)
                canvas.box(column, row, column + 0.02, row + 0.028, pane)
        x += wide + 0.005
    canvas.box(0, horizon + 0.04, 1, horizon + 0.12, (190, 188, 184))
    canvas.shade((98, 100, 106), (122, 124, 130), horizon + 0.11, 1.0)
    for start in np.arange(-0.1 + 0.1 * canvas.rng.random(), 1.0, 0.2):
        canvas.box(start, 0.79, start + 0.1, 0.81, (246, 240, 214))


def _forest(canvas: Canvas, horizon: float) -> None:
    canvas.shade((150, 196, 150), (98, 152, 104), 0.0, horizon)
    _pines(canvas, 16, horizon - 0.12, horizon - 0.02, 0.34)
    canvas.shade((92, 132, 72), (66, 104, 56), horizon, 1.0)
    _pines(canvas, 15, horizon, horizon + 0.08, 0.5)
    for x, y in canvas.scatter(26, horizon + 0.14, 0.98):
        canvas.line([(x, y), (x + 0.006, y - 0.022)], (112, 158, 84), 0.007)


def _desert(canvas: Canvas, horizon: float) -> None:
    canvas.hills(horizon + 0.03, 0.1, (214, 160, 92))
    canvas.shade((236, 190, 112), (218, 162, 84), horizon + 0.02, 1.0)
    for _ in range(3):
        y, x = canvas.rng.uniform(horizon + 0.15, 0.95), canvas.rng.uniform(-0.2, 0.7)
        canvas.line([(x, y), (x + 0.2, y - 0.016), (x + 0.4, y)], (204, 148, 74), 0.008)
    for x in canvas.rng.uniform(0.03, 0.97, 4):
        _cactus(canvas, float(x), horizon + float(canvas.rng.uniform(0.04, 0.1)))


def _cactus(canvas: Canvas, x: float, foot: float) -> None:
    colour = (66, 128, 74)
    canvas.line([(x, foot), (x, foot - 0.17)], colour, 0.03)
    canvas.disc(x, foot - 0.17, 0.015, 0.015, colour)
    canvas.line(
        [(x, foot - 0.06), (x - 0.045, foot - 0.06), (x - 0.045, foot - 0.12)], colour, 0.02
    )
    canvas.line(
        [(x, foot - 0.08), (x + 0.045, foot - 0.08), (x + 0.045, foot - 0.14)], colour, 0.02
    )


def _mountains(canvas: Canvas, horizon: float) -> None:
    for x in (-0.02, 0.98, 0.3, 0.68):
        middle = x + float(canvas.rng.uniform(-0.06, 0.06))
        tall, wide = float(canvas.rng.uniform(0.3, 0.46)), float(canvas.rng.uniform(0.26, 0.36))
        top, tone = horizon - tall, int(canvas.rng.integers(-12, 13))
        base = (118 + tone, 122 + tone, 140 + tone)
        dark = tuple(value - 22 for value in base)
        canvas.polygon([(middle - wide, horizon), (middle, top), (middle + wide, horizon)], base)
        canvas.polygon([(middle + 0.04, horizon), (middle, top), (middle + wide, horizon)], dark)
        cap = 0.32
        canvas.polygon(
            [(middle, top), (middle - wide * cap, top + tall * cap),
             (middle - wide * 0.12, top + tall * 0.24), (middle + 0.01, top + tall * 0.38),
             (middle + wide * 0.14, top + tall * 0.24), (middle + wide * cap, top + tall * cap)],
            (248, 250, 254),
        )  # fmt: skip
    canvas.shade((136, 160, 110), (104, 138, 84), horizon - 0.01, 1.0)
    for x, y in canvas.scatter(9, horizon + 0.06, 0.98):
        canvas.disc(x, y, 0.018, 0.01, (150, 152, 150))


def _meadow(canvas: Canvas, horizon: float) -> None:
    canvas.hills(horizon + 0.04, 0.1, (128, 190, 98))
    canvas.shade((128, 200, 88), (84, 160, 64), horizon + 0.03, 1.0)
    petals = ((250, 250, 250), (252, 214, 70), (238, 112, 146), (170, 120, 220))
    for x, y in canvas.scatter(34, horizon + 0.08, 0.98):
        colour = petals[int(canvas.rng.integers(4))]
        canvas.line([(x, y), (x, y + 0.02)], (60, 126, 50), 0.005)
        canvas.disc(x, y, 0.011, 0.011, colour)
        canvas.disc(x, y, 0.004, 0.004, (240, 170, 40))


def _farm(canvas: Canvas, horizon: float) -> None:
    canvas.hills(horizon + 0.02, 0.08, (142, 186, 100))
    canvas.shade((176, 142, 88), (150, 112, 66), horizon, 1.0)
    for step in np.linspace(-1.2, 2.2, 24):
        foot = [(0.5 + (step - 0.5) * 2.2, 1.0), (0.5 + (step - 0.5) * 2.2 + 0.05, 1.0)]
        canvas.polygon([(0.5 + (step - 0.5) * 0.7, horizon), *foot], (128, 94, 52))
    x = float(canvas.rng.uniform(0.06, 0.7))
    top, foot = horizon - 0.17, horizon + 0.05
    canvas.polygon([(x - 0.02, top + 0.06), (x + 0.04, top - 0.03), (x + 0.11, top - 0.07),
                    (x + 0.18, top - 0.03), (x + 0.24, top + 0.06)], (96, 82, 80))  # fmt: skip
    canvas.box(x, top + 0.05, x + 0.22, foot, (178, 52, 44))
    canvas.box(x + 0.07, foot - 0.1, x + 0.15, foot, (240, 232, 220))
    canvas.line([(x + 0.07, foot - 0.1), (x + 0.15, foot)], (178, 52, 44), 0.01)
    canvas.line([(x + 0.15, foot - 0.1), (x + 0.07, foot)], (178, 52, 44), 0.01)
    for left in np.arange(0.0, 1.0, 0.09):
        canvas.box(left, horizon + 0.04, left + 0.014, horizon + 0.12, (232, 222, 202))
    canvas.box(0, horizon + 0.06, 1, horizon + 0.072, (232, 222, 202))


def _lake(canvas: Canvas, horizon: float) -> None:
    canvas.hills(horizon, 0.13, (96, 142, 100))
    canvas.hills(horizon + 0.02, 0.06, (120, 168, 96))
    canvas.shade((70, 148, 206), (30, 92, 168), horizon, 1.0)
    for x, y in canvas.scatter(26, horizon + 0.04, 0.98):
        wide = 0.03 + 0.06 * (y - horizon)
        points = [(x - wide, y), (x - wide / 2, y - 0.008), (x, y), (x + wide / 2, y - 0.008)]
        canvas.line([*points, (x + wide, y)], (142, 198, 232), 0.007)


def _sky(canvas: Canvas, horizon: float) -> None:
    for x, y in canvas.scatter(7, 0.06, 0.98):
        scale = float(canvas.rng.uniform(0.7, 1.3))
        for dx, dy, radius in ((-0.08, 0.015, 0.05), (0.0, -0.01, 0.07), (0.08, 0.015, 0.05)):
            canvas.disc(x + dx * scale, y + dy * scale, radius * scale, radius * 0.62 * scale,
                        (240, 246, 252))  # fmt: skip


def _kitchen(canvas: Canvas, horizon: float) -> None:
    canvas.box(0, 0, 1, horizon, (236, 228, 206))
    for row in range(5):
        for column in range(9):
            x, y = column * 0.125 - 0.06 * (row % 2), 0.3 + row * 0.075
            canvas.box(x, y, x + 0.12, y + 0.07, (222, 236, 234))
    wood = ((176, 120, 76), (120, 150, 168), (150, 160, 130))[int(canvas.rng.integers(3))]
    dark = tuple(value - 34 for value in wood)
    for left in np.arange(0.0, 1.0, 0.25):
        canvas.box(left, 0.0, left + 0.24, 0.24, wood)
        canvas.box(left + 0.02, 0.02, left + 0.22, 0.22, dark)
        canvas.disc(left + 0.2, 0.12, 0.012, 0.012, (236, 226, 190))
    canvas.box(0, horizon - 0.13, 1, horizon - 0.1, (96, 92, 92))
    for left in np.arange(-0.06, 1.0, 0.25):
        canvas.box(left, horizon - 0.1, left + 0.24, horizon, wood)
        canvas.box(left + 0.09, horizon - 0.07, left + 0.15, horizon - 0.055, dark)
    _tiles(canvas, horizon)


def _tiles(canvas: Canvas, horizon: float) -> None:
    canvas.box(0, horizon, 1, 1, (226, 222, 214))
    for row, (y1, y2) in enumerate(((0.0, 0.22), (0.22, 0.55), (0.55, 1.0))):
        top, foot = (horizon + (1 - horizon) * share for share in (y1, y2))
        for column in range(-8, 9):
            if (row + column) % 2:
                continue
            spread = [0.12 * (1 + share) for share in (y1, y2)]
            canvas.polygon(
                [(0.5 + column * spread[0], top), (0.5 + (column + 1) * spread[0], top),
                 (0.5 + (column + 1) * spread[1], foot), (0.5 + column * spread[1], foot)],
                (192, 188, 182),
            )  # fmt: skip


def _living_room(canvas: Canvas, horizon: float) -> None:
    tones = ((222, 206, 226), (206, 222, 210), (238, 214, 190))
    wall = tones[int(canvas.rng.integers(3))]
    canvas.box(0, 0, 1, horizon, wall)
    x = float(canvas.rng.uniform(0.08, 0.56))
    canvas.box(x - 0.015, 0.065, x + 0.355, 0.415, (250, 250, 248))
    canvas.box(x, 0.08, x + 0.34, 0.4, (164, 212, 240))
    canvas.polygon([(x, 0.4), (x, 0.34), (x + 0.17, 0.3), (x + 0.34, 0.35), (x + 0.34, 0.4)],
                   (130, 186, 110))  # fmt: skip
    canvas.box(x + 0.163, 0.08, x + 0.177, 0.4, (250, 250, 248))
    canvas.box(x, 0.233, x + 0.34, 0.247, (250, 250, 248))
    for left in (x - 0.075, x + 0.33):
        canvas.polygon([(left, 0.04), (left + 0.085, 0.04), (left + 0.07, 0.46), (left, 0.46)],
                       tuple(value - 50 for value in wall))  # fmt: skip
    canvas.box(0, horizon - 0.03, 1, horizon, (250, 248, 244))
    canvas.shade((178, 128, 84), (154, 104, 64), horizon, 1.0)
    for share in (0.2, 0.5, 0.85):
        y = horizon + (1 - horizon) * share
        canvas.line([(0, y), (1, y)], (130, 86, 50), 0.006)


PAINTERS: dict[str, Callable[[Canvas, float], None]] = {
    "beach": _beach, "snow": _snow, "city": _city, "forest": _forest, "desert": _desert,
    "mountains": _mountains, "meadow": _meadow, "farm": _farm, "lake": _lake, "sky": _sky,
    "kitchen": _kitchen, "living_room": _living_room,
}  # fmt: skip


@lru_cache(maxsize=VARIANTS * 16)
def backdrop(place: str, time: str, variant: int, size: int) -> Image.Image:
    """Backdrop of a place, ``size`` x ``size`` RGB; must not be modified.

    Args:
        place: key of ``places.PLACES``.
        time: ``"day"``, ``"sunset"`` or ``"night"``.
        variant: number in [0, VARIANTS).
        size: side in pixels.
    """
    rng = np.random.default_rng([variant, sorted(PLACES).index(place)])
    canvas = Canvas(size=size, rng=rng)
    horizon = PLACES[place].horizon
    if PLACES[place].outdoors:
        canvas.shade(*SKIES[time], 0.0, min(1.0, horizon + 0.12))
    if time == "night":
        for x, y in canvas.scatter(40, 0.0, horizon * 0.9):
            canvas.disc(x, y, 0.005, 0.005, (255, 250, 220))
    sky = canvas.image.copy()
    PAINTERS[place](canvas, horizon)
    small = canvas.image.reduce(2)
    if DIM[time]:
        tint = Image.new("RGB", small.size, DIM_COLOUR[time])
        small = _dimmed(small, Image.blend(small, tint, DIM[time]), canvas.image, sky)
    return small


def _dimmed(
    small: Image.Image, dark: Image.Image, painted: Image.Image, sky: Image.Image
) -> Image.Image:
    """Darken the land of a backdrop and keep the sky."""
    changed = ImageChops.difference(painted, sky).convert("L").reduce(2)
    is_land = [255 if value > 6 else 0 for value in range(256)]
    return Image.composite(dark, small, changed.point(is_land))


SKIN = ((250, 214, 180), (230, 180, 140), (176, 120, 80), (112, 74, 52))
DECOR = {"sun": ((255, 214, 64), "sun"), "moon": ((250, 246, 214), "moon"),
         "cloud": ((250, 252, 255), "cloud")}  # fmt: skip

MIN_SIZE, MAX_SIZE = 32, 512

PixelBox = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Drawn scene with its boxes.

    Attributes:
        image: RGB, square.
        boxes: pixel boxes ``(x1, y1, x2, y2)`` of each instance of each object, by node.
        decor: pixel boxes of sun, moon and clouds, as in the scene.
    """

    image: Image.Image
    boxes: tuple[tuple[PixelBox, ...], ...]
    decor: tuple[PixelBox, ...]


def draw_scene(scene: Scene, *, size: int) -> Drawing:
    """Draw a scene as ``size`` x ``size`` pixels.

    Raises:
        ValueError: ``size`` is outside [MIN_SIZE, MAX_SIZE].
    """
    check_size(size)
    image = backdrop(scene.place, scene.time, scene.backdrop_seed % VARIANTS, size).copy()
    if (scene.backdrop_seed // VARIANTS) % 2:
        image = ImageOps.mirror(image)
    decor = tuple(_draw_decor(image, label, box, scene.time) for label, box in scene.decor)
    boxes: list[list[PixelBox]] = [[(0, 0, 0, 0)] * len(item.boxes) for item in scene.objects]
    for item, number in _far_to_near(scene):
        boxes[item.node][number] = _draw_object(image, item, item.boxes[number])
    return Drawing(image, tuple(tuple(item_boxes) for item_boxes in boxes), decor)


def check_size(size: int) -> None:
    """Raise an error for an image size that cannot be drawn.

    Raises:
        ValueError: ``size`` is outside [MIN_SIZE, MAX_SIZE].
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise ValueError(f"size must be in [{MIN_SIZE}, {MAX_SIZE}] pixels: got {size}")


def _far_to_near(scene: Scene) -> list[tuple[SceneObject, int]]:
    """Order of drawing: sky, then by height of the foot; a stacked object follows its base."""
    bearers = {
        relation.subject: relation.object for relation in scene.relations if relation.name == "on"
    }
    order = []
    for item in scene.objects:
        bearer = bearers.get(item.node)
        for number, box in enumerate(item.boxes):
            foot = box[3] if bearer is None else scene.objects[bearer].box[3] + 1e-6
            order.append((item.zone != "sky", foot, item.node, number))
    return [(scene.objects[node], number) for *_, node, number in sorted(order)]


def _masks(icon: str, height: int, size: int, flip: bool, head: bool = False) -> Masks:
    stroke = max(1, round(size / 110))
    return (mirrored if flip else masks)(icon, height, stroke, head)


def _pixel_box(box: Box, mask: Masks, size: int) -> PixelBox:
    """Position of a mask: centred on the box, standing on its foot, inside the image."""
    wide, tall = mask.outline.size
    left = round((box[0] + box[2]) / 2 * size - wide / 2)
    top = round(box[3] * size) - tall
    left, top = min(max(left, 0), size - wide), min(max(top, 0), size - tall)
    return left, top, left + wide, top + tall


def _draw_decor(image: Image.Image, label: str, box: Box, time: str) -> PixelBox:
    colour, icon = DECOR[label]
    if time == "sunset" and label == "sun":
        colour = (255, 120, 60)
    mask = _masks(icon, max(8, round((box[3] - box[1]) * image.width)), image.width, False)
    place = _pixel_box(box, mask, image.width)
    if time == "night":
        colour = tuple(value * 3 // 4 for value in colour) if label == "cloud" else colour
    image.paste(tuple(value * 7 // 8 for value in colour), place, mask.outline)
    image.paste(colour, place, mask.fill)
    return place


def _draw_object(image: Image.Image, item: SceneObject, box: Box) -> PixelBox:
    size = image.width
    height = max(8, round((box[3] - box[1]) * size))
    mask = _masks(item.icon, height, size, item.mirrored, item.kind.head)
    place = _pixel_box(box, mask, size)
    mark = ACTIONS[item.action].mark if item.action else ""
    _draw_shadow(image, item, place, mark)
    colour = tuple(
        min(255, max(0, value + shift))
        for value, shift in zip(COLOURS[item.colour], item.tint, strict=True)
    )
    image.paste(_line_colour(item.colour, colour), place, mask.outline)
    if mask.gaps is not None and item.kind.trim is not None:
        image.paste(item.kind.trim, place, mask.gaps)
    image.paste(colour, place, mask.fill)
    if mask.head is not None and item.kind.head:
        image.paste(SKIN[item.skin], place, mask.head)
    image.paste((255, 255, 255), place, mask.light)
    image.paste((0, 0, 0), place, mask.shade)
    if mark:
        MARKS[mark](image, item, place)
    return place


def _line_colour(name: str, colour: tuple[int, ...]) -> tuple[int, ...]:
    """Outline colour: dark around light objects, light around dark objects."""
    if name == "black":
        return (226, 228, 234)
    return tuple(value * 3 // 10 for value in colour)


_DISC = Image.new("L", (64, 32), 0)
ImageDraw.Draw(_DISC).ellipse((8, 4, 55, 27), fill=130)
_DISC = _DISC.filter(ImageFilter.GaussianBlur(3))


def _draw_shadow(image: Image.Image, item: SceneObject, place: PixelBox, mark: str) -> None:
    if item.zone != "ground":
        return
    x1, _, x2, foot = place
    wide = max(4, round((x2 - x1) * (0.9 if mark == "jump" else 1.2)))
    tall = max(3, round(wide * 0.2))
    lift = round(JUMP * image.width) if mark == "jump" else 0
    disc = _DISC.resize((wide, tall))
    image.paste((20, 20, 30), ((x1 + x2 - wide) // 2, foot + lift - tall // 2 - 1), disc)


def _draw_speed(image: Image.Image, item: SceneObject, place: PixelBox) -> None:
    """Draw lines behind a moving object, and dust at its foot."""
    x1, y1, x2, y2 = place
    pen, size, width = ImageDraw.Draw(image), image.width, max(1, round(image.width / 80))
    back, direction = (x2, 1) if item.mirrored else (x1, -1)
    for share, long in ((0.3, 0.07), (0.55, 0.1), (0.78, 0.06)):
        y, start = round(y1 + (y2 - y1) * share), back + direction * round(0.02 * size)
        stop = start + direction * round(long * size)
        pen.line((min(start, stop), y, max(start, stop), y), fill=(255, 255, 255), width=width)
    for step, radius in ((0.035, 0.016), (0.075, 0.011)):
        x, y, r = back + direction * step * size, y2 - radius * size, radius * size
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(228, 222, 210))


def _draw_sleep(image: Image.Image, item: SceneObject, place: PixelBox) -> None:
    """Draw three letters Z that rise from the head."""
    x1, y1, x2, _ = place
    size, direction = image.width, -1 if item.mirrored else 1
    head = x1 + (x2 - x1) * (0.2 if item.mirrored else 0.8)
    pen, width = ImageDraw.Draw(image), max(1, round(size / 90))
    for step, side in ((0, 0.032), (1, 0.042), (2, 0.052)):
        left, top = head + direction * 0.05 * step * size, y1 - (0.03 + 0.058 * step) * size
        right, foot = left + side * size, top + side * size
        for shift, colour in ((width, (30, 30, 60)), (0, (255, 255, 255))):
            points = [(left, top), (right, top), (left, foot), (right, foot)]
            pen.line([(x + shift, y + shift) for x, y in points], fill=colour, width=width)


def _draw_jump(image: Image.Image, item: SceneObject, place: PixelBox) -> None:
    """Draw two arcs under an object in the air."""
    x1, _, x2, y2 = place
    size, middle = image.width, (x1 + x2) / 2
    pen, width = ImageDraw.Draw(image), max(1, round(image.width / 90))
    for step, share in ((0.025, 0.5), (0.055, 0.34)):
        half, y = (x2 - x1) * share / 2, y2 + step * size
        box = (middle - half, y - 0.02 * size, middle + half, y + 0.012 * size)
        pen.arc(box, 20, 160, fill=(255, 255, 255), width=width)


MARKS = {"speed": _draw_speed, "sleep": _draw_sleep, "jump": _draw_jump}
