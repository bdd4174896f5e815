"""Ranges of settings, written beside the arguments that they are for.

``batch_size: PositiveInt`` in a signature gives the range of a config's value; type checkers only
see the number, and `captioning.config.check` checks configs against the range. No float of a config
may be NaN or infinite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Len, Lt, Predicate

_DEVICE = re.compile(r"(auto|cpu|mps|(cuda|xpu)(:\d+)?)")


def device_name(value: Any) -> bool:
    """auto, cpu, cuda, cuda:1, mps or xpu."""
    return not isinstance(value, str) or _DEVICE.fullmatch(value) is not None


PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
# Parts of a whole that hold something, such as a share of the photos.
Share = Annotated[float, Gt(0), Le(1)]
# Chances, and parts of a whole that may be nothing or all.
Fraction = Annotated[float, Ge(0), Le(1)]
# Chances that must leave something, such as dropout: all zeros teach nothing.
DropRate = Annotated[float, Ge(0), Lt(1)]
# Likeness of two vectors.
Cosine = Annotated[float, Ge(-1), Le(1)]
# Seeds of NumPy's generators and of Lightning.
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
# Larger numbers than machines have threads are mistakes, which torch does not tell.
NumThreads = Annotated[int, Ge(1), Le(4096)]
NumWorkers = Annotated[int, Ge(0), Le(1024)]
Device = Annotated[str, Predicate(device_name)]
Name = Annotated[str, Len(1)]
Epoch = Annotated[int, Ge(-1)]
"""An epoch from 0, or -1: before training."""


@dataclass(frozen=True)
class ArgumentsOf:
    """Marks a mapping, or further keywords, whose keys are arguments of a function or class.

    ``ArgumentsOf(Self)`` on the keywords of a named constructor: those of the class itself, but
    for records that are made of the other marked arguments.
    """

    target: Any


@dataclass(frozen=True)
class AlsoTakes:
    """Marks a part that gets further keys than its function's, which the code takes out of it."""

    keys: type  # a TypedDict
