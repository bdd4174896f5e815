"""The values of a config, with interpolations resolved, and the keys that they come from."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from captioning.config.check.rules import MISSING

# One key alone, relative to the key's own place with leading dots: ${seed}, ${..train.size}; or
# with what stands for a key that may be missing: ${oc.select:seed,0}
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?(\.*)([\w./-]+)(?:,[^${}]*)?\}")
MAX_STEPS = 20  # from one key to the next; a config that refers in a circle does not resolve


def resolved(config: DictConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """The plain values, and the errors of interpolations, by key.

    The values of a key at the top that cannot be resolved are left out; so is ``hydra``.
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


def source_of(key: str, config: DictConfig) -> str:
    """The key that a value comes from: that of a setting which others refer to."""
    plain = OmegaConf.to_container(config, resolve=False)
    for _ in range(MAX_STEPS):
        referred = _referred(key, plain)
        if referred is None:
            return key
        key = referred
    return key


def _referred(key: str, root: Any) -> str | None:
    """The key with its first reference to another one replaced by that one."""
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
