"""Explain in one line why Hydra rejects a command line, with the nearest key or choice."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from captioning.commands.hydra_help import choices
from captioning.commands.swept_groups import UNKNOWN_KEY
from captioning.config.compose import compose_config, search_path
from captioning.runtime.extras import install_command
from captioning.training.reserved import RESERVED

# Groups of which several choices may be taken, each with its keys below GROUP.CHOICE.
OF_SEVERAL = ("steps", "callbacks", "extra_metrics", "logger")
# Launchers of packages that need not be installed.
OF_CLUSTER = ("joblib", "submitit_local", "submitit_slurm")
# Parts of Hydra's that have keys of their own where another than the basic one is chosen.
OF_PACKAGES = {
    "hydra.launcher": f"hydra/launcher=NAME, where NAME is slurm, {', '.join(OF_CLUSTER)}",
    "hydra.sweeper": "hydra/sweeper=NAME of an installed sweeper, such as optuna",
}
_BELOW = re.compile(r"Key '([^']+)' is not in struct")
_WORDS = re.compile(r"\s+")


def explain_hydra_error(
    error: Exception, *, name: str, overrides: Sequence[str], config_dir: str | None = None
) -> str:
    """Problem with a command line, in one line.

    Args:
        error: the error from composing a config: a ``HydraException``, or a ``ValueError`` from
            Hydra.
        name: the command's config.
        overrides: the command line.
        config_dir: folder of the user's own configs, ``--config-dir``.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _no_such_choice(str(error.missing_cfg_file), overrides, config_dir)
    if "Config group override must be" in str(error):
        key = next((o.partition("=")[0] for o in overrides if o.endswith("=null")), "a group")
        return f"{key}: must be a choice of the group, got null"
    match = UNKNOWN_KEY.match(str(error))
    if match is None and (unread := _unread(overrides)):
        return _without_value(unread, name) if "=" not in unread else _to_quote(unread)
    if match is None:
        return _WORDS.sub(" ", str(error).split("\nSee http")[0]).strip()
    key, below = match[1], _BELOW.search(str(error.__cause__))
    if reserved := RESERVED.get(key.removeprefix("trainer.")):
        return f"{key} is set by the run: {reserved}"
    others = [*search_path(config_dir), *(o for o in overrides if not _is_for(o, key))]
    if key.startswith("hydra."):
        return _explain_key_of_hydra(key, name, others)
    known = _known_keys(name, others)
    has_policy = "curation.callback" not in known or "curation.callback.policy" in known
    if key.startswith(("curation/", "curation.")) and not has_policy:
        return f"{key}: curation=none has no such key; choose a policy, such as curation=remove"
    if choice := _to_choose_first(key, known, overrides, config_dir):
        return f"{key}: there is no such key without the choice {choice}"
    if below and key in known:
        key = f"{key}.{below[1]}"
    if hint := _nearest_key(key, known):
        return f"{key}: there is no such key; {hint}"
    added = f"a new one is added by +{key}=VALUE"
    return "; ".join(
        filter(None, [f"{key}: there is no such key", _keys_beside(key, known), added])
    )


def _no_such_choice(missing: str, overrides: Sequence[str], config_dir: str | None) -> str:
    """Message for a choice ``GROUP/CHOICE`` that does not exist, with the nearest choices."""
    group, _, choice = missing.rpartition("/")
    for override in overrides:  # where the choice itself has a folder: experiment=ssa/flickr30k
        chosen, _, value = override.partition("=")
        if f"{chosen.partition('@')[0]}/{value}" == missing:
            group, choice = chosen.partition("@")[0], value
    options = choices(group, config_dir)
    hint = _nearest_choice(choice, options)
    known = f"; there are {', '.join(options)}" if options else ""
    if group == "hydra/launcher":
        known = f"; launchers belong to the extra 'cluster': {install_command('cluster')}"
        hint = hint if choice not in OF_CLUSTER else ""
    return f"{group}={choice}: there is no such choice{hint or known}"


def _explain_key_of_hydra(key: str, name: str, overrides: Sequence[str]) -> str:
    """Message for an unknown key of Hydra's own part, such as of a launcher."""
    config = _composed(name, overrides)
    values: Any = OmegaConf.to_container(config.hydra, resolve=False)
    known = [other for other in _keys(values, "hydra.") if "._" not in other]
    part = ".".join(key.split(".")[:2])
    chosen = config.hydra.runtime.choices.get(part.replace(".", "/"))
    if part in OF_PACKAGES and chosen == "basic":
        return f"{key}: there is no such key without the choice {OF_PACKAGES[part]}"
    of = "" if chosen is None else f" of {part.replace('.', '/')}={chosen}"
    hint = _nearest_key(key, known) or _keys_beside(key, known)
    return f"{key}: there is no such key{of}" + (f"; {hint}" if hint else "")


def _unread(overrides: Sequence[str]) -> str:
    """First override that Hydra cannot parse; empty if it parses all."""
    parser = OverridesParser.create()
    for override in overrides:
        try:
            parser.parse_override(override)
        except HydraException:
            return override
    return ""


def _to_quote(override: str) -> str:
    """How to quote a value with special characters of Hydra, such as brackets."""
    key, _, value = override.partition("=")
    if value.startswith(("[", "{")):
        example = shlex.quote(f'{key}=["a (b)", c]')
        return f"{key}: {value} cannot be read; text with brackets in it needs quotes: {example}"
    plain = value.strip("'\"").replace("\\", "\\\\").replace('"', '\\"')
    quoted = shlex.quote(f'{key}="{plain}"')
    return f"{key}: {value} cannot be read; text with such characters needs quotes: {quoted}"


def _without_value(word: str, name: str) -> str:
    """How to write a word without a value, which other commands take as a run folder."""
    known = _known_keys(name, [])
    if word in known:
        return f"{word} has no value: write {word}=VALUE"
    remedy = f"run={word}" if "run" in known else "KEY=VALUE"
    return f"{word}: settings are KEY=VALUE; write {remedy}"


def _to_choose_first(
    key: str, known: Sequence[str], overrides: Sequence[str], config_dir: str | None
) -> str:
    """The choice that must be made first for a key of a group, such as a search or a data step."""
    group, _, rest = key.partition(".")
    choice, options = rest.partition(".")[0], choices(group, config_dir) if rest else []
    if group not in OF_SEVERAL or choice not in options:
        is_chosen = any(other.startswith(f"{group}.") for other in known)
        return f"{group}=NAME, of {', '.join(options)}" if options and not is_chosen else ""
    if f"{group}.{choice}" in known:
        return ""
    lists = [value for name, _, value in (o.partition("=") for o in overrides) if name == group]
    chosen = re.findall(r"[^\[\], ]+", lists[-1]) if lists else []
    if choice in chosen:
        return ""
    # keys below it without such an override: of an experiment or of the command's defaults
    others = chosen or ["..." for other in known if _group(other) == group][:1]
    return f"{group}=[{','.join([*others, choice])}]"


def _nearest_key(key: str, known: Sequence[str]) -> str:
    """Return keys with the same last part if there are few, otherwise keys of similar spelling."""
    group, _, last = key.rpartition(".")
    same = [other for other in known if other.endswith(f".{last}")]
    depth = min((other.count(".") for other in same), default=0)
    same = [other for other in same if other.count(".") == depth]  # not those that take its value
    beside = {other.rpartition(".")[2]: other for other in known if _group(other) == group}
    near = get_close_matches(key, same, n=1, cutoff=0.85) or (same if len(same) <= 2 else [])
    near = near or [beside[word] for word in get_close_matches(last, beside, n=1)]
    others = [other for other in known if not key.startswith(f"{other}.")]
    near = near or get_close_matches(key, others, n=1, cutoff=0.85)
    near = near or same[:3]
    if not near:
        return ""
    top = key.partition(".")[0]
    is_elsewhere = top not in {other.partition(".")[0] for other in near}
    beside_it = _keys_beside(key, known) if is_elsewhere else ""
    return f"did you mean {' or '.join(near)}? {beside_it}".rstrip()


def _keys_beside(key: str, known: Sequence[str]) -> str:
    """Keys of the same group, if they are few."""
    group = _group(key)
    names = [other.rpartition(".")[2] for other in known if _group(other) == group]
    names = [name for name in names if not name.startswith("_")]
    return f"{group} has {', '.join(names)}" if group and 0 < len(names) <= 20 else ""


def _nearest_choice(choice: str, options: Sequence[str]) -> str:
    """Nearest choice; in subfolders also by the name after the folder."""
    names = {option.rpartition("/")[2]: option for option in options}
    near = get_close_matches(choice, options, n=1)
    near = near or [names[name] for name in get_close_matches(choice, names, n=1)]
    return f"; did you mean {near[0]}?" if near else ""


def _group(key: str) -> str:
    return key.rpartition(".")[0]


def _is_for(override: str, key: str) -> bool:
    return override.lstrip("+~").partition("=")[0].partition("@")[0] == key.partition("@")[0]


def _known_keys(name: str, overrides: Sequence[str]) -> list[str]:
    """Keys and groups of the config with the other overrides, or else of the default config."""
    config = _composed(name, overrides)
    groups = [group for group in config.hydra.runtime.choices if not group.startswith("hydra/")]
    plain: Any = OmegaConf.to_container(config, resolve=False)
    return [*groups, *_keys({key: value for key, value in plain.items() if key != "hydra"})]


def _composed(name: str, overrides: Sequence[str]) -> DictConfig:
    """Config with ``hydra``; without the overrides if they are wrong, too."""
    GlobalHydra.instance().clear()
    try:
        return compose_config(name, overrides, return_hydra_config=True)
    except HydraException:
        return compose_config(name, return_hydra_config=True)


def _keys(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """All keys of a config, without following references."""
    for key, value in values.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{before}{key}.")
