"""The jobs of a sweep, composed and checked before any of them begins."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from captioning.commands.hydra_errors import explain_hydra_error
from captioning.config.run_names import plain_lines
from captioning.results.run_folder import RunFolder
from captioning.results.sweep_results import Job

MAX_SHOWN = 4  # jobs that an error names
WRONG = (HydraException, OmegaConfBaseException, ValueError, TypeError, OSError, ImportError)

Values = dict[str, str]


class Checker:
    """Composes jobs and collects what is wrong with them.

    Args:
        config: of the sweep, with ``hydra``.
        loader: Hydra's loader of configs.
        name: of the command's config.
        check: refuses a job's config by an error.
        config_dir: folder of the user's own configs, ``--config-dir``.
    """

    def __init__(
        self,
        *,
        config: DictConfig,
        loader: ConfigLoader,
        name: str,
        check: Callable[[DictConfig], None],
        config_dir: str | None,
    ) -> None:
        self._config_dir = config_dir
        self._config, self._loader, self._name, self._check = config, loader, name, check
        self.errors: dict[str, list[Values]] = {}

    def jobs(self, overrides: Sequence[Sequence[str]]) -> list[Job]:
        """The jobs with these overrides; those that are wrong are left out.

        Raises:
            ValueError: jobs with wrong configs, an error a line with the jobs that have it; or two
                jobs that would share a folder.
        """
        values = swept_values(overrides)
        jobs = [self._job(o, v) for o, v in zip(overrides, values, strict=True)]
        if self.errors:
            raise ValueError("\n".join(_error_lines(self.errors, values)))
        composed = [job for job in jobs if job is not None]
        _refuse_shared_folders(composed)
        return composed

    def _job(self, overrides: Sequence[str], values: Values) -> Job | None:
        before = HydraConfig.instance().cfg
        try:
            config = self._loader.load_sweep_config(self._config, list(overrides))
            HydraConfig.instance().set_config(config)  # for ${hydra:...}
            run = Path(config.run_dir)
            with open_dict(config):
                del config["hydra"]
            self._check(config)
            was_finished = RunFolder(run).finished()
        except WRONG as error:
            self.errors.setdefault(self._text(error, overrides), []).append(values)
            return None
        finally:
            HydraConfig.instance().cfg = before
        return Job(overrides=tuple(overrides), values=values, run=run, was_finished=was_finished)

    def _text(self, error: Exception, overrides: Sequence[str]) -> str:
        if not isinstance(error, HydraException):
            return str(error).strip()
        return explain_hydra_error(
            error, name=self._name, overrides=overrides, config_dir=self._config_dir
        )


def sweep_lines(params: Mapping[str, Any] | None, task: Sequence[str]) -> list[str]:
    """The overrides of a whole sweep, with those that are read with its jobs alone.

    Args:
        params: of Hydra's sweeper.
        task: the command line.
    """
    further = [f"{key}={value}" for key, value in (params or {}).items()]
    return [*further, *plain_lines(task)]


def sweep_overrides(lines: Sequence[str], loader: ConfigLoader) -> list[list[str]]:
    """The overrides of every job of Hydra's own sweeper, in its order.

    Args:
        lines: of the whole sweep, from `sweep_lines`.
        loader: Hydra's loader of configs.

    Raises:
        HydraException: a sweep over a range of real numbers, which that sweeper refuses.
    """
    values: dict[str, list[str]] = {}
    for override in OverridesParser.create(loader).parse_overrides([*lines]):
        key = override.get_key_element()
        if not override.is_sweep_override():
            values[key] = [override.get_value_element_as_str()]
        elif override.is_discrete_sweep():
            values[key] = list(override.sweep_string_iterator())
        else:
            raise HydraException(f"{key}: hydra/sweeper=basic takes lists and ranges of numbers")
    choices = [[f"{key}={value}" for value in found] for key, found in values.items()]
    return [list(job) for job in itertools.product(*choices)]


def swept_values(jobs: Sequence[Sequence[str]]) -> list[Values]:
    """Of every job the values of the keys that have several in the sweep."""
    pairs = [dict(_key_and_value(override) for override in job) for job in jobs]
    swept = [key for key in pairs[0] if len({job.get(key) for job in pairs}) > 1] if pairs else []
    return [{key: job[key] for key in swept if key in job} for job in pairs]


def _key_and_value(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value


def _error_lines(errors: Mapping[str, Sequence[Values]], jobs: Sequence[Values]) -> Iterator[str]:
    wrong = sum(map(len, errors.values()))
    yield f"no job was started, as {wrong} of {len(jobs)} would fail"
    for text, members in errors.items():
        yield f"{text} ({_blamed(members, jobs)})"


def _blamed(members: Sequence[Values], jobs: Sequence[Values]) -> str:
    """The overrides that all jobs with an error share and no others have; or those jobs."""
    if len(members) == len(jobs):
        return "in all jobs" if len(jobs) > 1 else "in the job"
    shared = dict(set.intersection(*(set(values.items()) for values in members)))
    with_them = [job for job in jobs if shared.items() <= job.items()]
    if shared and len(with_them) == len(members):
        number = len(members)
        return f"with {_typed(shared)}" + (f", in {number} jobs" if number > 1 else "")
    shown = "; ".join(_typed(values) for values in members[:MAX_SHOWN])
    return f"with {shown}" + ("; ..." if len(members) > MAX_SHOWN else "")


def _typed(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def _refuse_shared_folders(jobs: Sequence[Job]) -> None:
    by_folder: dict[str, Job] = {}
    for job in jobs:
        other = by_folder.setdefault(os.path.abspath(job.run), job)
        if other is not job:
            raise ValueError(_shared_folder(other, job))


def _shared_folder(first: Job, second: Job) -> str:
    pairs = [(k, first.values.get(k), second.values.get(k)) for k in second.values]
    differing = [(key, one, other) for key, one, other in pairs if one != other]
    if not differing:
        return f"no job was started: two are the same ({' '.join(first.overrides)}); leave one out"
    one = _typed({key: value or "" for key, value, _ in differing})
    other = _typed({key: value or "" for key, _, value in differing})
    key = differing[0][0].lstrip("+")
    choice = "/" in key or ("." not in key and _is_choice(key))
    reference = f"${{hydra:runtime.choices.{key}}}" if choice else f"${{{key}}}"
    return (
        f"no job was started: {one} and {other} would share the folder {first.run}, whose name "
        f"leaves {key} out; name the runs by it: 'run_name=NAME${{label:}}-{reference}'"
    )


def _is_choice(key: str) -> bool:
    from captioning.commands.hydra_help import choices

    return bool(choices(key))
