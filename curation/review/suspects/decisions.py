"""What people decide of suspects, written at once to a file as Label Studio exports it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_text
from curation.review.suspects.label_studio import (
    CORRECT,
    KEEP,
    REMOVE,
    decision_parts,
    read_tasks,
    task_data,
)
from curation.review.suspects.suspects import Suspect

MAX_CORRECTION = 2000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a caption.

    Attributes:
        verdict: ``"keep"``, ``"remove"`` or ``"correct"``.
        correction: the new caption of ``"correct"``; blanks are made one.

    Raises:
        ValueError: another verdict, or a correction that is empty, too long, or beside another
            verdict.
    """

    verdict: str
    correction: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in (KEEP, REMOVE, CORRECT):
            raise ValueError(f"verdict must be keep, remove or correct: got {self.verdict!r:.40}")
        text = " ".join(self.correction.split())
        object.__setattr__(self, "correction", text)
        if (self.verdict == CORRECT) != bool(text):
            raise ValueError("a correction needs a caption, and nothing else has one")
        if len(text) > MAX_CORRECTION:
            raise ValueError(f"a caption has at most {MAX_CORRECTION} characters: got {len(text)}")


class Decisions:
    """The decisions of a file, which ``captioning curate corrections`` applies.

    Tasks of the file that are none of the suspects stay in it.

    Args:
        path: of the file; what it holds is taken up, and it need not be there.
        suspects: that are decided on.

    Raises:
        ValueError: the file is no export of Label Studio, or of other captions.
    """

    def __init__(self, *, path: Path, suspects: Sequence[Suspect]) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._texts: dict[str, str] = {}  # of the tasks, as the file has them
        self._decided: dict[str, Decision] = {}
        captions = {suspect.sample_id: suspect.caption for suspect in suspects}
        for task in read_tasks(path) if path.exists() else ():
            if captions.get(task.sample_id, task.caption) != task.caption:
                raise ValueError(
                    f"{task.where}: {task.sample_id} has another caption there; these are "
                    "decisions on another set: name another file by --decisions"
                )
            self._tasks[task.sample_id] = task.content
            self._texts[task.sample_id] = _text(task.content, task.where)
            if task.verdict is not None:
                decision = Decision(verdict=task.verdict, correction=task.correction)
                self._decided[task.sample_id] = decision

    def of(self, suspect: Suspect) -> Decision | None:
        """What was decided of a suspect; None: nothing yet."""
        return self._decided.get(suspect.sample_id)

    def decide(self, suspect: Suspect, decision: Decision | None) -> None:
        """Write a decision in place of an earlier one; it is on the disk when this returns.

        Args:
            suspect: one of the suspects.
            decision: None takes an earlier one back.

        Raises:
            OSError: the file cannot be written; then the earlier decision holds.
        """
        name = suspect.sample_id
        with self._lock:
            task = {"data": task_data(suspect, str(suspect.photo)), **self._tasks.get(name, {})}
            task["annotations"] = [] if decision is None else [_annotation(decision)]
            # Of a list of thousands one task has changed: the others are not made into text again.
            texts = {**self._texts, name: _text(task, str(self.path))}
            write_text(self.path, "[\n" + ",\n".join(texts.values()) + "\n]\n")
            self._tasks[name], self._texts = task, texts
            self._decided.pop(name, None)
            if decision is not None:
                self._decided[name] = decision


def _text(task: dict[str, Any], where: str) -> str:
    """A task as it stands in a list that `captioning.runtime.files.write_json` writes."""
    try:
        text = json.dumps([task], indent=1, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ValueError(f"{where} cannot be written: {error}") from error
    return text.removeprefix("[\n").removesuffix("\n]")


def _annotation(decision: Decision) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "result": decision_parts(decision.verdict, decision.correction),
        "was_cancelled": False,
        "created_at": now,
        "updated_at": now,
    }
