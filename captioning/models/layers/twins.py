"""Second parameters as in `torch.nn.LSTMCell`, which act only in their sum with the first."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize


class _Twin(nn.Module):
    """Adds a second parameter to a layer's own, to some of its last dimension."""

    def __init__(self, second: Tensor, *, before: int, after: int) -> None:
        super().__init__()
        self.second = nn.Parameter(second)
        self.padding = (before, after)

    def forward(self, first: Tensor) -> Tensor:
        """The sum, of the shape of ``first``."""
        return first + functional.pad(self.second, self.padding)


def add_twin(
    layer: nn.Module, name: str, *, bound: float, start: int = 0, stop: int | None = None
) -> None:
    """Let a layer's parameter be the sum of itself and a second one.

    A gradient step moves the sum twice as far, and each counts in the gradient's norm.

    Args:
        layer: has the parameter; its state then has ``parametrizations.NAME.original`` and
            ``parametrizations.NAME.0.second`` in the place of ``NAME``.
        name: the parameter's name.
        bound: the second one is drawn evenly from [-``bound``, ``bound``].
        start: it is added from this place of the last dimension on.
        stop: and up to this one; None: to its end.
    """
    first: Tensor = getattr(layer, name)
    size = first.shape[-1]
    stop = size if stop is None else stop
    second = torch.empty((*first.shape[:-1], stop - start)).uniform_(-bound, bound)
    twin = _Twin(second, before=start, after=size - stop)
    parametrize.register_parametrization(layer, name, twin)
