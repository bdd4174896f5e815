"""The study of training on mended captions: its arms, its counts of wrong words, its tables."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

from captioning.config.compose import compose_config
from captioning.data.batches.dataset import CaptionDataset
from captioning.data.roster import Roster, build_roster
from captioning.miniworld.build import make_captions
from captioning.miniworld.sample import sample_scene
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Phrase, Region, Sample

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
sys.path.insert(0, str(STUDIES))

import study_mending  # noqa: E402
import study_mending_report  # noqa: E402
import word_losses  # noqa: E402
import wrong_words  # noqa: E402

CAPTIONS = ("A grey dog and a red ball", "the puppy runs", "two kittens", "a blue bus")


@pytest.fixture
def roster() -> Roster:
    """Two photos of two captions each."""
    samples = [
        Sample(
            row=row,
            sample_id=f"{row // 2}#{row % 2}",
            image_id=str(row // 2),
            image_path=Path(f"{row // 2}.jpg"),
            caption=caption,
        )
        for row, caption in enumerate(CAPTIONS)
    ]
    return build_roster("toy", samples)


@pytest.mark.parametrize("arm", list(study_mending.ARMS))
@pytest.mark.parametrize("data", list(study_mending.SCALE))
def test_every_arm_acts_before_training_and_never_again(arm: str, data: str) -> None:
    overrides = [f"experiment=data_curation/benchmark_{data}", *study_mending.SCALE[data]]
    config = compose_config("train", [*overrides, "curation.name=x", *study_mending.ARMS[arm]])
    if arm == "no curation":
        assert config.curation.callback is None
        return
    schedule = instantiate(config.curation.schedule)
    assert [epoch for epoch in range(-1, 9) if schedule.due(epoch)] == [-1]
    assert ("truth" in config.curation.score._target_) == arm.startswith("oracle")


def test_words_that_no_caption_of_the_photo_names_are_wrong(roster: Roster) -> None:
    known = wrong_words.sources("flickr8k", roster)["siblings"]
    captions = {"0": "Two gray puppies with a blue ball", "1": "a cat in a blue truck"}
    assert wrong_words.wrong_words(captions, known) == {
        "color": [1, 3],
        "object": [1, 4],
        "number": [1, 1],
        "captions": [2, 2],
    }


def test_of_boxes_only_phrases_that_have_some_count(roster: Roster) -> None:
    boxed = Phrase(start=0, text="A grey dog", chain_id="1", regions=(0,))
    unboxed = Phrase(start=15, text="a red ball", chain_id="2")
    region = Region(box=(0, 0, 1, 1), label="animals")
    first = replace(roster.samples[0], phrases=(boxed, unboxed), regions=(region,))
    samples = [replace(sample, image_id=f"id{sample.image_id}") for sample in roster.samples]
    boxes = build_roster("boxes", [replace(first, image_id="id0"), *samples[1:]])
    known = wrong_words.sources("flickr8k", roster, boxes)["boxes"]
    assert {"grey", "gray", "dog", "puppies"} <= known["0"]
    assert not {"red", "ball"} & known["0"]
    assert known["1"] == frozenset()


def test_scenes_know_their_objects_colours_and_numbers() -> None:
    wrong = total = 0
    for index in range(60):
        scene = sample_scene(seed=0, split="test_in", index=index)
        facts = wrong_words.scene_words(scene.scene_id)
        for caption in make_captions(scene, seed=0, split="test_in", index=index):
            counts = wrong_words.wrong_words({"x": caption.text}, {"x": facts})
            wrong += sum(counts[topic][0] for topic in wrong_words.TOPICS)
            total += sum(counts[topic][1] for topic in wrong_words.TOPICS)
    assert total > 300
    assert wrong <= 0.02 * total  # such as a cyclist's bicycle, which is part of the person here


def test_tokens_of_a_topic_are_its_words(roster: Roster) -> None:
    words = WordTokenizer.build(CAPTIONS, min_count=1)
    data = CaptionDataset(roster.samples, tokenizer=words, readers=())
    batch = data[[0, 1, 2, 3]]
    samples = [roster.by_id[sample_id] for sample_id in batch.sample_ids]
    weights = word_losses.token_weights(samples, words, batch)
    told = {
        topic: sorted(words.words[token] for token in batch.tokens[chosen == 1].tolist())
        for topic, chosen in weights.items()
        if topic != "all"
    }
    assert told == {
        "color": ["blue", "grey", "red"],
        "object": ["ball", "bus", "dog", "kittens", "puppy"],
        "number": ["two"],
    }
    assert torch.equal(weights["all"] == 1, batch.token_mask)


def line(noise: str, arm: str, seed: int, score: float, wrong: int) -> dict:
    counts = {"color": [wrong, 50], "object": [0, 100], "number": [0, 0], "captions": [wrong, 100]}
    return {
        "data": "miniworld",
        "noise": noise,
        "arm": arm,
        "seed": seed,
        "scores": {"CIDEr-D": score},
        "wrong": {"siblings": counts},
        "losses": dict.fromkeys(("all", "color", "object", "number"), 3 - score),
        "edits": {"num_masked": 3},
        "detection": {"num_faulty": 7, "num_mended_right": 5},
        "settings": {"model.name": "updown", "first_images": "600", "num_epochs": "8"},
        "versions": {"commit": "abc", "machine": "m", "date": "d"},
        "per_image": {str(i): score + i / 100 for i in range(20)} if noise == "none" else None,
    }


def test_tables_tell_what_the_oracles_gain_was_won_back(tmp_path: Path) -> None:
    lines = [line("none", "no curation", 0, 0.9, 1), line("none", "condition", 0, 0.8, 1)]
    for seed in (0, 1):
        lines += [
            line("words80", "no curation", seed, 0.5 + seed / 10, 10),
            line("words80", "oracle: mend", seed, 0.7 + seed / 10, 5),
            line("words80", "replace_word", seed, 0.65 + seed / 10, 5 + seed),
        ]
    tables = study_mending_report.tables(json.loads(json.dumps(lines)))
    rows = tables["training miniworld words80"]
    assert rows[2:] == [
        "| clean data | 1 | 0.9000 | +0.4000 | 200% |",
        "| no curation | 2 | 0.5500 ± 0.0707 | - | - |",
        "| oracle: mend | 2 | 0.7500 ± 0.0707 | +0.2000 ± 0.0000 | 100% |",
        "| replace_word | 2 | 0.7000 ± 0.0707 | +0.1500 ± 0.0000 | 75% |",
    ]
    losses = tables["losses miniworld words80"]
    assert losses[5].startswith(
        "| replace_word | 2 | 2.300 ± 0.0707 (75%) | 2.300 ± 0.0707 (75%) |"
    )
    assert losses[5].endswith("| -0.1500 ± 0.0000 |")
    even = [line("words80", arm, 2, 0.7, 1) for arm in ("no curation", "oracle: mend")]
    less_sure = study_mending_report.tables([*lines, *even])
    assert "%" not in "".join(less_sure["training miniworld words80"])  # a seed gains nothing
    assert "p 0.000" in tables["training miniworld none"][3]
    wrong = tables["wrong words miniworld words80"]
    assert "| replace_word | siblings | 11.0 ± 1.4% of 50 |" in wrong[5]
    assert "| replace_word | 7 | 5 | - | - | 3 | - |" in tables["mends miniworld words80"]
    page = tmp_path / "page.md"
    marks = (
        "<!-- table:training miniworld words80 -->\nold\n<!-- /table:training miniworld words80 -->"
    )
    page.write_text(f"before\n{marks}\nafter\n")
    study_mending_report.report(lines, [page])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("-->\nafter\n")
    assert "old" not in text
    assert rows[-1] in text
