"""Captions of MiniWorld with their true graphs, written from the scene and from what was chosen.

A narrator notes what it says of what; its notes and the scene make the graph. The caption's text is
not parsed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from augmentation.ssa.builder import Builder
from augmentation.ssa.dependency_parse import Words
from augmentation.ssa.graph import Graph
from augmentation.ssa.lexicon import COLOURS, concept_of, is_living, subject_role
from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.captions import RESTING_VERBS, SIZE_WORDS, Narrator, for_many
from captioning.miniworld.sample import sample_scene
from captioning.miniworld.scene import Scene, SceneObject
from captioning.text.inflection import pluralise

WAYS = ("bare", "doing", "phrase", "relating", "existing", "place_first", "scenery", "picturing")
PLAIN = ("in", "on", "at")


class NotingNarrator(Narrator):
    """A narrator that notes who is named, what is done, and where."""

    def __init__(self, *, scene: Scene, rng: np.random.Generator) -> None:
        super().__init__(scene=scene, rng=rng)
        self.notes: list[tuple] = []

    def name(self, item: SceneObject, **options: bool):
        mention = super().name(item, **options)
        self.notes.append(("name", item, mention.text))
        return mention

    def where(self, item: SceneObject):
        pieces = super().where(item)
        self.notes.append(("where", item, pieces[0], pieces[1].text))
        return pieces

    def ing(self, item: SceneObject) -> str:
        said = super().ing(item)
        self.notes.append(("ing", item, said))
        return said

    def does(self, item: SceneObject) -> str:
        said = super().does(item)
        self.notes.append(("does", item, said))
        return said

    def related(self, item: SceneObject, mentioned: set[int], **options: bool):
        place = len(self.notes)
        pieces = super().related(item, mentioned, **options)
        if pieces:
            named = self.notes.pop()
            assert len(self.notes) == place
            self.notes.append(("related", item, pieces[0], *named[1:]))
        return pieces


def true_captions(*, scenes: int, seed: int = 0) -> Iterator[tuple[str, Graph]]:
    """Captions of the first scenes of MiniWorld's training split, each with its graph."""
    for index in range(scenes):
        scene = sample_scene(seed=seed, split="train", index=index)
        for number, way in enumerate(WAYS):
            narrator = NotingNarrator(scene=scene, rng=np.random.default_rng([index, number]))
            caption = narrator.narrate(way)
            if caption is not None:
                views = [words for words in narrator.place.scenery if " with " not in words]
                yield caption.text, _Truth(way, caption.text, views).graph(narrator.notes)


class _Truth:
    def __init__(self, way: str, text: str, views: list[str]) -> None:
        self.build = Builder(Words((), (), ()))
        self.way, self.text, self.views = way, text, views
        self.of: dict[int, str] = {}  # a thing's node
        self.doing: dict[int, str] = {}  # what it does, or is in

    def graph(self, notes: list[tuple]) -> Graph:
        order = ("name", "does", "ing", "where", "related")
        for kind, thing, *words in sorted(notes, key=lambda note: order.index(note[0])):
            getattr(self, f"_{kind}")(thing, *words)
        first = notes[0][1].node
        root = self.doing.get(first, self.of[first])
        if any(kind == "ing" for kind, *_ in notes):
            root = self.of[first]
        if self.way == "picturing":
            root = self.build.add(self.text.split()[1])
            self.build.link(root, "topic", self.of[first])
        if self.way == "scenery":
            root = self._view()
        return self.build.graph(root)

    def _view(self) -> str:
        """ "a green field with a cow and a barn": the place has them."""
        view = max((v for v in self.views if self.text.lower().startswith(v)), key=len)
        root, things = self._phrase(view), list(self.of.values())
        if len(things) > 1:
            joint = self.build.add("and")
            for number, thing in enumerate(things, start=1):
                self.build.link(joint, f"op{number}", thing)
        else:
            joint = things[0]
        living = is_living(self.build.nodes[things[0]].concept)
        if living:
            self.build.link(root, "accompanier", joint)
        else:
            has = self.build.add("have-03")
            self.build.link(has, "ARG0", root)
            self.build.link(has, "ARG1", joint)
        return root

    def _name(self, thing: SceneObject, text: str) -> None:
        self.of[thing.node] = self._named(thing, text)

    def _named(self, thing: SceneObject, text: str) -> str:
        """A thing as it was called: its noun, and those of its properties that were said."""
        kind = thing.kind
        for clothes in (" dressed in ", " wearing ", " in "):
            core, joint, colour = text.rpartition(clothes)
            if joint and colour in ("gray", "grey", *kind.colours):
                break
        else:
            core, colour, clothes = text, "", ""
        roles = ACTIONS[thing.action].roles if thing.action else ()
        names = [name for name in (*kind.names, *roles) for form in (name, pluralise(name))
                 if core == form or core.endswith(f" {form}")]  # fmt: skip
        noun = max(names, key=len)
        said = core.split()[: -len(noun.split())]
        variable = whole = self._noun(noun)
        if "of" in said and said[1] in ("pair", "group"):
            whole = self.build.add(said[1])
            self.build.link(whole, "consist-of", variable)
        elif said[:3] == ["a", "couple", "of"]:
            self.build.link(variable, "quant", self.build.add("couple"))
        elif len(thing.boxes) > 1:
            value = "several" if said[0] == "several" else str(len(thing.boxes))
            self.build.link(variable, "quant", self.build.add(value))
        for word in said:
            if word in SIZE_WORDS.get(thing.size, ()):
                self.build.link(variable, "mod", self.build.add(word))
            elif word in ("gray", "grey", thing.colour) and len(kind.colours) > 1:
                self._colour(variable, word)
        if colour:
            self._worn(whole, clothes.strip(), colour)
        return whole

    def _noun(self, noun: str) -> str:
        """ "fighter jet" is a jet, "slice of bread" a slice that consists of bread."""
        head, joint, rest = noun.partition(" of ")
        *kinds, last = head.split()
        variable = self.build.add("person" if last == "people" else last)
        for kind in kinds:
            self.build.link(variable, "mod", self.build.add(kind))
        if joint:
            self.build.link(variable, "consist-of", self.build.add(rest))
        return variable

    def _colour(self, variable: str, word: str) -> None:
        if word in COLOURS:
            self.build.link(self.build.add(COLOURS[word]), "ARG1", variable)
        else:
            self.build.link(variable, "mod", self.build.add(word))

    def _worn(self, variable: str, clothes: str, colour: str) -> None:
        dressed = clothes == "dressed in"
        wears = self.build.add("dress-01" if dressed else "wear-01")
        self.build.link(wears, "ARG1" if dressed else "ARG0", variable)
        self.build.link(wears, "ARG2" if dressed else "ARG1", self.build.add(colour))

    def _ing(self, thing: SceneObject, said: str) -> None:
        if said:
            self._does(thing, said)

    def _does(self, thing: SceneObject, said: str) -> None:
        words = said.split()
        if words[0] in ("is", "are"):
            words = words[1:]
        if not words:
            self.doing[thing.node] = self.build.add("be-located-at-91")
            self.build.link(self.doing[thing.node], "ARG1", self.of[thing.node])
            return
        verb, rest = self._verb(thing, words)
        self.doing[thing.node] = action = self.build.add(concept_of(verb))
        role = "ARG0" if rest[:1] and rest[0] in ("a", "bikes", "bicycles", "suitcases") else (
            subject_role(verb)
        )  # fmt: skip
        self.build.link(action, "ARG1" if verb == "park" else role, self.of[thing.node])
        self._rest(action, thing, rest)

    def _verb(self, thing: SceneObject, words: list[str]) -> tuple[str, list[str]]:
        if words[0] == "parked":
            return "park", []
        verbs = ACTIONS[thing.action].verbs if thing.action else ()
        for third, plain, ing in verbs:
            for form in (third, plain, ing, for_many(plain), for_many(ing)):
                if words == form.split():
                    return plain.split()[0], words[1:]
        return next(v for v in set(RESTING_VERBS.values()) if words[0].startswith(v)), []

    def _rest(self, action: str, thing: SceneObject, rest: list[str]) -> None:
        """ "a bike", "with a cane", "down": what is said with the verb itself."""
        if not rest:
            return
        if rest == ["down"]:
            self.build.link(action, "direction", self.build.add("down"))
        elif rest == ["with", "raised", "arms"]:
            arm = self.build.add("arm")
            self.build.link(self.build.add("raise-01"), "ARG1", arm)
            self.build.link(action, "manner", arm)
        else:
            noun = self.build.add(rest[-1].removesuffix("s") if len(thing.boxes) > 1 else rest[-1])
            role = {"with": "accompanier", "on": "ARG2"}.get(rest[0], "ARG1")
            self.build.link(action, role, noun)

    def _where(self, thing: SceneObject, word: str, place: str) -> None:
        self._place(thing, word, self._phrase(place))

    def _phrase(self, text: str) -> str:
        """A place: its noun with what stands before it, and "of" something."""
        text, of, rest = text.partition(" of ")
        words = [word for word in text.split() if word not in ("a", "an", "the", "some")]
        variable = self.build.add(words[-1].removesuffix("s"))
        for word in words[:-1]:
            self._colour(variable, word)
        if of:
            self.build.link(variable, "part-of", self._phrase(rest))
        return variable

    def _related(self, thing: SceneObject, word: str, other: SceneObject, text: str) -> None:
        self._place(thing, word, self._named(other, text))

    def _place(self, thing: SceneObject, word: str, target: str) -> None:
        site = self.doing.get(thing.node, self.of[thing.node])
        verb = self.build.nodes[site].concept
        role = "ARG2" if verb == "be-located-at-91" else "location"
        word = word.replace("to the ", "").replace("on the ", "")
        if word in PLAIN:
            self.build.link(site, role, target)
            return
        motion = verb[:-3] in (
            "fly",
            "run",
            "walk",
            "drive",
            "race",
            "ski",
            "skate",
            "soar",
            "jump",
        )
        if word == "past" or (word == "over" and motion):
            role = "path"
        node = self.build.add(word.replace(" ", "-"))
        self.build.link(site, role, node)
        self.build.link(node, "op1", target)
