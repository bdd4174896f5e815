"""Ranges of settings, written beside the arguments that they are for; groups of settings.

``batch_size: PositiveInt`` in a signature gives the range of a config's value; type checkers only
see the number, and `captioning.config.check` checks configs against the range. No float of a config
may be NaN or infinite.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Self, Union, get_args, get_origin, get_type_hints

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

    A group of settings that stays where it is in the config is such a mapping, too.

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
        further: keys of the group that are not fields; other keys may refer to them.
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
            config: config of a command or a run folder, or a group of it. A key that it lacks, such
                as one that is newer than the run, has the field's default; so has one that is null
                where the field takes no None.

        Raises:
            ValueError: a key without default is missing.
        """
        hints = get_type_hints(cls)
        known, order = set(cls.known()), [str(key) for key in config]
        values: dict[str, Any] = {}
        for name in known.intersection(order):
            value = config.get(name)
            if value is None and not {type(None), Any} & {*alternatives(hints[name])}:
                continue
            values[name] = read(value, hints[name])
        needed = {f.name for f in fields(cls) if f.default is MISSING is f.default_factory}
        if missing := sorted(needed - values.keys()):
            raise ValueError(f"{missing[0]}: is missing; {cls.__name__} has no default for it")
        further = {str(key): config.get(key) for key in config if key not in known}
        return cls(**values, further=further, order=order)


def read(value: Any, hint: Any) -> Any:
    """Convert a config's value for an argument or a field with this annotation.

    The rule of all configs: a task takes keywords. A group of settings is a frozen record, which is
    built here, also within lists, which become plain. A part, a mapping with ``_target_``, stays
    where it is in the config: its references are looked up when it is built, and errors name its
    whole key. So do mappings without a record.
    """
    kinds = [unwrapped(member)[0] for member in alternatives(hint)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        contents = [get_args(kind)[0] for kind in kinds if get_origin(kind) in (Sequence, list)]
        return [read(entry, contents[0] if contents else Any) for entry in value]
    if not isinstance(value, Mapping):
        return value
    for kind in kinds:
        if is_group(kind):
            return kind.of(value)
        if is_dataclass(kind):
            build: Any = kind
            hints = get_type_hints(kind)
            return build(**{str(key): read(value[key], hints.get(key)) for key in value})
    return value


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, of unions within it too; or the annotation itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [
            alternative for member in get_args(annotation) for alternative in alternatives(member)
        ]
    return [annotation]


def unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """An annotation and the constraints that ``Annotated`` puts on it."""
    if get_origin(annotation) is Annotated:
        base, *constraints = get_args(annotation)
        return base, tuple(constraints)
    return annotation, ()


def is_group(annotation: Any) -> bool:
    """Whether an annotation is a group of settings."""
    return isinstance(annotation, type) and issubclass(annotation, AbstractSettings)
