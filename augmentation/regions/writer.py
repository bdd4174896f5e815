"""Proposals written as a data set: pictures, COCO files, an imagefolder's metadata, provenance.

Records are appended in the proposals' order to ``provenance.part.jsonl``. A killed run goes on
behind the last whole record, so that it leaves the same bytes as one left alone.
"""

from __future__ import annotations

import heapq
import json
import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from PIL import Image
from rich.progress import track

from augmentation.regions.annotations import records, write_annotations
from augmentation.regions.proposal import Proposal, draw_key
from augmentation.regions.rendering import PictureFormat, Record, Renderer
from augmentation.regions.sheet import pair_sheet
from captioning.data.photos import load_rgb
from captioning.files import read_json, write_json, write_whole

CHUNK = 16  # proposals that a process is given at once
SPARE = 4  # times the sheet's number is remembered, as some proposals are refused


@dataclass(kw_only=True)
class Shown:
    """Proposals for the sheet, drawn by their names: the first few of all in a random order."""

    number: int
    seed: int
    _heap: list[tuple[int, str, Proposal]] = field(default_factory=list)

    def see(self, proposals: Iterable[Proposal]) -> Iterator[Proposal]:
        """Pass proposals through, remembering few."""
        for proposal in proposals:
            key = -int(draw_key(self.seed, "sheet", proposal.name), 16)
            heapq.heappush(self._heap, (key, proposal.name, proposal))
            if len(self._heap) > SPARE * self.number:
                heapq.heappop(self._heap)
            yield proposal

    def drawn(self) -> list[Proposal]:
        """All that are remembered, in their random order."""
        return [proposal for _, _, proposal in sorted(self._heap, reverse=True)]


def write_set(
    proposals: Iterable[Proposal],
    *,
    folder: Path,
    form: PictureFormat,
    settings: Mapping[str, Any],
    num_processes: int = 0,
    sheet_number: int = 20,
    seed: int = 0,
) -> dict[str, Any]:
    """Make all pictures and write the data set, or go on with one that was begun.

    Args:
        proposals: the same in every run of the same settings.
        folder: of the set.
        form: of the pictures.
        settings: plain values that the proposals depend on; another set is refused the folder.
        num_processes: that make pictures; 0 makes them in this one.
        sheet_number: pairs on the contact sheet.
        seed: of the sheet's choice.

    Returns:
        Counts: ``pictures``, ``captions``, ``pastes``, and ``refused`` by reason.

    Raises:
        ValueError: the folder holds another set, two proposals of one name, or no picture is made.
        OSError: something cannot be written.
    """
    if num_processes < 0 or sheet_number < 0:
        raise ValueError("num_processes and sheet_number must not be negative")
    claim(folder, settings)
    _sweep(folder)
    done, part = folder / "provenance.jsonl", folder / "provenance.part.jsonl"
    if not done.is_file():
        shown = Shown(number=sheet_number, seed=seed)
        seen = shown.see(_unique(proposals))
        left = _left_over(seen, part, folder / "images")
        _append(_rendered(left, folder, form, num_processes), part)
        counts = _counts(part)
        if counts["pictures"]:
            _write_sheet(folder, part, shown)
            os.replace(part, done)
    else:
        deque(proposals, maxlen=0)  # a method's report is of all of them
        counts = _counts(done)
    if not counts["pictures"]:
        raise ValueError(f"no picture was made; refused: {counts['refused'] or 'nothing proposed'}")
    write_annotations(folder, done)
    return counts


def claim(folder: Path, settings: Mapping[str, Any]) -> None:
    """Note in the folder what set is in it.

    Raises:
        ValueError: it holds a set of other settings, or something else.
    """
    path, plain = folder / "settings.json", json.loads(json.dumps(settings))
    if path.is_file():
        if read_json(path) != plain:
            raise ValueError(
                f"{folder} holds a set of other settings (settings.json): choose another out=, or "
                "delete the folder"
            )
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no set: choose another out=")
    write_json(path, plain)


def _sweep(folder: Path) -> None:
    """Remove half-written pictures that a killed run has left: their names begin with a dot."""
    for part in ("images", "owners"):
        for path in (folder / part).glob(".*"):
            path.unlink()


def _unique(proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    names = set()
    for proposal in proposals:
        if proposal.name in names:
            raise ValueError(f"two proposals are called {proposal.name!r}; names must be unique")
        names.add(proposal.name)
        yield proposal


def _left_over(proposals: Iterator[Proposal], part: Path, images: Path) -> Iterator[Proposal]:
    """The proposals behind those whose records are whole; cuts the file to these."""
    size, first = 0, None
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("a+b") as file:
        file.seek(0)
        for line in file:
            first = next(proposals, None)
            if first is None or not _is_done(line, first.name, images):
                break
            size, first = size + len(line), None
        file.truncate(size)
    return chain([first] if first is not None else [], proposals)


def _is_done(line: bytes, name: str, images: Path) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        record = json.loads(line)
    except ValueError:
        return False
    made = "refused" in record or (images / record["file_name"]).is_file()
    return record["name"] == name and made


def _rendered(
    proposals: Iterator[Proposal], folder: Path, form: PictureFormat, num_processes: int
) -> Iterator[Record]:
    """Records in the proposals' order; few are under way at any time."""
    if num_processes == 0:
        renderer = Renderer(folder=folder, form=form)
        yield from map(renderer.record, proposals)
        return
    context = multiprocessing.get_context("spawn")  # forked threads of torch may hang
    with ProcessPoolExecutor(
        num_processes, context, initializer=_start_worker, initargs=(folder, form)
    ) as pool:
        under_way: deque = deque()
        while chunk := list(islice(proposals, CHUNK)):
            under_way.append(pool.submit(_run_in_worker, chunk))
            if len(under_way) > 2 * num_processes:
                yield from under_way.popleft().result()
        while under_way:
            yield from under_way.popleft().result()


_worker: list[Renderer] = []


def _start_worker(folder: Path, form: PictureFormat) -> None:
    _worker[:] = [Renderer(folder=folder, form=form)]


def _run_in_worker(chunk: list[Proposal]) -> list[Record]:
    return [_worker[0].record(proposal) for proposal in chunk]


def _append(made: Iterable[Record], part: Path) -> None:
    with part.open("a", encoding="utf-8", newline="\n") as file:
        for record in track(made, description="pasting", transient=True):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()


def _counts(path: Path) -> dict[str, Any]:
    counts: Counter[str] = Counter(pictures=0, captions=0, pastes=0)
    refused: Counter[str] = Counter()
    for record in records(path, all_records=True):
        if "refused" in record:
            refused[record["refused"]] += 1
            continue
        counts.update(pictures=1, captions=len(record["captions"]), pastes=len(record["pastes"]))
    return dict(counts) | {"refused": dict(sorted(refused.items()))}


def _write_sheet(folder: Path, part: Path, shown: Shown) -> None:
    """The contact sheet, of the drawn proposals that were not refused."""
    drawn = {proposal.name: proposal for proposal in shown.drawn()}
    files = {r["name"]: r["file_name"] for r in records(part) if r["name"] in drawn}
    pairs = []
    for name in [name for name in drawn if name in files][: shown.number]:
        proposal = drawn[name]
        with Image.open(folder / "images" / files[name]) as image:
            after = image.convert("RGB")
        boxes = [move.target_box for move in proposal.pastes]
        text = f"{proposal.before[0]}\n> {proposal.captions[0]}"
        pairs.append((load_rgb(proposal.image_path), after, boxes, text))
    if pairs:
        write_whole(folder / "sheet.png", pair_sheet(pairs).save)
