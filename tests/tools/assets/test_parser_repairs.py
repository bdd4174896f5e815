"""Each rule mends its kind of fault and leaves what is right alone."""

from __future__ import annotations

import pytest

from captioning.text.lemmas import universal_pos
from captioning.types import Parse, Token
from tools.assets.parser_repairs import repair


def parsed(text: str) -> Parse:
    """A parse of ``word/tag/dep/head`` items."""
    rows = [item.rsplit("/", 3) for item in text.split()]
    return tuple(
        Token(
            text=word,
            lemma=word.lower(),
            tag=tag,
            dep=dep,
            head=int(head),
            pos=universal_pos(tag=tag, dep=dep, lemma=word.lower()),
        )
        for word, tag, dep, head in rows
    )


MENDED = {
    "names in lower case": (
        "a/DT/det/2 teddy/NNP/nsubj/2 bear/NNP/ROOT/2",
        "a/DT/det/2 teddy/NN/compound/2 bear/NN/ROOT/2",
    ),
    "a teddy in upper case": (
        "Teddy/NNP/compound/1 Bear/NNP/ROOT/1",
        "Teddy/NN/compound/1 Bear/NNP/ROOT/1",
    ),
    "colours of the whole": (
        "A/DT/det/3 red/NN/compound/2 fire/NN/compound/3 hydrant/NN/ROOT/3",
        "A/DT/det/3 red/JJ/amod/3 fire/NN/compound/3 hydrant/NN/ROOT/3",
    ),
    "next to": (
        "Dogs/NNS/ROOT/0 next/JJ/amod/0 to/IN/prep/1 cats/NNS/pobj/2",
        "Dogs/NNS/ROOT/0 next/RB/advmod/0 to/IN/prep/1 cats/NNS/pobj/2",
    ),
    "nouns with an article": (
        "On/IN/ROOT/0 a/DT/det/3 fire/NN/compound/3 hydrant/JJ/pobj/0",
        "On/IN/ROOT/0 a/DT/det/3 fire/NN/compound/3 hydrant/NN/pobj/0",
    ),
    "verbs taken for plurals": (
        "A/DT/det/1 zebra/NN/nsubj/2 munches/NNS/ROOT/2 grass/NN/dobj/2",
        "A/DT/det/1 zebra/NN/nsubj/2 munches/VBZ/ROOT/2 grass/NN/dobj/2",
    ),
    "nouns taken for subjects": (
        "A/DT/det/1 marble/NN/nsubj/2 sink/NN/ROOT/2",
        "A/DT/det/2 marble/NN/compound/2 sink/NN/ROOT/2",
    ),
    "participles taken for sentences": (
        "A/DT/det/1 man/NN/nsubj/2 riding/VBG/ROOT/2 horses/NNS/dobj/2 ././punct/2",
        "A/DT/det/1 man/NN/ROOT/1 riding/VBG/acl/1 horses/NNS/dobj/2 ././punct/1",
    ),
}
RIGHT = [
    "Bob/NNP/nsubj/1 runs/VBZ/ROOT/1",
    "The/DT/det/1 man/NN/nsubj/3 is/VBZ/aux/3 riding/VBG/ROOT/3",
    "a/DT/det/1 close/JJ/ROOT/1 up/RP/prt/1",
    "white/JJ/ROOT/0 as/IN/prep/0 snow/NN/pobj/1",
    "the/DT/det/1 next/JJ/ROOT/1 ,/,/punct/1 to/IN/prep/1 us/PRP/pobj/3",
    "Three/CD/nummod/1 dogs/NNS/nsubj/2 leaves/NNS/ROOT/2",
    "a/DT/det/1 boat/NN/nsubj/2 sailing/NN/ROOT/2",
]


@pytest.mark.parametrize("kind", MENDED)
def test_a_fault_is_mended_and_stays_so(kind: str) -> None:
    before, after = map(parsed, MENDED[kind])
    assert repair(before) == after
    assert repair(after) == after


@pytest.mark.parametrize("text", RIGHT)
def test_what_no_rule_is_for_is_left_alone(text: str) -> None:
    assert repair(parsed(text)) == parsed(text)


def test_an_empty_caption() -> None:
    assert repair(()) == ()
