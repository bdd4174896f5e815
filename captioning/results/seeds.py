"""Runs of one config that differ in the seed alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from captioning.results.run_folder import FREE_KEYS, NAME_KEYS, OFF, flat, is_below

# Keys in which seeds of one config may differ.
OF_A_SEED = (*FREE_KEYS, *NAME_KEYS, "seed", "branch_from", "tracked")


def changed_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Both values of settings by key that differ in more than the seed, the data's folders too.

    Args:
        first, second: configs of runs as plain values.
    """
    one, other = flat(dict(first)), flat(dict(second))
    seeds = str(one.get("seed")), str(other.get("seed"))
    return {
        key: [one.get(key), other.get(key)]
        for key in sorted(one | other)
        if one.get(key) != other.get(key)
        and not is_below(key, OF_A_SEED)
        and not (one.get(key) in OFF and other.get(key) in OFF)  # newer than one of them
        and _of_seed(key, one.get(key), seeds[0]) != _of_seed(key, other.get(key), seeds[1])
    }


def _of_seed(key: str, value: Any, seed: str) -> str:
    """A value without the run's seed: that of a part, or in the name of a folder that is read."""
    if key.endswith(".seed") and str(value) == seed:
        return "SEED"
    return re.sub(rf"seed_?{re.escape(seed)}\b", "SEED", str(value))
