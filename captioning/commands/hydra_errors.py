"""Explains in one line why Hydra refuses a command line, with the nearest key or choice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from captioning.config_check.rules import nearest
from captioning.configuration import compose_config

_KEY = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")
_WORDS = re.compile(r"\s+")


def explain_hydra_error(error: Exception, *, name: str, overrides: Sequence[str]) -> str:
    """One line of what is wrong with a command line.

    Args:
        error: of composing a config: a ``HydraException``, or a ``ValueError`` of Hydra's.
        name: the command's config.
        overrides: the command line.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = str(error.missing_cfg_file).rpartition("/")
        options = list(error.options or [])
        hint = nearest(choice, options)
        known = f"; there are {', '.join(options)}" if options else ""
        return f"{group}={choice}: there is no such choice{hint or known}"
    if "Config group override must be" in str(error):
        key = next((o.partition("=")[0] for o in overrides if o.endswith("=null")), "a group")
        return f"{key}: must be a choice of the group, got null"
    match = _KEY.match(str(error))
    if match is None:
        return _WORDS.sub(" ", str(error).split("\nSee http")[0]).strip()
    key = match[1]
    hint = nearest(key, _known_keys(name, [o for o in overrides if not _is_for(o, key)]))
    return f"{key}: there is no such key{hint or f'; a new one is added by +{key}=VALUE'}"


def _is_for(override: str, key: str) -> bool:
    return override.lstrip("+~").partition("=")[0].partition("@")[0] == key.partition("@")[0]


def _known_keys(name: str, overrides: Sequence[str]) -> list[str]:
    """Keys and groups of the config with the other overrides, or else of the default config."""
    GlobalHydra.instance().clear()
    try:
        config = compose_config(name, overrides, return_hydra_config=True)
    except HydraException:
        config = compose_config(name, return_hydra_config=True)
    groups = [group for group in config.hydra.runtime.choices if not group.startswith("hydra/")]
    plain = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    return [*groups, *_keys(plain)]


def _keys(config: DictConfig, before: str = "") -> Iterator[str]:
    for key in config:
        yield f"{before}{key}"
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not (node._is_interpolation() or node._is_missing()):
            yield from _keys(node, f"{before}{key}.")
