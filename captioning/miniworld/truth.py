"""Which words of a caption name something that a scene does not show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.captions import COLOUR_WORDS, for_many
from captioning.miniworld.object_class import COLOURS, ObjectClass
from captioning.miniworld.places import PLACES, Place
from captioning.miniworld.sample import sample_scene
from captioning.miniworld.scene import Scene
from captioning.miniworld.vocabulary import CLASSES
from captioning.text.inflection import pluralise

_WORD = re.compile(r"[^\W\d_]+")
# Words within names of objects and places that name nothing by themselves.
_JOINING = {"a", "an", "the", "of", "by", "in", "with", "on", "some", "full", "foot", "scene"}
_PERSON = {"person", "people"}


def scene_of(image_id: str) -> Scene:
    """The scene that an image of MiniWorld shows.

    Args:
        image_id: ``"{split}_{seed}_{number}"``, such as ``"test_in_0_000012"``.

    Raises:
        ValueError: an id of another form.
    """
    split, seed, number = image_id.rsplit("_", 2)
    return sample_scene(seed=int(seed), split=split, index=int(number))


def cut_at_wrong_words(caption: str, scene: Scene) -> list[str]:
    """The caption in pieces, of which every second one is a wrong word.

    A word is wrong if MiniWorld uses it for an object, a colour or a place, and nothing in the
    scene bears it. Counts, sizes, actions and relations are not checked. Joined, the pieces are the
    caption.
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
    """A role, such as a skier, and what is used, such as a bike."""
    verbs = [form for forms in ACTIONS[action].verbs for form in forms]
    return _words([*ACTIONS[action].roles, *verbs, *map(for_many, verbs)])


def _words_of_place(place: Place) -> set[str]:
    return _words([*(noun for _, noun in place.ground), *place.scenery])


def _words_of_colour(colour: str) -> set[str]:
    return _words([colour, *COLOUR_WORDS.get(colour, ())])


def _words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in _WORD.findall(text)} - _JOINING
