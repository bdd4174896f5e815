"""The one place where configs become objects."""

from __future__ import annotations

from functools import partial
from typing import Any

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig

from captioning.plugins import check_loadable


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
            `captioning.plugins`), or its arguments do not fit.
    """
    check_loadable(config)
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
