"""Fully sharded training: weights, gradients and optimiser states divided among GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from captioning.models.base import AbstractCaptioner

# Methods by which a captioner is called: each gathers the weights first.
ENTRIES = ("training_step", "validation_step", "test_step", "losses", "candidates")


def is_sharded(strategy: Any) -> bool:
    """Whether ``trainer.strategy`` shards the model over processes."""
    return "ModelParallelStrategy" in str(getattr(strategy, "_target_", strategy))


def shard(model: AbstractCaptioner) -> None:
    """Let Lightning shard a model over the processes once they have started.

    The model is one unit. Its weights are gathered when a step begins: models call parts of their
    networks' layers, which could not gather their own weights.
    """
    hook: Any = partial(_divide, model)
    hook.__name__ = "configure_model"
    object.__setattr__(model, "configure_model", hook)


def load_weights(model: AbstractCaptioner, state: Mapping[str, Tensor]) -> None:
    """Load complete weights into a model that may be sharded."""
    if isinstance(model, FSDPModule):
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(model, dict(state), options=options)
    else:
        model.load_state_dict(state)


def _divide(model: AbstractCaptioner) -> None:
    if isinstance(model, FSDPModule):  # the test of a run sets everything up once more
        return
    mesh: Any = model.device_mesh
    fully_shard(model, mesh=mesh["data_parallel"])
    for name in ENTRIES:
        register_fsdp_forward_method(model, name)
