"""torchmetrics loads what Lightning takes of it, and everything for whoever asks for more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from captioning.commands.quick_imports import import_torchmetrics_late

PROGRAM = """
import inspect, sys
from captioning.commands.quick_imports import import_torchmetrics_late
import_torchmetrics_late()
import pytorch_lightning as pl
import torch, torchmetrics
inspect.getmodule(inspect.currentframe())  # asks every module for names of its own
assert not {"scipy", "torchvision", "transformers", "torchmetrics.functional"} & sys.modules.keys()
from torchmetrics import Metric, MetricCollection
assert torchmetrics.__version__[0].isdigit()

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.seen = torchmetrics.MeanMetric()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        self.seen(batch)
        self.log("seen", self.seen, on_epoch=True, on_step=False)
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

model = Model()
assert "torchmetrics.functional" in sys.modules
assert isinstance(model.seen, Metric) and torchmetrics.Metric is Metric
assert torchmetrics.Accuracy(task="binary")(torch.ones(2), torch.ones(2).long()) == 1
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
trainer.fit(model, torch.utils.data.DataLoader(torch.tensor([[1.0], [3.0]])))
assert trainer.callback_metrics["seen"] == 2
"""


@pytest.mark.long
def test_it_loads_little_for_lightning_and_all_that_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_imported_already_stays() -> None:
    import torchmetrics

    import_torchmetrics_late()
    assert sys.modules["torchmetrics"] is torchmetrics


def test_what_is_not_installed_stays_away(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torchmetrics", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    import_torchmetrics_late()
    assert "torchmetrics" not in sys.modules
