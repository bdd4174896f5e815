"""Lemmas by table and rule; universal parts of speech from tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioning.text.lemmas import (
    Lemmatizer,
    learn_lemmas,
    load_lemmas,
    save_lemmas,
    universal_pos,
)

# Forms of words that no table knows.
BY_RULE = [
    ("dogs", "NNS", "dog"),
    ("Boxes", "NNS", "box"),
    ("glasses", "NNS", "glass"),
    ("clothes", "NNS", "clothes"),
    ("benches", "NNS", "bench"),
    ("puppies", "NNS", "puppy"),
    ("fishermen", "NNS", "fisherman"),
    ("skates", "VBZ", "skate"),
    ("watches", "VBZ", "watch"),
    ("carries", "VBZ", "carry"),
    ("sitting", "VBG", "sit"),
    ("falling", "VBG", "fall"),
    ("passing", "VBG", "pass"),
    ("skating", "VBG", "skate"),
    ("writing", "VBG", "write"),
    ("walking", "VBG", "walk"),
    ("cradling", "VBG", "cradle"),
    ("discovered", "VBN", "discover"),
    ("visited", "VBD", "visit"),
    ("eating", "VBG", "eat"),
    ("playing", "VBG", "play"),
    ("parked", "VBN", "park"),
    ("stopped", "VBD", "stop"),
    ("tried", "VBD", "try"),
    # nothing that could be a verb is left before the ending
    ("sled", "VBD", "sled"),
    ("sling", "VBG", "sling"),
    # no past tense, whatever the tagger says
    ("windsurfs", "VBD", "windsurf"),
    ("cross", "VBD", "cross"),
    ("wider", "JJR", "wide"),
    ("biggest", "JJS", "big"),
    ("happier", "JJR", "happy"),
    # without an ending, or without inflection, a word is its own lemma
    ("cut", "VBN", "cut"),
    ("bus", "NN", "bus"),
    ("Dress", "NN", "dress"),
    ("his", "PRP$", "his"),
    ("s", "NNS", "s"),
]


@pytest.mark.parametrize(("word", "tag", "lemma"), BY_RULE)
def test_words_never_met_go_by_rule(word: str, tag: str, lemma: str) -> None:
    assert Lemmatizer(exceptions={}, known={})(word, tag) == lemma


def test_known_words_decide_between_spellings() -> None:
    known = {"verb": ["tie", "hop", "hope"], "noun": ["wolf", "shelf", "knife"]}
    lemma = Lemmatizer(exceptions={}, known=known)
    assert [lemma(word, "VBN") for word in ("tied", "hopped", "hoped")] == ["tie", "hop", "hope"]
    assert [lemma(word, "NNS") for word in ("wolves", "knives")] == ["wolf", "knife"]


def test_learned_tables_agree_with_the_majority_and_tell_tags_apart(tmp_path: Path) -> None:
    words = [("saw", "VBD", "see")] * 3 + [("saw", "VBD", "saw")] * 2 + [("saw", "NN", "saw")] * 2
    words += [("Men", "NNS", "man")] * 2 + [("dogs", "NNS", "dog")] * 2 + [("tied", "VBN", "tie")]
    learned = learn_lemmas(words)
    assert learned("SAW", "VBD") == "see"
    assert learned("saw", "NN") == "saw"
    assert learned("men", "NNS") == "man"
    # "tied" was seen once, "dogs" is right by rule: left out
    assert learned.exceptions == {"VBD": {"saw": "see"}, "NNS": {"men": "man"}}
    save_lemmas(learned, tmp_path / "lemmas.json")
    again = load_lemmas(tmp_path / "lemmas.json")
    assert (again.exceptions, again.known) == (learned.exceptions, learned.known)


def test_examples_are_not_believed_where_another_word_is_far_more_usual() -> None:
    words = [("sing", "VB", "sing")] * 3 + [("singing", "VBG", "singe")] * 3
    words += [("zebra", "NN", "zebra")] * 3 + [("zebras", "NNS", "zebras")] * 3
    words += [("clothe", "NN", "clothe")] * 9 + [("clothes", "NNS", "clothe")] * 3
    words += [("staring", "VBG", "stare")] * 3 + [("star", "VB", "star")] * 3
    words += [("stare", "VBP", "stare")] + [("n't", "RB", "not")] * 2
    learned = learn_lemmas(words)
    assert learned("singing", "VBG") == "sing"
    assert learned("zebras", "NNS") == "zebra"
    assert learned("staring", "VBG") == "stare"  # both are words: the example decides
    assert learned("n't", "RB") == "not"
    assert learned("clothes", "NNS") == "clothes"


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "lemmas.json").write_text("[]")
    with pytest.raises(ValueError, match="lemmas.json must hold a lemmatizer's tables"):
        load_lemmas(tmp_path / "lemmas.json")


@pytest.mark.parametrize(
    ("tag", "dep", "lemma", "pos"),
    [
        ("NNS", "dobj", "dog", "NOUN"),
        ("VBZ", "ROOT", "run", "VERB"),
        ("VBZ", "ROOT", "be", "AUX"),
        ("VBZ", "aux", "have", "AUX"),
        ("IN", "prep", "on", "ADP"),
        ("IN", "mark", "while", "SCONJ"),
        ("TO", "aux", "to", "PART"),
        ("TO", "prep", "to", "ADP"),
        ("RB", "neg", "not", "PART"),
        ("DT", "det", "the", "DET"),
        ("DT", "nsubj", "this", "PRON"),
        ("???", "dep", "", "X"),
    ],
)
def test_universal_parts_of_speech(tag: str, dep: str, lemma: str, pos: str) -> None:
    assert universal_pos(tag=tag, dep=dep, lemma=lemma) == pos
