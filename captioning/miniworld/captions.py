"""True captions of a scene, in the words of several narrators.

A caption is joined from pieces. A piece that names an object, the place or the sky is a `Mention`,
and becomes a phrase with character offsets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.object_class import COLOURS, ObjectClass
from captioning.miniworld.places import PLACES, Place
from captioning.miniworld.sample import pick, sample_scene, weighted
from captioning.miniworld.scene import Scene, SceneObject
from captioning.miniworld.vocabulary import CLASSES
from captioning.text.inflection import indefinite_article, pluralise

NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}


def for_many(verb: str) -> str:
    """Verb phrase for a plural subject: ``ride a bike`` becomes ``ride bikes``."""
    before, joint, noun = verb.partition(" a ")
    return f"{before} {pluralise(noun)}" if joint else verb


def article(words: str) -> str:
    """Put the indefinite article before ``words``."""
    return f"{indefinite_article(words.split()[0])} {words}"


CAPTIONS = 5

PLACE = -1
"""Node number of the place in a mention."""
DECOR = -2
"""Node number of sun, moon and clouds in a mention."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words that name a node of the scene's graph."""

    text: str
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """Caption and its mentions.

    Attributes:
        text: the caption.
        mentions: ``(start, text, node)``; nodes below 0 are `PLACE` and `DECOR`.
        focus: style of the caption, a key of `STYLES`.
    """

    text: str
    mentions: tuple[tuple[int, str, int], ...]
    focus: str


Piece = str | Mention
Pieces = list[Piece]

RELATION_WORDS = {
    "left of": ("to the left of", "on the left of", "left of"),
    "right of": ("to the right of", "on the right of", "right of"),
    "next to": ("next to", "beside", "near", "by"),
    "behind": ("behind",),
    "in front of": ("in front of",),
    "above": ("above", "over"),
    "below": ("below", "under", "beneath"),
    "on": ("on", "on top of"),
    "under": ("under", "beneath", "underneath"),
}
RESTING_VERBS = {
    "food": "sit", "drinks": "sit", "household items": "sit", "sports": "sit", "insects": "sit",
    "furniture": "stand", "buildings": "stand", "plants": "stand", "outdoor things": "stand",
}  # fmt: skip
PASSING_ACTIONS = ("running", "walking", "cycling", "driving", "luggage", "skiing", "skating")
"""Actions in which an object can go past another object."""

STILL_ACTIONS = ("standing", "sitting", "lying", "perched", "resting", "parked")
COLOUR_WORDS = {"gray": ("gray", "grey")}
SIZE_WORDS = {"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")}
WEARING = ("in {}", "wearing {}", "dressed in {}")
COUNT_WORDS = {2: ("two", "two", "two", "a pair of", "a couple of"),
        3: ("three", "three", "three", "a group of", "several"),
        4: ("four", "four", "four", "a group of", "several")}  # fmt: skip


class Narrator:
    """Writer of captions for one scene, with its own level of detail and choice of words.

    Args:
        scene: scene to caption.
        rng: random generator of all choices.
    """

    def __init__(self, *, scene: Scene, rng: np.random.Generator) -> None:
        self.scene = scene
        self.rng = rng
        self.place = PLACES[scene.place]
        self.relations = scene.relations
        self.named_by_role: set[int] = set()
        self.detail = float(rng.choice((0.15, 0.55, 0.9)))

    # -- naming ------------------------------------------------------------------------------

    def maybe(self, chance: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < chance)

    def noun(self, item: SceneObject, role: bool) -> str:
        """Singular noun for an object; with ``role`` perhaps a noun such as "skier"."""
        names = item.kind.names
        roles = ACTIONS[item.action].roles if role and item.action else ()
        if roles and item.kind.family == "people" and self.maybe(0.35):
            self.named_by_role.add(item.node)
            return pick(self.rng, roles)
        return weighted(self.rng, names, [3.0, *[1.0] * (len(names) - 1)])

    def name(self, item: SceneObject, *, role: bool = False, counted: bool = False) -> Mention:
        """Noun phrase for an object: count or article, size, colour, noun, clothes.

        Args:
            item: the object to name.
            role: whether the noun may imply the action, such as "skier".
            counted: whether to name a group by its number, so that a plural verb may precede it.
        """
        words, after = [], ""
        if item.size and self.maybe(max(0.25, self.detail)):
            words.append(pick(self.rng, SIZE_WORDS[item.size]))
        if len(item.kind.colours) > 1 and self.maybe(self.detail):
            colour = pick(self.rng, COLOUR_WORDS.get(item.colour, (item.colour,)))
            if item.kind.head:
                after = " " + pick(self.rng, WEARING).format(colour)
            else:
                words.append(colour)
        noun, count = self.noun(item, role), len(item.boxes)
        if count == 1:
            return Mention(article(" ".join([*words, noun])) + after, item.node)
        number = NUMBERS[count] if counted else pick(self.rng, COUNT_WORDS[count])
        return Mention(" ".join([number, *words, pluralise(noun)]) + after, item.node)

    def where(self, item: SceneObject) -> Pieces:
        """Phrase for the place of an object: on ground, water, another object or in the sky."""
        if item.zone == "sky" and self.scene.place != "sky":
            if self.maybe(0.5):
                return ["in", Mention("the sky", PLACE)]
            return ["over", Mention(pick(self.rng, self.place.scenery), PLACE)]
        fits = self.place.ground
        if any(
            relation.name == "on" and relation.subject == item.node for relation in self.relations
        ):
            fits = tuple(pair for pair in fits if pair[0] != "on") or fits
        preposition, noun = pick(self.rng, fits)
        return [preposition, Mention(noun, PLACE)]

    # -- doing -------------------------------------------------------------------------------

    def ing(self, item: SceneObject) -> str:
        """Participle of the action; empty without an action, or if the noun implies the action."""
        if item.node in self.named_by_role:
            return ""
        if not item.action:
            return ""
        verb = pick(self.rng, ACTIONS[item.action].verbs)[2]
        return for_many(verb) if len(item.boxes) > 1 else verb

    def does(self, item: SceneObject) -> str:
        """Finite verb of the action, which agrees with the object."""
        many = len(item.boxes) > 1
        if not item.action or item.node in self.named_by_role:
            return self.rests(item)
        third, plain, ing = pick(self.rng, ACTIONS[item.action].verbs)
        if many:
            plain, ing = for_many(plain), for_many(ing)
        if third.startswith("is "):
            return plain if many else third
        if self.maybe(0.5):
            return f"{'are' if many else 'is'} {ing}"
        return plain if many else third

    def rests(self, item: SceneObject) -> str:
        """Verb for an object without an action."""
        many = len(item.boxes) > 1
        verb = RESTING_VERBS.get(item.kind.family)
        if verb is None or self.maybe(0.6):
            return "are" if many else "is"
        return verb if many else verb + "s"

    def related(self, item: SceneObject, mentioned: set[int], *, verb: bool = False) -> Pieces:
        """Relation of an object to another object; empty if there is none.

        Args:
            item: the subject of the relation.
            mentioned: nodes that the caption already mentions, which are not chosen again; the
                chosen node is added.
            verb: whether the action is already named, so that the object may go past another.
        """
        relations = [
            relation for relation in self.relations
            if relation.subject == item.node and relation.object not in mentioned
        ]  # fmt: skip
        if not relations:
            return []
        relation = pick(self.rng, relations)
        mentioned.add(relation.object)
        other = self.scene.objects[relation.object]
        words = RELATION_WORDS[relation.name]
        if relation.name == "next to" and self.passes(item, verb):
            words = (*words, "past", "past")
        return [pick(self.rng, words), self.name(other)]

    def passes(self, item: SceneObject, verb: bool) -> bool:
        """Whether the caption may say that the object goes past another object."""
        return verb and item.action in PASSING_ACTIONS and item.node not in self.named_by_role

    def conditions(self) -> Pieces:
        """Phrase for time of day or weather, if visible."""
        choices: list[Any] = []
        decor = {label for label, _ in self.scene.decor}
        if self.scene.time == "night" and self.place.key != "forest":
            choices += [["at night"], ["in the dark"]]
        if self.scene.time == "sunset" and "sky" in self.place.zones:
            choices += [["at sunset"], ["in the evening"]]
        if "sun" in decor and self.scene.time == "day":
            choices += [["with", Mention("the sun", DECOR), "in the sky"], ["on a sunny day"]]
        if "moon" in decor:
            choices += [["with", Mention("the moon", DECOR), "in the sky"]]
        if "cloud" in decor:
            choices += [
                [
                    "with",
                    Mention(pick(self.rng, ("clouds", "some clouds", "white clouds")), DECOR),
                    "in the sky",
                ],
                ["on a cloudy day"],
            ]
        return pick(self.rng, choices) if choices else []

    # -- styles ------------------------------------------------------------------------------

    def subject(self) -> SceneObject:
        """Main object, or sometimes the second object."""
        takes_second = len(self.scene.objects) > 1 and self.maybe(0.2)
        return self.scene.objects[1 if takes_second else 0]

    def bare(self) -> Pieces:
        """Caption with the object and its action, without the place."""
        item = self.subject()
        return [self.name(item, role=True), self.ing(item)]

    def doing(self) -> Pieces:
        """Sentence with the object, its action and the place."""
        item = self.subject()
        return [self.name(item, role=True), self.does(item), *self.where(item)]

    def phrase(self) -> Pieces:
        """Title with the object, its action and the place."""
        item = self.subject()
        return [self.name(item, role=True), self.ing(item), *self.where(item)]

    def relating(self) -> Pieces:
        """Caption on the relation to another object."""
        item = self.subject()
        name = self.name(item, role=True)
        other = self.related(item, {item.node}, verb=True)
        if not other:
            return []
        verb = self.does(item) if self.maybe(0.6) else self.ing(item)
        place = self.where(item) if item.zone != "sky" and self.maybe(0.3) else []
        return [name, verb, *other, *place]

    def existing(self) -> Pieces:
        """Caption of the form "There is", the object, a relation or the place."""
        item = self.subject()
        many = len(item.boxes) > 1
        there = ["There are" if many else "There is", self.name(item, counted=True)]
        other = self.related(item, {item.node}) if self.maybe(0.5) else []
        return [*there, *(other or self.where(item))]

    def place_first(self) -> Pieces:
        """Caption with the place before the object."""
        item = self.subject()
        place = [*self.where(item), ","]
        if item.action:
            return [*place, self.name(item, role=True), self.does(item)]
        return [
            *place,
            "there are" if len(item.boxes) > 1 else "there is",
            self.name(item, counted=True),
        ]

    def listing(self) -> Pieces:
        """Caption that lists all objects."""
        items = self.scene.objects
        if len(items) < 2:
            return []
        parts: Pieces = []
        for number, item in enumerate(items):
            if number:
                parts.append("and" if number == len(items) - 1 else ",")
            parts.append(self.name(item))
        zones = {item.zone for item in items}
        return [*parts, *(self.where(items[0]) if len(zones) == 1 else [])]

    def scenery(self) -> Pieces:
        """Caption with the place as subject, and one or two objects."""
        item = self.subject()
        views = [words for words in self.place.scenery if " with " not in words]
        view = Mention(pick(self.rng, views), PLACE)
        parts: Pieces = [view, "with", self.name(item)]
        other_items = [other for other in self.scene.objects if other.node != item.node]
        if other_items and self.maybe(0.6):
            parts += ["and", self.name(pick(self.rng, other_items))]
        return parts

    def picturing(self) -> Pieces:
        """Caption of the form "A picture of" the object."""
        item = self.subject()
        lead = pick(self.rng, ("A picture of", "A view of", "An image of"))
        return [lead, self.name(item), *(self.where(item) if self.maybe(0.5) else [])]

    def full(self) -> Pieces:
        """Long sentence with the main object, a relation, the place and a second object."""
        item = self.scene.objects[0]
        self.detail = max(self.detail, 0.7)
        mentioned = {item.node}
        parts: Pieces = [self.name(item, role=True), self.does(item)]
        other = self.related(item, mentioned, verb=True)
        parts += [*other, *([] if other and item.zone == "sky" else self.where(item))]
        other_items = [other for other in self.scene.objects if other.node not in mentioned]
        if other_items:
            return parts + self.second_object(pick(self.rng, other_items))
        return parts + (self.conditions() if self.maybe(0.6) else [])

    def second_object(self, other: SceneObject) -> Pieces:
        """Phrase for another object, added at the end."""
        if other.action and other.action not in STILL_ACTIONS and self.maybe(0.7):
            return ["while", self.name(other), self.does(other)]
        return ["with", self.name(other), "in the sky" if other.zone == "sky" else "nearby"]

    def together(self) -> Pieces:
        """Caption with two objects, each with its action."""
        moving = [item for item in self.scene.objects if item.action not in ("", *STILL_ACTIONS)]
        if len(moving) < 2:
            return []
        first, second = moving[0], moving[1]
        joint = pick(self.rng, ("while", "and", "as"))
        pieces = [self.name(first, role=True), self.does(first), joint]
        return [*pieces, self.name(second), self.does(second)]

    def narrate(self, focus: str) -> Caption | None:
        """Write a caption in a style of `STYLES`; None if the scene does not suit the style."""
        pieces = [piece for piece in STYLES[focus](self) if piece]
        if not pieces:
            return None
        stop = "" if self.maybe(0.12) else "."
        return finish(pieces, stop, focus)


# What a caption concentrates on, by its `Caption.focus`.
STYLES: dict[str, Callable[[Narrator], Pieces]] = {
    "bare": Narrator.bare, "doing": Narrator.doing, "phrase": Narrator.phrase,
    "relating": Narrator.relating, "existing": Narrator.existing,
    "place_first": Narrator.place_first, "listing": Narrator.listing, "scenery": Narrator.scenery,
    "picturing": Narrator.picturing, "full": Narrator.full, "together": Narrator.together,
}  # fmt: skip
WEIGHTS = {
    "bare": 0.9, "doing": 2.0, "phrase": 2.0, "relating": 3.0, "existing": 0.8, "place_first": 0.7,
    "listing": 1.2, "scenery": 0.8, "picturing": 0.25, "full": 1.8, "together": 1.5,
}  # fmt: skip


def finish(pieces: Pieces, stop: str, focus: str) -> Caption:
    """Join pieces into a sentence, with the offsets of mentions."""
    text, mentions_found = "", []
    for piece in pieces:
        words = piece.text if isinstance(piece, Mention) else piece
        if text and words != ",":
            text += " "
        if isinstance(piece, Mention):
            mentions_found.append((len(text), piece.text, piece.node))
        text += words
    text = text[0].upper() + text[1:] + stop
    mentions = tuple(
        (start, text[start : start + len(words)], node) for start, words, node in mentions_found
    )
    return Caption(text=text, mentions=mentions, focus=focus)


def caption_scene(scene: Scene, rng: np.random.Generator) -> tuple[Caption, ...]:
    """Write five different captions of a scene."""
    captions: dict[str, Caption] = {}
    weights = dict(WEIGHTS)
    while len(captions) < CAPTIONS:
        focus = weighted(rng, tuple(weights), tuple(weights.values()))
        caption = Narrator(scene=scene, rng=rng).narrate(focus)
        if caption is None:
            weights[focus] = 1e-9
            continue
        weights[focus] *= 0.4
        captions.setdefault(caption.text, caption)
    return tuple(captions.values())


_WORD = re.compile(r"[^\W\d_]+")
# Words within names of objects and places that name nothing by themselves.
_JOINING = {"a", "an", "the", "of", "by", "in", "with", "on", "some", "full", "foot", "scene"}
_PERSON = {"person", "people"}


def scene_of(image_id: str) -> Scene:
    """Scene that an image of MiniWorld shows.

    Args:
        image_id: ``"{split}_{seed}_{number}"``, such as ``"test_in_0_000012"``.

    Raises:
        ValueError: the id has another form.
    """
    split, seed, number = image_id.rsplit("_", 2)
    return sample_scene(seed=int(seed), split=split, index=int(number))


def cut_at_wrong_words(caption: str, scene: Scene) -> list[str]:
    """Split a caption into pieces, of which every second piece is a wrong word.

    A word is wrong if MiniWorld uses it for an object, a colour or a place that the scene lacks.
    Counts, sizes, actions and relations are not checked. Joined, the pieces give the caption.
    """
    right, pieces, end = _words_of(scene), [""], 0
    for match in _WORD.finditer(caption):
        word = match[0].lower()
        if word in _all_words() and word not in right:
            pieces[-1] += caption[end : match.start()]
            pieces += [match[0], ""]
            end = match.end()
    pieces[-1] += caption[end:]
    return pieces


@cache
def _all_words() -> frozenset[str]:
    classes = set().union(*map(_words_of_class, CLASSES.values()))
    places = set().union(*map(_words_of_place, PLACES.values()))
    return frozenset(classes | places | set().union(*map(_words_of_colour, COLOURS)))


def _words_of(scene: Scene) -> set[str]:
    words = _words_of_place(PLACES[scene.place]) | {"sky", "clouds"}
    words |= {"white"} if any(label == "cloud" for label, _ in scene.decor) else set()
    for item in scene.objects:
        words |= _words_of_class(item.kind) | _words_of_colour(item.colour)
        words |= _words_of_action(item.action) if item.action else set()
        words |= _PERSON if item.kind.family == "people" else set()
    return words


def _words_of_class(kind: ObjectClass) -> set[str]:
    return _words([*kind.names, *map(pluralise, kind.names)])


def _words_of_action(action: str) -> set[str]:
    """Words implied by an action: its role, such as a skier, and objects, such as a bike."""
    verbs = [form for forms in ACTIONS[action].verbs for form in forms]
    return _words([*ACTIONS[action].roles, *verbs, *map(for_many, verbs)])


def _words_of_place(place: Place) -> set[str]:
    return _words([*(noun for _, noun in place.ground), *place.scenery])


def _words_of_colour(colour: str) -> set[str]:
    return _words([colour, *COLOUR_WORDS.get(colour, ())])


def _words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in _WORD.findall(text)} - _JOINING
