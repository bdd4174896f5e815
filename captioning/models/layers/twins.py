"""Second parameters as in `torch.nn.LSTMCell`, which only act in the sum with the first."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize


class _Twin(nn.Module):
    """Adds a second parameter to part of the last dimension of a layer's parameter."""

    def __init__(self, second: Tensor, *, before: int, after: int) -> None:
        super().__init__()
        self.second = nn.Parameter(second)
        self.padding = (before, after)

    def forward(self, first: Tensor) -> Tensor:
        """Return the sum, in the shape of ``first``."""
        return first + functional.pad(self.second, self.padding)


def add_twin(
    layer: nn.Module, name: str, *, bound: float, start: int = 0, stop: int | None = None
) -> None:
    """Replace a layer's parameter by the sum of itself and a second parameter.

    A gradient step moves the sum twice as far, and both count in the gradient's norm.

    Args:
        layer: layer with the parameter; its state then has ``parametrizations.NAME.original`` and
            ``parametrizations.NAME.0.second`` instead of ``NAME``.
        name: name of the parameter.
        bound: the second parameter is drawn uniformly from [-``bound``, ``bound``].
        start: first index of the last dimension to which it is added.
        stop: end index; None: the end of the dimension.
    """
    first: Tensor = getattr(layer, name)
    size = first.shape[-1]
    stop = size if stop is None else stop
    second = torch.empty((*first.shape[:-1], stop - start)).uniform_(-bound, bound)
    twin = _Twin(second, before=start, after=size - stop)
    parametrize.register_parametrization(layer, name, twin)
