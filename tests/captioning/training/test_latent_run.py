"""A model with latents from config to captions: contexts, resuming, draws, consensus."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from captioning.config.compose import compose_config
from captioning.evaluation.diverse_captions import evaluate_draws
from captioning.evaluation.predict import predict_run
from captioning.models import cos_cvae
from captioning.models.cos_cvae import CosCvae
from captioning.results.coco_results import read_results
from captioning.training import callbacks
from captioning.training.inputs import load_inputs
from captioning.training.rosters import read_roster
from captioning.training.settings import TrainSettings
from tests.run_calls import train
from tests.task_calls import call, is_record

COS_CVAE = (
    "model=cos_cvae_small",
    "model.module.projection_size=16",
    "model.module.attention_lstm_size=24",
    "model.module.language_lstm_size=20",
    "model.module.attention_size=12",
    "model.module.embedding_size=16",
    "model.module.posterior_embedding_size=12",
    "model.module.context_hidden=12",
    "model.module.object_hidden=10",
    "model.module.context_size=4",
    "model.module.object_size=4",
)


@pytest.fixture
def latent(
    repository: Path, cache: Path, tmp_path: Path, small_settings: tuple[str, ...]
) -> Callable[..., DictConfig]:
    """A resolved config of a small run of COS-CVAE."""

    def build(*overrides: str, folder: str = "run") -> DictConfig:
        folders = (f"paths.cache={cache}", f"run_dir={tmp_path / folder}")
        config = compose_config("train", [*small_settings, *COS_CVAE, *folders, *overrides])
        OmegaConf.resolve(config)
        return config

    return build


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def searched(repository: Path, *overrides: str) -> DictConfig:
    chosen = ["search=latents", "search.num_captions=6", "seed=0"]
    config = compose_config("evaluate", [*chosen, *overrides])
    OmegaConf.resolve(config)
    return config


@pytest.mark.long
def test_photos_that_a_share_leaves_out_lend_contexts_where_that_is_asked(
    latent, tmp_path: Path
) -> None:
    share = (
        "steps=[share_of_photos]",
        "steps.share_of_photos.share=0.5",
        "num_epochs=2",
    )  # contexts are of the second on
    every, own = (
        latent(*share, "model.readers.contexts.all_photos=true"),
        latent(*share, folder="own"),
    )
    inputs = load_inputs(TrainSettings.of(every))
    lent = {sample.image_id for sample in inputs.steps.left_out}
    roster = read_roster(TrainSettings.of(every), "train")
    assert not lent & inputs.splits.train.rows_by_image.keys()
    assert lent | inputs.splits.train.rows_by_image.keys() == roster.rows_by_image.keys()
    train(every)
    train(own)
    one, other = weights(tmp_path / "run"), weights(tmp_path / "own")
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.long
def test_one_and_one_epoch_are_two(latent, tmp_path: Path, monkeypatch) -> None:
    train(latent("num_epochs=2", folder="whole"))
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 1:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt, match="resume=auto"):
        train(latent("num_epochs=2", folder="halves"))
    monkeypatch.undo()
    train(latent("num_epochs=2", folder="halves"))
    # Noise, dropped words and chosen contexts are those of the run that was left alone.
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "halves")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.long
def test_captions_of_draws_in_the_order_of_consensus(
    latent, tmp_path, repository, monkeypatch
) -> None:
    train(latent("num_epochs=1"))
    plain = searched(repository)
    predictions, _, _ = predict_run(tmp_path / "run", search=plain.search)
    assert [len(group) for group in predictions] == [6] * 20
    chosen = searched(repository, "rerank=consensus", "rerank.num_neighbours=5")
    with monkeypatch.context() as patch:  # what cannot be ranked is not captioned
        patch.setattr(CosCvae, "candidates", None)
        many = searched(repository, "rerank=consensus", "rerank.num_neighbours=5000")
        with pytest.raises(ValueError, match=r"num_neighbours=5000: .* has only \d+ photos"):
            predict_run(tmp_path / "run", search=many.search, rerank=many.rerank)
    ranked, _, decoding = predict_run(tmp_path / "run", search=chosen.search, rerank=chosen.rerank)
    for group, other in zip(predictions, ranked, strict=True):
        assert sorted(p.caption for p in group) == sorted(p.caption for p in other)
        scores = [p.score for p in other]
        assert scores == sorted(scores, reverse=True)
    assert decoding["search"]["num_captions"] == 6
    assert decoding["search"]["seed"] == 0


REGIONS = ("features.kind=regions", "+features.max_boxes=8", "model.readers.contexts.slots=regions")


@pytest.mark.long
def test_slots_by_the_labels_of_regions(latent, tmp_path, monkeypatch) -> None:
    filled = []
    original = cos_cvae.fill_by_attention

    def watched(pseudo, attention, labels, size):
        slots = original(pseudo, attention, labels, size)
        torch.testing.assert_close(attention.sum(2), torch.ones(attention.shape[:2]))
        filled.append((slots.words, labels))
        return slots

    monkeypatch.setattr(cos_cvae, "fill_by_attention", watched)
    train(latent("num_epochs=2", *REGIONS))  # the first epoch has no filled contexts
    words, labels = filled[-1]
    named = [
        set(row.tolist()) & set(label[label >= 0].tolist())
        for row, label in zip(words, labels.flatten(1), strict=True)
    ]
    assert sum(map(bool, named)) > len(named) / 2
    with pytest.raises(ValueError, match="needs features of the annotated boxes"):
        train(latent("num_epochs=2", "model.readers.contexts.slots=regions", folder="grid"))


def drawn(repository: Path, run: Path, *overrides: str) -> DictConfig:
    fast = ("metrics=fast", "metrics.test=[CIDEr-D]", "oracle=[CIDEr-D]", "rerank.num_neighbours=5")
    config = compose_config("diverse_captions", [f"run={run}", *fast, *overrides])
    OmegaConf.resolve(config)
    return config


def test_one_command_makes_the_tables_of_several_captions(latent, tmp_path, repository) -> None:
    train(latent("num_epochs=1"))
    run = tmp_path / "run"
    chosen = drawn(repository, run, "numbers=[3,6]", "num_best=3")
    scores = call(evaluate_draws, chosen)
    assert scores.keys() == {"3", "6"}
    for scores_of_number in scores.values():
        assert scores_of_number["oracle CIDEr-D"] >= scores_of_number["CIDEr-D"]
        assert 0 <= scores_of_number["self-CIDEr"] <= 1
    # the first three draws are among the six
    assert scores["6"]["oracle CIDEr-D"] >= scores["3"]["oracle CIDEr-D"]
    out = run / "evaluation" / "miniworld_tiny-test_in-latent_draws"
    written = json.loads((out / "diverse.json").read_text())
    assert written["scores"] == scores
    assert is_record(written["evaluated"], chosen)
    drawn_captions = read_results(out / "candidates-6.json")
    assert {len(captions) for captions in drawn_captions.values()} == {6}
    assert written["oracle"]["6"] == {"CIDEr-D": scores["6"]["oracle CIDEr-D"]}
    assert written["consensus"]["3"]["CIDEr-D"] == scores["3"]["CIDEr-D"]
    both = drawn(repository, run, "numbers=[3]", "num_best=3", "first_images=4", f"out={run}/both")
    both.search.captions_per_draw = 2
    assert (
        call(evaluate_draws, both)["3"]["novel-sentences"] <= 4 * 3 < scores["3"]["novel-sentences"]
    )
    settings = json.loads((run / "both" / "diverse.json").read_text())["settings"]["3"]
    assert settings["decoding"]["search"]["captions_per_draw"] == 2
    lines = (out / "diverse.md").read_text().splitlines()
    assert [line.split(" | ")[1] for line in lines if line.startswith("| run")] == [
        "oracle of 3",
        "oracle of 6",
        "consensus of 3",
        "consensus of 6",
        "3",
        "6",
    ]
    likeliest = call(
        evaluate_draws, drawn(repository, run, "numbers=[6]", "num_best=3", "search=beam")
    )
    assert likeliest["6"]["Div-1"] > 0  # a beam of 5 was made wider
    folder_names = {
        path.name.removeprefix("miniworld_tiny-test_in-") for path in out.parent.iterdir()
    }
    assert folder_names == {"latent_draws", "beam"}
    with pytest.raises(ValueError, match="gives one caption"):
        call(evaluate_draws, drawn(repository, run, "search=greedy"))
    with pytest.raises(ValueError, match="at least num_best=5"):
        call(evaluate_draws, drawn(repository, run, "numbers=[4]"))
