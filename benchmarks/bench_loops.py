"""Benchmark curation in a custom training loop: a step of GIT with and without curation.

python benchmarks/bench_loops.py [--size small|base] [--batch 16] [--steps 10] [--device auto]
    plain      the model's own loss, no curation
    own loop   losses by `per_sample_losses` in place of it, and `Curation.add`
    Trainer    the model's own loss, and the hooks of `TrainerCuration`, which compute it again
    Steps of the three come in turns, so that a busy moment of the machine hits all of them. The
    last columns are the time within `Curation.add`, and within the hooks. Random weights.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import GitConfig, GitForCausalLM

from curation import Curation, TrainerCuration, per_sample_losses
from curation.amend.remove import Remove
from curation.loop.policy import Policy
from curation.select.top import Top

NUM_SAMPLES = 100_000
NUM_TOKENS = 20
SIZES = {
    "small": {
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "intermediate_size": 1024,
        "num_attention_heads": 4,
        "vision_config": {
            "hidden_size": 256,
            "num_hidden_layers": 3,
            "intermediate_size": 1024,
            "num_attention_heads": 4,
            "image_size": 96,
        },
    },
    "base": {},
}
Step = Callable[[], None]


class Setting:
    """A model with its batches and its run."""

    def __init__(self, *, size: str, batch: int, device: str, folder: str) -> None:
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.model = GitForCausalLM(GitConfig(**SIZES[size])).to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        records = [(f"{number}.jpg", f"caption {number}") for number in range(NUM_SAMPLES)]
        policy = Policy(select=Top(ratio=0.01), amend=Remove(), name="remove")
        self.curation = Curation.open(folder, samples=records, policy=policy, plot=False)
        self.hooks = TrainerCuration(self.curation)
        self.batch = batch
        self.within = {"own loop": 0.0, "Trainer": 0.0}

    def inputs(self) -> dict[str, torch.Tensor]:
        """Batch on the device with labels and rows."""
        side = self.model.config.vision_config.image_size
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(5, 30_000, (self.batch, NUM_TOKENS), generator=generator)
        return {
            "input_ids": ids.to(self.device),
            "labels": ids.to(self.device),
            "pixel_values": torch.randn(self.batch, 3, side, side).to(self.device),
            "row": torch.randint(0, NUM_SAMPLES, (self.batch,), generator=generator),
        }

    def update(self, loss: torch.Tensor) -> None:
        """Run an optimiser update with the loss's gradients."""
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def plain(self, batch: dict[str, torch.Tensor]) -> None:
        """Run a step without curation."""
        batch.pop("row")
        self.update(self.model(**batch).loss)

    def own_loop(self, batch: dict[str, torch.Tensor]) -> None:
        """Run a step of a user's loop that computes each caption's loss."""
        rows, labels = batch.pop("row"), batch.pop("labels")
        losses = per_sample_losses(self.model(**batch).logits, labels)
        begin = time.perf_counter()
        self.curation.add(rows, losses)
        self.within["own loop"] += time.perf_counter() - begin
        self.update(losses.mean())

    def trainer(self, batch: dict[str, torch.Tensor]) -> None:
        """Run a step as Trainer does, with hooks around the model's call."""
        rows, labels = batch.pop("row").to(self.device), batch["labels"]
        outputs = self.model(**batch)
        begin = time.perf_counter()
        self.hooks._rows = rows
        self.hooks._after(self.model, (), {"labels": labels}, outputs)
        self.within["Trainer"] += time.perf_counter() - begin
        self.update(outputs.loss)


def main() -> None:
    """Measure each variant and print one line for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        measure(
            Setting(size=options.size, batch=options.batch, device=device, folder=folder),
            options.steps,
        )


def measure(setting: Setting, num_steps: int) -> None:
    """Time steps of the variants in turn."""
    variants = {"plain": setting.plain, "own loop": setting.own_loop, "Trainer": setting.trainer}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(num_steps + 2):
        for name, step in variants.items():
            batch = setting.inputs()
            wait(setting.device)
            begin = time.perf_counter()
            step(batch)
            wait(setting.device)
            if number >= 2:  # the first ones warm up
                seconds[name].append(time.perf_counter() - begin)
            elif name in setting.within:
                setting.within[name] = 0.0
    count = sum(parameter.numel() for parameter in setting.model.parameters())
    print(
        f"GIT of {count / 1e6:.0f} million weights, {setting.batch} captions a step, "
        f"{setting.device.type}, {torch.get_num_threads()} threads"
    )
    base = float(np.median(seconds["plain"]))
    print(f"{'variant':10} {'step ms':>9} {'against plain':>14} {'within ms':>10} {'share':>7}")
    for name, values in seconds.items():
        step, within = float(np.median(values)), setting.within.get(name, 0.0) / num_steps
        print(
            f"{name:10} {1e3 * step:9.1f} {100 * (step / base - 1):13.2f}% "
            f"{1e3 * within:10.3f} {100 * within / step:6.2f}%"
        )


def wait(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
