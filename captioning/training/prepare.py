"""``captioning prepare`` and ``find-objects``: prepare a dataset or detect objects in it.

``captioning prepare data=NAME`` downloads, unpacks, checks and extracts features. A download
resumes after a broken connection, and an archive is unpacked completely or not at all. ``captioning
prepare metrics`` fetches the parts of SPICE that pip does not bring. The exit status is 1 when
something is missing or wrong.

``captioning find-objects data=NAME split=train detector=NAME`` detects objects in photos. Training,
augmentation and evaluation then read them with ``steps=[take_detections]`` and
``steps.take_detections.files=[FILE]``.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
    track,
)
from rich.table import Table

from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.data.features.build import Elsewhere, FeatureStore
from captioning.data.features.extraction import Extraction, Photo, Records
from captioning.data.roster import Roster
from captioning.data.steps.take_detections import detection_line, read_detections
from captioning.runtime.devices import by_device, chosen_device
from captioning.runtime.file_lock import locked
from captioning.runtime.files import write_lines
from captioning.spread.base import Job
from captioning.spread.local import Local, chosen_spread
from captioning.training.inputs import cached_features, check_imported
from captioning.training.rosters import read_annotations, read_roster, with_usable_photos
from captioning.training.settings import (
    NO_STEPS,
    CachedFeatures,
    Data,
    DataSettings,
    Features,
    NeededFile,
    Part,
    Paths,
)
from captioning.vision.detectors import AbstractDetector
from captioning.vision.photo_places import photo_exists
from captioning.vision.photos import load_rgb

FOLDER = "parts"
_BLOCK = 1 << 20
_BROKEN = (http.client.HTTPException, TimeoutError, ConnectionError, urllib.error.URLError)


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
    """Download and check a dataset's files, check its photos, and compute its features.

    Args:
        data: the data set.
        paths: folders.
        features: features of its photos.
        spread: distributes the computation of features; None: this process computes them.
        download: whether to download files that have an address.
        verify: read all features, also features of other data in the same folder.
        plugins: packages that other processes import.

    Returns:
        Whether the dataset is ready; missing files are listed.

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
            f"{root.absolute()}: put them there (or set CAPTIONING_DATA) and repeat the command",
            soft_wrap=True,
        )
        return False
    rosters = _rosters(data, console, imported=features.imported, cache=paths.cache)
    elsewhere = partial(spread_features, features, spread, plugins=plugins)
    _features(data.name, features, rosters, console, elsewhere, verify=verify)
    return True


def fetch_files(files: Sequence[NeededFile], root: Path, console: Console) -> list[str]:
    """Download files that have an address, each address once. Return the errors."""
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
        locked(root / ".prepare.lock", subject=f"the dataset in {root}", notify=console.print),
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
            f"{url}: no SHA-256 of it is known, so its content cannot be verified; fetch "
            f"it by hand and put it at {target}, or give its sha256: in a YAML of your own"
        )
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        download(url, target, progress=bars, sha256=str(sha256))
    if missing[0].unpack:
        unpack(target, root, [file.path for file in missing])
        target.unlink()


def files_table(files: Sequence[NeededFile], root: Path, name: str) -> Table:
    """Table of the files that a dataset needs: whether they exist and where they come from."""
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
    """Read all splits, check their photos, and print what was left out."""
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
    """Whether a roster's photos exist; a dataset of text only names photos without files."""
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
    """Compute the missing features of a dataset and print the result."""
    pictured = rosters if chosen.imported else [r for r in rosters if _has_photos(r)]
    samples = {s.image_path: s for roster in pictured for s in roster.samples}
    if not samples:
        console.print(f"{name}: captions without photos, so no features are computed")
        return
    if chosen.imported:
        store = FeatureStore.open(chosen.imported)
        check_imported(store, rosters)
    elif chosen.kind is None or chosen.backbone is None:
        console.print(f"features={chosen.name} reads pixels, so no features are computed")
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
    """Computes features in any process or on any machine.

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
        """Return the features of each photo, ``(R, D) float16``."""
        batches = self._extraction.in_batches(items, self._batch_size, self._num_threads)
        return [record for records in batches for record in records]


def spread_features(
    chosen: Features, part: Part | None, identity: str, *, plugins: Sequence[str] = ()
) -> Elsewhere | None:
    """Compute features on other machines; None: this process computes them.

    Args:
        chosen: the config group ``features``.
        part: part that computes them.
        identity: identity of the backbone that this process has built.
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
            f"features: a worker has the backbone {identity}, this machine has {expected}; give "
            "all machines the same weights"
        )


def download(
    url: str,
    path: Path,
    *,
    progress: Progress,
    sha256: str,
    attempts: int = 5,
    pause_seconds: float = 2.0,
    timeout: float = 60,
) -> None:
    """Download ``url`` to ``path``, which appears only once it is complete and verified.

    The bytes of an earlier try (``.NAME.part``) are kept if the server says that its file is still
    the same (ETag or Last-Modified).

    Args:
        url: http or https.
        path: path to write to; its folder must exist.
        progress: shows the bytes.
        sha256: expected hexadecimal digest of the file.
        attempts: consecutive attempts without progress before the download fails.
        pause_seconds: pause between two attempts.
        timeout: seconds without a byte after which an attempt ends.

    Raises:
        ConnectionError: the server cannot be reached, refuses, or breaks every connection.
        ValueError: the address is not http or https, or the digest differs.
        OSError: the disk is full.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url}: only http and https addresses can be fetched")
    part = path.with_name(f".{path.name}.part")
    task, failures = progress.add_task(path.name, total=None), 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch(url, part, progress, task, timeout)
            break
        except urllib.error.HTTPError as error:
            _refused(error, url, part)
            failures += 1
        except _BROKEN as error:
            after = part.stat().st_size if part.exists() else 0
            failures = 0 if after > before else failures + 1
            if failures >= attempts:
                raise ConnectionError(
                    f"{url}: the connection failed {failures} times ({error}); {after} bytes are "
                    f"kept. Run it again to resume, or put the file at {path} yourself"
                ) from error
        if failures >= attempts:
            raise ConnectionError(f"{url}: refused {failures} times; put the file at {path}")
        time.sleep(pause_seconds)
    _check_digest(part, sha256, url)
    part.replace(path)
    _note(part).unlink(missing_ok=True)


def unpack(archive: Path, root: Path, members: Sequence[str]) -> None:
    """Extract files or folders from a zip archive; each appears complete or not at all.

    Args:
        archive: the zip file.
        root: folder that ``members`` are relative to.
        members: paths as in the archive.

    Raises:
        ValueError: a damaged archive, or one that lacks a member.
    """
    staging = root / f".{archive.name}.unpacking"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as file:
            for path in members:
                names = [name for name in file.namelist() if _inside(name, path)]
                if not names:
                    raise ValueError(
                        f"{archive} holds no {path}, but {', '.join(file.namelist()[:3])} and so "
                        "on: download the archive again"
                    )
                file.extractall(staging, names)
        for path in members:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (staging / path).replace(root / path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive}: a damaged zip file ({error}); delete it and retry") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _inside(name: str, path: str) -> bool:
    parts, folder = PurePosixPath(name).parts, PurePosixPath(path).parts
    return parts[: len(folder)] == folder and ".." not in parts


def _fetch(url: str, part: Path, progress: Progress, task: TaskID, timeout: float) -> None:
    """Make one download attempt; append to ``part``, or restart if the server's file changed."""
    num_bytes, validator = _earlier(part)
    headers = {"Range": f"bytes={num_bytes}-", "If-Range": validator} if num_bytes else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        resumed = response.status == 206
        start = num_bytes if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        _check_space(part, start, total, url)
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        _note(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
        progress.update(task, total=total, completed=start)
        done = start
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                progress.update(task, completed=done)
    if total is not None and done < total:
        raise ConnectionError(f"the connection broke after {done} of {total} bytes")


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _earlier(part: Path) -> tuple[int, str]:
    """Number of bytes to keep and the server's mark for them; ``(0, "")`` to restart."""
    try:
        validator = str(json.loads(_note(part).read_text(encoding="utf-8"))["validator"])
        # A weak ETag does not promise the same bytes.
        usable = bool(validator) and not validator.startswith("W/")
        return (part.stat().st_size, validator) if usable else (0, "")
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def _refused(error: urllib.error.HTTPError, url: str, part: Path) -> None:
    if error.code == 416:  # the local part is longer than the server's file: it is another file
        part.unlink(missing_ok=True)
    elif error.code < 500 and error.code != 429:
        raise ConnectionError(
            f"{url}: the server refuses ({error.code} {error.reason}); fetch it by hand"
        ) from error


def _check_space(part: Path, start: int, total: int | None, url: str) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - start > free:
        raise OSError(
            f"{part.parent}: {url} needs {total - start} bytes, free are {free}; free some space "
            "or set CAPTIONING_DATA to another disk"
        )


def _check_digest(part: Path, sha256: str, url: str) -> None:
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256.lower():
        part.unlink()
        _note(part).unlink(missing_ok=True)
        raise ValueError(
            f"{url}: SHA-256 must be {sha256}: got {digest}; it was deleted, try again"
        )


def find_objects(
    *,
    data: Data,
    paths: Paths,
    detector: Part,
    split: Name,
    first_images: PositiveInt | None = None,
    steps: Mapping[str, Part] = NO_STEPS,
    seed: Seed = 0,
    batch_size: PositiveInt,
    out: Name,
) -> tuple[Path, int]:
    """Detect objects in all photos of a split that the file ``out`` does not cover yet.

    Args:
        data: the data set.
        paths: folders.
        detector: detector of objects.
        split: split of the data set.
        first_images: photos read; None: all.
        steps: the data's steps.
        seed: seed of the steps.
        batch_size: photos at once.
        out: the file, a line a photo.

    Returns:
        The file, and how many photos it has.

    Raises:
        ValueError: wrong settings, or a file that another detector has written.
        OSError: files that cannot be read or written.
    """
    file = Path(out)
    read = {"first_images": first_images, "steps": steps, "seed": seed}
    roster = read_roster(DataSettings(data=data, paths=paths, **read), split)
    header = {"detector": detector._target_, "settings": _arguments(detector)}
    done = _finished_images(file, header)
    remaining = [image_id for image_id in roster.rows_by_image if image_id not in done]
    if remaining:
        finder = build_part(detector)
        file.parent.mkdir(parents=True, exist_ok=True)
        for lines in _lines(finder, roster, remaining, batch_size):
            if not file.is_file():  # begun once there is something to say
                lines.insert(0, json.dumps(header))
            with file.open("a", encoding="utf-8", newline="\n") as opened:
                opened.write("".join(f"{line}\n" for line in lines))
    return file, len(read_detections(file)[1])


def _arguments(detector: Part) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(detector, resolve=True)
    return {key: value for key, value in values.items() if key not in ("_target_", "device")}


def _finished_images(out: Path, header: dict[str, Any]) -> set[str]:
    """Photos that a file of detections already covers; a truncated last line is repaired."""
    if not out.is_file():
        return set()
    text = out.read_text(encoding="utf-8")
    ours = text.startswith(json.dumps(header) + "\n")
    if ours and not text.endswith("\n"):  # it was stopped in the midst of a line
        write_lines(out, text.split("\n")[:-1])
    written_header, detections = read_detections(out)
    if written_header != header:
        raise ValueError(
            f"{out}: its files were made with other settings ({json.dumps(written_header)}); "
            f"choose another out="
        )
    return set(detections)


def _lines(
    detector: AbstractDetector, roster: Roster, image_ids: list[str], batch_size: int
) -> Iterator[list[str]]:
    """Yield a line of the file for every photo, batch by batch."""
    paths = {key: roster.samples[rows[0]].image_path for key, rows in roster.rows_by_image.items()}
    batches = [
        image_ids[start : start + batch_size] for start in range(0, len(image_ids), batch_size)
    ]
    for batch in track(batches, description="detecting"):
        photos = [load_rgb(paths[image_id]) for image_id in batch]
        yield [
            detection_line(image_id, paths[image_id].name, photo.size, regions)
            for image_id, photo, regions in zip(batch, photos, detector(photos), strict=True)
        ]
