"""Load packaged policies by name, with command-line overrides and without a Hydra app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from hydra.errors import HydraException
from omegaconf import OmegaConf

from captioning.config.build import build_part
from captioning.config.check.check import check_config
from captioning.config.compose import compose_config
from curation.loop.policy import Policy

ONLINE = "OnlineProbe"


class Settings(TypedDict):
    """Config keys that `preset` validates."""

    curation: Callable[..., Any]


def preset(name: str, *overrides: str) -> Policy:
    """A policy of ``configs/curation``.

    ::

        preset("remove", "curation.select.ratio=0.05", "curation/score=siblings")

    Args:
        name: such as ``"remove"`` (``curation=NAME`` of ``captioning train``).
        *overrides: overrides of groups and keys below ``curation``, as on the command line; also
            groups placed there, such as ``similarity@curation.score=joint_space``.

    Raises:
        ValueError: no such policy, group or key, or a wrong value; or one that needs separate
            passes over the samples, which your own loop makes itself.
    """
    for override in overrides:
        if not _is_of_curation(override):
            raise ValueError(
                f"{override!r} does not belong to a policy: use keys that begin with curation., or "
                "groups below curation, such as matching@curation.score.pairs"
            )
    try:
        config = compose_config("train", [f"curation={name}", *overrides], return_hydra_config=True)
        callback = config.curation.get("callback")
        if callback is None:
            raise ValueError(f"curation={name} has no policy: use curation=track to record losses")
        values = OmegaConf.to_container(callback, resolve=True)
    except HydraException as error:
        problem = " ".join(str(error).partition("Config search path")[0].split())
        chosen = " ".join((f"curation={name}", *overrides))
        raise ValueError(f"{chosen}: {problem}") from error
    values = OmegaConf.create({"curation": values}).curation
    if not str(values.probe.get("_target_", ONLINE)).endswith(ONLINE):
        raise ValueError(
            "curation/probe does not apply to your own loop: remove it, name the measurement in "
            "Curation.open(signals=...) and give the values to curation.add"
        )
    if values.keep is not None:
        raise ValueError("curation.keep does not apply here: use Curation.open(keep=FILE)")
    check_config(OmegaConf.create({"curation": values.policy}), Settings)
    return build_part(values.policy)


def _is_of_curation(override: str) -> bool:
    """Return whether an override changes only the policy."""
    group, _, package = override.lstrip("+~").partition("=")[0].partition("@")
    return group.startswith(("curation.", "curation/")) or package.startswith("curation.")
