"""docs/extend/add_a_data_step.md and docs/extend/add_a_batch_reader.md, followed to the letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from captioning.config.build import build_part
from captioning.config.plugins import import_plugins
from captioning.training.inputs import load_inputs
from captioning.training.rosters import read_train
from captioning.training.run import build_datamodule
from captioning.training.settings import TrainSettings
from tests.pages import write_files
from tests.run_calls import train


@pytest.fixture
def follow(repository: Path, tmp_path: Path, monkeypatch) -> Callable[[str], str]:
    """Writes a page's files to a folder of the user's own; the override that finds its configs."""

    def written(page: str) -> str:
        files = write_files(repository / "docs" / "extend" / page, tmp_path / "user")
        assert len(files) == 2
        monkeypatch.syspath_prepend(tmp_path / "user")
        import_plugins({name.split("/")[0] for name in files if name.endswith(".py")})
        return f"hydra.searchpath=[file://{tmp_path / 'user' / 'configs'}]"

    return written


@pytest.mark.long
def test_a_step_of_ones_own_leaves_captions_out(small, follow, tmp_path) -> None:
    overrides = (follow("add_a_data_step.md"), "steps=[min_words]", "steps.min_words.number=6")
    config = small("num_epochs=1", *overrides)
    every = read_train(TrainSettings.of(small("num_epochs=1")))[0]
    short = [s.sample_id for s in every.samples if len(s.caption.split()) < 6]
    assert 0 < len(short) < len(every)
    train(config)
    dropped = json.loads((tmp_path / "run" / "dropped.json").read_text())
    rules = {item["item"]: item["rule"] for item in dropped["miniworld_tiny/train"]}
    assert rules == dict.fromkeys(short, "fewer than 6 words")
    assert len(read_train(TrainSettings.of(config))[0]) == len(every) - len(short)
    with pytest.raises(ValueError, match=r"steps\.min_words\.number must be at least 1: got 0"):
        train(small(*overrides, "steps.min_words.number=0", folder="other"))


@pytest.mark.long
def test_a_reader_of_ones_own_gives_batches_its_tensors(small, follow) -> None:
    model = ("model=updown_sizes", "num_epochs=1")
    config = small(follow("add_a_batch_reader.md"), *model)
    settings = TrainSettings.of(config)
    inputs = load_inputs(settings)
    captions = [sample.caption for sample in inputs.splits.train.samples]
    module = build_datamodule(
        TrainSettings.of(config), inputs, build_part(config.tokenizer)(captions)
    )
    batch = next(iter(module.train_dataloader()))
    sizes = torch.full((len(batch.image_ids), 2), 0.96)
    torch.testing.assert_close(batch.extras["photo_sizes"], sizes)
    assert "photo_sizes" in next(iter(module.val_dataloader())).extras
    train(config)
