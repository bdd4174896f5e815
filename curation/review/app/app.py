"""The server of ``captioning app``: answer requests, keep uploaded photos and decisions."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, final

from captioning.config.plugins import data_folders
from captioning.data.steps.take_detections import read_detections
from captioning.inference.attention import AttendedWord, square_grid
from captioning.inference.captioner import Captioner
from captioning.runtime.file_lock import held
from captioning.runtime.files import check_inside
from captioning.types import Prediction, Region
from captioning.vision.photo_places import place_in_shard
from captioning.vision.photos import load_rgb
from curation.check.result import CSV_NAME, looked_at
from curation.review.page_server import (
    BYTES,
    JPEG,
    PageServer,
    Refused,
    Request,
    ServedPage,
    as_jpeg,
    serve,
    served_page,
)
from curation.review.suspects.label_studio import Decision, Decisions
from curation.review.suspects.suspects import Suspect, read_suspects

# Upper bounds prevent searches of minutes after a typing error.
MAX_CAPTIONS, MAX_BEAM, MAX_WORDS, MAX_SEED = 20, 50, 100, 2**31 - 1


class PhotoCaptions:
    """Captioners for the page, which answer one request at a time.

    Args:
        captioners: captioners by the name shown to people, in order.
        regions: boxes by image id, for captioners on regions; a photo's image id is its file's
            name, or that without suffix.
    """

    def __init__(
        self, captioners: Mapping[str, Captioner], regions: Mapping[str, Sequence[Region]]
    ) -> None:
        self._captioners = dict(captioners)
        self._regions = regions
        self._lock = threading.Lock()

    def models(self) -> list[dict[str, Any]]:
        """Names of the captioners, and whether they show attention and need boxes."""
        return [
            {
                "name": name,
                "attends": captioner.model.attends,
                "takes_boxes": captioner.takes_boxes,
                "beam": captioner.model.search.settings.beam_size,
            }
            for name, captioner in self._captioners.items()
        ]

    def caption(
        self, path: Path, size: tuple[int, int], name: str, record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Generate captions for a photo, best first.

        Args:
            path: the photo.
            size: its width and height.
            name: name of its file, which identifies its boxes.
            record: ``model`` and the settings, as the page sends them.

        Raises:
            ValueError: a setting out of its range, a word that the captioner does not know, or no
                boxes for a captioner on regions.
        """
        captioner = self._captioner(record)
        regions = self._boxes(captioner, name)
        boxes = None if regions is None else [region.box for region in regions]
        settings = _settings(record)
        with self._lock:
            photo = load_rgb(path)  # draws depend on a file's path, which is temporary
            by_photo = None if boxes is None else [boxes]
            (found,) = captioner.caption([photo], boxes=by_photo, **settings)
            texts = [prediction.caption for prediction in found.captions]
            attended = captioner.attention(photo, texts, boxes=boxes)
        return {
            "captions": [
                _caption(prediction, words)
                for prediction, words in zip(found.captions, attended, strict=True)
            ],
            "grid": None if captioner.takes_boxes else captioner.grid_size or _square(attended),
            "boxes": [_shown(region, size) for region in regions or ()],
            "attends": captioner.model.attends,
        }

    def suggest(self, path: Path, record: Mapping[str, Any]) -> str:
        """Generate a captioner's best caption with its default decoding.

        Raises:
            ValueError: the captioner needs boxes, or the photo is broken.
        """
        captioner = self._captioner(record)
        regions = self._boxes(captioner, path.name)
        boxes = None if regions is None else [[region.box for region in regions]]
        with self._lock:
            return captioner.caption([path], boxes=boxes)[0].caption

    def _captioner(self, record: Mapping[str, Any]) -> Captioner:
        number = record.get("model")
        if type(number) is not int or not 0 <= number < len(self._captioners):
            raise ValueError("this captioner is not loaded; reload the page")
        return list(self._captioners.values())[number]

    def _boxes(self, captioner: Captioner, name: str) -> Sequence[Region] | None:
        if not captioner.takes_boxes:
            return None
        for key in (name, Path(name).stem):
            if key in self._regions:
                return self._regions[key]
        raise ValueError(
            f"this captioner needs boxes, but {name!r:.80} has none: run captioning find-objects, "
            "and start this program with --boxes FILE"
        )


def _square(attended: Sequence[Sequence[AttendedWord]]) -> tuple[int, int] | None:
    """Number of cells of the grid for models that read photos as squares, such as BLIP."""
    words = [word for caption in attended for word in caption]
    return square_grid(len(words[0].weights)) if words else None


def _caption(prediction: Prediction, words: Sequence[AttendedWord]) -> dict[str, Any]:
    return {
        "caption": prediction.caption,
        "score": round(prediction.score, 4) if isfinite(prediction.score) else None,
        "has_words": prediction.satisfied,
        "words": [
            {
                "text": word.text,
                "probability": round(word.probability, 4),
                "weights": [round(weight, 5) for weight in word.weights],
            }
            for word in words
        ],
    }


def _shown(region: Region, size: tuple[int, int]) -> dict[str, Any]:
    """Convert a box to fractions of the photo's width and height."""
    width, height = size
    x1, y1, x2, y2 = region.box
    return {"box": [x1 / width, y1 / height, x2 / width, y2 / height], "label": region.label}


def _settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the settings of the page's request that `Captioner.stream` accepts."""
    limits = {
        "num_captions": (1, MAX_CAPTIONS),
        "beam_size": (1, MAX_BEAM),
        "min_words": (0, MAX_WORDS),
        "max_words": (1, MAX_WORDS),
        "seed": (0, MAX_SEED),
    }
    settings: dict[str, Any] = {}
    for name, (least, most) in limits.items():
        value = record.get(name)
        if value is None:
            continue
        if type(value) is not int or not least <= value <= most:
            what = name.replace("_", " ")
            raise ValueError(f"{what} must be a whole number from {least} to {most}: got {value!r}")
        settings[name] = value
    words = record.get("must_include", [])
    if not isinstance(words, list) or not all(_is_texts(group) for group in words):
        raise ValueError("must_include must be a list of lists of words")
    diverse = record.get("diverse") is True
    return settings | {"diverse": diverse, "must_include": [tuple(group) for group in words]}


def _is_texts(group: Any) -> bool:
    return isinstance(group, list) and bool(group) and all(isinstance(x, str) for x in group)


SHIPPED = "the captioner in the package"
DECISIONS = "decisions.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of ``captioning app``: suspects, photos and captioners for the page.

    Attributes:
        suspects: folder of a check, or a run; None: no captions to look through.
        photos: folders in which their photos may lie, the set itself first; photos of a run may
            also lie in it and where the user's data lie.
        decisions: file; None for ``decisions.json`` in the folder of the suspects.
        top: see `read_suspects`.
        models: arguments of `Captioner.load`; empty: the packaged captioner.
        prompt, device, plugins: see `Captioner.load`.
        boxes: file of ``captioning find-objects``, for captioners on regions.
    """

    suspects: str | None = None
    photos: Sequence[str] = ()
    decisions: str | None = None
    top: int | None = None
    models: Sequence[str] = ()
    prompt: str | None = None
    device: str = "auto"
    plugins: Sequence[str] = ()
    boxes: str | None = None


@contextmanager
def open_app(settings: Settings, *, host: str, port: int) -> Iterator[tuple[PageServer, str]]:
    """Build the page's server, not yet serving, and a line that describes the page's content.

    Raises:
        FileNotFoundError, ValueError, OSError: a folder that cannot be read, decisions that another
            program writes, or a port in use.
    """
    with ExitStack() as stack:
        review, about = _review(settings, stack)
        captioners = {
            str(model or SHIPPED): Captioner.load(
                model, device=settings.device, plugins=settings.plugins, prompt=settings.prompt
            )
            for model in settings.models or [None]
        }
        regions = {} if settings.boxes is None else read_detections(settings.boxes)[1]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        app = App(
            captions=PhotoCaptions(captioners, regions), uploads=Uploads(folder), review=review
        )
        token = secrets.token_urlsafe(24)
        server = serve(app, host=host, port=port, token=token)
        stack.callback(server.server_close)
        yield server, "\n".join([f"captions by {', '.join(captioners)}", *about])


def _review(settings: Settings, stack: ExitStack) -> tuple[Review | None, list[str]]:
    if settings.suspects is None:
        if settings.photos or settings.decisions or settings.top is not None:
            raise ValueError(
                "--photos, --decisions and --top need a folder of suspects: name the folder"
            )
        return None, []
    source = Path(settings.suspects)
    suspects = read_suspects(source, top=settings.top)
    suspects.sort(key=lambda suspect: looked_at(suspect.issues, suspect.suspicion))
    path = Path(settings.decisions or source / DECISIONS)
    lock = path.with_name(f".{path.name}.lock")
    stack.enter_context(held(lock, subject=str(path), warn=print))
    photos = [Path(folder) for folder in settings.photos]
    is_check = (source / CSV_NAME).is_file()
    whole = next(iter(photos), None) if is_check else source
    decisions = Decisions(path=path, suspects=suspects)
    review = Review(
        source=source,
        suspects=suspects,
        decisions=decisions,
        roots=[*photos, source, *data_folders()],
        whole=whole,
    )
    num_decided = sum(decisions.of(suspect) is not None for suspect in suspects)
    counts = f"{len(suspects):,} suspected captions of {source}, {num_decided:,} decided"
    return review, [counts, f"decisions go to {path}"]


TITLE = "Caption photos"
TITLE_OF_REVIEW = "Caption photos, review captions"
SCRIPTS = ("dom.js", "ask.js", "attention.js", "app_photo.js", "app_review.js", "app.js")


@final
class App:
    """Answers the requests of the page.

    Args:
        captions: captions of photos.
        uploads: photos that the page sent.
        review: suspected captions; None: there are none to look through.
    """

    def __init__(self, *, captions: PhotoCaptions, uploads: Uploads, review: Review | None) -> None:
        self._captions, self._uploads, self._review = captions, uploads, review
        title = TITLE if review is None else TITLE_OF_REVIEW
        self.page: ServedPage = served_page("app.html", title=title, scripts=SCRIPTS)

    def get(self, path: str) -> tuple[str, bytes]:
        """Return an uploaded photo, or a suspect's photo, by its number."""
        if match := re.fullmatch(r"photo/(\d{1,9})", path):
            return JPEG, self._uploads.photo(int(match[1])).picture
        if (match := re.fullmatch(r"suspect/(\d{1,9})", path)) and self._review is not None:
            return JPEG, self._review.picture(int(match[1]))
        raise Refused(404, "this page does not exist")

    def post(self, path: str, request: Request) -> dict[str, Any]:
        """Store a photo, caption a photo, or write a decision."""
        if path == "api/photo":
            number = self._uploads.add(request.content(BYTES, MAX_BYTES))
            width, height = self._uploads.photo(number).size
            return {"photo": number, "width": width, "height": height}
        record = request.record()
        if path == "api/start":
            review = None if self._review is None else self._review.sheet()
            return {"models": self._captions.models(), "review": review, "max_bytes": MAX_BYTES}
        if path == "api/caption":
            return self._caption(record)
        if path == "api/decide" and self._review is not None:
            return self._review.decide(record)
        if path == "api/suggest" and self._review is not None:
            photo = self._review.photo(record.get("number"))
            return {"caption": self._captions.suggest(photo, record)}
        raise Refused(404, "this page does not exist")

    def _caption(self, record: dict[str, Any]) -> dict[str, Any]:
        number, name = record.get("photo"), record.get("name", "")
        if type(number) is not int or not isinstance(name, str):
            raise ValueError("photo must be a number, and name must be a text")
        upload = self._uploads.photo(number)
        return self._captions.caption(upload.path, upload.size, name, record)


MAX_BYTES = 64_000_000
NUM_KEPT = 16
MAX_SIDE = 1600  # maximum side of the image on the page, in pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An uploaded photo and its JPEG copy for the page.

    Attributes:
        path: the file as it came.
        size: width and height, upright.
        picture: JPEG for the page.
    """

    path: Path
    size: tuple[int, int]
    picture: bytes


class Uploads:
    """Uploaded photos of one program; only the latest photos are kept.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: dict[int, Upload] = {}
        self._number = 0

    def add(self, content: bytes) -> int:
        """Store an uploaded photo and return its number.

        Raises:
            ValueError: the file is not a usable photo; the message names the remedy.
        """
        with self._lock:  # a photo of the largest size takes 300 MB while it is opened
            self._number += 1
            path = self._folder / str(self._number)
            path.write_bytes(content)
            try:
                photo = load_rgb(path)
            except ValueError as error:
                path.unlink()
                raise ValueError(str(error).removeprefix(f"{path}: ")) from error
            picture = as_jpeg(photo, max_side=MAX_SIDE)
            self._kept[self._number] = Upload(path=path, size=photo.size, picture=picture)
            while len(self._kept) > NUM_KEPT:
                self._kept.pop(next(iter(self._kept))).path.unlink()
            return self._number

    def photo(self, number: int) -> Upload:
        """Return an uploaded photo that is still stored.

        Raises:
            Refused: the photo is no longer stored.
        """
        upload = self._kept.get(number)
        if upload is None:
            raise Refused(404, "the server no longer keeps this photo; choose the photo again")
        return upload


MAX_OTHERS = 20  # captions of a photo that the page shows beside the suspected one
REMEDY = "so it is not shown; name its folder by --photos"


class Review:
    """Suspected captions of a check or a run, for review.

    Args:
        source: the folder of the check, or the run.
        suspects: suspects in the order of review.
        decisions: decisions on the suspects.
        roots: folders in which photos may lie.
        whole: the set that ``captioning curate corrections`` takes; None where it is not known.

    Raises:
        ValueError: none of the photos is in the folders.
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
                f"{source}: the photos are in {folder}; allow the page to show this folder: "
                f"--photos {shlex.quote(folder)}"
            )

    def sheet(self) -> dict[str, Any]:
        """All suspects with the decisions so far, and the command that applies the decisions."""
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
        """Write a decision from the page; a null ``verdict`` removes the decision.

        Raises:
            ValueError: the suspect does not exist, or the decision is invalid.
        """
        suspect = self._suspect(record.get("number"))
        verdict, text = record.get("verdict"), record.get("correction", "")
        if not isinstance(verdict, str | None) or not isinstance(text, str):
            raise ValueError("verdict and correction must be texts")
        decision = None if verdict is None else Decision(verdict=verdict, correction=text)
        self._decisions.decide(suspect, decision)
        return _fields(decision)

    def photo(self, number: Any) -> Path:
        """Return the photo of a suspect.

        Raises:
            ValueError: the suspect does not exist, or the photo is outside the folders.
        """
        photo = self._suspect(number).photo
        check_inside(_file(photo), self._roots, remedy=REMEDY)
        return photo

    def picture(self, number: int) -> bytes:
        """Return the photo as a new JPEG, so that only decoded photos leave the folders.

        Raises:
            Refused: the photo cannot be opened.
        """
        try:
            return as_jpeg(load_rgb(self.photo(number)), max_side=MAX_SIDE)
        except (OSError, ValueError) as error:
            raise Refused(404, "this photo cannot be shown") from error

    def _suspect(self, number: Any) -> Suspect:
        if type(number) is not int or not 0 <= number < len(self._suspects):
            raise ValueError("this caption does not exist; reload the page")
        return self._suspects[number]

    def _is_inside(self, suspect: Suspect) -> bool:
        try:
            check_inside(_file(suspect.photo), self._roots, remedy=REMEDY)
        except ValueError:
            return False
        return True


def _file(photo: Path) -> Path:
    """Path of the file that holds a photo."""
    place = place_in_shard(photo)
    return photo if place is None else Path(place.file)


def _fields(decision: Decision | None) -> dict[str, str | None]:
    if decision is None:
        return {"verdict": None, "correction": ""}
    return {"verdict": decision.verdict, "correction": decision.correction}
