"""Count the operations of a training step: a GPU waits when operations are many and small.

python benchmarks/count_operations.py [--models updown cic_bart ...]

A line of JSON a model, with the layers and batches of `bench_full_size.py` but narrow ones, in
float32 with losses by caption: operations of the forward and the backward pass without views, here
and in the usual way to write the model. They are counted on a processor, where attention and
dropout are several operations each, in both ways alike; padding is computed where a GPU computes
it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import bench_full_size
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.models.layers import bart_reader
from captioning.results.versions import versions
from captioning.runtime.sample_dropout import use_torchs

GPU = torch.device("cuda")
OTHER_VIEWS = ("aten::_unsafe_view", "aten::empty", "aten::new_empty", "aten::detach")


class Counting(TorchDispatchMode):
    """Counts operations; tensor views and uninitialised memory do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.number += not (func.is_view or func.name().startswith(OTHER_VIEWS))
        return func(*args, **(kwargs or {}))


def count(loss: Callable[[], Tensor]) -> int:
    """Count the operations of a loss and its gradients."""
    loss().backward()  # what the first step alone makes is not counted
    with Counting() as counting:
        loss().backward()
    return counting.number


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["updown", "updown_nocaps", "cic_bart"])
    options = parser.parse_args()
    options.device, options.size = "cpu", "small"
    print(json.dumps(versions()), flush=True)
    use_torchs(True)
    keeps_padding = bart_reader.keeps_padding
    bart_reader.keeps_padding = lambda number, device: keeps_padding(number, GPU)
    for name in options.models:
        torch.manual_seed(0)
        case = bench_full_size.CASES[name](options)
        case.model.train()
        numbers = {"ours": count(lambda case=case: case.model.losses(case.batch).total)}
        if case.plain_loss is not None:
            numbers["usual"] = count(case.plain_loss)
        print(json.dumps({"model": name, "operations": numbers}), flush=True)


if __name__ == "__main__":
    main()
