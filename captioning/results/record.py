"""Keep what tables are built from: ``captioning record RUNS... --out FOLDER``.

A run folder with its checkpoints is too large for a repository. This copies its config, versions,
scores and times under the run's own name and seed, and the scores of its several and of its
controlled captions; the copies are run folders to
`captioning.results.table`. Scores of single images, by which rows are compared, are copied of the
metrics of ``--per-image`` alone, to four digits.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from captioning.files import read_json, write_json, write_text

COPIED = (
    "timing.json",
    "curation/detection.json",
    "curation/detection_by_score.json",
)
# Scores of further commands, in ``evaluation/DATA-SPLIT``, and what of them is kept.
FURTHER = ("diverse.json", "control.json")
_KEPT = ("scores", "swapped", "random", "standard")
_DIGITS = 4
# Where an absolute path begins; one part of it; the whole.
_BEGIN, _PART = r"(?<![\w.$}/*~-])", r"[^\s/,'\"\[\]{}()]+"
_ABSOLUTE = re.compile(rf"{_BEGIN}/{_PART}(?:/+{_PART})*")


def keep_record(run: Path, out: Path, *, per_image: Collection[str] = ()) -> Path:
    """Copy the small files of a finished run.

    Args:
        run: its folder, ``.../RUN_NAME/seedN``.
        out: parent of all records.
        per_image: metrics whose scores of single images are kept.

    Returns:
        The record's folder.

    Raises:
        FileNotFoundError: the run has no scores yet.
    """
    config = (run / "config.yaml").read_text()
    folders = yaml.safe_load(config).get("paths", {})
    metrics = json.loads(_portable((run / "metrics.json").read_text(), folders))
    for scores in metrics.values():
        images = scores.pop("per_image", {}) if isinstance(scores, dict) else {}
        kept = {
            image_id: {name: round(found[name], _DIGITS) for name in per_image if name in found}
            for image_id, found in images.items()
        }
        if any(kept.values()):
            scores["per_image"] = kept
    target = out / run.parent.parent.name / run.parent.name / run.name
    for name in COPIED:
        if (run / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run / name, target / name)
    write_text(target / "config.yaml", _portable(config, folders))
    if (run / "versions.json").is_file():
        write_json(target / "versions.json", _noted(read_json(run / "versions.json"), folders))
    for path in sorted(run.glob("evaluation/*/*.json")):
        if path.name in FURTHER:
            write_json(target / path.relative_to(run), _further(read_json(path), folders))
    # a thousand images' scores are for no reader: one line
    write_json(target / "metrics.json", metrics, indent=None if per_image else 1)
    return target


def _further(content: dict[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """Scores of the whole set, and the versions that they were made with."""
    kept = {name: content[name] for name in _KEPT if name in content}
    kept = json.loads(_portable(json.dumps(kept), folders))
    if kept.get("random"):
        kept["random"].pop("captions", None)
    for name in ("per_caption", "per_image"):
        kept["scores"].pop(name, None)
    return kept | {"versions": _noted(content.get("versions") or {}, folders)}


def _portable(text: str, folders: Mapping[str, str]) -> str:
    """The text without the machine's folders, which say nothing of the result.

    Paths in none of the run's own folders are kept to their end.
    """
    for name in sorted(folders, key=lambda name: -len(str(folders[name]))):
        folder = str(folders[name]).rstrip("/")
        if folder.startswith("/"):  # not "data", which is the name of settings too
            whole = rf"{_BEGIN}{re.escape(folder)}(?![\w.-])"
            text = re.sub(whole, f"$CAPTIONING_{name.upper()}", text)
    return _ABSOLUTE.sub(lambda path: _end(path[0]), text)


def _end(path: str) -> str:
    """Its last two parts at most, without the first two: "home" or a disk, and whose it is."""
    parts = [part for part in path.split("/") if part]
    return "/".join(["$ELSEWHERE", *(parts[2:] or parts[-1:])[-2:]])


def _noted(found: dict[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """Versions whose commands name programs, wherever they lay."""
    for versions in [found, *found.get("resumed", [])]:
        if not versions.get("command"):
            continue
        program, *given = _portable(versions["command"], folders).split(" ")
        versions["command"] = " ".join([Path(program).name, *given])
    return found
