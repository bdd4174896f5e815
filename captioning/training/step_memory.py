"""Estimate the memory of a training step before the first step.

The step is simulated on the epoch's largest batch with torch's fake tensors, which have shapes but
no content, so it takes neither the memory nor the time of a real step. Live tensors are summed by
storage. If a model reads values of fake tensors, a real step is measured instead, and the log line
says so.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from captioning.models.base import AbstractCaptioner
from captioning.runtime.cores import free_memory
from captioning.training.memory import when_training
from captioning.training.settings import TrainSettings
from captioning.types import Batch, Sample

log = logging.getLogger(__name__)

LEAST = 64 * 2**20  # bytes of weights; the steps of smaller models fit anywhere
BATCHES = 2000  # of an epoch that are looked at for the largest one
REFUSED = 1.5  # times the free memory; the estimate is not so far off
GIB = 2**30
WORKSPACE = 64 * 2**20  # measured on a CPU, see benchmarks/bench_memory.py
INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Memory of a training step by purpose, in bytes on the training's device.

    Attributes:
        weights: weights and buffers of the model.
        gradients: gradients of trained parameters.
        optimizer: the optimiser's states between steps.
        activations: peak memory beyond these: tensors kept for the backward pass, or an update's
            peak.
        workspace: workspace of CPU libraries, and memory that their allocator cannot use.
        logits: part of the activations that has one value per word of the vocabulary.
        image_states: image states of all photos, on the host
            (`captioning.models.layers.image_states`).
        is_measured: whether a real step was measured.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int
    logits: int
    image_states: int
    is_measured: bool

    @property
    def beside_weights(self) -> int:
        """Memory that a training needs on its device beyond the loaded model."""
        return self.gradients + self.optimizer + self.activations + self.workspace

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimiser": self.optimizer,
            "activations": self.activations,
            "work space": self.workspace,
        }
        listed = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items())
        kept = f"; image states on the host {self.image_states / GIB:.2f}" * bool(self.image_states)
        how = " (measured on a first step)" * self.is_measured
        total = self.weights + self.beside_weights
        return f"{total / GIB:.2f} GiB{how}: {listed} (logits {self.logits / GIB:.2f}){kept}"


def step_memory(model: AbstractCaptioner[Any], batch: Batch) -> StepMemory:
    """Estimate the memory of a training step, without changing the model.

    Args:
        model: model in training mode, on its device.
        batch: the largest one, on the device.
    """
    try:
        return rehearsed(model, batch, is_real=False)
    except Exception as error:  # noqa: BLE001 - of whoever asks for a value
        log.info(f"memory of a step: measured by making a step ({type(error).__name__})")
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    found = rehearsed(model, batch, is_real=True)
    for buffer, before in buffers:
        buffer.copy_(before)
    return found


def rehearsed(model: AbstractCaptioner[Any], batch: Batch, *, is_real: bool) -> StepMemory:
    """Simulate a training step and count its memory; see `step_memory`.

    Args:
        model, batch: see there.
        is_real: compute a real step while counting.
    """
    trained = [value for value in model.parameters() if value.requires_grad]
    given = [*model.parameters(), *model.buffers()]
    inputs = [value for value in tree_leaves(_fields_of(batch)) if isinstance(value, Tensor)]
    least = len(model.tokenizer)
    rows = (value.shape[0] for value in model.parameters() if value.dim() == 2)
    words = {least, *(size for size in rows if size >= least)}
    gpus = [model.device.index or 0] if model.device.type == "cuda" else []
    with (
        torch.random.fork_rng(gpus),
        model.rehearsing() as states,
        _Live(given, words=words, is_real=is_real) as live,
    ):
        total = model.losses(batch).total
        gradients = torch.autograd.grad(total, trained, allow_unused=True)
        del total
        of_batch = live.most
        logits = live.logits_at_most
        of_gradients = sum(value.nbytes for value in gradients if value is not None)
        del gradients
        image_states = states()
    of_optimizer, of_update = _of_optimizer(model, trained, is_real=is_real)
    of_inputs = sum(value.nbytes for value in inputs)
    return StepMemory(
        weights=sum(_bytes_of(value) for value in given),
        gradients=of_gradients,
        optimizer=of_optimizer,
        activations=max(of_batch - of_gradients, of_update) + of_inputs,
        workspace=WORKSPACE if model.device.type == "cpu" else 0,
        logits=logits,
        image_states=image_states,
        is_measured=is_real,
    )


def _fields_of(batch: Batch) -> list[Any]:
    """Tensors of a batch."""
    named = (getattr(batch, name) for name in batch.__dataclass_fields__)
    return [dict(value) if isinstance(value, dict) else value for value in named]


def _of_optimizer(
    model: AbstractCaptioner[Any], trained: list[nn.Parameter], *, is_real: bool
) -> tuple[int, int]:
    """Bytes of an optimiser's states, and an update's peak beyond states and gradients.

    The states are measured on a small tensor and scaled up. Optimisers of other libraries make a
    real update, as they may allocate memory without torch.
    """
    optimizer = model._optimizer([nn.Parameter(torch.zeros(1))])
    is_real = is_real or not type(optimizer).__module__.startswith("torch.")
    number = sum(value.numel() for value in trained)
    values = [torch.zeros(2**16, device=trained[0].device)] if is_real else trained
    with torch.no_grad(), _Live(values, words=(), is_real=is_real) as live:
        copies = [nn.Parameter(live.without_content(value)) for value in values]
        for copy in copies:
            copy.grad = torch.empty_like(copy)
        optimizer = model._optimizer(copies)
        before = live.now
        live.most = before
        optimizer.step()
        states, most = live.now - before, live.most - live.now
    if is_real:
        largest = max(value.numel() for value in trained)
        states, most = states * number // 2**16, most * largest // 2**16
    return states, most


def _inner(value: Any) -> list[Tensor]:
    """Unwrap a tensor that another tensor object holds."""
    names = getattr(value, "__tensor_flatten__", None)
    if names is None:
        return [value]
    return [part for name in names()[0] for part in _inner(getattr(value, name))]


def _bytes_of(value: Tensor) -> int:
    return sum(part.nbytes for part in _inner(value))


class _Live(TorchDispatchMode):
    """Count the bytes of live tensors that are created within the block.

    Args:
        weights: existing weights; tensors computed from weights have no content.
        words: sizes of the last axis that identify logits.
        is_real: compute real values while counting.

    Attributes:
        now, most: bytes of live tensors now, and at the peak so far.
        logits_at_most: bytes of logits at the peak.
    """

    def __init__(self, weights: Iterable[Tensor], *, words: Collection[int], is_real: bool) -> None:
        super().__init__()
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # slow

        self._type = FakeTensor
        self._fakes = None if is_real else FakeTensorMode(allow_non_fake_inputs=True)
        inner = [part for value in weights for part in _inner(value)]
        self._given = {part.untyped_storage().data_ptr() for part in inner} - {0}
        self._words = words
        self._known: set[int] = set()
        self.now = self.most = self._logits = self.logits_at_most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if any(hasattr(value, "__tensor_flatten__") for value in leaves):
            return NotImplemented  # their own class calls the operations on what they hold
        is_fake = self._fakes is not None and any(map(self._has_none, leaves))
        if not is_fake:
            found = func(*args, **kwargs)
        else:
            if func._schema.name in INDEXED:
                args = (args[0], _places(args[1]), *args[2:])
            args, kwargs = tree_map(self.without_content, (args, kwargs))
            with self._fakes:  # pyright: ignore[reportOptionalContextManager]
                found = func(*args, **kwargs)
        for value in tree_leaves(found):
            if isinstance(value, Tensor):
                self._count(value)
        return found

    def without_content(self, value: Any) -> Any:
        """Fake tensor of the same shape without content; other objects unchanged."""
        if self._fakes is None:
            return value.detach().clone() if isinstance(value, Tensor) else value
        if not isinstance(value, Tensor) or isinstance(value, self._type):
            return value
        fake = self._fakes.from_tensor(value.detach(), static_shapes=True)
        self._remember(fake.untyped_storage(), 0, 0)
        return fake

    def _has_none(self, value: Tensor) -> bool:
        """Whether a tensor has no content or is a weight."""
        if isinstance(value, self._type):
            return True
        return value.untyped_storage().data_ptr() in self._given

    def _count(self, value: Tensor) -> None:
        storage = value.untyped_storage()
        if storage._cdata in self._known:
            return
        if not isinstance(value, self._type) and storage.data_ptr() in self._given:
            return
        has_words = value.dim() > 0 and value.shape[-1] in self._words
        size = storage.nbytes()
        self._remember(storage, size, size if has_words else 0)

    def _remember(self, storage: Any, size: int, logits: int) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        self.now, self._logits = self.now + size, self._logits + logits
        if self.now > self.most:
            self.most, self.logits_at_most = self.now, self._logits
        weakref.finalize(storage, self._forget, key, size, logits)

    def _forget(self, key: int, size: int, logits: int) -> None:
        self._known.discard(key)
        self.now, self._logits = self.now - size, self._logits - logits


def _places(indices: Any) -> Any:
    """Replace boolean masks in an index by the positions of their true values."""
    found: list[Any] = []
    for index in indices:
        is_mask = isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)
        found += index.nonzero().unbind(1) if is_mask else [index]
    return found


class SayStepMemory(pl.Callback):
    """Log a step's memory before the first step, and settings to lower if it will not fit.

    Args:
        settings: the run's settings.

    Attributes:
        needed: estimated memory of a step; None until it is known.
    """

    def __init__(self, *, settings: TrainSettings) -> None:
        self._settings = settings
        self.needed: StepMemory | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Estimate the memory of a step of a large model.

        Raises:
            MemoryError: the step needs far more memory than is free.
        """
        model: Any = pl_module
        weights = sum(_bytes_of(value) for value in model.parameters())
        sharded = any(hasattr(value, "full_tensor") for value in model.parameters())
        graphs = model.device.type == "cuda" and self._settings.speed.cuda_graphs
        if weights < LEAST or sharded or model.objective or graphs or model.compiled:
            return
        batch = largest_batch(trainer)
        moved = trainer.strategy.batch_to_device(batch)
        with trainer.precision_plugin.train_step_context():
            self.needed = needed = step_memory(model, moved)
        free = _free(model.device)
        longest = int(batch.token_mask.sum(1).max()) if batch.token_mask is not None else 0
        text = (
            f"memory of a step: {needed}; its largest batch has {len(batch)} captions of up to "
            f"{longest} tokens; {free / GIB:.2f} GiB are free beside the weights"
        )
        if trainer.is_global_zero:
            log.info(text)
        host = needed.image_states if model.device.type == "cpu" else 0
        lacking = needed.beside_weights + host - free
        if lacking <= 0:
            return
        advice = f"{lacking / GIB:.2f} GiB too much: {when_training(self._settings)}"
        if needed.beside_weights > REFUSED * free:
            raise MemoryError(f"{text}, {advice}")
        log.warning(f"a step may not fit into the memory, by about {advice}")


def largest_batch(trainer: pl.Trainer) -> Batch:
    """Batch of the epoch with the most tokens, including padding."""
    loader: Any = trainer.train_dataloader
    dataset, known = loader.dataset, loader.dataset.known

    def length(sample: Sample) -> int:
        ids = None if known is None else known.ids(sample)
        return len(sample.caption if ids is None else ids)

    def tokens(positions: list[int]) -> int:
        return len(positions) * max(length(dataset.samples[place]) for place in positions)

    return dataset[max(itertools.islice(iter(loader.sampler), BATCHES), key=tokens)]


def _free(device: torch.device) -> int:
    """Bytes of memory that tensors may still take."""
    if device.type != "cuda":
        return free_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
