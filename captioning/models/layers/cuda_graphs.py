"""Run functions of tensors on a GPU as CUDA graphs.

A GPU computes a small operation faster than the CPU can start it, so it is idle most
of the time. A graph is recorded once, with its backward pass, and started as a whole. It
has fixed shapes and fixed memory: callers pad arguments to the largest shapes seen,
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
# Padded sizes are multiples of this: fewer different sizes occur, and products are faster.
MULTIPLE = 4
# During recording, other threads (of loaders) may allocate memory.
OWN_THREAD = "thread_local"


class AbstractGraphedPart(ABC):
    """Base class of model parts that can run as CUDA graphs."""

    @abstractmethod
    def use_cuda_graphs(self) -> None:
        """Use CUDA graphs in training on a GPU from now on."""


class Room:
    """Record of the largest batch sizes seen, used for padding."""

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()

    def for_sizes(self, *sizes: int) -> tuple[int, ...]:
        """Return the sizes to pad to, at least the given sizes."""
        before = self._sizes or (0,) * len(sizes)
        self._sizes = tuple(
            old if size <= old else -(-size // MULTIPLE) * MULTIPLE
            for size, old in zip(sizes, before, strict=True)
        )
        return self._sizes

    def missing(self, number: int, length: int, limit: int | None = None) -> tuple[int, ...]:
        """Return the padding for `torch.nn.functional.pad` of ``number`` sequences of ``length``.

        Args:
            number, length: the sizes to pad.
            limit: maximum padded length.
        """
        all_sequences, all_places = self.for_sizes(number, length)
        return 0, min(all_places, limit or all_places) - length, 0, all_sequences - number


def trains_on_gpu(tensor: Tensor) -> bool:
    """Whether graphs help on ``tensor``'s device: a GPU, with gradients enabled."""
    return (
        tensor.is_cuda and torch.is_grad_enabled() and not torch.cuda.is_current_stream_capturing()
    )


class Graphed:
    """A function of tensors, recorded at its first call and at each call with new shapes.

    A recording holds one call: while its gradients are pending, further calls run the function
    without a graph. So do calls without gradients or without a GPU.

    Args:
        function: function from tensors to tensors with gradients. Its random draws must
            use torch's GPU generator.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._recording: _Recording | None = None
        self._key: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a copy without recordings, which records its own."""
        return type(self), (self._function,)

    def __call__(self, *tensors: Tensor, training: bool = True) -> tuple[Tensor, ...]:
        """Call the function; gradients can be computed once.

        Args:
            *tensors: all inputs of the function. Parameters are read in place, other tensors are
                copied.
            training: training mode of the function's layers.
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
    """Graph of a function that also reads a module's parameters, see `Graphed`.

    Args:
        module: module whose parameters the function reads.
        function: see `Graphed`.
    """

    def __init__(self, module: nn.Module, function: Function) -> None:
        self._given = _Given(module, function)
        self._graphed = Graphed(self._given.call)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Call the function, see `Graphed`."""
        parameters, training = self._given.parameters(), self._given.module.training
        return self._graphed(*inputs, *parameters, training=training)


class _Given(nn.Module):
    """A function that receives its parameters as arguments."""

    def __init__(self, module: nn.Module, function: Function) -> None:
        super().__init__()
        self.module, self._function = module, function

    def call(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Call the function with inputs followed by parameters."""
        names = [name for name, _ in self.named_parameters()]
        number = len(tensors) - len(names)
        parameters = dict(zip(names, tensors[number:], strict=True))
        return functional_call(self, parameters, tensors[:number])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._function(*inputs)


def _key(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return all properties of the arguments that a recording depends on."""
    device = tensors[0].device
    kind = device.type
    precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return (
        device,
        precision,
        *((tensor.shape, tensor.dtype, tensor.requires_grad, _place(tensor)) for tensor in tensors),
    )


def _uncached_casts(kind: str) -> AbstractContextManager[Any]:
    """Keep autocast but cast weights at each replay, because they change."""
    enabled, precision = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    return torch.autocast(kind, precision, enabled=enabled, cache_enabled=False)


def _place(tensor: Tensor) -> int | None:
    return tensor.data_ptr() if isinstance(tensor, nn.Parameter) else None


class _Call:
    """A call whose gradients may still be requested."""


class _Recording:
    """Graphs of a function and of its gradients, with their memory."""

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
        """Whether gradients of a call are pending."""
        return self._call is not None and self._call() is not None

    def run(self, tensors: Sequence[Tensor]) -> tuple[_Call, tuple[Tensor, ...]]:
        """Replay with new values; the recording is in use until the call is released."""
        for kept, tensor in zip(self._inputs, tensors, strict=True):
            if not isinstance(tensor, nn.Parameter):
                kept.detach().copy_(tensor)
        self._forward.replay()
        call = _Call()
        self._call = weakref.ref(call)
        return call, tuple(output.clone() for output in self._outputs)

    def differentiate(self, gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Return gradients of the inputs, given the gradients of the outputs."""
        for kept, gradient in zip(self._output_gradients, gradients, strict=True):
            kept.copy_(gradient)
        self._backward.replay()
        return [None if gradient is None else gradient.clone() for gradient in self._gradients]


def _kept(tensor: Tensor) -> Tensor:
    """Return a tensor with its own gradient: parameters share memory, others are copied."""
    values = tensor.detach()
    values = values if isinstance(tensor, nn.Parameter) else values.clone()
    return values.requires_grad_(tensor.requires_grad)


class _Replay(torch.autograd.Function):
    """Autograd function that replays a recording."""

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
                "gradients of a CUDA graph can be computed only once per call; to compute them "
                "again set speed.cuda_graphs=false"
            )
        ctx.call = None
        return None, *ctx.recording.differentiate(gradients)
