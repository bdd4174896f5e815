from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from captioning.config.compose import compose_config
from captioning.data.roster import Dropped, Roster, build_roster
from captioning.data.steps.base import StepContext
from captioning.data.steps.plant_faults import (
    COLORS,
    DETAILS,
    KINDS,
    NUMBERS,
    OBJECTS,
    plant_faults,
)
from captioning.data.steps.plausible_faults import PLAUSIBLE_KINDS
from captioning.text.word_rows import closed_rows
from captioning.training.rosters import build_steps
from captioning.types import Phrase, Region, Sample

ANIMALS = ("dog", "cat", "horse", "cow", "bird", "bear", "zebra", "sheep", "monkey", "duck")
SHADES = ("red", "blue", "green", "yellow", "brown")


def roster_of(num_images: int = 40) -> Roster:
    """Images with five captions each, two of which have a colour, a number and an object."""
    samples = []
    for n in range(num_images):
        animal, color = ANIMALS[n % 10], SHADES[n // 10 % 5]
        texts = (
            f"A {color} {animal} by the lake number {n} .",
            f"Two people and an {color} {animal} {n} .",
            f"Something odd runs {n}",
            f"It is outside {n} .",
            f"Nobody knows {n // 2}",
        )
        for k, text in enumerate(texts):
            samples.append(
                Sample(
                    row=0,
                    sample_id=f"{n}#{k}",
                    image_id=str(n),
                    image_path=Path(f"{n}.jpg"),
                    caption=text,
                    regions=(Region(box=(0, 0, 1 + n, 1), label=animal),),
                    phrases=(Phrase(start=0, text=text[:4], chain_id="1", regions=(0,)),),
                )
            )
    return build_roster("small", samples, [Dropped(item="x", rule="y")])


# plausible ones train networks, and nobody lacks anything in these captions
EACH_KIND = [kind for kind in KINDS if kind not in (*PLAUSIBLE_KINDS, "negation")]
EACH = dict.fromkeys(EACH_KIND, 0.05)


def test_counts_are_exact_truth_joins_and_the_rest_is_untouched():
    roster = roster_of()
    planted, truth = plant_faults(roster, kinds=EACH, seed=3)
    assert Counter(truth.values()) == dict.fromkeys(EACH_KIND, 10)
    assert planted.dropped == roster.dropped
    for before, after in zip(roster.samples, planted.samples, strict=True):
        kind = truth.get(before.sample_id)
        assert (after.row, after.sample_id) == (before.row, before.sample_id)
        assert after.image_id == before.image_id
        if kind is None:
            assert after == before
            continue
        assert planted.planted[before.sample_id] == kind
        is_word = kind in ("color", "number", "object", "action")
        assert (before.sample_id in planted.planted_words) == is_word
        assert (after.image_path != before.image_path) == (kind == "image")
        assert (after.caption != before.caption) == (kind != "image")


def test_the_seed_decides():
    roster = roster_of()
    first = plant_faults(roster, kinds=EACH, seed=3)
    assert plant_faults(roster, kinds=EACH, seed=3) == first
    assert plant_faults(roster, kinds=dict(reversed(EACH.items())), seed=3)[1] == first[1]
    assert plant_faults(roster, kinds=EACH, seed=4)[1] != first[1]


@pytest.mark.parametrize("ratio", [0.01, 0.2, 1.0])
def test_swapped_captions_are_of_another_photo_and_trade_places(ratio):
    roster = roster_of()
    planted, truth = plant_faults(roster, kinds={"swap": ratio}, seed=0)
    assert len(truth) == round(ratio * len(roster))
    references = roster.references()
    for sample_id in truth:
        sample = planted.by_id[sample_id]
        assert sample.caption not in references[sample.image_id]
        assert sample.phrases == ()
    before = Counter(roster.by_id[sample_id].caption for sample_id in truth)
    assert Counter(planted.by_id[sample_id].caption for sample_id in truth) == before


def test_one_swap_alone_takes_a_caption_from_anywhere():
    roster = roster_of(2)
    planted, truth = plant_faults(roster, kinds={"swap": 0.1}, seed=0)
    (sample_id,) = truth
    assert planted.by_id[sample_id].caption in {s.caption for s in roster.samples}
    assert planted.by_id[sample_id].caption not in roster.references()[sample_id[0]]


def test_image_faults_bring_the_other_photo_with_its_boxes():
    roster = roster_of()
    planted, truth = plant_faults(roster, kinds={"image": 0.3}, seed=0)
    references = roster.references()
    for sample_id in truth:
        sample = planted.by_id[sample_id]
        other = sample.image_path.stem
        assert other != sample.image_id
        assert sample.regions == roster.by_id[f"{other}#0"].regions
        assert sample.caption not in references[other]
        assert sample.phrases == ()


def test_overlong_captions_go_on_in_made_up_detail():
    roster = roster_of()
    planted, truth = plant_faults(roster, kinds={"overlong": 0.5}, seed=0)
    for sample_id in truth:
        before, after = roster.by_id[sample_id], planted.by_id[sample_id]
        assert after.caption.startswith(before.caption.rstrip(" ."))
        assert after.caption.endswith(" .") == before.caption.endswith(" .")
        assert 3 <= sum(detail in after.caption for detail in DETAILS) <= 5
        assert after.phrases == before.phrases


ACTIONS = [
    [word for words in row.meanings for word in words]
    for row in closed_rows().rows
    if row.topic == "action"
]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [("color", COLORS), ("number", NUMBERS), ("object", OBJECTS), ("action", ACTIONS)],
)
def test_wrong_words_are_of_the_same_kind_and_in_no_caption_of_the_photo(kind, rows):
    roster = roster_of()
    planted, truth = plant_faults(roster, kinds={kind: 0.15}, seed=0)
    references = roster.references()
    for sample_id in truth:
        before = roster.by_id[sample_id].caption.lower().split()
        after = planted.by_id[sample_id].caption.lower().split()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        (old, new) = changed[-1]
        assert any(old in row and new in row for row in rows)
        assert all(pair in (("a", "an"), ("an", "a")) for pair in changed[:-1])
        assert new not in " ".join(references[sample_id.split("#")[0]]).lower().split()


def test_no_action_that_a_sibling_names_in_another_form():
    (forms,) = (row for row in ACTIONS if "sitting" in row)
    sibling = " ".join(word for word in forms if word != "sitting")
    planted = set()
    for seed in range(9):
        after, truth = plant_faults(
            roster_of_one("A dog runs .", sibling), kinds={"action": 0.5}, seed=seed
        )
        planted |= {after.by_id[sample_id].caption for sample_id in truth}
    assert "A dog sits ." in planted
    # of the sibling's words, too, none but this one is left for a fault
    assert all("sitting" in text.split() for text in planted - {"A dog sits ."})


def roster_of_one(caption: str, sibling: str = "x") -> Roster:
    first = roster_of(1).samples[0]
    texts = (caption, sibling)
    return build_roster(
        "one",
        [replace(first, sample_id=f"0#{k}", caption=text) for k, text in enumerate(texts)],
    )


def test_article_and_capital_agree_with_the_new_word():
    captions = set()
    for seed in range(60):
        planted, _ = plant_faults(roster_of_one("Dog of a car"), kinds={"object": 0.5}, seed=seed)
        captions.add(planted.samples[0].caption)
    assert "Dog of an airplane" in captions
    assert "Dog of a truck" in captions
    assert "Elephant of a car" in captions
    siblings = roster_of_one("an orange ball", "orange grey")
    for seed in range(30):
        planted, _ = plant_faults(siblings, kinds={"color": 0.5}, seed=seed)
        text = " ".join(sample.caption for sample in planted.samples)
        assert "an orange ball" in text or planted.samples[0].caption.startswith("a ")
        assert "gray" not in text


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"swop": 0.1}, r"steps\.plant_faults\.kinds must be of .* got 'swop'"),
        ({"swap": 1.5}, r"steps\.plant_faults\.kinds\.swap must be .* in \[0, 1\]: got 1.5"),
        ({"swap": -0.1}, r"must be a share in \[0, 1\]"),
        ({"swap": "0.1"}, r"must be a share in \[0, 1\]: got '0.1'"),
        ({"swap": float("nan")}, r"must be a share in \[0, 1\]"),
        ({"swap": 0.6, "image": 0.6}, "must not exceed 1 together: got 1.2"),
        ({"number": 0.5}, "100 faults of kind 'number' .* 40 captions can bear"),
        ({"number": 0.2, "color": 0.3}, r"faults of kind 'color' .* beside the other"),
    ],
)
def test_bad_kinds_are_named(kinds, message):
    with pytest.raises(ValueError, match=message):
        plant_faults(roster_of(), kinds=kinds, seed=0)


def test_swaps_that_cannot_be_are_refused():
    samples = [replace(sample, caption="The same .") for sample in roster_of(3).samples]
    with pytest.raises(ValueError, match="no other image can trade with"):
        plant_faults(build_roster("same", samples), kinds={"swap": 0.5}, seed=0)
    with pytest.raises(ValueError, match="0 captions can bear one"):
        plant_faults(roster_of(1), kinds={"image": 0.5}, seed=0)


def test_a_caption_that_every_image_has_gets_no_other_photo():
    samples = [
        replace(s, caption="So") if s.sample_id[-1] == "4" else s for s in roster_of().samples
    ]
    roster = build_roster("so", samples)
    _, truth = plant_faults(roster, kinds={"image": 0.8}, seed=0)
    assert {sample_id[-1] for sample_id in truth} == set("0123")


@pytest.mark.parametrize("name", ["swap20", "mixed"])
def test_configs_plant_faults(repository, name, tmp_path):
    config = compose_config("train", [f"steps=[plant_{name}]", "seed=5", f"paths.cache={tmp_path}"])
    (step,) = build_steps(config.steps)
    context = StepContext(split="train", seed=5, cache_folder=tmp_path)
    planted = step(roster_of(), context)
    assert planted.planted == context.truth
    assert len(context.truth) == round(sum(step.kinds.values()) * len(planted))
    assert step.name == name
