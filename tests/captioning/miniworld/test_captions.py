"""Captions: exact groundings, good grammar, and true of the scene by an independent reading."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from captioning.miniworld.actions import ACTIONS
from captioning.miniworld.build import describe, make_captions
from captioning.miniworld.captions import (
    DECOR,
    PLACE,
    Caption,
    article,
    cut_at_wrong_words,
    for_many,
    scene_of,
)
from captioning.miniworld.object_class import COLOURS
from captioning.miniworld.places import PLACES
from captioning.miniworld.sample import sample_scene
from captioning.miniworld.vocabulary import CLASSES
from captioning.text.inflection import pluralise

COUNTS = {"two": 2, "three": 3, "four": 4, "pair": 2, "couple": 2}
SIZES = {"small": "small", "little": "small", "tiny": "small",
         "large": "large", "big": "large", "huge": "large"}  # fmt: skip
RELATIONS = (
    ("left of", r"\bleft of$"), ("right of", r"\bright of$"),
    ("next to", r"\b(next to|beside|near|by|past)$"), ("behind", r"\bbehind$"),
    ("in front of", r"\bin front of$"), ("above", r"\b(above|over)$"),
    ("below|under", r"\b(below|under|beneath|underneath)$"), ("on", r"\b(on|on top of)$"),
)  # fmt: skip

Record = tuple[dict, Caption]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    pairs = []
    for split, number in (("train", 500), ("test_near", 150), ("test_out", 150)):
        for index in range(number):
            scene = sample_scene(seed=1, split=split, index=index)
            captions = make_captions(scene, seed=1, split=split, index=index)
            assert len(captions) == 5
            pairs += [(scene.graph(), caption) for caption in captions]
    return pairs


def objects(graph: dict, caption: Caption) -> list[tuple[int, str, dict]]:
    """Mentions of objects with their node."""
    return [
        (start, text, graph["nodes"][node]) for start, text, node in caption.mentions if node >= 0
    ]


@pytest.mark.long
def test_offsets_are_exact(records: list[Record]) -> None:
    for _, caption in records:
        assert caption.mentions
        for start, text, _ in caption.mentions:
            assert caption.text[start : start + len(text)] == text
        starts = [start for start, _, _ in caption.mentions]
        assert starts == sorted(starts)


def test_every_noun_is_grounded(records: list[Record]) -> None:
    """No class name stands outside a mention."""
    names = {name for kind in CLASSES.values() for noun in kind.names for name in (noun,)}
    words = {re.escape(word) for name in names for word in (name, pluralise(name))}
    verbs = {verb for action in ACTIONS.values() for form in action.verbs for verb in form}
    verbs |= {for_many(verb) for verb in verbs}
    pattern = re.compile(rf"\b({'|'.join(sorted(words, key=len, reverse=True))})\b")
    for _, caption in records:
        letters = list(caption.text.lower())
        for start, text, _ in caption.mentions:
            letters[start : start + len(text)] = "." * len(text)
        remaining = "".join(letters)
        for verb_form in sorted(verbs, key=len, reverse=True):
            remaining = remaining.replace(verb_form, ".")
        assert not pattern.search(remaining), caption.text


def test_counts_are_true_and_agree(records: list[Record]) -> None:
    for graph, caption in records:
        for _, text, node in objects(graph, caption):
            first = text.lower().split()
            count = COUNTS.get(first[0]) or (COUNTS.get(first[1]) if len(first) > 1 else None)
            if count is not None:
                assert count == node["count"], caption.text
            elif first[0] in ("a", "an") and first[1] != "group":
                assert node["count"] == 1, caption.text
            else:
                assert node["count"] >= 3, caption.text


def test_nouns_name_the_class_in_the_right_number(records: list[Record]) -> None:
    for graph, caption in records:
        for _, text, node in objects(graph, caption):
            nouns = CLASSES[node["class"]].names
            if node["action"]:
                nouns = (*nouns, *ACTIONS[node["action"]].roles)
            forms = [pluralise(noun) if node["count"] > 1 else noun for noun in nouns]
            assert any(re.search(rf"\b{form}\b", text.lower()) for form in forms), caption.text


def test_colours_and_sizes_are_true(records: list[Record]) -> None:
    num_colours = 0
    for graph, caption in records:
        for _, text, node in objects(graph, caption):
            words = text.lower().replace("grey", "gray").split()
            for noun in CLASSES[node["class"]].names:
                words = " ".join(words).replace(noun, "").split()
            for word in words:
                if word in COLOURS:
                    num_colours += 1
                    assert word == node["colour"], caption.text
                if word in SIZES:
                    assert SIZES[word] == node["size"], caption.text
    assert num_colours > 500


def test_relations_are_in_the_graph(records: list[Record]) -> None:
    checked: dict[str, int] = {}
    for graph, caption in records:
        mentions = caption.mentions
        for (start, text, subject), (second, _, object_) in pairwise(mentions):
            between = caption.text[start + len(text) : second].strip().lower()
            name = next((name for name, end in RELATIONS if re.search(end, between)), None)
            if subject < 0 or object_ < 0 or name is None or " while " in f" {between} ":
                continue
            held = {
                relation["name"] for relation in graph["relations"]
                if (relation["subject"], relation["object"]) == (subject, object_)
            }  # fmt: skip
            assert held & set(name.split("|")), caption.text
            checked[name] = checked.get(name, 0) + 1
    assert len(checked) == len(RELATIONS)
    assert sum(checked.values()) > 400


def test_actions_are_true(records: list[Record]) -> None:
    """A verb of an action is said only in a scene where something does it."""
    unshared: dict[str, set[str]] = {}
    for name, action in ACTIONS.items():
        for form in action.verbs:
            for participle in (form[2], for_many(form[2])):
                unshared.setdefault(participle, set()).add(name)
    for graph, caption in records:
        doing, text = {node["action"] for node in graph["nodes"]}, caption.text
        for participle, names in sorted(unshared.items(), key=lambda item: -len(item[0])):
            if re.search(rf"\b{participle}\b", text):
                text = text.replace(participle, "")
                resting = {"standing", "sitting"} & {participle}
                assert names & doing or resting, caption.text


def test_places_and_skies_are_true(records: list[Record]) -> None:
    for graph, caption in records:
        place = PLACES[graph["place"]]
        views = {noun for _, noun in place.ground} | set(place.scenery) | {"the sky"}
        decor = {entry["label"] for entry in graph["decor"]}
        lower = caption.text.lower()
        for _, text, node in caption.mentions:
            if node == PLACE:
                assert text[0].lower() + text[1:] in views, caption.text
            if node == DECOR:
                assert any(label in text for label in decor), caption.text
        if "at night" in lower or "in the dark" in lower:
            assert graph["time"] == "night"
        if "sunset" in lower or "evening" in lower:
            assert graph["time"] == "sunset"
        if "sunny" in lower:
            assert "sun" in decor
        if "cloudy" in lower:
            assert "cloud" in decor


def test_subject_and_verb_agree(records: list[Record]) -> None:
    """``is`` or ``are`` right after a mention, and ``there is`` before one."""
    for graph, caption in records:
        for start, text, node in objects(graph, caption):
            after = caption.text[start + len(text) :].split()
            verb = after[0].rstrip(".,") if after else ""
            before = caption.text[:start].strip().lower()
            if verb in ("is", "are"):
                assert (verb == "are") == (node["count"] > 1), caption.text
            if before.endswith(("there is", "there are")):
                assert before.endswith("are") == (node["count"] > 1), caption.text


def test_sentences_are_well_formed(records: list[Record]) -> None:
    for _, caption in records:
        text = caption.text
        assert text == text.strip()
        assert text[0].isupper()
        assert "  " not in text
        assert " ," not in text
        assert " ." not in text
        assert not re.search(r"\ba [aeiou]", text.lower()), text
        assert not re.search(r"\ban [^aeiou]", text.lower()), text
        assert not re.search(r"\b(\w+) \1\b", text.lower()), text


def test_titles_do_not_repeat_what_they_say(records: list[Record]) -> None:
    for _, caption in records:
        lower = caption.text.lower()
        for title, verb in (("skier", "ski"), ("swimmer", "swim"), ("runner", "run")):
            assert not re.search(rf"{title}s?( \w+)* {verb}(s|iing|ing|ning|ming)?\b", lower), lower


def test_captions_vary_like_those_of_people() -> None:
    facts = describe(split="train", num_scenes=500)
    assert facts["distinct_captions"] > 0.95
    assert facts["vocabulary"] > 300
    low, quarter, _, three_quarters, longest = facts["words_quantiles_0_25_50_75_100"]
    assert low <= 3
    assert quarter <= 7
    assert three_quarters >= 10
    assert longest >= 18
    assert len(facts["focus"]) == 11
    assert max(facts["focus"].values()) < 0.3


def test_five_captions_of_a_scene_differ() -> None:
    for index in range(50):
        scene = sample_scene(seed=2, split="train", index=index)
        captions = make_captions(scene, seed=2, split="train", index=index)
        assert len({caption.text for caption in captions}) == 5


@pytest.mark.parametrize(
    ("noun", "many"),
    [("dog", "dogs"), ("bus", "buses"), ("slice of bread", "slices of bread"), ("man", "men"),
     ("young boy", "young boys"), ("baby carriage", "baby carriages"), ("box", "boxes"),
     ("snowman", "snowmen"), ("fish", "fish"), ("kitty", "kitties"), ("mosquito", "mosquitoes")],
)  # fmt: skip
def test_plural(noun: str, many: str) -> None:
    assert pluralise(noun) == many


def test_article() -> None:
    assert article("orange car") == "an orange car"
    assert article("big orange car") == "a big orange car"


def test_several_ride_several() -> None:
    assert for_many("riding a bike") == "riding bikes"
    assert for_many("running") == "running"


def test_true_captions_have_no_wrong_word_and_those_of_other_scenes_do() -> None:
    scenes = [scene_of(f"test_in_0_{number:06d}") for number in range(300)]
    texts = [
        [caption.text for caption in make_captions(scene, seed=0, split="test_in", index=number)]
        for number, scene in enumerate(scenes)
    ]
    for scene, own, other in zip(scenes, texts, texts[1:] + texts[:1], strict=True):
        assert [cut_at_wrong_words(text, scene) for text in own] == [[text] for text in own]
        assert all("".join(cut_at_wrong_words(text, scene)) == text for text in other)
    marked = [
        len(cut_at_wrong_words(text, scene)) > 1
        for scene, other in zip(scenes, texts[1:] + texts[:1], strict=True)
        for text in other
    ]
    assert sum(marked) / len(marked) > 0.9


def test_every_second_piece_is_a_wrong_word() -> None:
    scene = scene_of("test_in_0_000299")
    pieces = cut_at_wrong_words("There is a red van on the beach", scene)
    assert pieces[1::2] == ["van", "beach"]
    assert "".join(pieces) == "There is a red van on the beach"


def test_ids_of_other_data_are_refused() -> None:
    with pytest.raises(ValueError, match="not enough values|invalid literal"):
        scene_of("a.jpg")
