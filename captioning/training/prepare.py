"""``captioning prepare data=NAME``: make a data set ready, or say what is missing.

``captioning prepare metrics`` fetches the parts of SPICE that pip does not bring.
The exit status is 1 when something is missing or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from captioning.config.build import build_part
from captioning.data.download import download, unpack
from captioning.data.features.build import FeatureStore
from captioning.data.roster import Roster
from captioning.runtime.file_lock import locked
from captioning.training.inputs import cached_features, check_imported
from captioning.training.rosters import imported_features, read_annotations, with_usable_photos
from captioning.training.spread_features import spread_features
from captioning.vision.photo_places import photo_exists


@dataclass(frozen=True, kw_only=True)
class NeededFile:
    """An entry of a data set's ``files``.

    Attributes:
        path: file or folder, relative to the data set's root.
        what: what it holds.
        source: who gives it, and where on their pages.
        url: official address, or None where a person must ask for it.
        sha256: digest of what ``url`` gives; without it nothing is fetched.
        unpack: ``url`` gives a zip archive that holds ``path``.
        photos: it holds photos, which imported features make needless.
    """

    path: str
    what: str
    source: str
    url: str | None = None
    sha256: str | None = None
    unpack: bool = False
    photos: bool = False


def prepare(config: DictConfig, console: Console) -> bool:
    """Check and fetch the files of ``config.data``, check its photos, build its features.

    Returns:
        Whether the data set is ready; what is missing was shown.

    Raises:
        ValueError: damaged annotations, photos or features.
        OSError: files that cannot be written or fetched.
    """
    root = Path(config.data.root)
    files = [NeededFile(**entry) for entry in config.data.get("files") or []]
    if imported_features(config):
        files = [file for file in files if not file.photos]
    missing = [file for file in files if not (root / file.path).exists()]
    if missing and config.download:
        problems = fetch_files(missing, root, console)
        for problem in problems:
            console.print(f"[red]not fetched:[/red] {problem}", soft_wrap=True)
        missing = [file for file in missing if not (root / file.path).exists()]
    if files:
        console.print(files_table(files, root, config.data.name))
    if missing:
        console.print(
            f"{len(missing)} of {len(files)} files of {config.data.name} are missing in "
            f"{root.absolute()}: put them there (or set CAPTIONING_DATA) and run this again",
            soft_wrap=True,
        )
        return False
    rosters = _rosters(config, console)
    return _features(config, rosters, console)


def fetch_files(files: Sequence[NeededFile], root: Path, console: Console) -> list[str]:
    """Download what has an address; each address once. Returns what went wrong."""
    problems: list[str] = []
    by_url: dict[str, list[NeededFile]] = {}
    for file in files:
        if file.url:
            by_url.setdefault(file.url, []).append(file)
    if not by_url:
        return problems
    root.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        locked(root / ".prepare.lock", subject=f"the data set in {root}", notify=console.print),
        Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console) as bars,
    ):
        for url, group in by_url.items():
            try:
                _fetch_group(url, group, root, bars)
            except (OSError, ValueError) as error:
                problems.append(str(error))
    return problems


def _fetch_group(url: str, group: list[NeededFile], root: Path, bars: Progress) -> None:
    missing = [file for file in group if not (root / file.path).exists()]
    if not missing:
        return
    sha256 = missing[0].sha256
    target = root / (url.rsplit("/", 1)[-1] if missing[0].unpack else missing[0].path)
    if sha256 is None and not target.exists():
        raise ValueError(
            f"{url}: no SHA-256 of it is known, so another file could not be told from it; fetch "
            f"it by hand and put it at {target}, or give its sha256: in a YAML of your own"
        )
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        download(url, target, progress=bars, sha256=str(sha256))
    if missing[0].unpack:
        unpack(target, root, [file.path for file in missing])
        target.unlink()


def files_table(files: Sequence[NeededFile], root: Path, name: str) -> Table:
    """The files that a data set needs, whether they are here, and where they come from."""
    table = Table(title=f"files of {name} in {root.absolute()}", show_lines=False)
    for column in ("file", "state", "what", "where from"):
        table.add_column(column, overflow="fold")
    for file in files:
        exists = (root / file.path).exists()
        source = file.source + (f" ({file.url})" if file.url else "")
        state = "[green]here[/green]" if exists else "[red]missing[/red]"
        table.add_row(file.path, state, file.what, "" if exists else source)
    return table


def _rosters(config: DictConfig, console: Console) -> list[Roster]:
    """All splits, their photos checked; what was left out is shown."""
    rosters: list[Roster] = []
    table = Table(title=f"splits of {config.data.name}")
    for column in ("split", "captions", "images", "left out"):
        table.add_column(column)
    for split, entry in config.data.items():
        if not isinstance(entry, DictConfig) or "_target_" not in entry:
            continue
        roster = read_annotations(config, entry)
        if _has_photos(roster, config):
            roster = with_usable_photos(roster, config, entry)
        for item in roster.dropped:
            console.print(f"{roster.name}: left out {item.item}: {item.rule}", soft_wrap=True)
        numbers = (len(roster), len(roster.rows_by_image), len(roster.dropped))
        table.add_row(str(split), *(f"{number:,}" for number in numbers))
        rosters.append(roster)
    console.print(table)
    return rosters


def _has_photos(roster: Roster, config: DictConfig) -> bool:
    """A roster of text alone names photos that lie nowhere; imported features need none."""
    return bool(imported_features(config)) or any(
        photo_exists(sample.image_path) for sample in roster.samples
    )


def _features(config: DictConfig, rosters: Sequence[Roster], console: Console) -> bool:
    chosen = config.features
    samples = {s.image_path: s for r in rosters if _has_photos(r, config) for s in r.samples}
    if not samples:
        console.print(f"{config.data.name}: captions without photos, so no features are built")
        return True
    if chosen.get("imported"):
        store = FeatureStore.open(chosen.imported)
        check_imported(store, rosters)
    elif chosen.get("kind") is None:
        console.print(f"features={chosen.name}: nothing to build, pixels are used")
        return True
    else:
        backbone = build_part(chosen.backbone)
        elsewhere = spread_features(config, backbone.identity)
        store = cached_features(chosen, backbone, samples, elsewhere=elsewhere)
    if config.get("verify"):
        store.verify()
        console.print(f"all {len(store):,} records of {store.folder} are intact", soft_wrap=True)
    console.print(
        f"features of {len(samples):,} photos are ready: {store.folder} "
        f"(up to {store.max_regions} regions of {store.dim} values)",
        soft_wrap=True,
    )
    return True
