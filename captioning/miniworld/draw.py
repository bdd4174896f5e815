"""Drawing a scene: backdrop, then objects from far to near, with shadow, outline and marks."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter, ImageOps

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.backdrop import VARIANTS, backdrop
from captioning.miniworld.icons import Masks, masks, mirrored
from captioning.miniworld.layout import JUMP
from captioning.miniworld.object_class import COLOURS
from captioning.miniworld.scene import Scene, SceneObject
from captioning.types import Box

SKIN = ((250, 214, 180), (230, 180, 140), (176, 120, 80), (112, 74, 52))
DECOR = {"sun": ((255, 214, 64), "sun"), "moon": ((250, 246, 214), "moon"),
         "cloud": ((250, 252, 255), "cloud")}  # fmt: skip

MIN_SIZE, MAX_SIZE = 32, 512

PixelBox = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawn scene.

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
        ValueError: ``size`` out of [MIN_SIZE, MAX_SIZE].
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
    """Refuse a side that cannot be drawn.

    Raises:
        ValueError: ``size`` out of [MIN_SIZE, MAX_SIZE].
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise ValueError(f"size must be in [{MIN_SIZE}, {MAX_SIZE}] pixels: got {size}")


def _far_to_near(scene: Scene) -> list[tuple[SceneObject, int]]:
    """Sky first, then by the foot's height; an object on another one comes right after it."""
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
    """Place of a mask: centred on the box, standing on its foot, inside the picture."""
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
    """Dark lines around light objects, light lines around dark ones."""
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
    """Lines behind a moving object, and dust at its foot."""
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
    """Three letters Z that rise from the head."""
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
    """Two arcs under an object in the air."""
    x1, _, x2, y2 = place
    size, middle = image.width, (x1 + x2) / 2
    pen, width = ImageDraw.Draw(image), max(1, round(image.width / 90))
    for step, share in ((0.025, 0.5), (0.055, 0.34)):
        half, y = (x2 - x1) * share / 2, y2 + step * size
        box = (middle - half, y - 0.02 * size, middle + half, y + 0.012 * size)
        pen.arc(box, 20, 160, fill=(255, 255, 255), width=width)


MARKS = {"speed": _draw_speed, "sleep": _draw_sleep, "jump": _draw_jump}
