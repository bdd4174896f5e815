"""Read runs for tables, from run folders or from files of records.

``captioning record RUNS... --out FOLDER`` stores the data for tables, as run folders with
checkpoints are too large for a repository. It writes config, versions, scores and times as one line
of ``FOLDER/STUDY.jsonl``; STUDY comes from the run's path ``runs/STUDY/RUN/seed0``. Per-image
scores, which comparisons of rows need, are stored only for the metrics of ``--per-image``, to four
digits.

The first line of such a file holds ``{"study": NAME, "common": {...}}``; each further line holds
one run's own values. A record is ``common`` with the run's own values put in, key by key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path
from typing import Any

import yaml

from captioning.results.run_folder import FREE_KEYS, NAME_KEYS, OFF, flat, is_below
from captioning.runtime.files import write_text, written_lines

# Keys in which seeds of one config may differ.
OF_A_SEED = (*FREE_KEYS, *NAME_KEYS, "seed", "branch_from", "tracked")


def changed_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Settings that differ between two runs, other than seed and data folders, with both values.

    Args:
        first, second: configs of runs as plain values.
    """
    one, other = flat(dict(first)), flat(dict(second))
    seeds = str(one.get("seed")), str(other.get("seed"))
    return {
        key: [one.get(key), other.get(key)]
        for key in sorted(one | other)
        if one.get(key) != other.get(key)
        and not is_below(key, OF_A_SEED)
        and not (one.get(key) in OFF and other.get(key) in OFF)  # newer than one of them
        and _of_seed(key, one.get(key), seeds[0]) != _of_seed(key, other.get(key), seeds[1])
    }


def _of_seed(key: str, value: Any, seed: str) -> str:
    """Value without the run's seed, as a part's seed or in a folder's name."""
    if key.endswith(".seed") and str(value) == seed:
        return "SEED"
    return re.sub(rf"seed_?{re.escape(seed)}\b", "SEED", str(value))


# Files of a run folder that are read into attributes of `Run`.
CONFIG, VERSIONS, METRICS = "config.yaml", "versions.json", "metrics.json"
TIMING, DETECTION = "timing.json", "curation/detection.json"
STEPS = "paper.json"  # of a paper's run: its steps that ended well (`captioning.papers`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Contents of a run's files; entries of missing files are empty.

    Attributes:
        folder: the run folder; for a record, its former path below the folder of all runs.
        config: ``config.yaml``, resolved.
        versions: ``versions.json``: commit, date, machine, command, library versions.
        metrics: ``metrics.json``: ``{split: {"corpus": ..., "per_image": ..., "settings": ...}}``.
        detection: ``curation/detection.json``: one entry per epoch with ``auc``, ``precision``, ...
        timing: ``timing.json``: one entry per epoch with ``seconds``, ``captions_per_second``,
            ``updates``.
        files: contents of the run's JSON files by their path in the folder.
    """

    folder: Path
    config: Mapping[str, Any]
    versions: Mapping[str, Any]
    metrics: Mapping[str, Any]
    detection: tuple[Mapping[str, Any], ...]
    timing: tuple[Mapping[str, Any], ...]
    files: Mapping[str, Any]

    @property
    def name(self) -> str:
        """``STUDY/RUN/SEED``: the last three parts of the folder."""
        return "/".join(self.folder.parts[-3:])

    def setting(self, key: str) -> str | None:
        """Value of a dotted config key as text, such as ``noise.ratio``; None if missing."""
        value = _descend(self.config, key)
        return None if value is None else str(value)

    def scores(self, split: str, part: str) -> Mapping[str, Any]:
        """Part of a split's scores, such as ``corpus``; empty if the run lacks it."""
        value = _descend(self.metrics, f"{split}.{part}")
        return value if isinstance(value, Mapping) else {}

    def value(self, name: str, split: str) -> float | None:
        """Finite number by name; None if the run lacks it.

        ``CIDEr-D`` is the corpus score of the split, ``detection.auc`` the value of the last epoch,
        ``detection.auc@1`` the value of epoch 1, ``timing.seconds`` the mean over epochs.
        """
        if name.startswith("detection."):
            key, _, epoch = name.removeprefix("detection.").partition("@")
            entries = [e for e in self.detection if not epoch or str(e.get("epoch")) == epoch]
            value = _descend(entries[-1] if entries else {}, key)
        elif name.startswith("timing."):
            key = name.removeprefix("timing.")
            numbers = [as_number(entry.get(key)) for entry in self.timing]
            values = [number for number in numbers if number is not None]
            value = sum(values) / len(values) if values else None
        else:
            value = self.scores(split, "corpus").get(name)
        return as_number(value)

    def matching(self, pattern: str) -> dict[str, Any]:
        """Contents of the JSON files whose paths match, such as ``evaluation/*/control.json``."""
        return {name: self.files[name] for name in sorted(self.files) if fnmatch(name, pattern)}


class FolderFiles(Mapping[str, Any]):
    """JSON files of a run folder, each read on first access.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Any:
        path = self._folder / name
        if not path.is_file():
            raise KeyError(name)
        return read_content(path)

    def __iter__(self) -> Iterator[str]:
        return (path.relative_to(self._folder).as_posix() for path in self._paths())

    def __len__(self) -> int:
        return len(self._paths())

    def _paths(self) -> list[Path]:
        return sorted(path for path in self._folder.rglob("*.json") if path.is_file())


def read_runs(sources: Iterable[str | Path], *, only: Sequence[str] = ()) -> list[Run]:
    """Read runs from folders, from below folders and from files of records; each once, in order.

    A run folder is one that holds ``config.yaml``; a run without ``metrics.json`` (unfinished)
    is read too, so that its cells show as missing.

    Args:
        sources: run folders, folders that hold some, ``.jsonl`` files of `records`, or a folder
            of such files.
        only: patterns of names, such as ``updown_small*``: of a run's folder, with the study's
            name before it or not, and with the seed behind it or not; empty: all.

    Raises:
        FileNotFoundError: a folder or file does not exist or holds no run.
        ValueError: a file cannot be parsed, or no run has such a name.
    """
    runs: dict[Path, Run] = {}
    for source in map(Path, sources):
        source_runs = _of_study(source) if source.suffix == ".jsonl" else _of_folder(source)
        runs |= {run.folder: run for run in source_runs}
    selected = [run for run in runs.values() if not only or _is_named(run, only)]
    if runs and not selected:
        names = ", ".join(sorted({run.folder.parent.name for run in runs.values()})[:8])
        raise ValueError(f"no run is called {' or '.join(only)}; there are {names}")
    return selected


def _is_named(run: Run, patterns: Sequence[str]) -> bool:
    study, name, seed = ("", "", *run.folder.parts)[-3:]
    names = (name, f"{name}/{seed}", f"{study}/{name}", run.name)
    return any(fnmatch(name, pattern) for pattern in patterns for name in names)


def _of_study(path: Path) -> list[Run]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of records")
    records = read_study(path)
    try:
        return [_run_of_record(record) for record in records]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: a record of a run is damaged ({error!r}); get the file again"
        ) from error


def _run_of_record(record: Mapping[str, Any]) -> Run:
    files = record.get("files", {})
    metrics = dict(record.get("metrics", {}))
    for split, scores in metrics.items():
        if isinstance(scores, Mapping) and "per_image" in scores:
            metrics[split] = {**scores, "per_image": unpack_images(scores["per_image"])}
    return Run(
        folder=Path(record["run"]),
        config=record.get("config", {}),
        versions=record.get("versions", {}),
        metrics=metrics,
        detection=tuple(files.get(DETECTION, ())),
        timing=tuple(files.get(TIMING, {}).get("epochs", ())),
        files=files,
    )


def _of_folder(folder: Path) -> list[Run]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    below = [folder] if (folder / CONFIG).is_file() else runs_below(folder)
    studies = sorted(folder.glob("*.jsonl")) if not below else []
    if not below and not studies:
        raise FileNotFoundError(f"{folder} is not a run folder: no config.yaml in it or below")
    runs = [read_run(path.resolve()) for path in below]
    return runs + [run for study in studies for run in _of_study(study)]


def runs_below(folder: Path) -> list[Path]:
    """Run folders in a folder and below, in order."""
    return sorted(path.parent for path in folder.rglob(CONFIG))


def read_run(folder: Path) -> Run:
    """Read one run folder.

    Raises:
        ValueError: a file has invalid content.
    """
    return Run(
        folder=folder,
        config=_content(folder / CONFIG, dict),
        versions=_content(folder / VERSIONS, dict),
        metrics=_content(folder / METRICS, dict),
        detection=_records(folder / DETECTION, _content(folder / DETECTION, list)),
        timing=_records(folder / TIMING, _content(folder / TIMING, dict).get("epochs", [])),
        files=FolderFiles(folder),
    )


def read_published(path: str | Path) -> dict[str, dict[str, float]]:
    """Read published scores from a YAML file ``{row: {metric: score}}``, in this project's unit.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another structure.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a file of published scores")
    rows = _content(path, dict)
    for row, scores in rows.items():
        numbers = scores.values() if isinstance(scores, dict) else [None]
        if any(as_number(value) is None for value in numbers):
            raise ValueError(f"{path}: {row!r} must hold numbers by metric: got {scores!r}")
    return {str(row): {str(k): float(v) for k, v in scores.items()} for row, scores in rows.items()}


def as_number(value: object) -> float | None:
    """Return a finite number as such, and None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def read_content(path: Path) -> Any:
    """Read a YAML or JSON file.

    Raises:
        ValueError: the file cannot be read; the message names it.
    """
    load = yaml.safe_load if path.suffix == ".yaml" else json.loads
    try:
        return load(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(
            f"{path}: cannot be read ({problem}): it was damaged or cut off; restore it, or make "
            "the run again"
        ) from error


def _records(path: Path, content: Any) -> tuple[dict[str, Any], ...]:
    """Per-epoch entries of a file."""
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise ValueError(
            f"{path}: must hold one object for each epoch: it was damaged; restore it, or make the "
            f"run "
            "again"
        )
    return tuple(content)


def _content(path: Path, kind: type) -> Any:
    """Content of a YAML or JSON file; an empty ``kind`` if the file is missing."""
    if not path.is_file():
        return kind()
    value = read_content(path)
    if not isinstance(value, kind):
        raise ValueError(
            f"{path}: must hold a {kind.__name__}: got {type(value).__name__}; it was damaged or "
            "cut off; restore it, or make the run again"
        )
    return value


def _descend(value: Any, key: str) -> Any:
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


# JSON files of a run that are kept as they are.
_PLAIN = (TIMING, DETECTION, "curation/detection_by_score.json", "curation/epochs.json")
# Numbers of made sets, which have no metrics.json.
_OF_SETS = (
    "card.json",
    "statistics.json",
    "statistics/statistics.json",
    "clusters/silhouettes.json",
    "fid.json",
)
# Scores of further commands, and the parts of them that are kept.
_EVALUATIONS = ("evaluation/*/diverse.json", "evaluation/*/control.json")
# Scores of evaluations on other data, of which the scores of single images are left out.
_FURTHER_METRICS = "evaluation/*/metrics.json"
KEPT_PARTS = ("scores", "oracle", "consensus", "swapped", "random", "standard")
_DIGITS, _DIGITS_OF_IMAGES = 10, 4
# Where an absolute path begins; one part of it; the whole.
_BEGIN, _PART = r"(?<![\w.$}/*~-])", r"[^\s/,'\"\[\]{}()]+"
_ABSOLUTE = re.compile(rf"{_BEGIN}/{_PART}(?:/+{_PART})*")


def recordable(sources: Iterable[Path]) -> list[Path]:
    """Run folders in folders and below, including papers' datasets and evaluations, in order.

    Raises:
        FileNotFoundError: a folder does not exist or holds no run.
    """
    folders: dict[Path, None] = {}
    for source in sources:
        found = sorted({path.parent for name in (CONFIG, STEPS) for path in source.rglob(name)})
        if not found:
            raise FileNotFoundError(
                f"{source}: no {CONFIG} and no {STEPS} in it or below: no run folder"
            )
        folders |= dict.fromkeys(path.resolve() for path in found)
    return list(folders)


def has_numbers(run: Run) -> bool:
    """Whether a run or generated dataset has the results that a record stores."""
    return bool(run.metrics) or any(name in run.files for name in _OF_SETS)


def check_names(runs: Iterable[Run]) -> None:
    """Check that no two runs have the same name, as the second record would replace the first.

    Raises:
        ValueError: two runs have the same name.
    """
    known: dict[str, Path] = {}
    for run in runs:
        if (first := known.setdefault(run.name, run.folder)) != run.folder:
            raise ValueError(
                f"{first} and {run.folder}: the records of both would be {run.name}, so one would "
                f"overwrite the other; record each into a folder of its own (--out)"
            )


def keep_record(folder: Path, out: Path, *, per_image: Collection[str] = ()) -> Path:
    """Store a finished run's record in its study's file, replacing an earlier record of the run.

    Args:
        folder: folder of the run, ``.../STUDY/RUN/SEED``.
        out: folder of the files of all studies.
        per_image: metrics whose per-image scores are stored.

    Returns:
        The study's file.

    Raises:
        FileNotFoundError: the run has no scores yet, or the dataset no numbers.
        ValueError: a file is damaged, or the study's file has another run's record of this name.
    """
    run = read_run(folder.resolve())
    if not has_numbers(run):
        raise FileNotFoundError(f"{folder / METRICS}: no such file: the run is not finished")
    path = out / f"{run.name.partition('/')[0]}.jsonl"
    other_records = read_study(path) if path.is_file() else []
    for other in other_records:
        if other["run"] == run.name and (name := _other_run_name(other, run)):
            raise ValueError(
                f"{folder}: {path} has the name {run.name} for another run (run_name={name}, and "
                f"here {run.setting('run_name')}); record this one into another folder (--out)"
            )
    record = record_of(run, per_image=per_image)
    others = (other for other in other_records if other["run"] != run.name)
    write_study(path, [*others, record])
    return path


def _other_run_name(record: Mapping[str, Any], run: Run) -> str | None:
    """Run name of a record if it belongs to another run than ``run``; else None.

    A folder's name is the end of its run name, and two run names may share this end. Folders named
    by hand, such as those of papers, keep their names whatever their settings.
    """
    names = (record.get("config", {}).get("run_name"), run.setting("run_name"))
    folder = run.name.rpartition("/")[0]
    by_run_name = any(name == folder or str(name).endswith(f"/{folder}") for name in names)
    differ = None not in names and names[0] != names[1]
    return str(names[0]) if differ and by_run_name else None


def record_of(run: Run, *, per_image: Collection[str]) -> dict[str, Any]:
    """Record of a run, without paths of this machine."""
    folders = run.config.get("paths", {})
    files = {name: run.files[name] for name in _PLAIN if name in run.files}
    files |= {name: _portable(run.files[name], folders) for name in _OF_SETS if name in run.files}
    for pattern in _EVALUATIONS:
        evaluations = run.matching(pattern)
        files |= {
            name: _without_captions(content, folders) for name, content in evaluations.items()
        }
    for name, content in run.matching(_FURTHER_METRICS).items():
        files[name] = _portable(_without_images(content), folders)
    metrics = _portable(run.metrics, folders)
    for scores in metrics.values():
        if isinstance(scores, dict):
            images = _image_scores(scores.pop("per_image", {}), per_image)
            scores |= {"per_image": pack_images(images)} if images else {}
    return {
        "run": run.name,
        "config": _portable(run.config, folders),
        "versions": _versions(run.versions, folders),
        "metrics": _rounded(metrics),
        "files": _rounded(files),
    }


def _without_images(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        split: {key: value for key, value in scores.items() if key != "per_image"}
        for split, scores in metrics.items()
        if isinstance(scores, Mapping) and "corpus" in scores
    }


def _image_scores(
    images: Mapping[str, Mapping[str, float]], metrics: Collection[str]
) -> dict[str, dict[str, float]]:
    selected = {
        image_id: {
            name: round(scores[name], _DIGITS_OF_IMAGES) for name in metrics if name in scores
        }
        for image_id, scores in images.items()
    }
    return selected if any(selected.values()) else {}


def _without_captions(content: Mapping[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """Scores over the whole dataset, and the versions that computed them."""
    selected = _portable({name: content[name] for name in KEPT_PARTS if name in content}, folders)
    if selected.get("random"):
        selected["random"].pop("captions", None)
    for name in ("per_caption", "per_image"):
        selected["scores"].pop(name, None)
    return selected | {"versions": _versions(content.get("versions") or {}, folders)}


def _rounded(value: Any) -> Any:
    """Round numbers to slightly more digits than any page shows."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _portable(content: Any, folders: Mapping[str, str]) -> Any:
    """Content without paths of this machine.

    Of paths outside the run's own folders, only the end is kept.
    """
    if isinstance(content, Mapping):
        return {key: _portable(value, folders) for key, value in content.items()}
    if isinstance(content, list):
        return [_portable(value, folders) for value in content]
    return _portable_text(content, folders) if isinstance(content, str) else content


def _portable_text(text: str, folders: Mapping[str, str]) -> str:
    for name in sorted(folders, key=lambda name: -len(str(folders[name]))):
        folder = str(folders[name]).rstrip("/")
        if folder.startswith("/"):  # not "data", which is the name of settings too
            pattern = rf"{_BEGIN}{re.escape(folder)}(?![\w.-])"
            text = re.sub(pattern, f"$CAPTIONING_{name.upper()}", text)
    return _ABSOLUTE.sub(lambda path: _end(path[0]), text)


def _end(path: str) -> str:
    """Last two parts of a path at most, without its first two, such as "home" and a user name."""
    parts = [part for part in path.split("/") if part]
    return "/".join(["$ELSEWHERE", *(parts[2:] or parts[-1:])[-2:]])


def _versions(recorded: Mapping[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """Versions whose commands name programs without their folders."""
    versions = json.loads(json.dumps(recorded))
    for entry in [versions, *versions.get("resumed", [])]:
        if entry.get("command"):
            program, *arguments = _portable_text(entry["command"], folders).split(" ")
            entry["command"] = " ".join([Path(program).name, *arguments])
    return versions


def read_study(path: Path) -> list[dict[str, Any]]:
    """Read all records of a file, each with the common part filled in.

    Raises:
        ValueError: a line is not a record; the message names file and line.
    """
    common: dict[str, Any] = {}
    records = []
    try:
        lines = written_lines(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); get the file again") from error
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if number == 1:
                common = entry["common"]
            else:
                records.append(_merged(common, entry))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} line {number}: not a record of a run ({error}); take the file from the "
                "repository again"
            ) from error
    return records


def write_study(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records, sorted by the run's name; the first line holds their common part.

    Args:
        path: path of the file, whose name is the study's.
        records: each with ``run``.
    """
    ordered = sorted(records, key=lambda record: record["run"])
    common = reduce(_shared, ordered) if len(ordered) > 1 else {}
    lines = [{"study": path.stem, "common": common}]
    lines += [_without_common(record, common) for record in ordered]
    texts = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines)
    write_text(path, "".join(f"{text}\n" for text in texts))


def pack_images(images: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Store per-image scores as columns: the ids, then a list per metric (None: not scored)."""
    names = dict.fromkeys(name for scores in images.values() for name in scores)
    columns = {name: [scores.get(name) for scores in images.values()] for name in names}
    return {"ids": list(images), "scores": columns}


def unpack_images(packed: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Restore per-image scores stored by `pack_images`."""
    images: dict[str, dict[str, float]] = {image_id: {} for image_id in packed["ids"]}
    for name, values in packed["scores"].items():
        for image_id, value in zip(packed["ids"], values, strict=True):
            if value is not None:
                images[image_id][name] = value
    return images


def _shared(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Values that two records have in common, key by key."""
    shared: dict[str, Any] = {}
    for key in first.keys() & second.keys():
        first_value, second_value = first[key], second[key]
        if isinstance(first_value, Mapping) and isinstance(second_value, Mapping):
            shared[key] = _shared(first_value, second_value)
        elif first_value == second_value and type(first_value) is type(second_value):
            shared[key] = first_value
    return {key: shared[key] for key in first if key in shared}


def _without_common(record: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record that are not in ``common``."""
    remaining: dict[str, Any] = {}
    for key, value in record.items():
        if key not in common:
            remaining[key] = value
        elif isinstance(value, Mapping):
            rest = _without_common(value, common[key])
            remaining |= {key: rest} if rest else {}
    return remaining


def _merged(common: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(common)
    for key, value in values.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(known, value)
        else:
            merged[key] = value
    return merged
