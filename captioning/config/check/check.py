"""Check a resolved config against the signatures of the components that it builds."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Self,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from captioning.config.check.rules import (
    LARGEST,
    MISSING,
    choices_of,
    described,
    fits,
    has_keys,
    is_allowed,
    is_mapping,
    is_sequence,
    meets_constraints,
    nearest,
    shown,
)
from captioning.config.plugins import check_targets, locate
from captioning.config.ranges import (
    AlsoTakes,
    ArgumentsOf,
    Name,
    NumThreads,
    PositiveInt,
    Seed,
    alternatives,
    is_group,
    unwrapped,
)

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
TARGET = "_target_"
# Groups may have keys only for references from other keys, unless the name looks like a typo.
MISSPELT, MISSPELT_AT_TOP, OTHERWISE = 0.85, 0.8, 0.6
# One reference alone, relative with leading dots: ${seed}, ${..train.size}; or with a default
# for a missing key: ${oc.select:seed,0}
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?(\.*)([\w./-]+)(?:,[^${}]*)?\}")
MAX_STEPS = 20  # from one key to the next; a config that refers in a circle does not resolve


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parameters of a class or function.

    Attributes:
        annotations: annotations by name; ``Any`` if missing or unresolvable.
        required: names of parameters without default.
        takes_further_keywords: whether the function accepts ``**kwargs``.
    """

    annotations: dict[str, Any]
    required: frozenset[str]
    takes_further_keywords: bool


# Keys of a component that belong to Hydra.
HYDRA_KEYS = Signature(
    annotations={
        TARGET: str,
        "_partial_": bool,
        "_recursive_": bool,
        "_convert_": Literal["none", "partial", "object", "all"],
        "_args_": list,
    },
    required=frozenset(),
    takes_further_keywords=False,
)
NO_KEYS = Signature(annotations={}, required=frozenset(), takes_further_keywords=False)


class Common(TypedDict, total=False):
    """Keys that every command's config may have, even if the command's task does not use them."""

    paths: Mapping[str, Name]
    plugins: Sequence[Name]
    seed: Seed
    threads: NumThreads | None
    first_images: PositiveInt | None


class Problem(NamedTuple):
    """A wrong value: its full key, and a message with the rule and the value."""

    key: str
    text: str


def check_config(config: DictConfig, settings: Callable[..., Any] | None = None) -> None:
    """Raise one error that lists all wrong values of a config.

    Every mapping with ``_target_`` is checked against the signature of its target, with the ranges
    beside the types (`captioning.config.ranges`). Frozen settings records are built, because they
    check their fields against each other; nothing else is built, and no data is read.

    Args:
        config: a command's config; the key ``hydra`` is ignored.
        settings: the command's task, whose arguments are the config's keys; or an
            `AbstractSettings` or ``TypedDict``; None: check only mappings with ``_target_``.
            An optional key may hold unresolvable references, because some uses of the command do
            not need it.

    Raises:
        ValueError: one line per wrong value: key, rule, value and, for a misspelt name, the nearest
            known name. A referenced value names the key that it comes from. Also a ``_target_``
            that configs may not name, see `captioning.config.plugins`.
    """
    values, unresolved = resolved(config)
    check_targets(values)
    left_out = {key.partition(".")[0] for key in unresolved}
    written = OmegaConf.to_container(config, resolve=False)
    schema = schema_of(settings) if settings else NO_KEYS
    lines = {k: text for k, text in unresolved.items() if k.partition(".")[0] in schema.required}
    for problem in _check_keys(values, schema, "") if settings else _check_content(values, ""):
        if problem.key not in left_out:
            lines.setdefault(source_of(problem.key, written), problem.text)
    if lines:
        raise ValueError("\n".join(f"{key}: {text}" for key, text in lines.items()))


def problems(value: Any, annotation: Any, key: str, *, nested: bool = False) -> list[Problem]:
    """Return all problems of a value.

    Args:
        value: plain value, as read from YAML.
        annotation: annotation of the argument that receives the value.
        key: full key of the value.
        nested: whether it belongs to a component that gets all its arguments from the config.
    """
    members = alternatives(annotation)
    if value == MISSING:
        rule = "" if annotation is Any else f" ({described(annotation)})"
        return [Problem(key, f"must be given{rule}")]
    if isinstance(value, Mapping) and TARGET in value:
        marks = [mark for member in members for mark in unwrapped(member)[1]]
        return list(_check_part(value, key, marks, nested=nested))
    problems_of_members = [_check_member(value, member, key) for member in members]
    if not all(problems_of_members):
        return []
    inner = [
        lines
        for lines, member in zip(problems_of_members, members, strict=True)
        if _is_same_container(value, member)
    ]
    return inner[0] if inner else [_wrong(value, annotation, key)]


def _wrong(value: Any, annotation: Any, key: str) -> Problem:
    hint = nearest(value, choices_of(annotation)) if isinstance(value, str) else ""
    if not fits(value):
        hint = f"; whole numbers must be at most {LARGEST}"
    return Problem(key, f"must be {described(annotation)}, got {shown(value)}{hint}")


def _is_same_container(value: Any, annotation: Any) -> bool:
    """Whether value and annotation have the same container type, so only the content is wrong."""
    base, _ = unwrapped(annotation)
    return (isinstance(value, Mapping) and is_mapping(base)) or (
        isinstance(value, list) and is_sequence(base)
    )


def _check_member(value: Any, annotation: Any, key: str) -> list[Problem]:
    """Return the problems of a value for one member of a union."""
    base, _ = unwrapped(annotation)
    if base in (Any, object):
        return list(_check_content(value, key))
    if isinstance(value, Mapping) and is_mapping(base):
        return list(_check_mapping(value, annotation, key))
    if isinstance(value, list) and is_sequence(base):
        return list(_check_list(value, annotation, key))
    return [] if is_allowed(value, annotation) else [_wrong(value, annotation, key)]


def _check_content(value: Any, key: str) -> Iterator[Problem]:
    """Yield the problems of components nested in a value without annotation."""
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for name, content in items:
        if content != MISSING:
            yield from problems(content, Any, _joined(key, name))


def _joined(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


def _check_list(values: list[Any], annotation: Any, key: str) -> Iterator[Problem]:
    base, _ = unwrapped(annotation)
    content = get_args(base)
    fixed = content if get_origin(base) is tuple and Ellipsis not in content else ()
    if (fixed and len(values) != len(fixed)) or not meets_constraints(values, annotation):
        yield _wrong(values, annotation, key)
        return
    for number, value in enumerate(values):
        kind = fixed[number] if fixed else (content[0] if content else Any)
        yield from problems(value, kind, f"{key}.{number}", nested=True)


def _check_mapping(values: Mapping[str, Any], annotation: Any, key: str) -> Iterator[Problem]:
    base, constraints = unwrapped(annotation)
    targets = [mark.target for mark in constraints if type(mark) is ArgumentsOf]
    keys = next((kind for kind in (base, *targets) if has_keys(kind)), None)
    functions = [target for target in targets if not has_keys(target)]
    if keys or functions:
        group = _group(keys) if keys else NO_KEYS
        signature = _with_arguments(group, [signature_of(target) for target in functions])
        key_problems = list(_check_keys(values, signature, key))
        records = [] if keys else functions
        yield from key_problems or (
            p for target in records for p in _check_record(target, values, key)
        )
        return
    names, content = get_args(base) or (Any, Any)
    for name, value in values.items():
        full = f"{key}.{name}"
        if names not in (str, Any):
            yield from problems(name, names, full)
        yield from problems(value, content, full, nested=True)


@functools.cache
def schema_of(settings: Callable[..., Any]) -> Signature:
    """Return the keys of a command's config, from the command's task or a ``TypedDict``.

    The config may have further top-level keys for references. Settings records of a task (frozen
    dataclasses) are mappings in the config.
    """
    signature = _group(settings) if has_keys(settings) else signature_of(settings)
    taken = {name: _as_mapping(hint) for name, hint in signature.annotations.items()}
    annotations = _group(Common).annotations | taken
    return replace(signature, annotations=annotations, takes_further_keywords=True)


def _as_mapping(hint: Any) -> Any:
    """Replace settings records in an annotation by mappings."""
    members = [
        Annotated[Mapping[str, Any], ArgumentsOf(member)]
        if is_dataclass(member) and not is_group(member)
        else member
        for member in alternatives(hint)
    ]
    return functools.reduce(operator.or_, members)


@functools.cache
def _group(base: Any) -> Signature:
    """Return a settings group or ``TypedDict`` as a `Signature`."""
    hints = get_type_hints(base, include_extras=True)
    if is_group(base):
        given = [f.name for f in fields(base) if f.default is f.default_factory is NO_DEFAULT]
        hints = {name: hints[name] for name in base.known()}
        return Signature(annotations=hints, required=frozenset(given), takes_further_keywords=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return Signature(
        annotations={n: get_args(h)[0] if n in optional else h for n, h in hints.items()},
        required=frozenset(hints) - optional if base.__total__ else frozenset(),
        takes_further_keywords=True,
    )


def _with_arguments(group: Signature, functions: Sequence[Signature]) -> Signature:
    """Add the arguments of functions that take part of a group's keys to the group's keys."""
    if not functions:
        return group
    annotations = {n: h for function in functions for n, h in function.annotations.items()}
    return Signature(
        annotations=annotations | group.annotations,
        required=group.required,
        takes_further_keywords=any(function.takes_further_keywords for function in functions),
    )


def _check_part(
    node: Mapping[str, Any], key: str, marks: Sequence[Any], *, nested: bool
) -> Iterator[Problem]:
    """Yield the problems of a component's ``_target_`` and its arguments."""
    try:
        target = locate(str(node[TARGET] or "null"))
        if not callable(target):
            raise ValueError("_target_ must be a class or function")
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        names = dir(error.obj) if isinstance(error, AttributeError) else ()
        hint = nearest(str(node[TARGET]).rpartition(".")[2], names)
        text = f"cannot import {shown(node[TARGET])}: {error}{hint}"
        yield Problem(f"{key}.{TARGET}", text)
        return
    of_hydra = {name: value for name, value in node.items() if name.startswith("_")}
    yield from _check_keys(of_hydra, HYDRA_KEYS, key)
    signature = signature_of(target)
    arguments = {name: value for name, value in node.items() if not name.startswith("_")}
    complete = nested and not node.get("_partial_") and not node.get("_args_")
    extra_annotations = [_group(mark.keys).annotations for mark in marks if type(mark) is AlsoTakes]
    annotations = {
        n: h for hints in (signature.annotations, *extra_annotations) for n, h in hints.items()
    }
    required = signature.required if complete else frozenset()
    signature = replace(signature, annotations=annotations, required=required)
    key_problems = list(_check_keys(arguments, signature, key, nested=True))
    yield from key_problems or _check_record(target, arguments, key)


def _check_record(target: Any, arguments: Mapping[str, Any], key: str) -> Iterator[Problem]:
    """Yield the problems that a settings record raises about its fields when it is built."""
    build: Any = target
    of_record = is_dataclass(target) or is_dataclass(getattr(target, "__self__", None))
    complete = signature_of(target).required <= set(arguments)
    if not (of_record and complete) or any(map(_holds_parts, arguments.values())):
        return
    try:
        build(**arguments)
    except (ValueError, TypeError) as error:
        yield Problem(key, str(error))


def _holds_parts(value: Any) -> bool:
    if isinstance(value, Mapping):
        return TARGET in value or any(map(_holds_parts, value.values()))
    return isinstance(value, list) and any(map(_holds_parts, value))


def _check_keys(
    values: Mapping[str, Any], signature: Signature, key: str, *, nested: bool = False
) -> Iterator[Problem]:
    """Yield the problems of a mapping's keys and values."""
    known = signature.annotations
    for name, value in values.items():
        full = _joined(key, name)
        if name in known:
            yield from problems(value, known[name], full, nested=nested)
            continue
        cutoff = (
            (MISSPELT if key else MISSPELT_AT_TOP)
            if signature.takes_further_keywords
            else OTHERWISE
        )
        hint = nearest(name, known, cutoff=cutoff)
        if hint or not signature.takes_further_keywords:
            hint = hint or f"; choose from {', '.join(known) or 'none'}"
            yield Problem(full, f"there is no such key{hint}")
        else:
            yield from problems(value, Any, full)
    for name in sorted(signature.required - set(values)):
        yield Problem(_joined(key, name), f"must be given ({described(known[name])})")


@functools.cache
def signature_of(target: Callable[..., Any]) -> Signature:
    """Return a target's parameters, with those of base classes that receive its ``**kwargs``."""
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
    """Return the targets that receive a function's ``**kwargs``, if its annotation names them."""
    marks = [mark.target for mark in getattr(hint, "__metadata__", ()) if type(mark) is ArgumentsOf]
    return [function.__self__ if target is Self else target for target in marks]


def _arguments_of(targets: Sequence[Any]) -> dict[str, Any]:
    """Return the joint arguments of several targets, except arguments that are such a target."""
    hints = {n: h for target in targets for n, h in signature_of(target).annotations.items()}
    return {name: hint for name, hint in hints.items() if hint not in targets}


def _constructors(target: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the constructors that receive the keywords: the class's own, then its bases'."""
    if not inspect.isclass(target) or is_dataclass(target):
        yield target
        return
    constructors = [cls.__init__ for cls in target.__mro__ if "__init__" in vars(cls)]
    yield from constructors or [target]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolve annotations; names imported only for type checkers become ``Any``."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        raw = getattr(function, "__annotations__", {})
        return {name: _hint_of(hint, function) for name, hint in raw.items()}


def _hint_of(hint: Any, function: Callable[..., Any]) -> Any:
    holder = type("Holder", (), {"__annotations__": {"hint": hint}})
    scope = vars(sys.modules[function.__module__])
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)["hint"]
    except (NameError, TypeError, AttributeError):
        return Any


def resolved(config: DictConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a config's plain values, and the interpolation errors by key.

    Top-level keys that cannot be resolved are left out, and so is ``hydra``.
    """
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for key in config:
        if key == "hydra":
            continue
        if OmegaConf.is_missing(config, key):
            values[str(key)] = MISSING
            continue
        try:
            node = config[key]
            plain = OmegaConf.is_config(node)
            values[str(key)] = OmegaConf.to_container(node, resolve=True) if plain else node
        except OmegaConfBaseException as error:
            wrong[str(error.full_key or key)] = str(error).splitlines()[0]
    return values, wrong


def source_of(key: str, written: Any) -> str:
    """Return the key of the setting that a value refers to; without a reference, its own key.

    Args:
        key: key of the value.
        written: all settings as plain values, with unresolved references.
    """
    for _ in range(MAX_STEPS):
        referred = _referred(key, written)
        if referred is None:
            return key
        key = referred
    return key


def _referred(key: str, root: Any) -> str | None:
    """Replace the first part of a key that is a reference by the key it refers to, or None."""
    parts, plain = key.split("."), root
    for size, name in enumerate(parts, start=1):
        plain = _item(plain, name)
        if plain is None:
            return None
        match = _REFERENCE.fullmatch(plain) if isinstance(plain, str) else None
        if match:
            dots, path = len(match[1]), match[2].split(".")
            start = parts[: size - dots] if dots else []
            exists = _item(root, (start or path)[0]) is not None
            return ".".join([*start, *path, *parts[size:]]) if exists else None
    return None


def _item(container: Any, name: str) -> Any:
    if isinstance(container, dict):
        return container.get(name)
    if isinstance(container, list) and name.isdigit() and int(name) < len(container):
        return container[int(name)]
    return None
