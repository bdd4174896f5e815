"""``captioning prepare data=NAME``: make a data set ready, or say what is missing.

``captioning prepare metrics`` fetches the parts of SPICE that pip does not bring.
The exit status is 1 when something is missing or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
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
from captioning.config.ranges import Name
from captioning.data.download import download, unpack
from captioning.data.features.build import Elsewhere, FeatureStore
from captioning.data.features.extraction import Extraction, Photo, Records
from captioning.data.roster import Roster
from captioning.runtime.devices import by_device, chosen_device
from captioning.runtime.file_lock import locked
from captioning.spread.base import Job
from captioning.spread.local import Local, chosen_spread
from captioning.training.inputs import cached_features, check_imported
from captioning.training.rosters import read_annotations, with_usable_photos
from captioning.training.settings import CachedFeatures, Data, Features, NeededFile, Part, Paths
from captioning.vision.photo_places import photo_exists
from captioning.vision.photos import load_rgb

FOLDER = "parts"


def prepare(
    *,
    data: Data,
    paths: Paths,
    features: CachedFeatures,
    spread: Part | None = None,
    download: bool = False,
    verify: bool = False,
    plugins: Sequence[Name] = (),
) -> bool:
    """Check and fetch the files of a data set, check its photos, build its features.

    Args:
        data: the data set.
        paths: folders.
        features: of its photos.
        spread: where features are computed; None: in this process.
        download: fetch files that have an address.
        verify: read all features, those of other data in the same folder too.
        plugins: packages that other processes import.

    Returns:
        Whether the data set is ready; what is missing was shown.

    Raises:
        ValueError: damaged annotations, photos or features.
        OSError: files that cannot be written or fetched.
    """
    console, root = Console(), Path(str(data.root))
    files = list(data.files or ())
    if features.imported:
        files = [file for file in files if not file.photos]
    missing = [file for file in files if not (root / file.path).exists()]
    if missing and download:
        problems = fetch_files(missing, root, console)
        for problem in problems:
            console.print(f"[red]not fetched:[/red] {problem}", soft_wrap=True)
        missing = [file for file in missing if not (root / file.path).exists()]
    if files:
        console.print(files_table(files, root, data.name))
    if missing:
        console.print(
            f"{len(missing)} of {len(files)} files of {data.name} are missing in "
            f"{root.absolute()}: put them there (or set CAPTIONING_DATA) and run this again",
            soft_wrap=True,
        )
        return False
    rosters = _rosters(data, console, imported=features.imported, cache=paths.cache)
    elsewhere = partial(spread_features, features, spread, plugins=plugins)
    _features(data.name, features, rosters, console, elsewhere, verify=verify)
    return True


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


def _rosters(data: Data, console: Console, *, imported: str | None, cache: str) -> list[Roster]:
    """All splits, their photos checked; what was left out is shown."""
    rosters: list[Roster] = []
    table = Table(title=f"splits of {data.name}")
    for column in ("split", "captions", "images", "left out"):
        table.add_column(column)
    for split, entry in data.splits.items():
        if "_target_" not in entry:
            continue
        roster = read_annotations(entry, imported=imported)
        if imported or _has_photos(roster):
            roster = with_usable_photos(roster, entry, imported=imported, cache=cache)
        for item in roster.dropped:
            console.print(f"{roster.name}: left out {item.item}: {item.rule}", soft_wrap=True)
        numbers = (len(roster), len(roster.rows_by_image), len(roster.dropped))
        table.add_row(split, *(f"{number:,}" for number in numbers))
        rosters.append(roster)
    console.print(table)
    return rosters


def _has_photos(roster: Roster) -> bool:
    """A roster of text alone names photos that lie nowhere."""
    return any(photo_exists(sample.image_path) for sample in roster.samples)


def _features(
    name: str,
    chosen: Features,
    rosters: Sequence[Roster],
    console: Console,
    elsewhere: Callable[[str], Elsewhere | None],
    *,
    verify: bool,
) -> None:
    """Build what features of a data set are missing, and print it."""
    pictured = rosters if chosen.imported else [r for r in rosters if _has_photos(r)]
    samples = {s.image_path: s for roster in pictured for s in roster.samples}
    if not samples:
        console.print(f"{name}: captions without photos, so no features are built")
        return
    if chosen.imported:
        store = FeatureStore.open(chosen.imported)
        check_imported(store, rosters)
    elif chosen.kind is None or chosen.backbone is None:
        console.print(f"features={chosen.name}: nothing to build, pixels are used")
        return
    else:
        backbone = build_part(chosen.backbone)
        others = elsewhere(backbone.identity)
        store = cached_features(chosen, backbone, samples, elsewhere=others)
    if verify:
        store.verify()
        console.print(f"all {len(store):,} records of {store.folder} are intact", soft_wrap=True)
    console.print(
        f"features of {len(samples):,} photos are ready: {store.folder} "
        f"(up to {store.max_regions} regions of {store.dim} values)",
        soft_wrap=True,
    )


class FeatureWorker:
    """Computes features in any process.

    Args:
        values: the config group ``features``, plain.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        chosen = OmegaConf.create(values)
        backbone = build_part(chosen.backbone)
        device = chosen_device(chosen.get("device", "auto"))
        precision = chosen.get("precision", "float32")
        self.identity = backbone.identity
        self._batch_size = chosen.get("batch_size")
        self._num_threads = chosen.get("num_workers") or torch.get_num_threads()
        self._extraction = Extraction(backbone, chosen.kind, load_rgb, device, precision)

    def __call__(self, items: Sequence[Photo]) -> Records:
        """A record ``(R, D) float16`` a photo."""
        batches = self._extraction.in_batches(items, self._batch_size, self._num_threads)
        return [record for records in batches for record in records]


def spread_features(
    chosen: Features, part: Part | None, identity: str, *, plugins: Sequence[str] = ()
) -> Elsewhere | None:
    """What computes features elsewhere; None: this process itself.

    Args:
        chosen: the config group ``features``.
        part: where they are computed.
        identity: of the backbone that this process has built.
        plugins: packages that workers import.
    """
    spread = chosen_spread(part)
    if isinstance(spread, Local):
        return None
    backbone = OmegaConf.to_container(chosen.backbone, resolve=True)
    values: dict[str, Any] = {"backbone": backbone, "kind": chosen.kind, **chosen.further}
    device = values.get("device", "auto")
    # At least: threads work on several batches of them; on a GPU they decode one beside another.
    at_once = by_device(chosen_device(device), processor=64, gpu=512)
    batch_size = values.get("batch_size") or 64

    def computed(photos: Sequence[Photo]) -> Iterator[Records]:
        job = Job(
            name="features",
            build=partial(FeatureWorker, values),
            items=photos,
            unit=-(-at_once // batch_size) * batch_size,
            save_every=values.get("chunk_size", 512),
            settings=values | {"identity": identity},
            folder=Path(values["folder"]) / FOLDER,
            form="arrays",
            check=partial(_check, identity),
            plugins=list(plugins),
            uses_gpu=device != "cpu",
        )
        return spread.results(job)

    return computed


def _check(expected: str, identity: str) -> None:
    if identity != expected:
        raise ValueError(
            f"features: a worker has the backbone {identity}, this machine {expected}; give all "
            "machines the same weights"
        )
