"""Run folders as tables read them: configuration, versions, scores and detection of faults."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run folder says. Files that are not there yet are empty here.

    Attributes:
        folder: the run folder.
        config: ``config.yaml``, resolved.
        versions: ``versions.json``: commit, date, machine, command, library versions.
        metrics: ``metrics.json``: ``{split: {"corpus": ..., "per_image": ..., "settings": ...}}``.
        detection: ``curation/detection.json``: one entry an epoch with ``auc``, ``precision``, ...
        timing: ``timing.json``: one entry an epoch with ``seconds``, ``captions_per_second``,
            ``updates``.
    """

    folder: Path
    config: Mapping[str, Any]
    versions: Mapping[str, Any]
    metrics: Mapping[str, Any]
    detection: tuple[Mapping[str, Any], ...]
    timing: tuple[Mapping[str, Any], ...]

    def setting(self, key: str) -> str | None:
        """Value of a dotted config key as text, such as ``noise.ratio``; None where it is not."""
        value = _descend(self.config, key)
        return None if value is None else str(value)

    def scores(self, split: str, part: str) -> Mapping[str, Any]:
        """A part of a split's scores, such as ``corpus``; empty where the run does not have it."""
        value = _descend(self.metrics, f"{split}.{part}")
        return value if isinstance(value, Mapping) else {}

    def value(self, name: str, split: str) -> float | None:
        """A finite number by name; None where the run does not have it.

        ``CIDEr-D`` is the corpus score of the split, ``detection.auc`` that of the last epoch,
        ``detection.auc@1`` that of epoch 1, ``timing.seconds`` the mean over epochs.
        """
        if name.startswith("detection."):
            key, _, epoch = name.removeprefix("detection.").partition("@")
            entries = [e for e in self.detection if not epoch or str(e.get("epoch")) == epoch]
            value = _descend(entries[-1] if entries else {}, key)
        elif name.startswith("timing."):
            key = name.removeprefix("timing.")
            values = [entry[key] for entry in self.timing if key in entry]
            value = sum(values) / len(values) if values else None
        else:
            value = self.scores(split, "corpus").get(name)
        return float(value) if _is_number(value) else None


def read_runs(folders: Iterable[str | Path]) -> list[Run]:
    """Runs in the folders given, or below them; each once, in the order given.

    A run folder is one that holds ``config.yaml``; a run without ``metrics.json`` (unfinished)
    is read too, so that its cells show as missing.

    Raises:
        FileNotFoundError: a folder that is not there or holds no run.
        ValueError: a file that cannot be read as what it should be.
    """
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder")
        below = [folder] if (folder / "config.yaml").is_file() else _below(folder)
        if not below:
            raise FileNotFoundError(f"{folder}: no config.yaml in it or below: not a run folder")
        found.update(dict.fromkeys(path.resolve() for path in below))
    return [_read_run(folder) for folder in found]


def read_published(path: str | Path) -> dict[str, dict[str, float]]:
    """Published scores from a YAML file: ``{row: {metric: score}}``, in the unit of ours.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give one of published scores")
    rows = _read(path, dict)
    for row, scores in rows.items():
        if not isinstance(scores, dict) or not all(_is_number(x) for x in scores.values()):
            raise ValueError(f"{path}: {row!r} must hold numbers by metric: got {scores!r}")
    return {str(row): {str(k): float(v) for k, v in scores.items()} for row, scores in rows.items()}


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _below(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("config.yaml"))


def _read_run(folder: Path) -> Run:
    detection = _read(folder / "curation" / "detection.json", list)
    timing = _read(folder / "timing.json", dict).get("epochs", [])
    return Run(
        folder=folder,
        config=_read(folder / "config.yaml", dict),
        versions=_read(folder / "versions.json", dict),
        metrics=_read(folder / "metrics.json", dict),
        detection=tuple(detection),
        timing=tuple(timing),
    )


def _read(path: Path, kind: type) -> Any:
    """Contents of a YAML or JSON file; an empty ``kind`` where there is no file."""
    if not path.is_file():
        return kind()
    load = yaml.safe_load if path.suffix == ".yaml" else json.loads
    try:
        value = load(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, kind):
        raise ValueError(f"{path}: must hold a {kind.__name__}: got {type(value).__name__}")
    return value


def _descend(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
