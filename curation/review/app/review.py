"""Suspected captions beside their photos, and what people decide of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.runtime.files import check_inside
from captioning.vision.photo_places import place_in_shard
from captioning.vision.photos import load_rgb
from curation.review.app.uploads import MAX_SIDE
from curation.review.page_server import Refused, as_jpeg
from curation.review.suspects.decisions import Decision, Decisions
from curation.review.suspects.suspects import Suspect

MAX_OTHERS = 20  # captions of a photo that the page shows beside the suspected one
REMEDY = "so it is not shown; name its folder by --photos"


class Review:
    """The suspects of a check or of a run.

    Args:
        source: the folder of the check, or the run.
        suspects: in the order in which they are looked at.
        decisions: on them.
        roots: folders in which photos may lie.
        whole: the set that ``captioning curate corrections`` is told; None where it is not known.

    Raises:
        ValueError: no photo lies in the folders.
    """

    def __init__(
        self,
        *,
        source: Path,
        suspects: Sequence[Suspect],
        decisions: Decisions,
        roots: Sequence[Path],
        whole: Path | None,
    ) -> None:
        self._source, self._whole = source, whole
        self._suspects, self._decisions, self._roots = suspects, decisions, roots
        if not any(self._is_inside(suspect) for suspect in suspects):
            photos = [str(_file(suspect.photo).parent) for suspect in suspects]
            folder = os.path.commonpath(map(os.path.abspath, photos))
            raise ValueError(
                f"{source}: its photos lie in {folder}; name their folder, so that the page may "
                f"show them: --photos {shlex.quote(folder)}"
            )

    def sheet(self) -> dict[str, Any]:
        """All suspects with what was decided so far, and how the decisions are applied."""
        whole = "PHOTOS" if self._whole is None else shlex.quote(str(self._whole))
        file = shlex.quote(str(self._decisions.path))
        return {
            "source": str(self._source),
            "file": str(self._decisions.path),
            "command": f"captioning curate corrections {file} {whole} corrected",
            "suspects": [self._entry(suspect) for suspect in self._suspects],
        }

    def _entry(self, suspect: Suspect) -> dict[str, Any]:
        return {
            "photo": suspect.photo.name,
            "caption": suspect.caption,
            "suspicion": suspect.suspicion,
            "issues": suspect.issues,
            "reason": suspect.reason,
            "proposal": suspect.proposal,
            "others": suspect.others[:MAX_OTHERS],
            **_fields(self._decisions.of(suspect)),
        }

    def decide(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write a decision that the page sent; ``verdict`` null takes one back.

        Raises:
            ValueError: no such suspect or decision.
        """
        suspect = self._suspect(record.get("number"))
        verdict, text = record.get("verdict"), record.get("correction", "")
        if not isinstance(verdict, str | None) or not isinstance(text, str):
            raise ValueError("verdict and correction must be texts")
        decision = None if verdict is None else Decision(verdict=verdict, correction=text)
        self._decisions.decide(suspect, decision)
        return _fields(decision)

    def photo(self, number: Any) -> Path:
        """The photo of a suspect.

        Raises:
            ValueError: no such suspect, or it lies elsewhere than in the folders.
        """
        photo = self._suspect(number).photo
        check_inside(_file(photo), self._roots, remedy=REMEDY)
        return photo

    def picture(self, number: int) -> bytes:
        """The photo as JPEG: decoded first, so that nothing but photos leaves the folders.

        Raises:
            Refused: it cannot be shown.
        """
        try:
            return as_jpeg(load_rgb(self.photo(number)), max_side=MAX_SIDE)
        except (OSError, ValueError) as error:
            raise Refused(404, "this photo cannot be shown") from error

    def _suspect(self, number: Any) -> Suspect:
        if type(number) is not int or not 0 <= number < len(self._suspects):
            raise ValueError("there is no such caption; reload the page")
        return self._suspects[number]

    def _is_inside(self, suspect: Suspect) -> bool:
        try:
            check_inside(_file(suspect.photo), self._roots, remedy=REMEDY)
        except ValueError:
            return False
        return True


def _file(photo: Path) -> Path:
    """The file that holds a photo."""
    place = place_in_shard(photo)
    return photo if place is None else Path(place.file)


def _fields(decision: Decision | None) -> dict[str, str | None]:
    if decision is None:
        return {"verdict": None, "correction": ""}
    return {"verdict": decision.verdict, "correction": decision.correction}
