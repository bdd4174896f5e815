"""The one place where configs become objects."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from captioning.config.plugins import FILE, check_loadable
from captioning.config.setting_error import AbstractSettingError, Setting

_ROOT = "root"  # of a data set, which its readers get under other names


def build_part(config: DictConfig, *args: Any, **kwargs: Any) -> Any:
    """Call what ``config._target_`` names, with its keys as arguments.

    Hydra wraps what the call raises into an error of its own; here the call's error comes through,
    as it names the file or key that was wrong and the remedy. Parts that are built already are
    handed over as they are: Hydra would turn those that are dataclasses into configs.

    Args:
        config: ``_target_`` and its arguments.
        *args: further positional arguments.
        **kwargs: further arguments; they win over those of the config. Names that begin with ``_``,
            such as ``_convert_``, are Hydra's own.

    Raises:
        ValueError: ``_target_`` names nothing, or what may not be built (see
            `captioning.config.plugins`), or its arguments do not fit.
        SettingError: of the part; its settings are worded as they are typed, see `typed`.
    """
    check_loadable(config)
    try:
        return _built(config, args, kwargs)
    except AbstractSettingError as error:
        raise error.worded(partial(typed, config)) from error


def typed(part: DictConfig, setting: Setting) -> str:
    """A part's argument as it is typed on the command line.

    An argument of ``data.train`` that comes from its group is ``data.bad_captions``, and one that
    the config has not is added by a plus. Of a run folder, the command that trained it takes it.

    Args:
        part: with ``_target_`` and its arguments, within the config of a command.
        setting: that the part names.
    """
    name, group, key = setting.name, part._get_parent(), part._get_full_key(setting.name)
    if isinstance(group, DictConfig) and name in part:
        other = name if name in group else _ROOT
        is_known = other in group and not OmegaConf.is_missing(group, other)
        if is_known and group[other] == part[name]:
            key = group._get_full_key(other)
    elif isinstance(group, DictConfig):
        key = f"+{key}"
    file = (part._get_root()._metadata.resolver_cache or {}).get(FILE)
    where = f" in the command that trained {Path(file).parent}" if file else ""
    return f"{key}={setting.value}{where}"


def _built(config: DictConfig, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    hydra_options = {key: kwargs.pop(key) for key in list(kwargs) if key.startswith("_")}
    try:
        if not args and not kwargs:
            return hydra.utils.instantiate(config, **hydra_options)
        part = hydra.utils.instantiate(config, _partial_=True, **hydra_options)
        return partial(part, *args, **kwargs) if config.get("_partial_") else part(*args, **kwargs)
    except InstantiationException as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, TypeError):
            raise error.__cause__ from None
        told = " ".join(str(error).split())  # Hydra's has several lines
        raise ValueError(f"cannot build {config.get('_target_')}: {told}") from error
    except TypeError as error:
        raise ValueError(f"cannot build {config.get('_target_')}: {error}") from error
