"""docs/extend/add_a_model.md, followed to the letter: its files train and are curated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional

from captioning.config.compose import compose_config
from captioning.config.plugins import import_plugins
from captioning.models.base import AbstractCaptioner
from captioning.training import run as run_module
from captioning.training.inputs import load_inputs
from captioning.training.settings import TrainSettings
from tests.pages import write_files
from tests.run_calls import train


@pytest.fixture
def gru(small_settings, cache: Path, repository: Path, tmp_path: Path, monkeypatch):
    files = write_files(repository / "docs" / "extend" / "add_a_model.md", tmp_path / "user")
    assert files == ["my_models/gru.py", "configs/model/gru.yaml"]
    monkeypatch.syspath_prepend(tmp_path / "user")
    import_plugins(["my_models"])
    search_path = f"hydra.searchpath=[file://{tmp_path / 'user' / 'configs'}]"
    choice = ("model=gru", "num_epochs=2", "curation=remove", "curation.select.ratio=0.1")
    folders = (f"paths.cache={cache}", f"run_dir={tmp_path / 'run'}")
    config = compose_config("train", [*small_settings, *choice, *folders, search_path])
    OmegaConf.resolve(config)
    return config


@pytest.mark.long
def test_the_files_of_the_page_train(gru, tmp_path: Path) -> None:
    assert {"BLEU-4", "CIDEr-D"} <= set(train(gru))
    losses = json.loads((tmp_path / "run" / "history.json").read_text())
    assert len(losses) == 2
    assert len((tmp_path / "run" / "curation.jsonl").read_text().splitlines()) > 1


def test_its_steps_add_up_to_its_losses(gru) -> None:
    settings = TrainSettings.of(gru)
    built, datamodule = run_module.build_captioner(settings, load_inputs(settings))
    model: AbstractCaptioner = built.eval()
    datamodule.setup("fit")
    batch = next(iter(datamodule.train_dataloader()))
    tokens, exist = batch.caption_tokens()
    with torch.inference_mode():
        state = model.start(batch).select(batch.image_index)
        log_probs = []
        for place in range(tokens.shape[1] - 1):
            scores, state = model.step(tokens[:, place], state)
            log_probs.append(functional.nll_loss(scores, tokens[:, place + 1], reduction="none"))
        steps = torch.stack(log_probs, dim=1) * exist[:, 1:]
        expected = steps.sum(dim=1) / exist[:, 1:].sum(dim=1)
        torch.testing.assert_close(model.losses(batch).per_sample, expected, rtol=1e-4, atol=1e-4)
