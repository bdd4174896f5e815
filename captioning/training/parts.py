"""The one place where configs become objects."""

from __future__ import annotations

from typing import Any

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig

from captioning.plugins import check_targets


def build_part(config: DictConfig, *args: Any, **kwargs: Any) -> Any:
    """Call what ``config._target_`` names, with its keys as arguments.

    Hydra wraps what the call raises into an error of its own; here the call's error comes through,
    as it names the file or key that was wrong and the remedy.

    Raises:
        ValueError: ``_target_`` names nothing, or what configs may not name (see
            `captioning.plugins`), or its arguments do not fit.
    """
    check_targets(config)
    try:
        return hydra.utils.instantiate(config, *args, **kwargs)
    except InstantiationException as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, TypeError):
            raise error.__cause__ from None
        raise ValueError(f"cannot build {config.get('_target_')}: {error}") from error
