"""Name runs and policies by the choices and overrides on the command line.

Configs use ``${label:}`` to complete the name of a run, and ``${label:curation}`` to complete the
name of a policy. ``curation=remove curation.select.ratio=0.05 optimizer.lr=1e-3`` gives the policy
``remove-select.ratio_0.05`` and the run ``MODEL-remove-select.ratio_0.05-optimizer.lr_0.001``, so
jobs of a sweep get separate folders without a YAML file per value. ``${of_set:}`` is the part
before the model's name, see `of_set`.

Importing this module registers the resolvers. Without Hydra's record of the overrides, as after a
plain ``hydra.compose``, a label holds no overrides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:  # importing Hydra takes longer than all else here, and only names need it
    from hydra.core.override_parser.types import Override

# Choices that a run's name holds already, and choices that only affect how a run executes.
CHOICES_LEFT_OUT = (
    *("data", "model", "curation", "experiment"),
    *("debug", "paths", "logger", "trainer"),
)
# Keys, or prefixes of keys, that the name holds already or that change no result.
KEYS_LEFT_OUT = (
    *("seed", "threads", "run_name", "run_dir", "paths", "logger", "plugins", "report"),
    "start_score",
    *("resume", "branch_from", "tracked", "keep_every_epoch"),
    *("data.name", "data.root", "model.name"),
    *("loader.num_workers", "loader.prefetch_factor", "loader.multiprocessing_context"),
    *("curation.name", "curation.image_source.pool", "curation.callback.plot"),
    *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy"),
    *("trainer.enable_progress_bar", "trainer.log_every_n_steps"),
)
OWN = "own"  # data of the user's own photos
MAX_LENGTH = 120  # characters of a label; file systems allow 255 bytes a folder


def label(part: str = "", *, _root_: DictConfig) -> str:
    """Return the end of a run's name: a hyphen and a word per choice and override, sorted.

    A run's label begins with the words of its policy, like the policy's name. Key and value are not
    joined by an equals sign, because Hydra's command line would refuse ``run=FOLDER``.

    Args:
        part: ``"curation"``: only overrides of the policy; empty: all overrides of the run.

    Returns:
        Letters, digits and ``._+-`` only; at most `MAX_LENGTH` characters: a longer label ends in
        a hash. Empty if nothing was overridden.
    """
    words = dict(_words(_root_, part))
    ordered = [words[key] for key in sorted(words)]
    if not part:
        policy = str(OmegaConf.select(_root_, "curation.name") or "none")
        ordered = ([] if policy == "none" else [policy]) + ordered
    return _shortened("".join(f"-{_safe(word)}" for word in ordered))


def of_set(*, _root_: DictConfig) -> str:
    """Return the start of a run's name: the dataset's name and, for own photos, their folder.

    Examples: ``flickr8k/``, or ``own/my_photos-``, so two photo folders have separate runs.
    """
    name, folder = (OmegaConf.select(_root_, f"data.{key}") for key in ("name", "root"))
    if name != OWN or not folder:
        return f"{name}/"
    place = Path(str(folder).rpartition("@")[0] or str(folder)).expanduser()
    return f"{name}/{_shortened(_safe(place.resolve().name)) or 'set'}-"


def _words(root: DictConfig, part: str) -> Iterator[tuple[str, str]]:
    """Yield (key, word) for each override in a name; the last override of a key counts."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for override in OverridesParser.create().parse_overrides(_overrides(root)):
        key = _key(override)
        of_policy = key.startswith("curation.")
        if of_policy == bool(part) and not _is_excluded(override, key):
            short = key.removeprefix(f"{part}.")
            yield key, f"no_{short}" if override.is_delete() else _word(root, override, short)


def _overrides(root: DictConfig) -> list[str]:
    """Return the overrides that Hydra composed the config with."""
    from hydra.core.hydra_config import HydraConfig

    overrides = OmegaConf.select(root, "hydra.overrides.task")
    if overrides is None and HydraConfig.initialized():
        overrides = HydraConfig.get().overrides.task
    return plain_lines(overrides) if overrides else []


def plain_lines(overrides: Any) -> list[str]:
    """Return overrides from Hydra's record as the user typed them.

    Their references are not resolved: ``run_name=NAME${label:}`` would recurse.
    """
    return [str(line) for line in OmegaConf.to_container(overrides, resolve=False) or ()]


def _key(override: Override) -> str:
    """Return an override's full key with dots: ``curation.select`` for ``curation/select=top``."""
    return (override.package or override.key_or_group).replace("/", ".")


def _is_excluded(override: Override, key: str) -> bool:
    is_excluded_key = any(
        key == excluded or key.startswith(f"{excluded}.") for excluded in KEYS_LEFT_OUT
    )
    return is_excluded_key or override.key_or_group in CHOICES_LEFT_OUT


def _word(root: DictConfig, override: Override, short: str) -> str:
    value = override.get_value_string() if override.is_sweep_override() else override.value()
    if isinstance(value, str) and "${" in value:
        value = OmegaConf.select(root, _key(override))
    if isinstance(value, bool) or value is None:
        value = str(value if value is not None else "null").lower()
    return f"{short}_{_safe(str(value))}"


def _safe(text: str) -> str:
    """Remove characters that folder names or Hydra's command line cannot hold."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text).strip("_")


def _shortened(text: str) -> str:
    if len(text) <= MAX_LENGTH:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: MAX_LENGTH - len(digest) - 1]}-{digest}"


OmegaConf.register_new_resolver("label", label, replace=True)
OmegaConf.register_new_resolver("of_set", of_set, replace=True)
