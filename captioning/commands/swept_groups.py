"""Pass keys that only a sweep's choices have to its jobs: ``curation.select.ratio``.

Hydra first composes a sweep's config without the swept groups, and rejects keys of their choices.
Overrides in ``hydra.sweeper.params`` are only read by the jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode

from captioning.config.compose import composing, quoted, search_path

# What Hydra says of a key that the config has not.
UNKNOWN_KEY = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")


def with_keys_of_jobs(
    name: str, overrides: Sequence[str], config_dir: str | None = None
) -> list[str]:
    """Command line of a sweep in which keys unknown to its own config are passed to its jobs.

    A command line with other errors, which Hydra reports, is unchanged.

    Args:
        name: the command's config.
        overrides: the command line.
        config_dir: folder of the user's own configs, ``--config-dir``.
    """
    kept, values = list(overrides), {}
    while key := _unknown_key(kept, name, config_dir):
        lines = [line for line in kept if line.partition("=")[0] == key]
        if not lines or key.startswith("hydra."):
            break
        kept = [line for line in kept if line not in lines]
        value = lines[-1].partition("=")[2]
        if "${" in value:  # params would be resolved with the sweep's config
            kept.append(f"{key}=choice({value})")
        else:
            values[key] = quoted(value)
    params = ", ".join(f"{key}: {value}" for key, value in values.items())
    return [*kept, f"+hydra.sweeper={{params: {{{params}}}}}"] if values else kept


def _unknown_key(overrides: Sequence[str], name: str, config_dir: str | None) -> str:
    """First key that the sweep's own config rejects; empty if there is none."""
    try:
        with composing():
            GlobalHydra.instance().config_loader().load_configuration(
                name, [*search_path(config_dir), *overrides], run_mode=RunMode.MULTIRUN
            )
    except HydraException as error:
        match = UNKNOWN_KEY.match(str(error))
        return match[1] if match else ""
    return ""
