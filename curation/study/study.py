"""A study of pictures, from its folder to its server or its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from curation.review.page_server import PageServer, serve
from curation.study.items import divide
from curation.study.manifest import read_items
from curation.study.results import write_results
from curation.study.server import Study, read_token
from curation.study.store import Store


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a study is made of.

    Attributes:
        images: folder with ``manifest.jsonl`` or ``.csv``, or a run folder.
        store: database; None for ``study.sqlite`` in that folder.
        within: further folders of pictures.
        sets: how many sets at most.
        set_size: pictures of a set.
        seed: of the division into sets.
        annotations: how many are wanted of a picture.
    """

    images: str
    store: str | None = None
    within: Sequence[str] = ()
    sets: int
    set_size: int
    seed: int
    annotations: int


def open_study(settings: Settings, *, host: str, port: int) -> tuple[PageServer, str]:
    """The server of a study, not yet serving, and a line on what it will ask.

    Raises:
        ValueError, OSError: pictures or a database that cannot be read, or a port in use.
    """
    store, items, placed = _read(settings)
    roots = [Path(settings.images), *map(Path, settings.within)]
    paths = {item.name: item.path for item in items}
    study = Study(store=store, paths=paths, roots=roots, num_required=settings.annotations)
    token = read_token(store.path.with_name(f"{store.path.name}.token"))
    server = serve(study, host=host, port=port, token=token)
    sets = len({item.set_number for item in placed})
    return server, f"{len(placed)} pictures in {sets} sets\nannotations go to {store.path}"


def summarise(settings: Settings, folder: str) -> str:
    """Write what the annotations say into a folder; returns a line on it.

    Raises:
        ValueError, OSError: see `open_study`.
    """
    store, _, _ = _read(settings)
    summary = write_results(store, folder, num_required=settings.annotations)
    alpha = summary["krippendorff_alpha"]["all"]
    low, high = (summary["mean_errors"][half] for half in ("low", "high"))
    return (
        f"{folder}: {summary['num_pictures']} pictures, {summary['num_annotations']} annotations "
        f"by {summary['num_annotators']} people; mean errors {_rounded(low)} at low loss, "
        f"{_rounded(high)} at high loss; Krippendorff's alpha {_rounded(alpha)}"
    )


def _read(settings: Settings) -> tuple[Store, list, list]:
    folder = Path(settings.images)
    items = read_items(folder, settings.within)
    placed = divide(items, num_sets=settings.sets, size=settings.set_size, seed=settings.seed)
    store = Store(path=settings.store or folder / "study.sqlite")
    store.fill(placed)
    return store, items, placed


def _rounded(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
