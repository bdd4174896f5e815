"""Settings that make training fast on a GPU: resolves ``auto`` and configures torch."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from omegaconf import ListConfig
from pytorch_lightning.plugins.precision import HalfPrecision, MixedPrecision, Precision
from torch import nn
from torch.optim import Optimizer

from captioning.models.base import AbstractCaptioner
from captioning.runtime.devices import own_gpu, place_on_machine
from captioning.training.settings import MatmulPrecision, Part, Speed, TrainSettings
from captioning.training.sharding import is_sharded

log = logging.getLogger(__name__)

HALF = ("bf16-true", "16-true")
# Pixels are normalised, and positions resized, by these; half precision is too coarse for them.
FULL_BUFFERS = ("_mean", "_std", "_resizing")


class HalfWeights(HalfPrecision):
    """Weights in half precision; batches stay as they are.

    Lightning's own converts batches, which are frozen records. Here each model converts its inputs.
    New tensors are ``float32`` as always: scores of searches need that.
    """

    def convert_input(self, data: Any) -> Any:
        """The batch as it is."""
        return data

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Weights and buffers in half precision, but for `FULL_BUFFERS`."""
        kept = [
            (part, name, part._buffers[name])
            for part in module.modules()
            for name in FULL_BUFFERS
            if part._buffers.get(name) is not None
        ]
        module = super().convert_module(module)
        for part, name, buffer in kept:
            part._buffers[name] = buffer
        return module

    def forward_context(self) -> AbstractContextManager[None]:  # pyright: ignore
        """Nothing is changed."""
        return nullcontext()


class MixedBfloat(MixedPrecision):
    """``bf16-mixed`` that lets a fused optimiser's gradients be clipped.

    Lightning refuses that in any mixed precision, but gradients are scaled in ``16-mixed`` alone.
    """

    def clip_gradients(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Clip as without mixed precision."""
        Precision.clip_gradients(self, optimizer, *args, **kwargs)


def can_fuse(optimizer: Part, trainer: Part) -> bool:
    """Whether an optimiser can make an update in one operation, on a GPU of this machine.

    Not all optimisers can, and none can with ``16-mixed`` and clipping.
    """
    name = str(optimizer._target_).rpartition(".")[2]
    found = getattr(torch.optim, name, None)
    known = inspect.signature(found).parameters if found else ()
    scaled = trainer.precision in ("16-mixed", "16", 16)
    clipped = bool(trainer.get("gradient_clip_val"))
    accelerator = str(trainer.get("accelerator", "auto"))
    return "fused" in known and uses_cuda(accelerator) and not (scaled and clipped)


def uses_cuda(accelerator: str) -> bool:
    """Whether Lightning's ``accelerator`` is a GPU of NVIDIA or AMD here."""
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def own_device(settings: TrainSettings) -> torch.device:
    """The device that this process trains on, before Lightning has taken it.

    A network tried out on another GPU would leave hundreds of MB there.
    """
    if not uses_cuda(settings.accelerator):
        return torch.device("cpu")
    chosen = settings.trainer.get("devices")
    if isinstance(chosen, ListConfig):
        return torch.device("cuda", chosen[place_on_machine()])
    return torch.device("cuda", own_gpu())


def tell_of_speed(settings: TrainSettings) -> None:
    """Where a GPU is used as exactly as a processor, log how it trains faster."""
    exact = str(settings.precision) in ("32-true", "32")
    if uses_cuda(settings.accelerator) and exact and settings.speed == Speed():
        log.info(
            f"{torch.cuda.get_device_name()}: with speed=gpu training is faster; two runs are then "
            f"no longer equal to the bit (docs/guides/gpu.md)"
        )


def set_matmul_precision(chosen: MatmulPrecision | None) -> None:
    """Tell torch how precise products of ``float32`` matrices are to be; None: ``"highest"``.

    Convolutions and recurrent layers of cuDNN go with them: torch uses TF32 for them by default.
    """
    torch.set_float32_matmul_precision(chosen or "highest")
    torch.backends.cudnn.allow_tf32 = chosen not in (None, "highest")


def set_cuda_graphs(settings: TrainSettings, model: AbstractCaptioner) -> None:
    """Let a captioner train by CUDA graphs where ``speed.cuda_graphs`` says so.

    Graphs read weights in fixed places, which shards have not.
    """
    chosen = settings.speed.cuda_graphs
    if (
        chosen
        and uses_cuda(settings.accelerator)
        and not is_sharded(settings.trainer.get("strategy"))
    ):
        model.use_cuda_graphs()


def precision_plugin(settings: TrainSettings) -> Precision | None:
    """The replacement for Lightning's plugin for ``trainer.precision``, if there is one."""
    precision = settings.precision
    if precision in HALF:
        return HalfWeights(precision)
    if precision in ("bf16-mixed", "bf16") and settings.optimizer.get("fused"):
        return MixedBfloat("bf16-mixed", "cuda" if uses_cuda(settings.accelerator) else "cpu")
    return None


@contextmanager
def computing_as_tested(settings: TrainSettings, model: AbstractCaptioner) -> Iterator[None]:
    """Compute as a training does in its test, on the device of its captioner.

    ``trainer.precision`` and ``speed.matmul_precision`` are meant. Weights of a training in half
    precision are converted and stay so.
    """
    precision = str(settings.precision)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    set_matmul_precision(settings.speed.matmul_precision)
    if precision in HALF:
        HalfWeights(precision).convert_module(model)  # pyright: ignore[reportArgumentType]
    mixed = precision in ("bf16-mixed", "bf16", "16-mixed", "16")
    kind = torch.bfloat16 if precision.startswith("bf16") else torch.float16
    try:
        with torch.autocast(model.device.type, dtype=kind) if mixed else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def check_speed(settings: TrainSettings, model: AbstractCaptioner) -> None:
    """Refuse settings that would not train well together.

    Raises:
        ValueError: half precision with a model or an average that needs more, an average of
            weights that no process has completely, or shards of another kind.
    """
    precision = settings.precision
    if precision in HALF and not model.half_weights:
        raise ValueError(
            f"trainer.precision={precision}: {type(model).__name__} sums over many steps, for "
            "which half precision is too coarse; choose trainer.precision=bf16-mixed"
        )
    if precision in HALF and settings.ema_decay is not None:
        raise ValueError(
            f"ema_decay={settings.ema_decay}: an average in half precision does not move; choose "
            f"ema_decay=null, or trainer.precision={str(precision).replace('true', 'mixed')}"
        )
    strategy = settings.trainer.get("strategy")
    if str(strategy).startswith("fsdp"):
        raise ValueError(
            f"trainer.strategy={strategy}: captioners call parts of their networks' layers, which "
            "could not gather their weights; choose trainer=fsdp"
        )
    if is_sharded(strategy) and settings.ema_decay is not None:
        raise ValueError(
            f"ema_decay={settings.ema_decay}: with trainer=fsdp no process has all weights to "
            "average; choose ema_decay=null"
        )


def compile_model(settings: TrainSettings, model: AbstractCaptioner) -> None:
    """Compile the networks of a captioner where ``speed.compile`` asks for it.

    Raises:
        ValueError: there is no compiler, or nothing in the model can be compiled.
    """
    if not settings.speed.compile:
        return
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(1, device=own_device(settings)))
    except Exception as error:  # torch raises types of its own, of several modules
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"speed.compile=true: torch cannot compile here ({reason}); install a C++ compiler "
            "(Debian: g++), or choose speed.compile=false"
        ) from error
    if not model.compile_networks():
        raise ValueError(
            f"speed.compile=true: {type(model).__name__} on cached features has no network that "
            "can be compiled as one; choose speed.compile=false"
        )
    if any(isinstance(module, nn.Dropout) and module.p for module in model.modules()):
        log.info("speed.compile=true: dropout depends on the number of processes, not on samples")
