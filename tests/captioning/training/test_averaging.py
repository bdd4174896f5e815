"""The average of the weights, worked by hand update by update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from captioning.training.trainer import WarmWeightAveraging


class OneWeight(pl.LightningModule):
    """A weight, and a counter as normalisation layers have one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))


class Training:
    """Updates that set the weight to given values."""

    def __init__(self, *, decay: float) -> None:
        self.module, self.averaging = OneWeight(), WarmWeightAveraging(decay=decay)
        self.trainer: Any = SimpleNamespace(
            strategy=SimpleNamespace(root_device=torch.device("cpu")), global_step=0
        )
        self.averaging.setup(self.trainer, self.module, "fit")

    def end_batch(self, weight: float, *, is_update: bool = True) -> None:
        self.module.weight.data.fill_(weight)
        self.module.count += 1
        self.trainer.global_step += is_update
        self.averaging.on_train_batch_end(self.trainer, self.module, None, None, 0)

    def checkpoint(self) -> dict[str, Any]:
        content: dict[str, Any] = {"state_dict": self.module.state_dict()}
        self.averaging.on_save_checkpoint(self.trainer, self.module, content)
        return content

    def average(self) -> dict[str, float]:
        return {k: v.item() for k, v in self.checkpoint()["state_dict"].items()}


def test_the_first_weights_are_the_average_and_further_ones_move_it_less_and_less() -> None:
    training = Training(decay=0.2)
    training.end_batch(8.0)
    assert training.average() == {"weight": 8, "count": 1}
    training.end_batch(-3.0)
    average = 8 * 2 / 11 - 3 * 9 / 11
    assert training.average() == {"weight": pytest.approx(average), "count": 2}
    training.end_batch(5.0)  # 3 / 12 would be above the decay
    average = average * 0.2 + 5 * 0.8
    assert training.average() == {"weight": pytest.approx(average), "count": 3}


def test_batches_between_updates_do_not_count() -> None:
    training = Training(decay=0.9)
    training.end_batch(8.0)
    training.end_batch(100.0, is_update=False)
    assert training.average() == {"weight": 8, "count": 1}
    training.end_batch(-3.0)
    assert training.average() == {"weight": pytest.approx(8 * 2 / 11 - 3 * 9 / 11), "count": 3}


def test_a_resumed_average_goes_on_where_it_stopped() -> None:
    whole, resumed = Training(decay=0.9), Training(decay=0.9)
    for weight in (8.0, -3.0, 5.0):
        whole.end_batch(weight)
    resumed.averaging.on_load_checkpoint(resumed.trainer, resumed.module, whole.checkpoint())
    assert resumed.average() == whole.average()
    for training in (whole, resumed):
        training.end_batch(1.0)
    assert resumed.average() == whole.average()
