"""Stores the content that tables are built from: ``captioning record RUNS... --out FOLDER``.

A run folder with its checkpoints is too large for a repository. This puts its config, versions,
scores and times as one line into ``FOLDER/STUDY.jsonl`` (`study_file`), where the study is the
folder above the run's: ``runs/STUDY/RUN/seed0``. `captioning table` reads such files as it reads
run folders. Scores of single images, by which rows are compared, are stored only for the metrics
of ``--per-image``, to four digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from captioning.results.runs import CONFIG, DETECTION, METRICS, STEPS, TIMING, Run, read_run
from captioning.results.study_file import pack_images, read_study, write_study

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
    """Run folders in folders and below, and those of papers' sets and evaluations, in order.

    Raises:
        FileNotFoundError: a folder that is not there or holds none.
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
    """Whether a run or a made set has what a record keeps; unfinished ones have not."""
    return bool(run.metrics) or any(name in run.files for name in _OF_SETS)


def check_names(runs: Iterable[Run]) -> None:
    """See that no two runs have one name: the second record would take the place of the first.

    Raises:
        ValueError: two have.
    """
    known: dict[str, Path] = {}
    for run in runs:
        if (first := known.setdefault(run.name, run.folder)) != run.folder:
            raise ValueError(
                f"{first} and {run.folder}: the records of both would be {run.name}, and one "
                "would replace the other; record each into a folder of its own (--out)"
            )


def keep_record(folder: Path, out: Path, *, per_image: Collection[str] = ()) -> Path:
    """Put a finished run's record into its study's file, in place of a former one of it.

    Args:
        folder: of the run, ``.../STUDY/RUN/SEED``.
        out: folder of the files of all studies.
        per_image: metrics whose scores of single images are kept.

    Returns:
        The study's file.

    Raises:
        FileNotFoundError: the run has no scores yet, the set no numbers.
        ValueError: a damaged file of the run or of the study, or the study's file has a record
            of this name that is another run's.
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
    """The run name of a record if the record is another run's than ``run``; else None.

    A folder is called by its run name's last parts, which two run names may share. Folders that
    were named by hand, as those of papers are, keep their names whatever their settings.
    """
    names = (record.get("config", {}).get("run_name"), run.setting("run_name"))
    folder = run.name.rpartition("/")[0]
    by_run_name = any(name == folder or str(name).endswith(f"/{folder}") for name in names)
    differ = None not in names and names[0] != names[1]
    return str(names[0]) if differ and by_run_name else None


def record_of(run: Run, *, per_image: Collection[str]) -> dict[str, Any]:
    """The record of a run, without the machine's folders."""
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
    """Scores of the whole set, and the versions that they were made with."""
    selected = _portable({name: content[name] for name in KEPT_PARTS if name in content}, folders)
    if selected.get("random"):
        selected["random"].pop("captions", None)
    for name in ("per_caption", "per_image"):
        selected["scores"].pop(name, None)
    return selected | {"versions": _versions(content.get("versions") or {}, folders)}


def _rounded(value: Any) -> Any:
    """Numbers to as many digits as any page shows, and more."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _portable(content: Any, folders: Mapping[str, str]) -> Any:
    """The content without the machine's folders, which say nothing of the result.

    Paths in none of the run's own folders are kept to their end.
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
    """Its last two parts at most, without the first two, such as "home" and a person's name."""
    parts = [part for part in path.split("/") if part]
    return "/".join(["$ELSEWHERE", *(parts[2:] or parts[-1:])[-2:]])


def _versions(recorded: Mapping[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """Versions whose commands name programs, wherever they lay."""
    versions = json.loads(json.dumps(recorded))
    for entry in [versions, *versions.get("resumed", [])]:
        if entry.get("command"):
            program, *arguments = _portable_text(entry["command"], folders).split(" ")
            entry["command"] = " ".join([Path(program).name, *arguments])
    return versions
