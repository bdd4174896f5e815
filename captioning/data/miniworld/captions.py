"""Captions of a scene: as several people would put it, each true of what is seen.

A caption is put together from pieces; the pieces that name something are `Mention`, and become
phrases with exact character offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from captioning.data.miniworld.actions import ACTIONS
from captioning.data.miniworld.grammar import NUMBERS, article, for_many, plural
from captioning.data.miniworld.places import PLACES
from captioning.data.miniworld.sample import pick, weighted
from captioning.data.miniworld.scene import Scene, Thing

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
    """A caption and what it speaks of.

    Attributes:
        text: the caption.
        mentions: ``(start, text, node)``; nodes below 0 are `PLACE` and `DECOR`.
        focus: name of the way of telling.
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
REST = {
    "food": "sit", "drinks": "sit", "household items": "sit", "sports": "sit", "insects": "sit",
    "furniture": "stand", "buildings": "stand", "plants": "stand", "outdoor things": "stand",
}  # fmt: skip
PASSING = ("running", "walking", "cycling", "driving", "luggage", "skiing", "skating")
"""Actions that can lead past something."""

STILL = ("standing", "sitting", "lying", "perched", "resting", "parked")
COLOUR_WORDS = {"gray": ("gray", "grey")}
SIZE_WORDS = {"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")}
WEARING = ("in {}", "wearing {}", "dressed in {}")
SOME = {2: ("two", "two", "two", "a pair of", "a couple of"),
        3: ("three", "three", "three", "a group of", "several"),
        4: ("four", "four", "four", "a group of", "several")}  # fmt: skip


class Teller:
    """One person who captions one scene: has a focus, an eye for detail and own words.

    Args:
        scene: what is seen.
        rng: where choices come from.
    """

    def __init__(self, *, scene: Scene, rng: np.random.Generator) -> None:
        self.scene = scene
        self.rng = rng
        self.place = PLACES[scene.place]
        self.relations = scene.relations
        self.titled: set[int] = set()
        self.detail = float(rng.choice((0.15, 0.55, 0.9)))

    # -- naming ------------------------------------------------------------------------------

    def maybe(self, chance: float) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < chance)

    def noun(self, thing: Thing, role: bool) -> str:
        """A singular noun for a thing."""
        names = thing.kind.names
        roles = ACTIONS[thing.action].roles if role and thing.action else ()
        if roles and thing.kind.family == "people" and self.maybe(0.35):
            self.titled.add(thing.node)
            return pick(self.rng, roles)
        return weighted(self.rng, names, [3.0, *[1.0] * (len(names) - 1)])

    def name(self, thing: Thing, *, role: bool = False, counted: bool = False) -> Mention:
        """A noun phrase: count or article, size, colour, noun, clothes.

        Args:
            thing: what is named.
            role: whether a noun may imply what it does, such as "skier".
            counted: a group is given by its number, so that a plural verb may come before it.
        """
        words, after = [], ""
        if thing.size and self.maybe(max(0.25, self.detail)):
            words.append(pick(self.rng, SIZE_WORDS[thing.size]))
        if len(thing.kind.colours) > 1 and self.maybe(self.detail):
            colour = pick(self.rng, COLOUR_WORDS.get(thing.colour, (thing.colour,)))
            if thing.kind.head:
                after = " " + pick(self.rng, WEARING).format(colour)
            else:
                words.append(colour)
        noun, count = self.noun(thing, role), len(thing.boxes)
        if count == 1:
            return Mention(article(" ".join([*words, noun])) + after, thing.node)
        number = NUMBERS[count] if counted else pick(self.rng, SOME[count])
        return Mention(" ".join([number, *words, plural(noun)]) + after, thing.node)

    def where(self, thing: Thing) -> Pieces:
        """The place, as it is for a thing on the ground, on water, in the sky or on another."""
        if thing.zone == "sky" and self.scene.place != "sky":
            if self.maybe(0.5):
                return ["in", Mention("the sky", PLACE)]
            return ["over", Mention(pick(self.rng, self.place.scenery), PLACE)]
        fits = self.place.ground
        if any(found.name == "on" and found.subject == thing.node for found in self.relations):
            fits = tuple(pair for pair in fits if pair[0] != "on") or fits
        preposition, noun = pick(self.rng, fits)
        return [preposition, Mention(noun, PLACE)]

    # -- doing -------------------------------------------------------------------------------

    def ing(self, thing: Thing) -> str:
        """What a thing is doing, as a participle; empty if nothing, or if its noun says it."""
        if thing.node in self.titled:
            return ""
        if not thing.action:
            return ""
        verb = pick(self.rng, ACTIONS[thing.action].verbs)[2]
        return for_many(verb) if len(thing.boxes) > 1 else verb

    def does(self, thing: Thing) -> str:
        """What a thing does, as a finite verb that agrees with it."""
        many = len(thing.boxes) > 1
        if not thing.action or thing.node in self.titled:
            return self.rests(thing)
        third, plain, ing = pick(self.rng, ACTIONS[thing.action].verbs)
        if many:
            plain, ing = for_many(plain), for_many(ing)
        if third.startswith("is "):
            return plain if many else third
        if self.maybe(0.5):
            return f"{'are' if many else 'is'} {ing}"
        return plain if many else third

    def rests(self, thing: Thing) -> str:
        """The verb of a thing that does nothing."""
        many = len(thing.boxes) > 1
        verb = REST.get(thing.kind.family)
        if verb is None or self.maybe(0.6):
            return "are" if many else "is"
        return verb if many else verb + "s"

    def related(self, thing: Thing, others: set[int], *, verb: bool = False) -> Pieces:
        """A relation of a thing to another, or nothing if there is none.

        Args:
            thing: the one.
            others: nodes that are not to be the other; grows by the other.
            verb: whether what it does is said before, so that it may pass the other.
        """
        found = [
            relation for relation in self.relations
            if relation.subject == thing.node and relation.object not in others
        ]  # fmt: skip
        if not found:
            return []
        relation = pick(self.rng, found)
        others.add(relation.object)
        other = self.scene.things[relation.object]
        words = RELATION_WORDS[relation.name]
        if relation.name == "next to" and self.passes(thing, verb):
            words = (*words, "past", "past")
        return [pick(self.rng, words), self.name(other)]

    def passes(self, thing: Thing, verb: bool) -> bool:
        """Whether it can be said to go past something."""
        return verb and thing.action in PASSING and thing.node not in self.titled

    def conditions(self) -> Pieces:
        """Time of day or weather, if it shows."""
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

    # -- ways of telling ---------------------------------------------------------------------

    def first(self) -> Thing:
        """The main thing, or now and then another."""
        takes_second = len(self.scene.things) > 1 and self.maybe(0.2)
        return self.scene.things[1 if takes_second else 0]

    def bare(self) -> Pieces:
        """Just what it is."""
        thing = self.first()
        return [self.name(thing, role=True), self.ing(thing)]

    def doing(self) -> Pieces:
        """What it does, and where."""
        thing = self.first()
        return [self.name(thing, role=True), self.does(thing), *self.where(thing)]

    def phrase(self) -> Pieces:
        """A title: what, doing what, where."""
        thing = self.first()
        return [self.name(thing, role=True), self.ing(thing), *self.where(thing)]

    def relating(self) -> Pieces:
        """Where it is to something else."""
        thing = self.first()
        name = self.name(thing, role=True)
        other = self.related(thing, {thing.node}, verb=True)
        if not other:
            return []
        verb = self.does(thing) if self.maybe(0.6) else self.ing(thing)
        place = self.where(thing) if thing.zone != "sky" and self.maybe(0.3) else []
        return [name, verb, *other, *place]

    def existing(self) -> Pieces:
        """There is something somewhere."""
        thing = self.first()
        many = len(thing.boxes) > 1
        there = ["There are" if many else "There is", self.name(thing, counted=True)]
        other = self.related(thing, {thing.node}) if self.maybe(0.5) else []
        return [*there, *(other or self.where(thing))]

    def place_first(self) -> Pieces:
        """The place, then what is in it."""
        thing = self.first()
        place = [*self.where(thing), ","]
        if thing.action:
            return [*place, self.name(thing, role=True), self.does(thing)]
        return [
            *place,
            "there are" if len(thing.boxes) > 1 else "there is",
            self.name(thing, counted=True),
        ]

    def listing(self) -> Pieces:
        """All there is, in a row."""
        things = self.scene.things
        if len(things) < 2:
            return []
        parts: Pieces = []
        for number, thing in enumerate(things):
            if number:
                parts.append("and" if number == len(things) - 1 else ",")
            parts.append(self.name(thing))
        zones = {thing.zone for thing in things}
        return [*parts, *(self.where(things[0]) if len(zones) == 1 else [])]

    def scenery(self) -> Pieces:
        """The place as the subject."""
        thing = self.first()
        views = [words for words in self.place.scenery if " with " not in words]
        view = Mention(pick(self.rng, views), PLACE)
        parts: Pieces = [view, "with", self.name(thing)]
        others = [other for other in self.scene.things if other.node != thing.node]
        if others and self.maybe(0.6):
            parts += ["and", self.name(pick(self.rng, others))]
        return parts

    def picturing(self) -> Pieces:
        """A picture of something."""
        thing = self.first()
        lead = pick(self.rng, ("A picture of", "A view of", "An image of"))
        return [lead, self.name(thing), *(self.where(thing) if self.maybe(0.5) else [])]

    def full(self) -> Pieces:
        """Everything, at length."""
        thing = self.scene.things[0]
        self.detail = max(self.detail, 0.7)
        said = {thing.node}
        parts: Pieces = [self.name(thing, role=True), self.does(thing)]
        other = self.related(thing, said, verb=True)
        parts += [*other, *([] if other and thing.zone == "sky" else self.where(thing))]
        rest = [other for other in self.scene.things if other.node not in said]
        if rest:
            return parts + self.besides(pick(self.rng, rest))
        return parts + (self.conditions() if self.maybe(0.6) else [])

    def besides(self, other: Thing) -> Pieces:
        """Another thing, added at the end."""
        if other.action and other.action not in STILL and self.maybe(0.7):
            return ["while", self.name(other), self.does(other)]
        return ["with", self.name(other), "in the sky" if other.zone == "sky" else "nearby"]

    def together(self) -> Pieces:
        """Two things, each with its doing."""
        moving = [thing for thing in self.scene.things if thing.action not in ("", *STILL)]
        if len(moving) < 2:
            return []
        one, two = moving[0], moving[1]
        joint = pick(self.rng, ("while", "and", "as"))
        return [self.name(one, role=True), self.does(one), joint, self.name(two), self.does(two)]

    def tell(self, focus: str) -> Caption | None:
        """A caption with that focus, or None if the scene does not lend itself to it."""
        pieces = [piece for piece in WAYS[focus](self) if piece]
        if not pieces:
            return None
        stop = "" if self.maybe(0.12) else "."
        return finish(pieces, stop, focus)


WAYS: dict[str, Callable[[Teller], Pieces]] = {
    "bare": Teller.bare, "doing": Teller.doing, "phrase": Teller.phrase,
    "relating": Teller.relating, "existing": Teller.existing, "place_first": Teller.place_first,
    "listing": Teller.listing, "scenery": Teller.scenery, "picturing": Teller.picturing,
    "full": Teller.full, "together": Teller.together,
}  # fmt: skip
WEIGHTS = {
    "bare": 0.9, "doing": 2.0, "phrase": 2.0, "relating": 3.0, "existing": 0.8, "place_first": 0.7,
    "listing": 1.2, "scenery": 0.8, "picturing": 0.25, "full": 1.8, "together": 1.5,
}  # fmt: skip


def finish(pieces: Pieces, stop: str, focus: str) -> Caption:
    """Join pieces into a sentence with offsets of its mentions."""
    text, found = "", []
    for piece in pieces:
        words = piece.text if isinstance(piece, Mention) else piece
        if text and words != ",":
            text += " "
        if isinstance(piece, Mention):
            found.append((len(text), piece.text, piece.node))
        text += words
    text = text[0].upper() + text[1:] + stop
    mentions = tuple(
        (start, text[start : start + len(words)], node) for start, words, node in found
    )
    return Caption(text=text, mentions=mentions, focus=focus)


def caption_scene(scene: Scene, rng: np.random.Generator) -> tuple[Caption, ...]:
    """Five different captions of a scene."""
    found: dict[str, Caption] = {}
    weights = dict(WEIGHTS)
    while len(found) < CAPTIONS:
        focus = weighted(rng, tuple(weights), tuple(weights.values()))
        caption = Teller(scene=scene, rng=rng).tell(focus)
        if caption is None:
            weights[focus] = 1e-9
            continue
        weights[focus] *= 0.4
        found.setdefault(caption.text, caption)
    return tuple(found.values())
