"""Write proposals as a dataset: images, COCO files, imagefolder metadata and provenance.

Records are appended in the proposals' order to ``provenance.part.jsonl``; competing proposals share
a line. A killed run continues after the last complete line, so that it writes the same bytes as an
uninterrupted one.
"""

from __future__ import annotations

import heapq
import json
import multiprocessing
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rich.progress import track

from augmentation.regions.annotations import records, write_annotations
from augmentation.regions.pair_sheet import pair_sheet
from augmentation.regions.proposal import Proposal, draw_key
from augmentation.regions.rendering import PictureFormat, PictureRecord, Renderer
from augmentation.regions.reranking import Ranker
from augmentation.set_folder import claim_folder
from captioning.runtime.files import write_atomically
from captioning.runtime.sharing import end_with_parent
from captioning.vision.photos import load_rgb

CHUNK = 16  # proposals sent to a process at once
Candidates = Sequence[Proposal]
SHEET_RESERVE = 4  # proposals sampled per place on the sheet, as some are refused


@dataclass(kw_only=True)
class SheetSampler:
    """Draws a random sample of proposals for the contact sheet, by their names."""

    number: int
    seed: int
    _heap: list[tuple[int, str, Candidates]] = field(default_factory=list)

    def add(self, group: Candidates) -> None:
        """Add proposals to the sample; later proposals may replace them."""
        key = -int(draw_key(self.seed, "sheet", group[0].name), 16)
        heapq.heappush(self._heap, (key, group[0].name, group))
        if len(self._heap) > SHEET_RESERVE * self.number:
            heapq.heappop(self._heap)

    def selected(self) -> list[Candidates]:
        """Sampled proposals in random order."""
        return [group for _, _, group in sorted(self._heap, reverse=True)]


@dataclass(kw_only=True)
class Progress:
    """Tracks proposals with records in order; unfinished proposals have no records."""

    sheet: SheetSampler
    max_augmented: int | None
    num_augmented: int = 0

    def add(self, group: Candidates, group_records: Iterable[PictureRecord]) -> None:
        """Count proposals with their records."""
        self.sheet.add(group)
        # the best similarity is there where a picture was scored, also if it was not kept
        made = ("refused" not in r or r.get("best") is not None for r in group_records)
        self.num_augmented += any(made)

    @property
    def is_complete(self) -> bool:
        """Whether enough augmented captions have been made."""
        return self.max_augmented is not None and self.num_augmented >= self.max_augmented


def write_set(
    groups: Iterable[Candidates],
    *,
    folder: Path,
    picture_format: PictureFormat,
    settings: Mapping[str, Any],
    build_ranker: Callable[[], Ranker] | None = None,
    report: Callable[[], Mapping[str, Any]] = dict,
    num_processes: int = 0,
    sheet_number: int = 20,
    seed: int = 0,
    max_augmented: int | None = None,
) -> dict[str, Any]:
    """Render all images and write the dataset, or resume an unfinished dataset.

    Args:
        groups: proposals, competing ones together; the same in every run of the same settings.
        folder: the set's folder.
        picture_format: format of the pictures.
        settings: plain values that the set depends on; another set is refused the folder.
        build_ranker: builds in each process the ranker of competing proposals; None: all are made.
        report: `AbstractRegionMethod.report`, for the error where nothing is made.
        num_processes: number of processes that render images; 0: this process renders them.
        sheet_number: pairs on the contact sheet.
        seed: seed of the sheet's choice.
        max_augmented: the set ends once pictures of so many groups could be made, those that the
            ranker discards included; None: with the last group.

    Returns:
        Counts: ``pictures``, ``captions``, ``pastes``, and proposals ``refused`` by reason.

    Raises:
        ValueError: the folder holds another set, two proposals of one name, or no picture is made.
        OSError: something cannot be written.
        ChildProcessError: a process that makes pictures was killed.
    """
    if num_processes < 0 or sheet_number < 0:
        raise ValueError("num_processes and sheet_number must not be negative")
    claim_folder(folder, settings)
    _remove_partial_pictures(folder)
    records_file, partial_file = folder / "provenance.jsonl", folder / "provenance.part.jsonl"
    if not records_file.is_file():
        sheet = SheetSampler(number=sheet_number, seed=seed)
        progress = Progress(sheet=sheet, max_augmented=max_augmented)
        remaining = _remaining_groups(_unique(groups), partial_file, folder / "images", progress)
        build = partial(Renderer, folder=folder, picture_format=picture_format)
        results = _rendered(remaining, build, build_ranker, num_processes)
        _append(_until_complete(results, progress), partial_file)
        if max_augmented is not None:
            _remove_unrecorded_pictures(folder, partial_file)
        counts = _counts(_read_lines(partial_file))
        if counts["pictures"]:
            _write_sheet(folder, partial_file, sheet)
            write_atomically(
                records_file, lambda path: _write_records(path, _read_lines(partial_file))
            )
    else:
        _pass_recorded(groups, None if max_augmented is None else records_file)
        counts = _counts(records(records_file, all_records=True))
    if not counts["pictures"]:
        raise ValueError(_no_pictures_message(counts["refused"], report()))
    partial_file.unlink(missing_ok=True)
    write_annotations(folder, records_file)
    return counts


def _remove_partial_pictures(folder: Path) -> None:
    """Delete half-written images of a killed run; their names begin with a dot."""
    for part in ("images", "owners"):
        for path in (folder / part).glob(".*"):
            path.unlink()


def _remove_unrecorded_pictures(folder: Path, partial_file: Path) -> None:
    """Delete images without records, which processes rendered after the dataset was complete."""
    finished = [record for record in _read_lines(partial_file) if "refused" not in record]
    expected = {
        "images": {record["file_name"] for record in finished},
        "owners": {f"{record['name']}.png" for record in finished},
    }
    for part, names in expected.items():
        for path in (folder / part).glob("*"):
            if path.suffix in (".png", ".jpg") and path.name not in names:
                path.unlink()


def _pass_recorded(groups: Iterable[Candidates], records_file: Path | None) -> None:
    """Skip the groups of a finished dataset, which the method's report still counts.

    Args:
        groups: the method's groups.
        records_file: the last group is the one of its last record; None: the method's last one.
    """
    last = None
    for record in records(records_file, all_records=True) if records_file else ():
        last = record["name"]
    for group in groups:
        if last is not None and any(proposal.name == last for proposal in group):
            break


def _unique(groups: Iterable[Candidates]) -> Iterator[Candidates]:
    names = set()
    for group in groups:
        name = group[0].name
        if name in names or len({proposal.name for proposal in group}) < len(group):
            raise ValueError(f"two proposals have the name {name!r}; names must be unique")
        names.add(name)
        yield group


def _remaining_groups(
    groups: Iterator[Candidates], partial_file: Path, images: Path, progress: Progress
) -> Iterator[Candidates]:
    """Proposals without complete records; cut the file back to complete records."""
    size, next_group = 0, None
    partial_file.parent.mkdir(parents=True, exist_ok=True)
    with partial_file.open("a+b") as file:
        file.seek(0)
        for line in file:
            # no group is read beyond the last one, as a method's report counts what was read
            next_group = None if progress.is_complete else next(groups, None)
            done = None if next_group is None else _done_records(line, next_group, images)
            if next_group is None or done is None:
                break
            progress.add(next_group, done)
            size, next_group = size + len(line), None
        file.truncate(size)
    return chain([next_group] if next_group is not None else [], groups)


def _done_records(line: bytes, group: Candidates, images: Path) -> list[PictureRecord] | None:
    """Records of a line; None if they are incomplete for the group, or an image is missing."""
    if not line.endswith(b"\n"):
        return None
    try:
        group_records = json.loads(line)
    except ValueError:
        return None
    if not isinstance(group_records, list):
        return None
    names = {proposal.name for proposal in group}
    finished = (record for record in group_records if "refused" not in record)
    is_done = {record["name"] for record in group_records} <= names and all(
        (images / record["file_name"]).is_file() for record in finished
    )
    return group_records if is_done else None


Result = tuple[Candidates, list[PictureRecord]]


def _until_complete(
    results: Generator[Result, None, None], progress: Progress
) -> Iterator[list[PictureRecord]]:
    """Yield records of results until the dataset is complete."""
    with closing(results):  # ends the processes
        while not progress.is_complete and (result := next(results, None)) is not None:
            progress.add(*result)
            yield result[1]


def _rendered(
    groups: Iterator[Candidates],
    build: Callable[..., Renderer],
    build_ranker: Callable[[], Ranker] | None,
    num_processes: int,
) -> Generator[Result, None, None]:
    """Yield proposals with their records in order; only a few are rendered at a time."""
    if num_processes == 0:
        renderer = build(ranker=None if build_ranker is None else build_ranker())
        yield from ((group, renderer.records(group)) for group in groups)
        return
    context = multiprocessing.get_context("spawn")  # forked threads of torch may hang
    chunk_size = CHUNK if build_ranker is None else 1
    chunks = iter(lambda: list(islice(groups, chunk_size)), [])
    try:
        with ProcessPoolExecutor(
            num_processes, context, initializer=_start_worker, initargs=(build, build_ranker)
        ) as pool:
            yield from _by_pool(pool, chunks, max_pending=2 * num_processes)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that makes images was killed, perhaps because memory ran out (its own "
            "error, if any, is printed above): lower num_processes= or "
            "format.num_cached_photos=, and run the same command again to resume"
        ) from error


def _by_pool(
    pool: ProcessPoolExecutor, chunks: Iterator[list[Candidates]], *, max_pending: int
) -> Iterator[Result]:
    """Yield results of chunks in order; start no chunk that is no longer needed."""
    pending: deque = deque()
    try:
        for chunk in chunks:
            pending.append((chunk, pool.submit(_run_in_worker, chunk)))
            if len(pending) > max_pending:
                yield from _next_results(pending)
        while pending:
            yield from _next_results(pending)
    finally:
        for _, future in pending:
            future.cancel()


def _next_results(pending: deque) -> Iterator[Result]:
    chunk, future = pending.popleft()
    return zip(chunk, future.result(), strict=True)


_worker: list[Renderer] = []


def _start_worker(
    build: Callable[..., Renderer], build_ranker: Callable[[], Ranker] | None
) -> None:
    end_with_parent()
    _worker[:] = [build(ranker=None if build_ranker is None else build_ranker())]


def _run_in_worker(chunk: list[Candidates]) -> list[list[PictureRecord]]:
    return [_worker[0].records(group) for group in chunk]


def _append(groups: Iterable[list[PictureRecord]], partial_file: Path) -> None:
    with partial_file.open("a", encoding="utf-8", newline="\n") as file:
        for group in track(groups, description="pasting", transient=True):
            file.write(json.dumps(group, ensure_ascii=False) + "\n")
            file.flush()


def _read_lines(partial_file: Path) -> Iterator[PictureRecord]:
    """Read the records of a file with several records on each line."""
    with partial_file.open(encoding="utf-8") as file:
        for line in file:
            yield from json.loads(line)


def _write_records(path: Path, group: Iterable[PictureRecord]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in group)


def _counts(group: Iterable[PictureRecord]) -> dict[str, Any]:
    counts: Counter[str] = Counter(pictures=0, captions=0, pastes=0)
    refused: Counter[str] = Counter()
    for record in group:
        if "refused" in record:
            reasons = record["refused"]
            refused.update(reasons if isinstance(reasons, dict) else [reasons])
            continue
        counts.update(pictures=1, captions=len(record["captions"]), pastes=len(record["pastes"]))
    return dict(counts) | {"refused": dict(sorted(refused.items()))}


def _no_pictures_message(refused: Mapping[str, int], report: Mapping[str, Any]) -> str:
    """Error text if no image was rendered; the method's counts show which data are missing."""
    facts = "; ".join(f"{name}: {value or 'none'}" for name, value in report.items())
    return (
        f"no image was rendered; rejected: {dict(refused) or 'nothing proposed'}; found: "
        f"{facts or 'nothing'}; check that captions name objects that have boxes (the annotations, "
        "or steps=[take_detections]), or widen the settings that the reasons name"
    )


def _write_sheet(folder: Path, partial_file: Path, sheet_sampler: SheetSampler) -> None:
    """Draw the contact sheet of the sampled proposals that were not rejected."""
    groups = sheet_sampler.selected()
    names = {proposal.name for group in groups for proposal in group}
    files = {
        r["name"]: r["file_name"]
        for r in _read_lines(partial_file)
        if r["name"] in names and "refused" not in r
    }
    rank = {name: place for place, name in enumerate(files)}
    made_groups = ([p for p in group if p.name in files] for group in groups)
    best_proposals = [
        min(proposals, key=lambda p: rank[p.name]) for proposals in made_groups if proposals
    ]
    pairs = []
    for proposal in best_proposals[: sheet_sampler.number]:
        after = load_rgb(folder / "images" / files[proposal.name])
        boxes = [move.target_box for move in proposal.pastes]
        text = f"{proposal.before[0]}\n> {proposal.captions[0]}"
        pairs.append((load_rgb(proposal.image_path), after, boxes, text))
    if pairs:
        write_atomically(folder / "sheet.png", pair_sheet(pairs).save)
