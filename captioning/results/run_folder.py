"""Folder of a run: its files, whether it can be resumed, its config, versions and scores."""

from __future__ import annotations

import datetime
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.results.folder_config import (
    mark_started,
    paths_in,
    read_folder_config,
    real_path,
    show_outside,
)
from captioning.runtime.files import read_json, remove_unfinished, write_json, write_text

log = logging.getLogger(__name__)

# Files and folders that settings name: the same ones by another spelling, or in another place.
#
# A run keeps in ``places.json`` what the files that its settings name hold, such as a pretrained
# model: where they were moved, or lie elsewhere on another machine, they are known again.
PLACES_FILE = "places.json"
# Keys that name files although their text may have no separator.
_NAMES = ("start_from", "pretrained", "weights", "imported", "folder", "path")
# Files by which a folder is known: weights, settings, words and lists, and none of its pictures.
_SUFFIXES = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".npy", ".npz", ".h5", ".hdf5"),
    *(".json", ".jsonl", ".jinja", ".txt", ".model", ".csv", ".tsv"),
)
_CHECKPOINTS = "checkpoints"  # of a run folder, whose other files come and go
_WHOLE, _BLOCK, _NUM_BLOCKS = 2**24, 2**20, 16  # bytes of a file that is read whole; of others
UNTESTED_FILE = "untested.json"


def is_same_place(old: Any, new: Any) -> bool:
    """Whether two texts name one existing file or folder, or two lists do so item by item."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_is_same, old, new))
    return _is_same(old, new)


def _is_same(old: Any, new: Any) -> bool:
    if old == new:
        return True
    are_texts = isinstance(old, str) and isinstance(new, str) and "\0" not in old + new
    return are_texts and real_path(old) == real_path(new) and real_path(new).exists()


def contents(values: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the files and folders that settings name.

    Args:
        values: values of settings, by dotted key.

    Returns:
        32 hex digits by key; those of entries of a list by ``KEY.NUMBER``.
    """
    places = [(key, path) for name, value in values.items() for key, path in _paths(name, value)]
    known = {path: content_of(path) for path in {path for _, path in places}}
    return {key: known[path] for key, path in places}


def _paths(key: str, value: Any) -> Iterator[tuple[str, Path]]:
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _paths(f"{key}.{number}", entry)
    elif isinstance(value, str) and "\0" not in value:
        is_named = os.sep in value or any(word in _NAMES for word in key.split(".")[-2:])
        if is_named and value and real_path(value).exists():
            yield key, real_path(value)


def content_of(path: Path) -> str:
    """Digest (SHA-256, 32 hex digits) of a file, or of the files that identify a folder.

    For a large file, only its size and 16 blocks of a MiB are hashed.
    """
    digest = hashlib.sha256()
    for file in _files(path):
        name = file.relative_to(path).as_posix() if file != path else ""
        digest.update(f"{name}\0{file.stat().st_size}\0".encode(errors="surrogateescape"))
        for block in _blocks(file):
            digest.update(block)
    return digest.hexdigest()[:32]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / _CHECKPOINTS).is_dir():
        return sorted((path / _CHECKPOINTS).glob("[!.]*.ckpt"))
    return sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _blocks(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            yield file.read()
            return
        for number in range(_NUM_BLOCKS):
            file.seek(number * (size - _BLOCK) // (_NUM_BLOCKS - 1))
            yield file.read(_BLOCK)


# Keys that say how a run is carried out, not what it computes.
FREE_KEYS = (
    "resume",
    "threads",
    "report",
    "start_score",
    "data.accept_changes",
    *(f"data.{split}keys_folder" for split in ("", "train.", "val.", "test.")),
    "logger",
    "paths",
    "hydra",
    "find_lr",
    "keep_every_epoch",
    "checkpoint_minutes",
    "model.texts.cache_folder",
    "model.texts.parser.cache_folder",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.num_sanity_val_steps",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "features.folder",
    "features.batch_size",
    "features.num_workers",
    "features.device",
    "loader.num_workers",
    "loader.prefetch_factor",
    "loader.multiprocessing_context",
)
# Keys in which a run may differ from the one that it branches from.
BRANCH_KEYS = ("curation", "run_name", "run_dir", "branch_from", "tracked")
# Keys that say where a run is, for folders that were moved.
NAME_KEYS = ("run_name", "run_dir")
# Folders whose place changes no result; the first is compared by what it holds.
PLACE_KEYS = ("data.root", "paths.data", "paths.cache", "paths.runs")
DATA_RECORD = "data.json"  # see `captioning.data.data_record`
# Where a part of the data lies, which is compared by what it holds, too.
DATA_PLACE = re.compile(
    r"data\.((train|val|test)\.)?"
    r"(root|folder|annotations|image_folder|instances|path|split_file|token_file)"
)
CACHE_FOLDER = "cache_folder"  # last word of keys of folders that may be deleted
# Keys that the config of every run has, and what they hold.
ALWAYS: dict[str, type] = {
    **dict.fromkeys(("data.name", "paths.cache", "curation.name"), str),
    "data.train": dict,
    "data.train._target_": str,
    "monitor": str,
    "seed": int,
}
# Files that a run writes before its first step.
AT_START = (
    "config.yaml",
    "versions.json",
    "started.json",
    "places.json",
    "dropped.json",
    "data.json",
    "data_rows.jsonl.gz",
    "held_out_left.json",
    "start.json",
    "noise_truth.json",
    "curation.jsonl",
    "curation",
    "logs",
)
# Key of ``metrics.json``: further metrics whose scores the test lacks, as it ended with an error.
UNSCORED = "unscored"
# Values by which a setting that is newer than a run changes nothing.
OFF = (None, False, 0, "none", [], {})


class RunFolder:
    """Files of one run.

    Args:
        path: the folder; created when the run starts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._yaml = ""
        self._values: Mapping[str, Any] = {}

    def open(self, settings: Mapping[str, Any]) -> Path | None:
        """Prepare the folder for a run and return the checkpoint that it resumes from.

        Args:
            settings: settings of the run as plain values; all are stored and compared by value.

        Returns:
            The checkpoint to resume from, or None to start from scratch (or when the run is
            finished).

        Raises:
            ValueError: the folder holds a run of another config.
            FileNotFoundError: ``resume`` names no file.
            PermissionError: the folder cannot be written.
        """
        self._yaml, self._values = OmegaConf.to_yaml(dict(settings)), flat(dict(settings))
        resume, branch_from = str(settings["resume"]), settings["branch_from"]
        check_places(resume=resume, branch_from=branch_from)
        if resume not in ("auto", "never"):
            _check_intact(Path(resume))
        branch = None if branch_from is None else Path(branch_from)
        if branch is not None:
            self._check_branch(branch)
        if _is_first():
            if resume == "never" and self._config_path.exists():
                self._set_aside()
            elif self._config_path.exists():
                self._refuse_other()
            if not self.finished():
                self._start(settings.get("plugins") or [])
            mark_started(self.path, [*paths_in(settings), *_data_places(self._values)])
        if resume == "auto":
            return None if self.finished() else self._latest() or branch
        return branch if resume == "never" else Path(resume)

    def opened_with(self) -> str:
        """Config that `open` accepted, as YAML."""
        return self._yaml

    def _latest(self) -> Path | None:
        """Checkpoint to resume from, whose checksums the first process verifies."""
        from captioning.results.checkpoints import check_intact, config_of, latest_checkpoint

        path = latest_checkpoint(self.path / "checkpoints")
        if path is None or not _is_first():
            return path
        check_intact(path)
        saved = config_of(path)
        values = {} if saved is None else flat(OmegaConf.to_container(saved, resolve=True))
        changed = values and self._changed_but_place(values)
        if changed:
            raise ValueError(
                f"{path} belongs to another config ({_shown(changed)}), as it comes from another "
                "run; remove it, or set resume=PATH to the checkpoint to resume from"
            )
        return path

    def _check_branch(self, path: Path) -> None:
        """Raise an error if the checkpoint's run differs in more than its curation."""
        _check_intact(path)
        changed = changed_values(RunFolder(path.parents[1])._saved(), self._values)
        changed = {k: both for k, both in changed.items() if not is_below(k, BRANCH_KEYS)}
        if changed:
            raise ValueError(
                f"branch_from={path} belongs to a run that differs in more than its curation "
                f"({_shown(changed)}); use the same settings, or train without branch_from"
            )

    def _start(self, plugins: Sequence[str]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self._config_path.exists():
                write_json(self.path / PLACES_FILE, contents(_named(self._values)))
                write_text(self._config_path, self._yaml)
        except PermissionError as error:
            raise PermissionError(
                f"run_dir={self.path} cannot be written; choose another run_dir= or paths.runs="
            ) from error
        remove_unfinished(self.path / "checkpoints", ".ckpt")
        # Earlier versions left it to Lightning to save on Slurm's signals. It would prefer these
        # files to a fresh start, and see some captions twice and others never.
        for old in self.path.glob("hpc_ckpt_*.ckpt"):
            os.replace(old, old.with_name(old.name.replace("hpc_ckpt", "unused")))
        from captioning.results.versions import versions, warn_of_other_versions

        path = self.path / "versions.json"
        record = read_json(path, dict) if path.is_file() else versions(plugins)
        if path.is_file():
            now, history = versions(plugins), record.get("resumed", [])
            if not isinstance(history, list) or not all(isinstance(v, dict) for v in history):
                raise ValueError(f"{path}: 'resumed' must be a list of objects; remove the file")
            warn_of_other_versions(history[-1] if history else record, now)
            record["resumed"] = [*history, now]
        write_json(path, record)

    def _set_aside(self) -> None:
        """Rename an earlier run's folder, so that no results are lost."""
        number = 1
        while (old := self.path.with_name(f"{self.path.name}.old{number}")).exists():
            number += 1
        os.replace(self.path, old)

    def _refuse_other(self) -> None:
        """Raise an error if the folder has results of another config; reuse it if it has none."""
        changed = self._changed_but_place(self._saved())
        if changed and not self.has_results():
            self._clear_start()
        elif changed:
            raise ValueError(
                f"{self.path} holds a run with another config ({_shown(changed)}); choose another "
                "run_name=, or resume=never to set the old folder aside"
            )

    def _changed_but_place(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Changed values, as `changed_values`, without names and moved folders.

        Moved data are recognised by their record, and other files and folders by their content when
        the run began.
        """
        moved = [(str(saved.get("run_dir") or ""), str(self.path))]
        keys = PLACE_KEYS if (self.path / DATA_RECORD).is_file() else PLACE_KEYS[1:]
        for key in keys:
            before, now = (values.get(key) for values in (saved, self._values))
            moved += [(before, now)] if isinstance(before, str) and isinstance(now, str) else []
        changed = {
            key: (old, new)
            for key, (old, new) in changed_values(saved, self._values).items()
            if not is_below(key, NAME_KEYS)
            and not (len(keys) == len(PLACE_KEYS) and DATA_PLACE.fullmatch(key))
            and not any(_with_folder(old, before, now) == new for before, now in moved)
        }
        return self._without_moved(changed)

    def _without_moved(self, changed: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
        """Settings without paths whose files have moved but have the same content."""
        path = self.path / PLACES_FILE
        if not changed or not path.is_file():
            return changed
        before = read_json(path, dict)
        kept = {}
        for key, (old, new) in changed.items():
            held = {name: mark for name, mark in before.items() if is_below(name, (key,))}
            if not held or held != contents({key: new}) or type(old) is not type(new):
                kept[key] = (old, new)
        return kept

    def follow(self) -> None:
        """Record the new locations of moved files, once they are known to be the same.

        The settings are those that `open` accepted. A folder without a config, as of a model built
        in a notebook, is unchanged.
        """
        if not self._config_path.is_file():
            return
        saved, now = self._config(), self._values
        before = flat(OmegaConf.to_container(saved, resolve=True))
        moved = {
            key: new
            for key, (_, new) in changed_values(before, now).items()
            if key in now and not is_below(key, (*NAME_KEYS, "branch_from"))
        }
        caches = [key for key in before if is_below(key, ("paths", "features.folder"))]
        moved |= {key: now[key] for key in caches if key in now}
        text = OmegaConf.to_yaml(saved)
        for key, value in moved.items():
            OmegaConf.update(saved, key, value, force_add=True)
        if OmegaConf.to_yaml(saved) != text:
            write_text(self._config_path, OmegaConf.to_yaml(saved))

    def has_results(self) -> bool:
        """Whether an epoch or a test has finished, or the run ended without a test."""
        checkpoints = (self.path / "checkpoints").glob("*.ckpt")
        has_scores = (self.path / "metrics.json").is_file()
        return any(checkpoints) or has_scores or ended_untested(self.path)

    def _clear_start(self) -> None:
        """Remove the files that a run wrote at its start if it never finished an epoch."""
        for name in AT_START:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    @property
    def _config_path(self) -> Path:
        return self.path / "config.yaml"

    def config(self) -> DictConfig:
        """Resolved config with which the run was started.

        Paths that lead out of the folder and of the user's data folders are logged.

        Raises:
            FileNotFoundError: the folder is not a run folder.
            ValueError: the file is damaged.
        """
        config = self._config()
        values: Any = OmegaConf.to_container(config, resolve=True)
        if wrong := [key for key, kind in ALWAYS.items() if not _holds(values, key, kind)]:
            raise ValueError(
                f"{self._config_path} cannot be read ({wrong[0]} is missing or wrong): it was "
                "damaged or cut off; restore it, or give another run folder"
            )
        for key, place in self._moved_data(flat(values)).items():
            OmegaConf.update(config, key, place)
        show_outside(paths_in(OmegaConf.to_container(config)), self.path)
        return config

    def _saved(self) -> dict[str, Any]:
        """Setting values stored in the folder, by dotted key."""
        return flat(OmegaConf.to_container(self._config(), resolve=True))

    def _moved_data(self, values: Mapping[str, Any]) -> dict[str, str]:
        """New locations of data whose relative paths start where the run was started, by key.

        That start folder is known if the run's own path was relative: the run still lies below it.
        """
        place, run = self.path.resolve(), Path(str(values.get("run_dir") or "."))
        if run.is_absolute() or place.parts[-len(run.parts) or None :] != run.parts:
            return {}
        start = Path(*place.parts[: len(place.parts) - len(run.parts)])
        return {
            key: str(start / text)
            for key, text in _data_places(values)
            if not os.path.exists(text) and (start / text).exists()
        }

    def check_there(self) -> None:
        """Raise an error for a folder without a config.

        Raises:
            FileNotFoundError: the folder is not a run folder.
        """
        if not self._config_path.is_file():
            raise FileNotFoundError(f"{self._config_path} does not exist; is this a run folder?")

    def _config(self) -> DictConfig:
        self.check_there()
        return read_folder_config(self._config_path)

    def _checkpoint(self, name: str) -> Path | None:
        path = self.path / "checkpoints" / name
        return path if path.is_file() else None

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint of the last finished epoch."""
        from captioning.results.checkpoints import LAST

        return self._checkpoint(LAST)

    def tested_checkpoint(self, monitor: str) -> Path:
        """Checkpoint that scores are computed with: of the best epoch, or else of the last.

        Raises:
            FileNotFoundError: no epoch has ended yet.
        """
        best = None if monitor == "last" else self._checkpoint("best.ckpt")
        path = best or self.last_checkpoint
        if path is None:
            raise FileNotFoundError(f"{self.path} has no checkpoint: no epoch has ended yet")
        return path

    def finished(self) -> bool:
        """Whether all test scores exist, including further metrics, or the run has no test."""
        if ended_untested(self.path):
            return True
        path = self.path / "metrics.json"
        content = read_json(path, dict) if path.is_file() else {}
        return "test" in content and UNSCORED not in content

    def scores(self, split: str) -> dict[str, float]:
        """Corpus scores of a finished run.

        Raises:
            ValueError: the file is damaged.
        """
        path = self.path / "metrics.json"
        try:
            return dict(read_json(path, dict)[split]["corpus"])
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{path} has no scores of {split!r} (no {error}): it was damaged; remove it, and "
                "the run tests its checkpoint again"
            ) from error


def check_places(*, resume: str, branch_from: str | None) -> None:
    """Raise an error if a checkpoint to resume or branch from does not exist.

    Raises:
        FileNotFoundError: ``resume`` or ``branch_from`` names no file.
    """
    if resume not in ("auto", "never") and not Path(resume).is_file():
        raise FileNotFoundError(
            f"resume={resume}: no such file; give auto, never or the path of a checkpoint"
        )
    if branch_from is not None and not Path(branch_from).is_file():
        raise FileNotFoundError(
            f"branch_from={branch_from}: no such file; train that run first, with "
            "curation=track keep_every_epoch=true"
        )


def changed_values(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Old and new values of every setting that differs and affects the results.

    A setting that an older run lacks and that is off now does not count as a difference.
    """
    keys = [key for key in sorted({**before, **after}) if not _is_free(key)]
    changed = {key: (before.get(key), after.get(key)) for key in keys}
    return {
        key: (old_value, new_value)
        for key, (old_value, new_value) in changed.items()
        if (key in before or new_value not in OFF) and not is_same_place(old_value, new_value)
    }


def _is_free(key: str) -> bool:
    return is_below(key, FREE_KEYS) or key.endswith(f".{CACHE_FOLDER}")


def _data_places(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Locations of a run's data, also of bare names, which later become whole paths."""
    return [
        (key, text)
        for key, text in values.items()
        if DATA_PLACE.fullmatch(key) and isinstance(text, str)
    ]


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that may name files, except data and files that the run itself writes."""
    others = (*NAME_KEYS, *FREE_KEYS, "data", "branch_from")
    return {key: value for key, value in values.items() if not is_below(key, others)}


def _is_first() -> bool:
    """Whether this is the first process of the run."""
    from pytorch_lightning.utilities import rank_zero_only  # seconds, for commands that need none

    return getattr(rank_zero_only, "rank", 0) == 0


def _check_intact(path: Path) -> None:
    """Let the first process verify a checkpoint's checksums."""
    from captioning.results.checkpoints import check_intact

    if _is_first():
        check_intact(path)


def _holds(tree: Any, key: str, kind: type) -> bool:
    for word in key.split("."):
        if not isinstance(tree, dict) or word not in tree:
            return False
        tree = tree[word]
    return isinstance(tree, kind)


def _with_folder(value: Any, before: str, now: str) -> Any:
    """Replace a folder in the paths of a value or of a list's values."""
    if isinstance(value, list):
        return [_with_folder(entry, before, now) for entry in value]
    is_inside = isinstance(value, str) and (value == before or value.startswith(f"{before}/"))
    return f"{now}{value[len(before) :]}" if is_inside else value


def is_below(key: str, parents: tuple[str, ...]) -> bool:
    """Whether a dotted key is one of the keys or below one."""
    return any(key == parent or key.startswith(f"{parent}.") for parent in parents)


def _shown(changed: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{key}: {old} -> {new}" for key, (old, new) in list(changed.items())[:5])


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Values of nested mappings by dotted key."""
    if not isinstance(tree, dict):
        return {prefix.rstrip("."): tree}
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= flat(value, f"{prefix}{key}.")
    return values


def end_untested(run: Path) -> None:
    """Write ``untested.json`` into a run's folder: all epochs have finished without a test."""
    write_json(run / UNTESTED_FILE, {"test": None})


def ended_untested(run: Path) -> bool:
    """Whether the run has ended without a test."""
    return (run / UNTESTED_FILE).is_file()


FAILURE_FILE = "failed.json"


def keep_failure(run: Path, error: str, *, details: str = "") -> None:
    """Write ``failed.json`` into a run's folder.

    Args:
        run: the folder; created if missing.
        error: readable error of one or a few lines.
        details: further text, such as a traceback or the end of a job's output.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(run / FAILURE_FILE, {"error": error, "date": now, "details": details})


def failure_of(run: Path) -> str | None:
    """Reason of the run's last failure; None if it did not fail.

    Raises:
        ValueError: the file is damaged.
    """
    path = run / FAILURE_FILE
    return str(read_json(path)["error"]) if path.is_file() else None


def forget_failure(run: Path) -> None:
    """Remove the record of an earlier failure when the run restarts or succeeds."""
    (run / FAILURE_FILE).unlink(missing_ok=True)
