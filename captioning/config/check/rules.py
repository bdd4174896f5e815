"""Check a plain value against an annotation, and describe the annotation's rule in words."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, is_typeddict

import annotated_types

from captioning.config.ranges import alternatives, is_group, unwrapped

MISSING = "???"
SEQUENCES = (list, tuple, set, frozenset, Sequence, Collection, Iterable, AbstractSet)
LARGEST = 2**63 - 1
PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
COMPARISONS = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
LIMITS = {"ge": "of at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


def is_sequence(annotation: Any) -> bool:
    """Whether an annotation accepts lists of a config."""
    return (get_origin(annotation) or annotation) in SEQUENCES


def is_mapping(annotation: Any) -> bool:
    """Whether an annotation accepts mappings of a config."""
    return has_keys(annotation) or (get_origin(annotation) or annotation) in (dict, Mapping)


def has_keys(annotation: Any) -> bool:
    """Whether an annotation lists the keys of a mapping."""
    return is_typeddict(annotation) or is_group(annotation)


def is_allowed(value: Any, annotation: Any) -> bool:
    """Whether one alternative of an annotation allows a value that holds no components."""
    return _is_a(value, unwrapped(annotation)[0]) and meets_constraints(value, annotation)


def _is_a(value: Any, base: Any) -> bool:
    if base is None or base is type(None):
        return value is None
    if get_origin(base) is Literal:
        # 1 == True, but true must not match a numeric choice
        return any(value == choice and type(value) is type(choice) for choice in get_args(base))
    if type(value) is int and not fits(value):
        return False
    if base is float:
        return type(value) in (int, float) and math.isfinite(value)
    if base in (int, bool, str):
        return type(value) is base
    return base is Path and isinstance(value, str | Path)


def fits(value: Any) -> bool:
    """Whether torch and NumPy can represent a number; only large whole numbers fail."""
    return type(value) is not int or abs(value) <= LARGEST


def meets_constraints(value: Any, annotation: Any) -> bool:
    """Whether a value meets an annotation's constraints; unknown constraints are ignored."""
    return all(_meets(value, constraint) for constraint in unwrapped(annotation)[1])


def _meets(value: Any, constraint: Any) -> bool:
    if isinstance(constraint, annotated_types.Len | annotated_types.MinLen):
        return len(value) >= constraint.min_length
    if isinstance(constraint, annotated_types.Predicate):
        return constraint.func(value)
    limits = {name: getattr(constraint, name, None) for name in LIMITS}
    return all(limit is None or COMPARISONS[name](value, limit) for name, limit in limits.items())


def described(annotation: Any) -> str:
    """Describe an annotation's rule, such as "a whole number of at least 1, or null"."""
    members = alternatives(annotation)
    if Path in members:  # a path may always be text
        members = [member for member in members if member is not str]
    choices = choices_of(annotation)
    words = [_described(member) for member in members if get_origin(member) is not Literal]
    if choices:
        words.insert(0, choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")
    return _joined(list(dict.fromkeys(words)))


def choices_of(annotation: Any) -> list[str]:
    """Return all ``Literal`` choices in a union, as typed on the command line."""
    literals = [unwrapped(member)[0] for member in alternatives(annotation)]
    choices = [c for base in literals if get_origin(base) is Literal for c in get_args(base)]
    return list(dict.fromkeys(shown(choice) for choice in choices))


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _described(annotation: Any) -> str:
    base, constraints = unwrapped(annotation)
    words = _named(base)
    limits = [
        text.format(limit)
        for constraint in constraints
        for name, text in LIMITS.items()
        if (limit := getattr(constraint, name, None)) is not None
    ]
    for constraint in constraints:
        if isinstance(constraint, annotated_types.Predicate):
            return f"{(constraint.func.__doc__ or words).rstrip('.')}"
        if isinstance(constraint, annotated_types.Len | annotated_types.MinLen):
            return f"{words} that is not empty"
    return f"{words} {' and '.join(limits)}" if limits else words


def _named(base: Any) -> str:
    if base is None or base is type(None):
        return "null"
    if base in PLAIN:
        return PLAIN[base]
    if base is Path:
        return "a path"
    if is_sequence(base):
        content = [item for item in get_args(base) if item is not Ellipsis]
        return f"a list of {described(content[0])}" if len(content) == 1 else "a list"
    if is_mapping(base):
        return "a mapping"
    name = getattr(base, "__name__", str(base))
    return "a mapping with _target_" + ("" if name in ("Callable", "DictConfig") else f" ({name})")


def shown(value: Any) -> str:
    """Format a value as on the command line, shortened."""
    if isinstance(value, str) and value and value == value.strip():
        text = value
    else:
        text = json.dumps(value, default=str).replace("NaN", "nan").replace("Infinity", "inf")
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: Any, known: Iterable[Any], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean NAME?" with the most similar known name; empty if none is similar."""
    close = get_close_matches(str(name), [str(item) for item in known], n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""
