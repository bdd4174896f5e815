"""Nouns, phrases and actions of parses that are written out here."""

from __future__ import annotations

import pytest

from captioning.text.lemmas import universal_pos
from captioning.text.phrases import Action, NounPhrase, actions, noun_phrases, nouns
from captioning.types import Parse, Token


def parsed(text: str) -> Parse:
    """A parse of ``word/lemma/tag/dep/head`` items; an empty lemma is the word itself."""
    rows = [item.split("/") for item in text.split()]
    return tuple(
        Token(
            text=word,
            lemma=lemma or word.lower(),
            tag=tag,
            dep=dep,
            head=int(head),
            pos=universal_pos(tag=tag, dep=dep, lemma=lemma or word.lower()),
        )
        for word, lemma, tag, dep, head in rows
    )


HYDRANTS = parsed(
    "Two//CD/nummod/4 big//JJ/amod/4 red//JJ/amod/4 fire//NN/compound/4 "
    "hydrants/hydrant/NNS/nsubj/5 are/be/VBP/ROOT/5 wet//JJ/acomp/5 and//CC/cc/6 old//JJ/conj/6"
)
RIDER = parsed(
    "A//DT/det/1 man//NN/ROOT/1 and//CC/cc/1 woman//NN/conj/1 riding/ride/VBG/acl/1 "
    "horses/horse/NNS/dobj/4 on//IN/prep/4 a//DT/det/8 beach//NN/pobj/6"
)
RIDDEN = parsed(
    "A//DT/det/1 horse//NN/nsubjpass/3 is/be/VBZ/auxpass/3 ridden/ride/VBN/ROOT/3 by//IN/agent/3 "
    "a//DT/det/6 girl//NN/pobj/4 and//CC/cc/3 fed/feed/VBN/conj/3"
)
PLANE = parsed(
    "A//DT/det/1 plane//NN/nsubj/2 takes/take/VBZ/ROOT/2 off//RP/prt/2 ,//,/punct/2 "
    "leaving/leave/VBG/advcl/2 smoke//NN/dobj/5"
)
PARKED = parsed("Cars/car/NNS/ROOT/0 parked/park/VBN/acl/0 near//IN/prep/1 trees/tree/NNS/pobj/2")
CHASE = parsed(
    "A//DT/det/2 parked/park/VBN/amod/2 car//NN/ROOT/2 that//WDT/nsubj/4 shines/shine/VBZ/relcl/2"
)
NAME = parsed("Bob/bob/NNP/nsubj/1 runs/run/VBZ/ROOT/1")


def test_nouns_word_by_word_and_as_compounds() -> None:
    assert nouns(HYDRANTS) == ("fire", "hydrant")
    assert nouns(HYDRANTS, compounds=True) == ("fire hydrant",)
    assert nouns(RIDER) == ("man", "woman", "horse", "beach")
    assert nouns(NAME) == ("bob",)
    assert nouns(()) == ()


def test_phrases_have_attributes_from_before_and_after_the_noun() -> None:
    assert noun_phrases(HYDRANTS) == (
        NounPhrase(
            head=4, start=0, lemma="fire hydrant", attributes=("two", "big", "red", "wet", "old")
        ),
    )
    assert [(p.lemma, p.start, p.head) for p in noun_phrases(RIDER)] == [
        ("man", 0, 1),
        ("woman", 3, 3),
        ("horse", 5, 5),
        ("beach", 7, 8),
    ]


def test_actions_of_fragments_belong_to_their_noun() -> None:
    assert actions(RIDER) == (
        Action(verb=4, lemma="ride", subjects=(1, 3), objects=(5,), places=(("on", 8),)),
    )
    assert actions(PARKED) == (
        Action(verb=1, lemma="park", subjects=(), objects=(0,), places=(("near", 3),)),
    )


def test_passive_verbs_turn_their_subject_into_an_object() -> None:
    ridden, fed = actions(RIDDEN)
    assert (ridden.lemma, ridden.subjects, ridden.objects) == ("ride", (6,), (1,))
    assert (fed.lemma, fed.objects) == ("feed", (1,))


def test_relative_clauses_speak_of_their_noun_and_participles_before_nouns_are_attributes() -> None:
    (shine,) = actions(CHASE)
    assert (shine.lemma, shine.subjects) == ("shine", (2,))
    (car,) = noun_phrases(CHASE)
    assert (car.lemma, car.attributes, car.start) == ("car", ("parked",), 0)


def test_particles_and_shared_subjects() -> None:
    takes, leaving = actions(PLANE)
    assert (takes.lemma, takes.subjects, takes.objects) == ("take off", (1,), ())
    assert (leaving.lemma, leaving.subjects, leaving.objects) == ("leave", (1,), (6,))
    assert actions(HYDRANTS) == ()  # "be" is no full verb


@pytest.mark.parametrize("dep", ["conj", "compound", "advcl", "amod"])
def test_chains_of_ten_thousand_words(dep: str) -> None:
    items = ["dog//NN/ROOT/0", *(f"run//VB/{dep}/{i}" for i in range(10_000))]
    parse = parsed(" ".join(items))
    assert len(actions(parse)) == (0 if dep == "amod" else 10_000)
    assert nouns(parse) == ("dog",)
    assert noun_phrases(parse)[0].head == 0
