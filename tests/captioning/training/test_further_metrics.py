"""Further metrics of a training's test: what they see, and what their errors leave."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest

from captioning.config.compose import compose_config
from captioning.metrics.coco import MetricResult
from captioning.metrics.diversity import evaluate_oracle
from captioning.metrics.evaluation import AbstractMetric, CaptionedImages, Captions
from captioning.metrics.tokenizer import tokenize_python
from captioning.results.coco_results import read_results
from captioning.results.run_folder import RunFolder
from captioning.training import callbacks, preflight
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings, TrainSettings
from tests.run_calls import train


def test_a_metric_of_several_captions_is_refused_where_the_search_gives_one(small_settings) -> None:
    def check(*overrides: str) -> None:
        chosen = [*small_settings, "extra_metrics=[diversity]", *overrides]
        preflight._check_search(TrainSettings.of(compose_config("train", chosen)))

    with pytest.raises(ValueError, match=r"extra_metrics=diversity needs 2 captions.*returns 1;"):
        check("model=updown_tiny")
    check("model=updown_tiny", "search.num_captions=2")
    latent = ("model=cos_cvae_small", "search.num_captions=1")
    with pytest.raises(ValueError, match=r"this search returns 1;"):
        check(*latent, "search=latents")
    check(*latent, "search=latents", "search.captions_per_draw=2")
    check(*latent, "search=latents_published")


@pytest.mark.long
def test_further_metrics_see_all_captions_of_an_image(small, tmp_path: Path) -> None:
    search = ("search.beam_size=3", "search.num_captions=3", "num_epochs=1")
    extra = ("extra_metrics=[diversity,oracle]", "extra_metrics.oracle.metrics=[BLEU]")
    config = small(*search, *extra)
    scores = train(config)
    folder = tmp_path / "run"
    captions = read_results(folder / "candidates.json")
    assert {len(group) for group in captions.values()} == {3}
    first = {image_id: group[:1] for image_id, group in captions.items()}
    assert read_results(folder / "predictions.json") == first
    assert scores["uniqueness"] == pytest.approx(fmean(len({*g}) / 3 for g in captions.values()))
    references = read_roster(DataSettings.of(config), "test").references()
    best, single = (
        evaluate_oracle(groups, references, metrics=["BLEU"], tokenize=tokenize_python)
        for groups in (captions, first)
    )
    assert scores["oracle BLEU-1"] == best.mean["BLEU-1"] > single.mean["BLEU-1"]
    assert RunFolder(folder).finished()


class Broken(AbstractMetric):
    """A metric that cannot score until it is mended."""

    is_mended = False

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        if not self.is_mended:
            raise ValueError("a file of the metric is missing")
        return MetricResult(corpus={"mended": 1.0}, per_image={}, settings={})


@pytest.mark.long
def test_an_error_of_a_further_metric_loses_no_captions_or_scores(
    small, tmp_path: Path, monkeypatch, caplog
) -> None:
    config = small("num_epochs=1", f"+extra_metrics.broken._target_={__name__}.Broken")
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match="a file of the metric is missing"):
        train(config)
    assert f"captioning evaluate run={folder} extra_metrics=[broken]" in caplog.text
    assert len(read_results(folder / "predictions.json")) == 20
    assert "CIDEr-D" in RunFolder(folder).scores("test")
    assert not RunFolder(folder).finished()
    monkeypatch.setattr(Broken, "is_mended", True)
    assert train(config)["mended"] == 1
    assert RunFolder(folder).finished()


def test_of_several_processes_the_first_alone_scores(tmp_path: Path, monkeypatch) -> None:
    scores = MetricResult(corpus={"CIDEr-D": 0.5}, per_image={}, settings={})
    logged: dict[str, float] = {}
    monkeypatch.setattr(callbacks, "by_first", lambda work: scores)
    trainer = SimpleNamespace(datamodule=SimpleNamespace(test=None), is_global_zero=False)
    evaluation = callbacks.CaptionEvaluation(folder=tmp_path, metrics=["SPICE"])
    evaluation.on_test_epoch_end(trainer, SimpleNamespace(log_dict=logged.update))
    assert evaluation.result is scores
    assert logged == {"test/CIDEr-D": 0.5}
    assert not list(tmp_path.iterdir())
