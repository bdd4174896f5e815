"""All targets, and runs over them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from captioning.results.versions import versions
from tests.fuzz import annotations, configs, features, models, photos, runs
from tests.fuzz.harness import Outcome, Target, fuzz

TARGETS: Sequence[Target] = (
    *(*annotations.TARGETS, *photos.TARGETS, *features.TARGETS),
    *(*runs.TARGETS, *models.TARGETS, *configs.TARGETS),
)


def run(folder: Path, *, inputs: int, seed: int, only: str = "") -> Iterator[Outcome]:
    """Feed all targets with ``inputs`` together, each as its share says and at least once."""
    chosen = [target for target in TARGETS if only in target.name]
    total = sum(target.share for target in TARGETS)
    for number, target in enumerate(chosen):
        own = max(1, round(inputs * target.share / total + 0.5))
        yield fuzz(target, folder / str(number), inputs=own, seed=seed)


def facts(command: str) -> dict[str, Any]:
    """Date, commit and machine, for a record."""
    known = versions()
    kept = {key: known[key] for key in ("commit", "machine", "python", "torch")}
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return {"date": date, "command": command, **kept}


def merged(path: Path, record: dict[str, Any]) -> list[str]:
    """The lines of a record file, with that of the same subject replaced, or one added."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    earlier = [other for other in map(json.loads, lines) if _subject(other) != _subject(record)]
    return [json.dumps(line, ensure_ascii=False) for line in (*earlier, record)]


def _subject(record: dict[str, Any]) -> str:
    return next(record[key] for key in ("target", "scenario", "fault") if key in record)


def line(outcome: Outcome, about: dict[str, Any]) -> dict[str, Any]:
    """A line of the record."""
    return {"suite": "fuzz", **asdict(outcome), **about}
