"""The app from the folders that a command names."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from captioning.config.plugins import data_folders
from captioning.data.steps.take_detections import read_detections
from captioning.inference.captioner import Captioner
from captioning.runtime.file_lock import held
from curation.check.result import CSV_NAME, looked_at
from curation.review.app.app import App
from curation.review.app.captions import PhotoCaptions
from curation.review.app.review import Review
from curation.review.app.uploads import Uploads
from curation.review.page_server import PageServer, serve
from curation.review.suspects.decisions import Decisions
from curation.review.suspects.suspects import read_suspects

SHIPPED = "the captioner in the package"
DECISIONS = "decisions.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the page shows.

    Attributes:
        suspects: folder of a check, or a run; None: no captions to look through.
        photos: folders in which their photos may lie, the set itself first; photos of a run may
            also lie in it and where the user's data lie.
        decisions: file; None for ``decisions.json`` in the folder of the suspects.
        top: see `read_suspects`.
        models: captioners as `Captioner.load` takes them; none: the one in the package.
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
    """The server of the page, not yet serving, and a line on what it shows.

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
            raise ValueError("--photos, --decisions and --top are for suspects: name their folder")
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
