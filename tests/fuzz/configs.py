"""Keys and values of configs, and command lines: told in lines by the key that is wrong."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException
from hypothesis import strategies as st
from omegaconf import DictConfig

from captioning.commands.hydra_errors import explain_hydra_error
from captioning.commands.main import COMMANDS
from captioning.config.check import check_config
from captioning.config.check.check import resolved
from captioning.config.compose import compose_config
from captioning.training.preflight import settled
from tests.contracts import test_config_values as values
from tests.fuzz.harness import Subject, Target
from tests.fuzz.mutations import Draw

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ODD: tuple[Any, ...] = (
    *(None, "abc", "", -1, 0, 1.5, math.nan, math.inf, -math.inf, [], {}, True, 10**30, 2**63),
    *("a" * 5000, "../x", "/etc/passwd", "\0", "${seed}", "???", {"_target_": "os.system"}),
    *(
        {"_target_": "builtins.eval", "_args_": ["1"]},
        [[[]]],
        {"a": {"b": None}},
        "1e400",
        "\ud800",
    ),
)


@functools.lru_cache
def composed(name: str) -> tuple[dict[str, Any], Callable[..., Any], list[tuple[Any, ...]]]:
    """A command's resolved values, the schema of its keys, and the places of its values."""
    command, settings, overrides = values.COMMANDS[name]
    config = compose_config(command, overrides=[*overrides])
    if "trainer" in config:
        config = settled(config)
    plain, _ = resolved(config)
    return plain, settings, [keys for keys, _ in values.leaves(plain)]


def configs(folder: Path) -> Subject:
    """The good configs; errors name the key."""

    def call() -> None:
        plain, settings, _ = composed("defaults")
        check_config(DictConfig(plain), settings)

    return Subject(call=call, files=[])


def wrong_value(subject: Subject, draw: Draw) -> Callable[[], object]:
    """A value anywhere in the config of any command is replaced, removed or joined by another."""
    plain, settings, places = composed(draw(st.sampled_from(sorted(values.COMMANDS))))
    keys = draw(st.sampled_from(places))
    new = draw(st.sampled_from(ODD) | PLAIN | st.lists(PLAIN, max_size=3))
    changed = copy.deepcopy(plain)
    node = changed
    for key in keys[:-1]:
        node = node[key]
    kind, named = draw(st.integers(0, 3)), [str(keys[0])]
    if new == "${seed}":  # a wrong value is told by the key that it comes from
        named.append("seed")
    if kind == 0 and isinstance(node, dict):
        named.append(draw(st.sampled_from(("odd", "_target_", "_partial_", ""))))
        node[named[-1]] = new
    elif kind == 1 and isinstance(node, dict):
        del node[keys[-1]]
    else:
        node[keys[-1]] = new

    def call() -> None:
        try:
            check_config(DictConfig(changed), settings)
        except ValueError as error:
            _check_lines(str(error), [word for word in named if word])

    return call


def _check_lines(told: str, keys: list[str]) -> None:
    """One of the lines names a key that was changed, or one above it."""
    lines = told.splitlines()
    assert lines, "nothing is said"
    assert len(lines) < 40, f"{len(lines)} lines for one value"
    named = (*keys, "_target_: ", "configs may name")
    assert any(word in line for line in lines for word in named), f"no {keys} in {told[:200]!r}"


def command_line(subject: Subject, draw: Draw) -> Callable[[], object]:
    """An override of any text."""
    _, _, places = composed("defaults")
    keys = [str(key) for key in draw(st.sampled_from(places)) if isinstance(key, str)]
    name = ".".join(keys) or draw(st.text(max_size=6))
    value = draw(
        st.text(max_size=12)
        | st.sampled_from(("{", "[1,", "${x}", "${oc.env:X}", "'a", '"', "a=b", "@x", "null", "~"))
        | st.sampled_from(ODD).map(lambda odd: yaml.dump(odd, default_flow_style=True).strip())
    )
    prefix = draw(st.sampled_from(("", "", "+", "++", "~")))
    override = f"{prefix}{name}={value}" if draw(st.integers(0, 4)) else f"{prefix}{value}"

    def call() -> None:
        try:
            compose_config("train", [override])
        except (HydraException, ValueError) as error:
            told = explain_hydra_error(error, name=COMMANDS["train"].config, overrides=[override])
            assert told.strip(), "nothing is said"
            assert "\n" not in told, f"several lines: {told[:100]!r}"

    return call


TARGETS = [
    Target(name="values of configs", make=configs, pick=wrong_value, share=1.5),
    Target(name="command lines", make=configs, pick=command_line, share=0.2),
]
