from __future__ import annotations

import json
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.metrics.coco import evaluate_captions
from captioning.metrics.novel import (
    HELD_OUT_FORMS,
    cof,
    find_mentions,
    images_by_class,
    macro_average,
    score_groups,
    score_mentions,
    score_nocaps,
    score_novel,
    word_forms,
)

FAST: dict[str, Any] = {"metrics": ["BLEU", "CIDEr-D"], "tokenizer": "python"}

# CIDEr, F1, COF1, COF1.5 of Bujimalla et al., tables 2 to 4, in points. Row 3E-i is left out: its
# COF1 is a misprint. Scores are printed to 0.1, so what follows from them is right to about 0.1.
PAPER = [
    (69.7, 0.0, 0.0, 0.0),
    (76.6, 56.2, 64.8, 68.9),
    (92.7, 60.8, 73.4, 79.8),
    (86.9, 60.9, 71.6, 76.8),
    (89.0, 62.1, 73.1, 78.5),
    (94.4, 74.1, 83.0, 87.0),
    (96.5, 74.0, 83.7, 88.2),
    (110.2, 60.7, 78.3, 88.1),
    (96.3, 75.8, 84.8, 88.9),
    (94.5, 63.0, 75.6, 81.9),
    (84.8, 64.7, 73.4, 77.4),
    (85.3, 85.7, 85.5, 85.4),
    (86.0, 70.3, 77.4, 80.5),
    (88.5, 75.1, 81.3, 83.9),
    (94.7, 64.3, 76.6, 82.7),
    (99.1, 71.8, 83.3, 88.7),
    (92.4, 68.8, 78.8, 83.5),
    (95.1, 72.3, 82.1, 86.7),
    (93.7, 69.1, 79.6, 84.5),
]

REFERENCES = {
    "1": ["A red bus on a street.", "Two buses in town."],
    "2": ["A zebra eats grass.", "An animal in a field."],
    "3": ["A man in a park.", "Somebody walks a dog."],
    "4": ["A bus beside a zebra.", "A strange street."],
    "5": ["Cups on a table.", "White cups."],
}
CANDIDATES = {
    "1": "a bus on a street",
    "2": "a horse eats grass",
    "3": "a man and a zebra in a park",
    "4": "a zebra beside a bus",
    "5": "a zebra and cups",
}
FORMS = {name: HELD_OUT_FORMS[name] for name in ("bus", "zebra", "pizza")}


@pytest.mark.parametrize(("cider", "f1", "cof1", "cof15"), PAPER)
def test_cof_gives_the_tables_of_the_paper(
    cider: float, f1: float, cof1: float, cof15: float
) -> None:
    assert cof(cider=cider, f1=f1) == pytest.approx(cof1, abs=0.11)
    assert cof(cider=cider, f1=f1, beta=1.5) == pytest.approx(cof15, abs=0.11)


@given(st.floats(0, 10), st.floats(0, 1), st.floats(0.1, 5))
def test_cof_lies_between_its_scores(cider: float, f1: float, beta: float) -> None:
    result = cof(cider=cider, f1=f1, beta=beta)
    assert result <= max(cider, f1) * (1 + 1e-12)
    assert result == 0 or result >= min(cider, f1) * (1 - 1e-12)
    # of one unit: points give points
    assert cof(cider=100 * cider, f1=100 * f1, beta=beta) == pytest.approx(100 * result)


def test_beta_leans_towards_cider() -> None:
    scores = [cof(cider=0.9, f1=0.5, beta=beta) for beta in (0.01, 1, 1.5, 100)]
    assert scores == sorted(scores)
    assert (scores[0], scores[-1]) == (pytest.approx(0.5, 1e-3), pytest.approx(0.9, 1e-3))


@pytest.mark.parametrize(
    ("cider", "f1", "beta"),
    [(-0.1, 0.5, 1), (0.5, float("nan"), 1), (float("nan"), 0.5, 1), (0.5, 0.5, 0)],
)
def test_bad_scores_are_named(cider: float, f1: float, beta: float) -> None:
    with pytest.raises(ValueError, match="at least 0, beta above 0"):
        cof(cider=cider, f1=f1, beta=beta)


@pytest.mark.parametrize(
    ("noun", "plurals"),
    [
        ("bottle", ["bottles"]),
        ("bus", ["buses"]),
        ("couch", ["couches"]),
        ("toothbrush", ["toothbrushes"]),
        ("puppy", ["puppies"]),
        ("monkey", ["monkeys"]),
        ("zoo", ["zoos"]),
        ("potato", ["potatos", "potatoes"]),  # codespell:ignore potatos
        ("person", ["persons", "people"]),
        ("fireman", ["firemans", "firemen"]),
        ("butter knife", ["butter knifes", "butter knives"]),  # codespell:ignore knifes
        ("hot dog", ["hot dogs"]),
    ],
)
def test_plurals(noun: str, plurals: list[str]) -> None:
    assert word_forms([noun]) == {noun: (noun, *plurals)}


def test_given_forms_take_the_place_of_the_rule() -> None:
    forms = word_forms(["couch", "dog"], {"couch": ["couch", "sofa"]})
    assert forms == {"couch": ("couch", "sofa"), "dog": ("dog", "dogs")}
    with pytest.raises(ValueError, match=r"given classes: got \['sofa'\]"):
        word_forms(["couch"], {"sofa": ["sofa"]})


@pytest.mark.parametrize(
    ("caption", "classes"),
    [
        ("A DOG!", "dog"),
        ("the dog's bone", "dog"),
        ("(dog)", "dog"),
        ("a dogged man in a hotdog-suit", ""),
        ("hot dogs", "hot dog"),
        ("a hot dog and a dog", "dog, hot dog"),
        ("hot, dogs", "hot dog"),
        ("hot hot dog dog", "dog, hot dog"),
        ("a dog is hot", "dog"),
        ("Traffic  light", "light, signal"),
        ("", ""),
        ("...", ""),
    ],
)
def test_whole_words_are_matched_and_the_longest_form_wins(caption: str, classes: str) -> None:
    forms = {
        "dog": ["dog", "Dogs"],
        "hot dog": ["hot dog", "hot dogs"],
        "signal": ["traffic light"],
        "light": ["traffic light", "lamp"],
    }
    mentions = find_mentions({"1": [caption]}, forms)
    assert ", ".join(sorted(name for name, images in mentions.items() if images)) == classes


words = st.sampled_from(["a", "b", "c", "d"])
phrases = st.lists(words, min_size=1, max_size=3).map(" ".join)


@settings(max_examples=50)
@given(
    st.lists(st.lists(words, max_size=7).map(" ".join), max_size=5),
    st.dictionaries(phrases, st.just(0), min_size=1, max_size=4),
)
def test_mentions_by_brute_force(captions: list[str], phrases: dict[str, int]) -> None:
    mentions = find_mentions(
        {str(row): [caption] for row, caption in enumerate(captions)},
        {phrase: [phrase] for phrase in phrases},
    )
    for row, caption in enumerate(captions):
        rest, expected = caption + " ", set()
        while rest:  # cut the longest phrase off the front, or else a word
            fitting = [phrase for phrase in phrases if rest.startswith(phrase + " ")]
            expected |= {max(fitting, key=len)} if fitting else set()
            rest = rest[len(max(fitting, key=len, default=rest.split(" ")[0])) + 1 :]
        assert {name for name, images in mentions.items() if str(row) in images} == expected


def test_f1_by_hand() -> None:
    scores = score_mentions(CANDIDATES, REFERENCES, FORMS)
    bus, zebra = scores.by_class["bus"], scores.by_class["zebra"]
    assert (bus.precision, bus.recall, bus.f1, bus.images) == (1, 1, 1, ("1", "4"))
    # shown in 2 and 4, mentioned for 3, 4 and 5
    assert (zebra.precision, zebra.recall, zebra.f1) == (1 / 3, 0.5, 0.4)
    assert (zebra.images, zebra.num_mentions, zebra.num_hits) == (("2", "4"), 3, 1)
    assert scores.f1 == 0.7
    assert scores.left_out == {"pizza": "no image shows this class"}


def test_labels_can_be_the_truth() -> None:
    labels = {"1": ["bus"], "2": [], "3": ["zebra", "man"], "4": ["car"], "5": ["pizza", "cup"]}
    assert images_by_class(CANDIDATES, FORMS, labels, source="labels") == {
        "bus": {"1"},
        "zebra": {"3"},
        "pizza": {"5"},
    }
    # a label is compared whole, with the name of the class and its forms
    forms = {"dog": ["puppy", "dog"], "racket": HELD_OUT_FORMS["racket"], "tv": ["television"]}
    labels = {"1": ["hot dog"], "2": ["puppy"], "3": ["tennis racket"], "4": ["tv"]}
    images = images_by_class(labels, forms, labels, source="labels")
    assert images == {"dog": {"2"}, "racket": {"3"}, "tv": {"4"}}


def test_f1_against_labels_by_hand() -> None:
    labels = {"1": ["bus"], "2": [], "3": ["zebra", "man"], "4": ["car"], "5": ["pizza", "cup"]}
    scores = score_mentions(CANDIDATES, labels, FORMS, source="labels")
    assert [score.f1 for score in scores.by_class.values()] == [2 / 3, 0.5, 0]
    assert scores.by_class["pizza"].precision == 0
    assert scores.f1 == pytest.approx(7 / 18)


def test_the_held_out_classes_have_their_words() -> None:
    assert len(HELD_OUT_FORMS) == 8
    mentions = find_mentions({"1": ["sofas, racquets, luggage and busses"]}, HELD_OUT_FORMS)
    assert {name for name, ids in mentions.items() if ids} == {"couch", "racket", "suitcase", "bus"}


def test_perfect_and_empty_captions() -> None:
    perfect = {image_id: " ".join(refs) for image_id, refs in REFERENCES.items()}
    scores = score_mentions(perfect, REFERENCES, FORMS)
    assert scores.f1 == 1
    assert all((c.precision, c.recall) == (1, 1) for c in scores.by_class.values())
    empty = score_novel(dict.fromkeys(REFERENCES, ""), REFERENCES, forms=FORMS, **FAST)
    assert set(empty.out_of_domain.values()) == {0.0}
    assert {"F1", "COF1", "COF1.5", "CIDEr-D", "BLEU-4"} <= empty.out_of_domain.keys()


def test_one_image() -> None:
    result = score_novel({"1": "a bus"}, REFERENCES, forms=FORMS, **FAST)
    assert result.in_domain is None
    assert (result.mentions.f1, result.out_of_domain["COF1"]) == (1, 0)  # CIDEr-D of one is 0
    assert result.settings["num_without_caption"] == 4


def test_references_given_twice_change_nothing() -> None:
    twice = {image_id: refs * 2 for image_id, refs in REFERENCES.items()}
    once = score_novel(CANDIDATES, REFERENCES, forms=FORMS, **FAST)
    result = score_novel(CANDIDATES, twice, forms=FORMS, **FAST)
    assert result.mentions == once.mentions
    assert result.out_of_domain == pytest.approx(once.out_of_domain)


def test_order_of_images_and_classes_changes_nothing() -> None:
    turned = score_novel(
        dict(reversed(CANDIDATES.items())),
        dict(sorted(REFERENCES.items(), reverse=True)),
        forms=dict(reversed(FORMS.items())),
        **FAST,
    )
    result = score_novel(CANDIDATES, REFERENCES, forms=FORMS, **FAST)
    assert turned.mentions == result.mentions
    assert turned.out_of_domain == pytest.approx(result.out_of_domain)
    assert turned.in_domain == result.in_domain


def test_out_of_domain_scores_are_means_over_classes() -> None:
    result = score_novel(CANDIDATES, REFERENCES, forms=FORMS, frequencies="group", **FAST)
    bus = evaluate_captions({i: CANDIDATES[i] for i in "14"}, REFERENCES, **FAST)
    zebra = evaluate_captions({i: CANDIDATES[i] for i in "24"}, REFERENCES, **FAST)
    rest = evaluate_captions({i: CANDIDATES[i] for i in "35"}, REFERENCES, **FAST)
    assert (result.by_class, result.in_domain) == ({"bus": bus, "zebra": zebra}, rest)
    for name in bus.corpus:
        mean = (bus.corpus[name] + zebra.corpus[name]) / 2
        assert result.out_of_domain[name] == pytest.approx(mean)
    assert bus.corpus["CIDEr-D"] != zebra.corpus["CIDEr-D"]
    means = {"cider": result.out_of_domain["CIDEr-D"], "f1": 0.7}
    assert result.out_of_domain["F1"] == 0.7
    assert result.out_of_domain["COF1"] == cof(**means, beta=1) > 0
    assert result.out_of_domain["COF1.5"] == cof(**means, beta=1.5)


def test_scores_are_plain_in_json_and_say_what_the_truth_was() -> None:
    labels = {image_id: ["bus"] if image_id in "12" else [] for image_id in CANDIDATES}
    result = score_novel(CANDIDATES, REFERENCES, forms=FORMS, labels=labels, **FAST)
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["settings"] == {
        "truth": "labels",
        "cider_frequencies": "all",
        "forms": {name: list(forms) for name, forms in FORMS.items()},
        "num_images": 5,
        "num_out_of_domain": 2,
        "num_without_caption": 0,
    }
    assert list(plain["by_class"]) == ["bus"]
    assert list(plain["in_domain"]["per_image"]) == ["3", "4", "5"]
    assert plain["mentions"]["left_out"].keys() == {"zebra", "pizza"}


def test_frequencies_of_all_images_change_cider_alone() -> None:
    groups = {"one": ["1", "4"], "two": ["3", "4", "5"]}
    scores_of_all = evaluate_captions(CANDIDATES, REFERENCES, **FAST).per_image
    result = score_groups(CANDIDATES, REFERENCES, groups, **FAST)
    apart = score_groups(CANDIDATES, REFERENCES, groups, frequencies="group", **FAST)
    for name, ids in groups.items():
        assert list(result[name].per_image) == ids
        for image_id in ids:
            cider = scores_of_all[image_id]["CIDEr-D"]
            assert result[name].per_image[image_id]["CIDEr-D"] == pytest.approx(cider)
        expected = fmean(scores_of_all[image_id]["CIDEr-D"] for image_id in ids)
        assert result[name].corpus["CIDEr-D"] == pytest.approx(expected)
        assert apart[name].corpus["CIDEr-D"] != pytest.approx(expected)
        assert apart[name].corpus["BLEU-2"] == result[name].corpus["BLEU-2"]
        assert apart[name].settings == result[name].settings
    with pytest.raises(ValueError, match="frequencies must be 'all' or 'group': got 'split'"):
        score_groups(CANDIDATES, REFERENCES, groups, frequencies="split", **FAST)  # type: ignore


def test_without_cider_there_is_no_cof() -> None:
    options = FAST | {"metrics": ["ROUGE-L"]}
    result = score_novel(CANDIDATES, REFERENCES, forms=FORMS, **options)
    assert result.out_of_domain.keys() == {"ROUGE-L", "F1"}


def test_a_score_that_a_class_lacks_has_no_mean() -> None:
    scores_of_all = evaluate_captions(CANDIDATES, REFERENCES, **FAST)
    part = evaluate_captions(CANDIDATES, REFERENCES, metrics=["CIDEr-D"], tokenizer="python")
    assert macro_average({"bus": scores_of_all, "zebra": part}) == part.corpus


def test_nocaps_by_domain() -> None:
    domains = dict(zip("12345", ["in", "near", "in", "out", "near"], strict=True))
    by_domain = score_nocaps(CANDIDATES, REFERENCES, domains, **FAST)
    assert list(by_domain) == ["in", "near", "out", "overall"]
    assert {name: list(result.per_image) for name, result in by_domain.items()} == {
        "in": ["1", "3"],
        "near": ["2", "5"],
        "out": ["4"],
        "overall": ["1", "2", "3", "4", "5"],
    }
    assert by_domain["overall"] == evaluate_captions(CANDIDATES, REFERENCES, **FAST)
    # of one corpus' frequencies, the images' mean is that of the domains by their sizes
    in_domain, near_domain, out_of_domain = (
        by_domain[name].corpus["CIDEr-D"] for name in ("in", "near", "out")
    )
    mean = by_domain["overall"].corpus["CIDEr-D"]
    assert mean == pytest.approx((2 * in_domain + 2 * near_domain + out_of_domain) / 5)
    assert mean != pytest.approx(fmean([in_domain, near_domain, out_of_domain]))
    apart = score_nocaps(CANDIDATES, REFERENCES, domains, frequencies="group", **FAST)
    assert apart["out"].corpus["CIDEr-D"] == 0 < out_of_domain
    assert apart["overall"].corpus == pytest.approx(by_domain["overall"].corpus)
    partial = score_nocaps({"2": "a zebra"}, REFERENCES, domains, **FAST)
    assert list(partial) == ["near", "overall"]


@pytest.mark.parametrize(
    ("candidates", "truth", "forms", "source", "error", "message"),
    [
        ({}, {}, FORMS, "references", ValueError, "none of the 0 images"),
        ({"1": "a"}, {"2": ["a bus"]}, FORMS, "references", ValueError, "no references.*'1'"),
        ({"1": "a"}, {"2": ["bus"]}, FORMS, "labels", ValueError, "no labels.*'1'"),
        ({"1": "a"}, {"1": ["a cat"]}, FORMS, "references", ValueError, "none of the 1 images"),
        ({"1": "a"}, {"1": "a bus"}, FORMS, "references", TypeError, "image '1'.*list of texts"),
        ({"1": "a"}, {"1": "bus"}, FORMS, "labels", TypeError, "image '1'.*list of texts"),
        ({"1": None}, {"1": ["a bus"]}, FORMS, "references", TypeError, "image '1'.*None"),
        ({"1": "a"}, {"1": ["a bus"]}, {}, "references", ValueError, "at least one class"),
        ({"1": "a"}, {"1": ["bus"]}, {"bus": "bus"}, "labels", ValueError, "list of words"),
        ({"1": "a"}, {"1": ["bus"]}, {"bus": []}, "references", ValueError, "class 'bus'"),
        ({"1": "a"}, {"1": ["bus"]}, {"bus": ["bus", "."]}, "labels", ValueError, "class 'bus'"),
        ({"1": "a"}, {"1": ["bus"]}, FORMS, "boxes", ValueError, "'references' or 'labels'"),
    ],
)
def test_bad_input_is_named(
    candidates: dict, truth: dict, forms: dict, source: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        score_mentions(candidates, truth, forms, source=source)


@pytest.mark.parametrize("ids", [[], ["1", "9"]])
def test_groups_that_do_not_fit_are_named(ids: list[str]) -> None:
    with pytest.raises(ValueError, match="group 'x' must hold images, each with a candidate"):
        score_groups(CANDIDATES, REFERENCES, {"x": ids}, **FAST)


def test_images_without_a_domain_are_named() -> None:
    for domains, wrong in (({"1": "in", "2": "far"}, "'far'"), ({"1": "in"}, "None")):
        with pytest.raises(ValueError, match=f"domain of '2' must be .*: got {wrong}"):
            score_nocaps({"1": "a", "2": "b"}, REFERENCES, domains, **FAST)
