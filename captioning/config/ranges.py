"""Ranges of settings as type annotations of arguments, and base class of settings groups.

``batch_size: PositiveInt`` in a signature sets the range of the config value. Type checkers see a
plain number; `captioning.config.check` checks configs against the range. Floats in configs must
not be NaN or infinite.
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
    """Whether a value is a device name: auto, cpu, cuda, cuda:1, mps or xpu."""
    return not isinstance(value, str) or _DEVICE.fullmatch(value) is not None


PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
# Fractions above 0, such as a share of the photos.
Share = Annotated[float, Gt(0), Le(1)]
# Probabilities and fractions from 0 to 1.
Fraction = Annotated[float, Ge(0), Le(1)]
# Probabilities below 1, such as dropout: at 1 all values would be zero.
DropRate = Annotated[float, Ge(0), Lt(1)]
# Cosine similarity of two vectors.
Cosine = Annotated[float, Ge(-1), Le(1)]
# Seeds that NumPy's generators and Lightning accept.
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
# Larger values than machines have threads are mistakes that torch does not report.
NumThreads = Annotated[int, Ge(1), Le(4096)]
NumWorkers = Annotated[int, Ge(0), Le(1024)]
Device = Annotated[str, Predicate(device_name)]
Name = Annotated[str, Len(1)]
Epoch = Annotated[int, Ge(-1)]
"""An epoch from 0, or -1: before training."""


@dataclass(frozen=True)
class ArgumentsOf:
    """Marks a mapping or ``**kwargs`` whose keys are arguments of a function or class.

    A settings group that stays a mapping in the config is such a mapping, too.

    On the keywords of a named constructor, ``ArgumentsOf(Self)`` means the arguments of the class,
    except settings records that are made of the other marked arguments.
    """

    target: Any


@dataclass(frozen=True)
class AlsoTakes:
    """Marks a component with keys beyond its function's arguments; the code removes these keys."""

    keys: type  # a TypedDict


@dataclass(frozen=True, kw_only=True)
class AbstractSettings:
    """Base class of settings groups: the fields are a config group's keys, with types and ranges.

    Attributes:
        further: keys of the group that are not fields; other keys may refer to them.
        order: all keys in the order of the config; empty for a record made in Python.
    """

    further: Mapping[str, Any] = field(default_factory=dict)
    order: Sequence[str] = field(default=(), repr=False, compare=False)

    @classmethod
    def known(cls) -> list[str]:
        """Return the names of the fields, which are keys of the group."""
        return [entry.name for entry in fields(cls) if entry.name not in {"further", "order"}]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Convert a config to this record; nested groups become records, components stay configs.

        Args:
            config: config of a command or a run folder, or one group of it. A missing key, such as
                a key newer than the run, takes the field's default. So does a null key if the field
                does not accept None.

        Raises:
            ValueError: a required key is missing.
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
            raise ValueError(f"{missing[0]} is missing: {cls.__name__} has no default, so set it")
        further = {str(key): config.get(key) for key in config if key not in known}
        return cls(**values, further=further, order=order)


def read(value: Any, hint: Any) -> Any:
    """Convert a config value for an argument or field with this annotation.

    All configs follow one rule: a task takes keywords. Settings groups become frozen records, also
    within lists, and lists become plain. A component (mapping with ``_target_``) stays in the
    config: its references are resolved when it is built, and errors name its full key. Mappings
    without a record stay, too.
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
    """Return the members of a union, nested unions included; otherwise the annotation itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [
            alternative for member in get_args(annotation) for alternative in alternatives(member)
        ]
    return [annotation]


def unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type and the constraints of an ``Annotated`` annotation."""
    if get_origin(annotation) is Annotated:
        base, *constraints = get_args(annotation)
        return base, tuple(constraints)
    return annotation, ()


def is_group(annotation: Any) -> bool:
    """Whether an annotation is a group of settings."""
    return isinstance(annotation, type) and issubclass(annotation, AbstractSettings)
