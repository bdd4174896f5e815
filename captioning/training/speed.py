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
    """Precision plugin with half-precision weights, which leaves batches unchanged.

    Lightning's own plugin converts batches, which are frozen records. Here each model converts its
    inputs. New tensors are ``float32`` as always: scores of searches need that.
    """

    def convert_input(self, data: Any) -> Any:
        """Return the batch unchanged."""
        return data

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Convert weights and buffers to half precision, except `FULL_BUFFERS`."""
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
        """Return an empty context."""
        return nullcontext()


class MixedBfloat(MixedPrecision):
    """Precision plugin ``bf16-mixed`` that allows gradient clipping with a fused optimiser.

    Lightning forbids it in any mixed precision, but only ``16-mixed`` scales gradients.
    """

    def clip_gradients(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Clip gradients as without mixed precision."""
        Precision.clip_gradients(self, optimizer, *args, **kwargs)


def can_fuse(optimizer: Part, trainer: Part) -> bool:
    """Whether an optimiser supports fused updates on a GPU of this machine.

    Not all optimisers do, and none does with ``16-mixed`` and clipping.
    """
    name = str(optimizer._target_).rpartition(".")[2]
    found = getattr(torch.optim, name, None)
    known = inspect.signature(found).parameters if found else ()
    scaled = trainer.precision in ("16-mixed", "16", 16)
    clipped = bool(trainer.get("gradient_clip_val"))
    accelerator = str(trainer.get("accelerator", "auto"))
    return "fused" in known and uses_cuda(accelerator) and not (scaled and clipped)


def uses_cuda(accelerator: str) -> bool:
    """Whether Lightning's ``accelerator`` means an NVIDIA or AMD GPU on this machine."""
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def own_device(settings: TrainSettings) -> torch.device:
    """Device that this process will train on, before Lightning has chosen it.

    A network tried on another GPU would leave hundreds of MB there.
    """
    if not uses_cuda(settings.accelerator):
        return torch.device("cpu")
    chosen = settings.trainer.get("devices")
    if isinstance(chosen, ListConfig):
        return torch.device("cuda", chosen[place_on_machine()])
    return torch.device("cuda", own_gpu())


def tell_of_speed(settings: TrainSettings) -> None:
    """Log how to train faster, if a GPU computes with the exactness of a CPU."""
    exact = str(settings.precision) in ("32-true", "32")
    if uses_cuda(settings.accelerator) and exact and settings.speed == Speed():
        log.info(
            f"{torch.cuda.get_device_name()}: speed=gpu makes training faster, but two runs then "
            "no longer agree bit by bit (docs/guides/gpu.md)"
        )


def set_matmul_precision(chosen: MatmulPrecision | None) -> None:
    """Set torch's precision of ``float32`` matrix products; None: ``"highest"``.

    This also sets cuDNN's convolutions and recurrent layers, for which torch defaults to TF32.
    """
    torch.set_float32_matmul_precision(chosen or "highest")
    torch.backends.cudnn.allow_tf32 = chosen not in (None, "highest")


def set_cuda_graphs(settings: TrainSettings, model: AbstractCaptioner) -> None:
    """Use CUDA graphs in a captioner's training if ``speed.cuda_graphs`` says so.

    CUDA graphs read weights at fixed addresses, which sharded weights lack.
    """
    chosen = settings.speed.cuda_graphs
    if (
        chosen
        and uses_cuda(settings.accelerator)
        and not is_sharded(settings.trainer.get("strategy"))
    ):
        model.use_cuda_graphs()


def precision_plugin(settings: TrainSettings) -> Precision | None:
    """Own precision plugin for ``trainer.precision``; None to use Lightning's."""
    precision = settings.precision
    if precision in HALF:
        return HalfWeights(precision)
    if precision in ("bf16-mixed", "bf16") and settings.optimizer.get("fused"):
        return MixedBfloat("bf16-mixed", "cuda" if uses_cuda(settings.accelerator) else "cpu")
    return None


@contextmanager
def computing_as_tested(settings: TrainSettings, model: AbstractCaptioner) -> Iterator[None]:
    """Compute as a training's test does, on the device of its captioner.

    This applies ``trainer.precision`` and ``speed.matmul_precision``. Weights of a training in half
    precision are converted and stay converted.
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
    """Raise an error for speed settings that would harm the training.

    Raises:
        ValueError: half precision is too coarse for the model or the average, no process has all
            weights to average, or the kind of sharding is not supported.
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
        ValueError: no compiler is installed, or no network of the model can be compiled.
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
