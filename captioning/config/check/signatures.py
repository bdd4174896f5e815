"""Parameters of the targets of configs, with annotations resolved."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Self, get_type_hints

from captioning.config.ranges import ArgumentsOf

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parameters of a class or function.

    Attributes:
        annotations: by name; ``Any`` where there is none, or one that cannot be resolved.
        required: those without default.
        takes_further_keywords: whether further keywords are taken.
    """

    annotations: dict[str, Any]
    required: frozenset[str]
    takes_further_keywords: bool


@functools.cache
def locate(path: str) -> Any:
    """The object that a dotted path names.

    Raises:
        ModuleNotFoundError: a package is not installed, or there is no such module.
        AttributeError: the module has no such name; ``name`` and ``obj`` are set.
        ValueError: it names nothing that can be called.
    """
    parts = path.split(".")
    for size in range(len(parts), 0, -1):
        name = ".".join(parts[:size])
        try:
            target = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # of a package that the module needs, or of the module itself
            if size == 1 or error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            continue
        target = functools.reduce(getattr, parts[size:], target)
        if not callable(target):
            raise ValueError("it is neither a class nor a function")
        return target
    raise ModuleNotFoundError(f"no module named {path!r}", name=path)


@functools.cache
def signature_of(target: Callable[..., Any]) -> Signature:
    """The parameters of a target; a class that passes keywords on takes those of its base too."""
    annotations: dict[str, Any] = {}
    required: set[str] = set()
    takes_further_keywords = False
    first, *bases = _constructors(target)
    for function in (first, *bases):
        hints = _hints(function)
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if parameter.kind in VARIABLE or parameter.name in ("self", *annotations):
                continue
            annotations[parameter.name] = hints.get(parameter.name, Any)
            if parameter.default is inspect.Parameter.empty and function is first:
                required.add(parameter.name)
        keywords = next((p.name for p in parameters if p.kind is VARIABLE[1]), "")
        if marks := _marked(hints.get(keywords), function):
            annotations |= _arguments_of(marks)
            keywords = ""
        takes_further_keywords = bool(keywords)
        if not takes_further_keywords:
            break
    return Signature(
        annotations=annotations,
        required=frozenset(required),
        takes_further_keywords=takes_further_keywords,
    )


def _marked(hint: Any, function: Any) -> list[Any]:
    """Targets that a function's further keywords go to, if their annotation names them."""
    marks = [mark.target for mark in getattr(hint, "__metadata__", ()) if type(mark) is ArgumentsOf]
    return [function.__self__ if target is Self else target for target in marks]


def _arguments_of(targets: Sequence[Any]) -> dict[str, Any]:
    """The arguments of several targets, without those that are one of the targets."""
    hints = {n: h for target in targets for n, h in signature_of(target).annotations.items()}
    return {name: hint for name, hint in hints.items() if hint not in targets}


def _constructors(target: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Functions that get the keywords: the class's own, then those of its bases in turn."""
    if not inspect.isclass(target) or is_dataclass(target):
        yield target
        return
    constructors = [cls.__init__ for cls in target.__mro__ if "__init__" in vars(cls)]
    yield from constructors or [target]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolved annotations; one that names what is imported for type checkers alone is ``Any``."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        raw = getattr(function, "__annotations__", {})
        return {name: _resolved(hint, function) for name, hint in raw.items()}


def _resolved(hint: Any, function: Callable[..., Any]) -> Any:
    holder = type("Holder", (), {"__annotations__": {"hint": hint}})
    scope = vars(sys.modules[function.__module__])
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)["hint"]
    except (NameError, TypeError, AttributeError):
        return Any
