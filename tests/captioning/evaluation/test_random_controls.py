"""Random regions and lengths, drawn and scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config
from captioning.evaluation.controllability import (
    RandomControls,
    evaluate_control,
    show_further,
    standard_scores,
)
from captioning.metrics.coco import evaluate_captions
from captioning.text.lengths import count_words
from captioning.training.settings import Metrics
from captioning.types import Control, Region, Sample
from tests.run_calls import train
from tests.task_calls import call, is_record

TINY = (
    "experiment=cic_bart/flickr8k_small",
    "data=miniworld_tiny",
    "model.module.hidden_size=16",
    "model.module.num_layers=1",
    "model.module.num_heads=2",
    "model.module.intermediate_size=16",
    "num_epochs=1",
    "search.max_length=12",
)


def sample(number: int, image: str) -> Sample:
    return Sample(
        row=number,
        sample_id=f"s{number}",
        image_id=image,
        image_path=Path(f"{image}.jpg"),
        caption="a dog",
        regions=(Region(box=(0, 0, 1, 1), label="x"),) * 9,
    )


SAMPLES = [sample(n, image) for n, image in enumerate("aab")]
CONTROLS = [
    Control(regions=(0, 1, 2), num_words=4, verbs=("run",)),
    Control(regions=(3,), num_words=12),
    Control(regions=(4, 5), num_words=40),
]


def test_controls_are_a_captions_regions_in_any_order_and_any_length() -> None:
    drawn = RandomControls(controls=200).draw(SAMPLES, CONTROLS)
    assert len(drawn) == 400
    assert len({sample.sample_id for sample, _ in drawn}) == 400
    of_a = [control for sample, control in drawn if sample.image_id == "a"]
    assert {tuple(sorted(control.regions)) for control in of_a} == {(0, 1, 2), (3,)}
    assert len({control.regions for control in of_a}) == 7  # six orders of the three, and (3,)
    assert {control.num_words for control in of_a} == set(range(5, 30))
    assert all(control.verbs == () and control.level is None for control in of_a)
    assert drawn == RandomControls(controls=200).draw(SAMPLES, CONTROLS)
    assert drawn != RandomControls(controls=200, seed=1).draw(SAMPLES, CONTROLS)


def test_any_regions_are_drawn_from_all_that_are_asked_for() -> None:
    drawn = RandomControls(controls=200, regions="any").draw(SAMPLES, CONTROLS)
    of_a = {control.regions for sample, control in drawn if sample.image_id == "a"}
    assert {len(regions) for regions in of_a} == {1, 3}
    assert {region for regions in of_a for region in regions} == {0, 1, 2, 3}
    assert any(3 in regions and len(regions) == 3 for regions in of_a)


def test_no_length_is_drawn_where_none_is_asked_for() -> None:
    drawn = RandomControls().draw(SAMPLES[:1], [Control(regions=(1,))])
    assert {control.num_words for _, control in drawn} == {None}
    result = RandomControls().scores(drawn, {sample.sample_id: "a dog" for sample, _ in drawn})
    assert set(result["corpus"]) == {"D-1", "D-2"}


def test_scores_are_of_the_best_sets_and_of_all_lengths() -> None:
    drawing = RandomControls(controls=3, best=2, shortest=3, longest=3)
    drawn = drawing.draw(SAMPLES, CONTROLS)
    texts = ["a dog runs", "a dog runs", "cats sleep"] * 2
    captions_by_id = {
        sample.sample_id: text for (sample, _), text in zip(drawn, texts, strict=True)
    }
    result = drawing.scores(drawn, captions_by_id)
    assert result["corpus"] == pytest.approx({"D-1": 1.0, "D-2": 0.6, "L": 1 / 3, "LP": 1.0})
    assert result["settings"]["controls"] == 3
    assert [entry["caption"] for entry in result["captions"]] == texts
    written = {sample_id: f"{text} ." for sample_id, text in captions_by_id.items()}
    pieces = drawing.scores(drawn, written, full_stops_count=True)["corpus"]
    assert pieces["D-1"] == pytest.approx(6 / 7)  # the full stop is a word twice, and one of six


@pytest.mark.parametrize("wrong", [{"controls": 4}, {"best": 0}, {"shortest": 0}, {"shortest": 30}])
def test_settings_out_of_their_ranges_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="random"):
        RandomControls(**wrong)


def test_standard_scores_hold_each_caption_against_its_own() -> None:
    samples = [sample(n, "a") for n in range(2)]
    samples = [
        Sample(**{name: getattr(original, name) for name in Sample.__slots__} | {"caption": text})
        for original, text in zip(
            samples, ("a dog runs on the grass", "two cats sleep"), strict=True
        )
    ]
    captions_by_id = {
        "s0": "a dog runs on the grass",
        "s1": "a dog runs on the grass",
        "other": "x",
    }
    metrics = Metrics(test=["BLEU", "CIDEr-D"], val=["CIDEr-D"], tokenizer="python")
    result = standard_scores(samples, captions_by_id, metrics)
    expected = evaluate_captions(
        {"1": captions_by_id["s0"], "2": captions_by_id["s1"]},
        {"1": [samples[0].caption], "2": [samples[1].caption]},
        metrics=("BLEU", "CIDEr-D"),
        tokenizer="python",
    )
    assert result["corpus"] == expected.corpus
    assert 0 < result["corpus"]["BLEU-4"] < 1
    assert result["settings"]["num_images"] == 2


@pytest.fixture
def compose(repository: Path, cache: Path, tmp_path: Path, small_settings: tuple[str, ...]):
    """Trains a tiny CIC-BART; gives a config of its evaluation."""
    folders = (f"paths.cache={cache}", f"run_dir={tmp_path / 'run'}")
    config = compose_config("train", [TINY[0], *small_settings, *TINY[1:], *folders])
    OmegaConf.resolve(config)
    train(config)

    def build(*overrides: str) -> DictConfig:
        run = f"run={tmp_path / 'run'}"
        config = compose_config("controllability", [run, f"paths.cache={cache}", *overrides])
        OmegaConf.resolve(config)
        return config

    return build


def test_what_is_missing_is_said(capsys, tmp_path: Path) -> None:
    standard = {"corpus": {"BLEU-4": 0.5}, "settings": {"missing": {"SPICE": "no jars"}}}
    show_further({"random": None, "standard": standard}, tmp_path)
    output = capsys.readouterr().out
    assert "against its own caption: BLEU-4 0.5000" in output
    assert "SPICE is missing: no jars" in output


@pytest.mark.long
def test_a_run_is_asked_at_random_and_scored_caption_by_caption(compose, tmp_path: Path) -> None:
    chosen = compose("metrics=fast", "random.controls=6", "max_images=4")
    result = call(evaluate_control, chosen)
    assert is_record(result["evaluated"], chosen)
    place = tmp_path / "run" / "evaluation" / "miniworld_tiny-test_in" / "control.json"
    written = json.loads(place.read_text())
    assert written["random"]["corpus"] == result["random"]["corpus"]
    assert set(written["random"]["corpus"]) == {"D-1", "D-2", "L", "LP"}
    captions = written["random"]["captions"]
    assert len(captions) == 6 * len({entry["image_id"] for entry in captions})
    errors = [abs(count_words(entry["caption"]) - entry["num_words"]) for entry in captions]
    assert written["random"]["corpus"]["L"] == pytest.approx(sum(errors) / len(errors))
    assert {"BLEU-4", "ROUGE-L", "CIDEr-D"} <= set(written["standard"]["corpus"])
    assert (
        written["standard"]["settings"]["num_images"]
        == written["scores"]["settings"]["num_captions"]
    )
    chosen = compose("~metrics", "random.controls=0", "max_images=4")
    without = call(evaluate_control, chosen)
    assert is_record(without["evaluated"], chosen)
    assert without["random"] is without["standard"] is None
    assert without["scores"]["corpus"] == result["scores"]["corpus"]


def test_a_scorer_that_cannot_be_built_is_told_before_anything_is_captioned(
    repository: Path, cache: Path, tmp_path: Path
) -> None:
    run = f"run={tmp_path / 'none'}"
    config = compose_config("controllability", [run, f"paths.cache={cache}"])
    config.word_vectors._target_ = "captioning.text.word_tables.nothing"
    OmegaConf.resolve(config)
    with pytest.raises(ValueError, match=r"captioning.text.word_tables.nothing"):
        call(evaluate_control, config)
