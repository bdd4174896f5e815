"""Ranges of settings, written beside the arguments that they are for; groups of settings.

``batch_size: PositiveInt`` in a signature gives the range of a config's value; type checkers only
see the number, and `captioning.config.check` checks configs against the range. No float of a config
may be NaN or infinite.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

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


@dataclass(frozen=True, kw_only=True)
class AbstractSettings:
    """A group of settings: its fields are the keys of a config group, with types and ranges.

    Attributes:
        further: keys of the group that are no fields; other keys may refer to them.
        order: all keys of the config, as it orders them; none for a record that Python made.
    """

    further: Mapping[str, Any] = field(default_factory=dict)
    order: Sequence[str] = field(default=(), repr=False, compare=False)

    @classmethod
    def known(cls) -> list[str]:
        """The fields that are keys of the group."""
        return [entry.name for entry in fields(cls) if entry.name not in {"further", "order"}]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The record of a config; groups within it become records, parts stay in their place.

        Args:
            config: of a command or a run folder, or a group of it. A key that it lacks, such as one
                that is newer than the run, has the field's default; so has one that is null where
                the field takes no None.

        Raises:
            ValueError: a key without default is missing.
        """
        hints = get_type_hints(cls)
        known, order = set(cls.known()), [str(key) for key in config]
        values: dict[str, Any] = {}
        for name in known.intersection(order):
            value, kinds = config.get(name), (hints[name], *get_args(hints[name]))
            if value is None and not {None, type(None), Any} & {*kinds}:
                continue
            values[name] = None if value is None else _read(value, kinds)
        needed = {f.name for f in fields(cls) if f.default is MISSING is f.default_factory}
        if missing := sorted(needed - values.keys()):
            raise ValueError(f"{missing[0]}: must be given; {cls.__name__} has no default for it")
        further = {str(key): config.get(key) for key in config if key not in known}
        return cls(**values, further=further, order=order)


def _read(value: Any, kinds: Sequence[Any]) -> Any:
    """A value as one of several annotations has it: groups as records, also within a list."""
    for kind in kinds:
        if is_group(kind):
            return kind.of(value)
        if get_origin(kind) is Sequence and is_group(get_args(kind)[0]):
            return [get_args(kind)[0].of(entry) for entry in value]
    return value


def is_group(annotation: Any) -> bool:
    """Whether an annotation is a group of settings."""
    return isinstance(annotation, type) and issubclass(annotation, AbstractSettings)
