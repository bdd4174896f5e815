"""Write suspected captions as Label Studio tasks, and read its annotations as edits.

`Decisions` is a file of the same form, to which the app writes people's decisions.
`write_corrected` writes the set as they corrected it, with journal and card.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from captioning.data.readers.split_words import Split
from captioning.data.roster import CurationView, Roster
from captioning.runtime.files import read_json, write_json, write_text
from captioning.types import Edit
from curation.check.check_files import HELD_OUT, draw_splits
from curation.check.folder_check import read_all, read_questions, read_splits
from curation.export.export import export
from curation.export.tool_files import Style
from curation.finished_run import read_asked, read_held_out, read_run
from curation.journal.journal import FILE_NAME
from curation.record import RunRecord
from curation.review.suspects.suspects import Suspect, check_no_shard

POLICY = "people"
KEEP, REMOVE, CORRECT = "keep", "remove", "correct"
VERDICT, CORRECTION, PHOTO = "verdict", "correction", "photo"
# Label Studio serves files below its LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT under this address.
LOCAL_FILES = "/data/local-files/?d="
INTERFACE = f"""<View>
  <Image name="{PHOTO}" value="$image"/>
  <Header value="The caption"/>
  <Text name="caption" value="$caption"/>
  <Text name="reason" value="$reason"/>
  <Choices name="{VERDICT}" toName="{PHOTO}" choice="single" required="true">
    <Choice value="{KEEP}" hint="it is right"/>
    <Choice value="{REMOVE}"/>
    <Choice value="{CORRECT}" hint="write the right one below"/>
  </Choices>
  <TextArea name="{CORRECTION}" toName="{PHOTO}" value="$caption" editable="true"
            maxSubmissions="1" rows="2"/>
</View>
"""


def write_label_studio(
    suspects: Sequence[Suspect],
    folder: Path,
    *,
    root: Path | None = None,
    address: str = LOCAL_FILES,
) -> Path:
    """Write ``tasks.json`` and ``interface.xml``, the project's configuration; photos stay.

    Args:
        suspects: one is a task, with a prediction: the action of the check or run.
        folder: folder for the two files.
        root: folder that photos are served from; None: the common folder of all photos.
        address: the prefix of a photo's path below the root.

    Returns:
        The root.

    Raises:
        ValueError: a photo is in a shard, or outside the root.
        OSError: the folder cannot be written.
    """
    for suspect in suspects:
        check_no_shard(suspect.photo, "cannot be served")
    top, images = photo_addresses([suspect.photo for suspect in suspects], root, address)
    tasks = [_task(suspect, image) for suspect, image in zip(suspects, images, strict=True)]
    write_text(folder / "interface.xml", INTERFACE)
    write_json(folder / "tasks.json", tasks)
    return top


def photo_addresses(
    photos: Sequence[Path], root: Path | None, address: str
) -> tuple[Path, list[str]]:
    """Root folder for serving the photos, and the address of each photo.

    Args:
        photos: at least one.
        root: folder that photos are served from; None: the common folder of all photos.
        address: the prefix of a photo's path below the root.

    Raises:
        ValueError: a photo is outside the root.
    """
    real = [photo.resolve() for photo in photos]
    top = (root or Path(os.path.commonpath([photo.parent for photo in real]))).resolve()
    for photo in real:
        if not photo.is_relative_to(top):
            raise ValueError(f"{photo} is outside the folder --root {top}")
    return top, [address + quote(photo.relative_to(top).as_posix()) for photo in real]


def _task(suspect: Suspect, image: str) -> dict[str, Any]:
    verdict = REMOVE if suspect.proposal is None else CORRECT
    score = {} if suspect.suspicion is None else {"score": suspect.suspicion}
    result = decision_parts(verdict, suspect.proposal or "")
    prediction = {"model_version": "caption-curation", "result": result, **score}
    return {"data": task_data(suspect, image), "predictions": [prediction]}


def task_data(suspect: Suspect, image: str) -> dict[str, str]:
    """Content of a task; ``image`` is the photo's address."""
    return {
        "image": image,
        "caption": suspect.caption,
        "sample_id": suspect.sample_id,
        "issues": ", ".join(suspect.issues),
        "reason": suspect.reason,
    }


def decision_parts(verdict: str, correction: str = "") -> list[dict[str, Any]]:
    """Result entries of an annotation or prediction."""
    parts = [_part(VERDICT, "choices", {"choices": [verdict]})]
    if correction:
        parts.append(_part(CORRECTION, "textarea", {"text": [correction]}))
    return parts


def _part(name: str, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "from_name": name, "to_name": PHOTO, "type": kind, "value": value}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTask:
    """A task of a Label Studio export with its verdict.

    Attributes:
        where: file and number, for messages.
        content: the file's content.
        sample_id, caption: the suspect's id and caption.
        verdict: `KEEP`, `REMOVE` or `CORRECT` of the latest annotation; None without a verdict.
        correction: the corrected caption for `CORRECT`; not empty then.
    """

    where: str
    content: dict[str, Any]
    sample_id: str
    caption: str
    verdict: str | None
    correction: str


def read_export(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Read the tasks of a JSON export, with file and task number for messages.

    Raises:
        FileNotFoundError: the export does not exist.
        ValueError: the export is not a list.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} does not exist; name the JSON export of Label Studio")
    for number, task in enumerate(read_json(path, list), start=1):
        yield f"{path}: task {number}", task


def read_tasks(path: str | Path) -> Iterator[JudgedTask]:
    """Read the tasks of an export with the annotators' decisions.

    Raises:
        FileNotFoundError: the export does not exist.
        ValueError: not such an export, or a correction lacks its text; names the task.
    """
    for where, task in read_export(path):
        try:
            name, caption = task["data"]["sample_id"], task["data"]["caption"]
            parts = latest_values(task["annotations"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{where} has no {error}: export the project of captioning curate suspects as JSON "
                "(not JSON-MIN)"
            ) from error
        verdict, correction = (None, "") if parts is None else _decision(parts, where)
        yield JudgedTask(
            where=where,
            content=task,
            sample_id=name,
            caption=caption,
            verdict=verdict,
            correction=correction,
        )


def read_label_studio(
    path: str | Path, roster: Roster, *, epoch: int = -1
) -> dict[str, Edit | None]:
    """Read the annotators' decisions as edits by ``sample_id``; None for kept captions.

    The latest of several annotations of a task counts; skipped tasks and those without annotation
    are left out.

    Args:
        path: a JSON export of Label Studio, or a file that ``captioning app`` wrote.
        roster: the roster of the suspects.
        epoch: epoch of the edits.

    Raises:
        FileNotFoundError: the export does not exist.
        ValueError: see `read_tasks`, or the roster lacks a caption.
    """
    decided: dict[str, Edit | None] = {}
    for task in read_tasks(path):
        sample = roster.by_id.get(task.sample_id)
        if sample is None or sample.caption != task.caption:
            raise ValueError(
                f"{task.where}: {json.dumps(task.sample_id)} with this caption is not in "
                f"{roster.name}: name the unchanged dataset of the suspects"
            )
        if task.verdict is not None:
            decided[task.sample_id] = _edit(task, epoch)
    return decided


def latest_values(annotations: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Values of the latest annotation by name of the control."""
    made = [entry for entry in annotations if not entry.get("was_cancelled")]
    if not made:
        return None
    last = max(made, key=lambda entry: str(entry.get("updated_at") or entry.get("created_at")))
    return {part["from_name"]: part["value"] for part in last["result"]}


def _decision(parts: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Verdict and correction of an annotation."""
    verdict = next(iter(parts.get(VERDICT, {}).get("choices", ())), None)
    if verdict not in (KEEP, REMOVE, CORRECT):
        raise ValueError(f"{where}: the verdict must be keep, remove or correct: got {verdict!r}")
    if verdict != CORRECT:
        return verdict, ""
    text = " ".join(" ".join(texts_of(parts.get(CORRECTION, {}).get("text", ()))).split())
    if not text:
        raise ValueError(f"{where}: the verdict is correct, but the corrected caption is missing")
    return verdict, text


def _edit(task: JudgedTask, epoch: int) -> Edit | None:
    if task.verdict == KEEP:
        return None
    common = {"policy": POLICY, "reason": "judged by people", "epoch": epoch}
    if task.verdict == REMOVE:
        return Edit(sample_id=task.sample_id, action="remove", **common)
    return Edit(sample_id=task.sample_id, action="replace_caption", value=task.correction, **common)


def texts_of(value: Any) -> Iterator[str]:
    """Yield one text, or each text of a list."""
    yield from [value] if isinstance(value, str) else map(str, value)


MAX_CORRECTION = 2000  # maximum characters of a correction


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A reviewer's decision on a caption.

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
            raise ValueError(
                "the verdict correct needs a caption; other verdicts must not have a caption"
            )
        if len(text) > MAX_CORRECTION:
            raise ValueError(
                f"a correction must have at most {MAX_CORRECTION} characters: got {len(text)}"
            )


class Decisions:
    """Decisions in a file, which ``captioning curate corrections`` can apply.

    The file keeps tasks that are not among the suspects.

    Args:
        path: the file's path; existing decisions are read, and the file may be missing.
        suspects: the suspects to decide on.

    Raises:
        ValueError: the file is not an export of Label Studio, or has other captions.
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
                    f"{task.where}: {task.sample_id} has another caption, so these decisions "
                    "belong to another dataset: choose another file with --decisions"
                )
            self._tasks[task.sample_id] = task.content
            self._texts[task.sample_id] = _text(task.content, task.where)
            if task.verdict is not None:
                decision = Decision(verdict=task.verdict, correction=task.correction)
                self._decided[task.sample_id] = decision

    def of(self, suspect: Suspect) -> Decision | None:
        """Return the decision on a suspect, or None if undecided."""
        return self._decided.get(suspect.sample_id)

    def decide(self, suspect: Suspect, decision: Decision | None) -> None:
        """Write a decision that replaces any earlier decision, and flush it to disk.

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
            # Only one task of thousands has changed, so the texts of the other tasks are reused.
            texts = {**self._texts, name: _text(task, str(self.path))}
            write_text(self.path, "[\n" + ",\n".join(texts.values()) + "\n]\n")
            self._tasks[name], self._texts = task, texts
            self._decided.pop(name, None)
            if decision is not None:
                self._decided[name] = decision


def _text(task: dict[str, Any], where: str) -> str:
    """JSON text of one task in the format of `captioning.runtime.files.write_json`."""
    try:
        text = json.dumps([task], indent=1, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ValueError(f"cannot write {where}: {error}") from error
    return text.removeprefix("[\n").removesuffix("\n]")


def _annotation(decision: Decision) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "result": decision_parts(decision.verdict, decision.correction),
        "was_cancelled": False,
        "created_at": now,
        "updated_at": now,
    }


def write_corrected(
    decisions: str | Path,
    source: str | Path,
    folder: str | Path,
    *,
    format: str,
    photos: str,
    style: Style | None = None,
    part: Literal["all", "train"] = "all",
    held_out: float = HELD_OUT,
    keys_folder: str | Path | None = None,
) -> dict[str, int]:
    """Write a dataset with the annotators' decisions from Label Studio applied.

    A run's own edits stay in force for captions without a decision.

    Args:
        decisions: JSON that Label Studio exported.
        source: the folder that was checked, or the run.
        folder: new or empty.
        format: one of `curation.export.export.FORMATS`.
        photos: one of `curation.export.export.PHOTOS`.
        style: form of a format that has several; None: the plain one.
        part: part of a run: ``"all"`` also writes its val and test, which are not changed.
        held_out, keys_folder: settings for a folder without splits, see `draw_splits`.

    Returns:
        Counts of decisions (``"keep"`` and actions of edits), and of undecided captions
        (``"left"``).

    Raises:
        FileNotFoundError, ValueError, OSError: see `read_label_studio` and `export`.
    """
    run = Path(source) if (Path(source) / FILE_NAME).is_file() and _is_run(Path(source)) else None
    style = style or Style()
    style.check(format)
    if run is None:
        view = CurationView(roster=read_all(source))
        style = replace(style, questions=read_questions(source, view.roster))
        record = RunRecord(policy=POLICY, seed=0, view=view)
    else:
        record = read_run(run)
    epoch = max((edit.epoch for edit in record.view.journal), default=-1)
    decided = read_label_studio(decisions, record.view.roster, epoch=epoch)
    kept = [edit for edit in record.view.journal if edit.sample_id not in decided]
    people = [edit for edit in decided.values() if edit is not None]
    view = replace(record.view, journal=()).apply([*kept, *people])
    record = replace(record, policy=POLICY, view=view)
    splits, told, beside = {}, "", {}
    if run is None:
        splits, told = draw_splits(view, read_splits(source), held_out, keys_folder)
    elif part == "all" and format != "journal":
        beside = read_held_out(run)
    if run is not None and format == "messages":
        rosters: dict[Split, Roster] = {"train": view.roster, **beside}
        style = style.asking(read_asked(run, rosters))
    count = export(
        record, run, Path(folder), format=format, photos=photos, by_people=True, splits=splits,
        style=style, about_splits=told, beside=beside,
    )  # fmt: skip
    actions = ["keep" if edit is None else edit.action for edit in decided.values()]
    return {**{name: actions.count(name) for name in dict.fromkeys(actions)}, "left": count}


def _is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file() or (folder / "curation").is_dir()
