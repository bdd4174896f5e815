"""Scene with its objects, their positions and actions; captions describe its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from captioning.miniworld.actions import ACTIONS, ICONS
from captioning.miniworld.object_class import ObjectClass
from captioning.miniworld.relations import Relation, union
from captioning.miniworld.vocabulary import CLASSES
from captioning.types import Box


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneObject:
    """Object of a scene: a single instance, or a group that looks and acts alike.

    Attributes:
        node: number of the object in the scene's graph.
        key: its class.
        boxes: box of each instance, as shares of the image's sides.
        colour: key of ``vocabulary.COLOURS``.
        size: ``"small"``, ``"large"`` or ``""``, compared with the class's usual size.
        action: key of ``actions.ACTIONS`` or ``""``.
        zone: ``"ground"``, ``"water"`` or ``"sky"``.
        mirrored: whether the object faces left.
        tint: variation of its colour, each channel in [-12, 12].
        skin: skin tone of its head.
    """

    node: int
    key: str
    boxes: tuple[Box, ...]
    colour: str
    size: str
    action: str
    zone: str
    mirrored: bool
    tint: tuple[int, int, int]
    skin: int

    @property
    def kind(self) -> ObjectClass:
        """Class of the object."""
        return CLASSES[self.key]

    @property
    def icon(self) -> str:
        """Name of the icon that shows the object in action."""
        return icon_of(self.key, self.action)

    @property
    def box(self) -> Box:
        """Box around all instances."""
        return union(self.boxes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Contents of an image.

    Attributes:
        scene_id: unique and stable name.
        place: key of ``places.PLACES``.
        time: one of ``places.TIMES``; always ``"day"`` indoors.
        weather: one of ``places.WEATHER``; always ``"clear"`` indoors.
        decor: sun, moon and clouds: ``(label, box)``.
        objects: node number is position; the first is the main one.
        relations: relations between objects, derived from their boxes.
        backdrop_seed: seed of the backdrop's details.
    """

    scene_id: str
    place: str
    time: str
    weather: str
    decor: tuple[tuple[str, Box], ...]
    objects: tuple[SceneObject, ...]
    relations: tuple[Relation, ...]
    backdrop_seed: int

    def graph(self) -> dict[str, Any]:
        """Graph of the scene as plain values, for JSON."""
        return {
            "scene_id": self.scene_id,
            "place": self.place,
            "time": self.time,
            "weather": self.weather,
            "decor": [{"label": label, "box": list(box)} for label, box in self.decor],
            "nodes": [_node(item) for item in self.objects],
            "relations": [
                {"subject": relation.subject, "name": relation.name, "object": relation.object}
                for relation in self.relations
            ],
        }


def _node(item: SceneObject) -> dict[str, Any]:
    kind = item.kind
    return {
        "node": item.node,
        "class": item.key,
        "family": kind.family,
        "count": len(item.boxes),
        "colour": item.colour if len(kind.colours) > 1 else "",
        "size": item.size,
        "action": item.action,
        "zone": item.zone,
        "boxes": [list(box) for box in item.boxes],
    }


def icon_of(key: str, action: str) -> str:
    """Name of the icon of a class in action."""
    action_icon = ACTIONS[action].icon if action else None
    return ICONS.get((key, action)) or action_icon or CLASSES[key].icon
