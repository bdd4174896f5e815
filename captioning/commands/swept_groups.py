"""Keys that only choices of a sweep have: ``curation.select.ratio`` of ``curation=track,remove``.

Hydra composes a sweep's config first without the groups that are swept, and refuses such keys. A
value that is itself one of a sweep of one, ``KEY=choice(VALUE)``, is looked at in the jobs alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode

from captioning.configuration import composing, search_path

# What Hydra says of a key that the config has not.
KEY = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")


def for_jobs_alone(
    name: str, overrides: Sequence[str], config_dir: str | None = None
) -> dict[str, str]:
    """The overrides that the sweep's own config has no key for, and what is to be given instead.

    Args:
        name: the command's config.
        overrides: the sweep's command line.
        config_dir: folder of the user's own configs, ``--config-dir``.

    Returns:
        Nothing where all is well, or where something else is wrong, which Hydra tells.
    """
    instead: dict[str, str] = {}
    while key := _unknown_key([instead.get(line, line) for line in overrides], name, config_dir):
        line = next((o for o in overrides if o.partition("=")[0] == key), None)
        if line is None or line in instead or key.startswith("hydra."):
            break
        instead[line] = f"{key}=choice({line.partition('=')[2] or repr('')})"
    return instead


def _unknown_key(overrides: Sequence[str], name: str, config_dir: str | None) -> str:
    """The first key that the sweep's own config refuses; empty where there is none."""
    try:
        with composing():
            GlobalHydra.instance().config_loader().load_configuration(
                name, [*search_path(config_dir), *overrides], run_mode=RunMode.MULTIRUN
            )
    except HydraException as error:
        match = KEY.match(str(error))
        return match[1] if match else ""
    return ""
