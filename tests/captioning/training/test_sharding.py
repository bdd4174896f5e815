"""A model in shards trains as it does complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.captioning.conftest import SMALL
from tests.run_calls import train

# Means over captions are the same by process and over all; each process validates a batch.
ALIKE = (
    "num_epochs=1",
    "ema_decay=null",
    "model.module.dropout=0",
    "model.module.reduction=caption_sum",
    "optimizer=sgd_nocaps",
    "loader.eval_batch_size=10",
)


# A batch is tried first, which asks the decoder alone.
TRIED = "trainer.num_sanity_val_steps=1"


@pytest.mark.long
def test_two_shards_end_as_one_process(small, tmp_path: Path, cache: Path, repository) -> None:
    train(small(*ALIKE, folder="one"))
    own = (f"paths.cache={cache}", f"run_dir={tmp_path / 'two'}", "trainer=fsdp", TRIED)
    subprocess.run(
        [sys.executable, repository / "train.py", *SMALL, *ALIKE, *own],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=repository,
        check=True,
        capture_output=True,
        timeout=300,
    )
    single, double = (
        torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for name in ("one", "two")
    )
    assert single.keys() == double.keys()
    for name, tensor in single.items():
        torch.testing.assert_close(double[name], tensor, rtol=1e-3, atol=1e-4)
    assert (tmp_path / "two" / "metrics.json").exists()
