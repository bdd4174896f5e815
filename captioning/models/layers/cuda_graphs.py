"""Functions of tensors that a GPU runs as one CUDA graph.

A GPU computes a small operation faster than a processor starts it, so that it waits for the
processor most of the time. A graph is recorded once, with its backward pass, and started as one. It
has fixed shapes and reads fixed places of memory: callers pad arguments to the largest shapes seen,
and weights are read in place.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

Function = Callable[..., tuple[Tensor, ...]]
# Sizes that are padded to are multiples of it: fewer of them are seen, and products are faster.
MULTIPLE = 4
# While one is recorded, other threads (of loaders) may ask for memory.
OWN_THREAD = "thread_local"


class AbstractGraphedPart(ABC):
    """A part of a model that can run as CUDA graphs."""

    @abstractmethod
    def use_cuda_graphs(self) -> None:
        """Train on a GPU by graphs from now on."""


class Room:
    """The largest sizes of batches seen."""

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()

    def for_sizes(self, *sizes: int) -> tuple[int, ...]:
        """The sizes to pad to, at least those given."""
        before = self._sizes or (0,) * len(sizes)
        self._sizes = tuple(
            old if size <= old else -(-size // MULTIPLE) * MULTIPLE
            for size, old in zip(sizes, before, strict=True)
        )
        return self._sizes

    def missing(self, number: int, length: int, limit: int | None = None) -> tuple[int, ...]:
        """The padding of `torch.nn.functional.pad` for ``number`` sequences of ``length``.

        Args:
            number, length: the sizes to pad.
            limit: of the length.
        """
        all_sequences, all_places = self.for_sizes(number, length)
        return 0, min(all_places, limit or all_places) - length, 0, all_sequences - number


def trains_on_gpu(tensor: Tensor) -> bool:
    """Whether graphs help where ``tensor`` is computed: on a GPU, with gradients."""
    return (
        tensor.is_cuda and torch.is_grad_enabled() and not torch.cuda.is_current_stream_capturing()
    )


class Graphed:
    """A function of tensors, recorded at its first call and again at a call with other shapes.

    A recording has room for one call: where gradients of one are still to come, the next call runs
    as the function does. So do calls without gradients or without a GPU.

    Args:
        function: function of tensors that returns tensors with gradients. Its random draws must
            come from torch's generator of the GPU.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._recording: _Recording | None = None
        self._key: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies record for themselves."""
        return type(self), (self._function,)

    def __call__(self, *tensors: Tensor, training: bool = True) -> tuple[Tensor, ...]:
        """What the function gives, with one pass for gradients.

        Args:
            *tensors: all that the function reads. Parameters are read where they are, others are
                copied.
            training: the mode of the function's layers.
        """
        differentiated = any(tensor.requires_grad for tensor in tensors)
        if not differentiated or not trains_on_gpu(tensors[0]):
            return self._function(*tensors)
        key = (training, *_key(tensors))
        if self._recording is None or key != self._key:
            self._recording = None  # gives its memory to the next one
            self._recording, self._key = _Recording(self._function, tensors), key
        if self._recording.is_in_use():
            return self._function(*tensors)
        return _Replay.apply(self._recording, *tensors)


class GraphedPart:
    """As `Graphed`, of a function that reads a module's parameters, too.

    Args:
        module: whose parameters it reads.
        function: see `Graphed`.
    """

    def __init__(self, module: nn.Module, function: Function) -> None:
        self._given = _Given(module, function)
        self._graphed = Graphed(self._given.call)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What the function gives, see `Graphed`."""
        parameters, training = self._given.parameters(), self._given.module.training
        return self._graphed(*inputs, *parameters, training=training)


class _Given(nn.Module):
    """A function that is given the parameters that it reads."""

    def __init__(self, module: nn.Module, function: Function) -> None:
        super().__init__()
        self.module, self._function = module, function

    def call(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Of inputs, then parameters."""
        names = [name for name, _ in self.named_parameters()]
        number = len(tensors) - len(names)
        parameters = dict(zip(names, tensors[number:], strict=True))
        return functional_call(self, parameters, tensors[:number])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._function(*inputs)


def _key(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """All that a recording depends on."""
    device = tensors[0].device
    kind = device.type
    precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return (
        device,
        precision,
        *((tensor.shape, tensor.dtype, tensor.requires_grad, _place(tensor)) for tensor in tensors),
    )


def _uncached_casts(kind: str) -> AbstractContextManager[Any]:
    """Autocast as it is, but a graph casts weights each time: they change."""
    enabled, precision = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    return torch.autocast(kind, precision, enabled=enabled, cache_enabled=False)


def _place(tensor: Tensor) -> int | None:
    return tensor.data_ptr() if isinstance(tensor, nn.Parameter) else None


class _Call:
    """A call whose gradients may still be asked for."""


class _Recording:
    """Graphs of a function and of its gradients, with the memory that they read and write."""

    def __init__(self, function: Function, tensors: Sequence[Tensor]) -> None:
        self._call: weakref.ref[_Call] | None = None
        self._inputs = [_kept(tensor) for tensor in tensors]
        self._differentiated = [place for place, x in enumerate(tensors) if x.requires_grad]
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        device = tensors[0].device
        side, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        side.wait_stream(main)
        with torch.cuda.stream(side), torch.enable_grad(), _uncached_casts(device.type):
            for _ in range(2):  # libraries make room for themselves, outside of the graphs
                outputs = function(*self._inputs)
                self._gradients_of(outputs, [torch.zeros_like(output) for output in outputs])
            self._forward.capture_begin(capture_error_mode=OWN_THREAD)
            outputs = function(*self._inputs)
            self._forward.capture_end()
            self._output_gradients = [torch.zeros_like(output) for output in outputs]
            self._backward.capture_begin(pool=self._forward.pool(), capture_error_mode=OWN_THREAD)
            gradients = self._gradients_of(outputs, self._output_gradients)
            self._backward.capture_end()
        main.wait_stream(side)
        self._outputs = [output.detach() for output in outputs]
        self._gradients: list[Tensor | None] = [None] * len(tensors)
        for place, gradient in zip(self._differentiated, gradients, strict=True):
            self._gradients[place] = gradient

    def _gradients_of(
        self, outputs: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        inputs = [self._inputs[place] for place in self._differentiated]
        return torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)

    def is_in_use(self) -> bool:
        """Whether gradients of a call are still to come."""
        return self._call is not None and self._call() is not None

    def run(self, tensors: Sequence[Tensor]) -> tuple[_Call, tuple[Tensor, ...]]:
        """The outputs for other values; in use until the call is let go."""
        for kept, tensor in zip(self._inputs, tensors, strict=True):
            if not isinstance(tensor, nn.Parameter):
                kept.detach().copy_(tensor)
        self._forward.replay()
        call = _Call()
        self._call = weakref.ref(call)
        return call, tuple(output.clone() for output in self._outputs)

    def differentiate(self, gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Gradients of the inputs, given those of the outputs."""
        for kept, gradient in zip(self._output_gradients, gradients, strict=True):
            kept.copy_(gradient)
        self._backward.replay()
        return [None if gradient is None else gradient.clone() for gradient in self._gradients]


def _kept(tensor: Tensor) -> Tensor:
    """A tensor with gradients of its own: in the memory of a parameter, of others a copy."""
    values = tensor.detach()
    values = values if isinstance(tensor, nn.Parameter) else values.clone()
    return values.requires_grad_(tensor.requires_grad)


class _Replay(torch.autograd.Function):
    """A call of a recording."""

    @staticmethod
    def forward(ctx: Any, recording: _Recording, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.recording = recording
        ctx.call, outputs = recording.run(tensors)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        if ctx.call is None:
            raise RuntimeError(
                "gradients of a CUDA graph can be computed only once a call; choose "
                "speed.cuda_graphs=false to compute them again"
            )
        ctx.call = None
        return None, *ctx.recording.differentiate(gradients)
