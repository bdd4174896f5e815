"""Benchmark curation: the cost of tracking losses, and of the step at the end of an epoch.

python benchmarks/bench_curation.py tracking [HYDRA_OVERRIDE ...] [--epochs 3] [--rounds 2]
    Trains the config of train.py without curation, with the losses tracked online, and with the
    rescoring pass, in turns, and prints each epoch's seconds side by side, with the time spent
    inside the callback. Any experiment can be measured: tracking experiment=GROUP/NAME.

python benchmarks/bench_curation.py epoch_end [--num-samples 500000] [--epochs 5]
    The epoch's end alone, as the callback runs it: reduce, decide, apply, write all files.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from captioning.data.roster import CurationView, build_roster
from captioning.types import Sample
from curation.amend.remove import Remove
from curation.amend.replace import ReplaceCaption
from curation.loop.callback import CurationCallback
from curation.loop.curation_files import CurationFiles
from curation.loop.curator import Curator
from curation.loop.policy import Policy
from curation.select.sigma import Sigma
from curation.select.top import Top

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
VARIANTS = {
    "no callback": ["curation=none"],
    "online": ["curation=remove", "curation.select.ratio=0"],
    "rescore": ["curation=remove", "curation.select.ratio=0", "curation/probe=rescore"],
}
POLICIES = {
    "remove, top 5%": lambda: (Top(ratio=0.05), Remove()),
    "replace caption, top 5%": lambda: (Top(ratio=0.05), ReplaceCaption()),
    "replace caption, 2 std": lambda: (Sigma(num_std=2), ReplaceCaption()),
    "remove, top 40%": lambda: (Top(ratio=0.4), Remove()),
}


def main() -> None:
    """Run the measurement that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    tracking = commands.add_parser("tracking")
    tracking.add_argument("overrides", nargs="*")
    tracking.add_argument("--epochs", type=int, default=3)
    tracking.add_argument("--rounds", type=int, default=2)
    epoch_end = commands.add_parser("epoch_end")
    epoch_end.add_argument("--num-samples", type=int, default=500_000)
    epoch_end.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    if options.command is None:
        measure_epoch_end(500_000, 5)
    elif options.command == "tracking":
        measure_tracking(options.overrides, options.epochs, options.rounds)
    else:
        measure_epoch_end(options.num_samples, options.epochs)


def measure_tracking(overrides: list[str], num_epochs: int, rounds: int) -> None:
    """Train the variants in turn, so that load on the machine affects all variants."""
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    inside: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for number in range(rounds):
        for name, chosen in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder, clocked() as clock:
                train_once([*overrides, *chosen, f"num_epochs={num_epochs}"], Path(folder))
            # the first epoch warms caches up and is left out
            seconds[name] += clock.epochs[1:]
            inside[name] += clock.inside[1:]
            print(f"round {number}, {name}: {[round(s, 2) for s in clock.epochs]} s", flush=True)
    base = float(np.median(seconds["no callback"]))
    print(f"{'variant':12} {'epoch s':>9} {'against none':>13} {'in callback s':>14} {'share':>7}")
    for name in VARIANTS:
        epoch, within = float(np.median(seconds[name])), float(np.median(inside[name]))
        print(
            f"{name:12} {epoch:9.3f} {100 * (epoch / base - 1):12.2f}% {within:14.4f} "
            f"{100 * within / epoch:6.2f}%"
        )


def train_once(overrides: list[str], folder: Path) -> None:
    """Train once with train.py's config in its own folder."""
    from captioning.config.compose import compose_config
    from captioning.training.preflight import settings_of
    from captioning.training.run import train

    config = compose_config("train", overrides=[*overrides, f"run_dir={folder}", "resume=never"])
    train(settings_of(config))


class Clock:
    """Seconds of each training epoch without validation, and of the callback within them."""

    def __init__(self) -> None:
        self.epochs: list[float] = []
        self.inside: list[float] = []
        self.started = 0.0

    def start(self) -> None:
        """Start the clock of an epoch."""
        self.started = time.perf_counter()
        self.inside.append(0.0)

    def stop(self) -> None:
        """Stop the clock after the epoch's training steps."""
        self.epochs.append(time.perf_counter() - self.started)


@contextmanager
def clocked():
    """Time all fits inside, by wrapping Lightning's last batch and the callback's hook."""
    import pytorch_lightning as pl

    clock = Clock()

    class Stopwatch(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            clock.start()

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.is_last_batch:
                clock.stop()

    hook, build = CurationCallback.on_train_batch_end, pl.Trainer.__init__

    def timed(self, *arguments):
        begin = time.perf_counter()
        hook(self, *arguments)
        clock.inside[-1] += time.perf_counter() - begin

    def with_stopwatch(self, *arguments, callbacks=None, **options):
        build(self, *arguments, callbacks=[*(callbacks or []), Stopwatch()], **options)

    CurationCallback.on_train_batch_end, pl.Trainer.__init__ = timed, with_stopwatch
    try:
        yield clock
    finally:
        CurationCallback.on_train_batch_end, pl.Trainer.__init__ = hook, build


def measure_epoch_end(num_samples: int, num_epochs: int) -> None:
    """CPU seconds and added memory of each policy's epoch ends."""
    roster = build_roster(
        "benchmark",
        [
            Sample(
                row=0,
                sample_id=f"{image:012d}.jpg#{k}",
                image_id=f"{image:012d}.jpg",
                image_path=Path("photo.jpg"),
                caption=f"caption number {k} of the image {image} says this",
            )
            for image in range(num_samples // 5)
            for k in range(5)
        ],
    )
    start = timed_of(lambda: roster.fingerprint)
    print(f"{len(roster)} samples; fingerprint, once a run: {start:.2f} s")
    for name, parts in POLICIES.items():
        select, amend = parts()
        policy = Policy(select=select, amend=amend, name=name)
        curator = Curator(policy=policy, view=CurationView(roster=roster), seed=0)
        measure_policy(name, curator, num_epochs)


def measure_policy(name: str, curator: Curator, num_epochs: int) -> None:
    """Print one line for each epoch."""
    rng = np.random.default_rng(0)
    num_samples = len(curator.view.roster)
    before = resident()
    with tempfile.TemporaryDirectory() as folder:
        files = CurationFiles(path=Path(folder))
        files.start(curator, resumed=False)
        for epoch in range(num_epochs):
            losses = torch.from_numpy(rng.gamma(9, 0.4, num_samples).astype(np.float32))
            rows = torch.tensor([sample.row for sample in curator.view.samples()])
            curator.ledger.add(rows, losses[rows])
            reset_peak()
            begin = time.process_time()
            outcome = curator.end_epoch(epoch)
            decided = time.process_time()
            files.write(curator, outcome, plot=True)
            written = time.process_time()
            curator.state_dict()
            print(
                f"{name}, epoch {epoch}: {outcome.record['num_selected']} selected; decide "
                f"{decided - begin:.2f} s, write {written - decided:.2f} s, checkpoint state "
                f"{time.process_time() - written:.2f} s, peak memory +{peak() - before:.0f} MB",
                flush=True,
            )


def timed_of(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def resident() -> float:
    """Current memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def reset_peak() -> None:
    """Restart the measurement of `peak` (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """Peak memory of this process since `reset_peak`, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e3


if __name__ == "__main__":
    main()
