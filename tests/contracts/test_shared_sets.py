"""Every format of an exported set, read by the programs that people read such sets with.

``python -m tests.contracts.test_shared_sets`` writes the table of docs/share.md.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from captioning.data.readers.own.own import own_splits, read_own
from curation.check import check
from curation.check.export import export_cleaned
from tests.packed_files import photo

PAGE = Path(__file__).parents[2] / "docs" / "share.md"
BEGIN, END = "<!-- readers -->", "<!-- end of readers -->"
FORMATS = ("coco", "jsonl", "imagefolder", "parquet", "datasets", "webdataset")
SKIP = ("duplicate_photo", "too_short", "same_caption", "tiny_photo", "file_name")
NAMES = (
    "red_train.jpg", "COCO_val2014_000000000042.jpg", "a b.jpeg", "sub/bob.JPG", "sub/a.b.jpg",
    "test/eval 1.jpg", "zoë.png", "plain.bmp",
)  # fmt: skip
HUB = {"train": "train", "val": "validation", "test": "test"}
OF_SPLITS = {"train": range(4), "val": range(4, 6), "test": range(6, 8)}


class Seen(NamedTuple):
    """What a reader has found of a caption; None: it does not read that."""

    caption: str
    image_id: str | None
    split: str | None
    has_photo: bool | None


def _import(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")


def _of_lists(row: dict[str, Any], split: str | None, has_photo: bool | None) -> list[Seen]:
    return [Seen(c, row["image_id"], split, has_photo) for c in row["captions"]]


def _split_of(path: Path, root: Path) -> str | None:
    """The split that our own names of files say."""
    said = path.relative_to(root).as_posix()
    return next((split for split, name in HUB.items() if name in said.split("000")[0]), None)


def by_us(root: Path, format: str) -> list[Seen]:
    splits = own_splits(root)
    samples = read_own(name="x", folder=root).samples
    return [Seen(s.caption, s.image_id, splits.get(s.image_path), True) for s in samples]


def by_datasets(root: Path, format: str) -> list[Seen]:
    datasets = _import("datasets")
    datasets.disable_progress_bars()
    if format == "datasets":
        loaded = datasets.load_from_disk(str(root))
        loaded = loaded if isinstance(loaded, dict) else {"train": loaded}
    else:
        cache = str(root.parents[1] / "cache")  # one of all sets
        loaded = datasets.load_dataset(str(root), cache_dir=cache)
    names = {hub: split for split, hub in HUB.items()}
    seen = []
    for part, rows in loaded.items():
        split = names[part] if len(loaded) > 1 else None
        for row in rows:
            image = row.get("image", row.get("jpg"))
            has_photo = isinstance(image, Image.Image) or None
            about = row.get("json", row)
            if format == "coco":
                seen.append(Seen(about["caption"], None, split, None))
            else:
                seen += _of_lists(about, split, has_photo)
    return seen


def _members(root: Path) -> dict[tuple[str, str], dict[str, bytes]]:
    """Members of shards by shard and key, told apart as webdataset does."""
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for shard in sorted(root.glob("*.tar")):
        with tarfile.open(shard) as file:
            for member in file:
                folder, _, base = member.name.rpartition("/")
                stem, _, suffix = base.partition(".")
                data = file.extractfile(member)
                assert data is not None
                found.setdefault((shard.name, f"{folder}/{stem}"), {})[suffix] = data.read()
    return found


def by_open_clip_rule(root: Path, format: str) -> list[Seen]:
    """A sample needs KEY.txt and a photo: open_clip_train.data.filter_no_caption_or_no_image."""
    seen = []
    for (shard, _), parts in _members(root).items():
        if "txt" in parts and parts.keys() & {"png", "jpg", "jpeg", "webp"}:
            has_photo = Image.open(io.BytesIO(parts["jpg"])).format == "JPEG"
            split = _split_of(root / shard, root)
            seen.append(Seen(parts["txt"].decode(), None, split, has_photo))
    return seen


def by_webdataset(root: Path, format: str) -> list[Seen]:
    webdataset = _import("webdataset")
    seen = []
    for shard in sorted(root.glob("*.tar")):
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            rows = webdataset.WebDataset(str(shard), shardshuffle=False).decode("pil")
            triples = list(rows.to_tuple("jpg", "txt", "json"))  # it leaves the shard open
        for image, text, about in triples:
            assert text == about["captions"][0]
            seen += _of_lists(about, _split_of(shard, root), image.size == (64, 64))
    return seen


def by_pycocotools(root: Path, format: str) -> list[Seen]:
    coco = _import("pycocotools.coco").COCO
    seen = []
    for path in sorted(root.glob("captions*.json")):
        annotations = coco(path)
        results = [{"image_id": number, "caption": "a dog"} for number in annotations.getImgIds()]
        assert annotations.loadRes(results).getImgIds() == annotations.getImgIds()
        for one in annotations.loadAnns(annotations.getAnnIds()):
            [image] = annotations.loadImgs(one["image_id"])
            is_there = (root / "images" / image["file_name"]).is_file()
            split = _split_of(path, root)
            seen.append(Seen(one["caption"], image["roster_id"], split, is_there))
    return seen


def _tables(root: Path, format: str) -> list[Path]:
    return sorted(root.glob({"parquet": "data/*.parquet", "jsonl": "captions*.jsonl"}[format]))


def _of_rows(rows: Any, path: Path, root: Path) -> list[Seen]:
    split = _split_of(path, root)
    found = []
    for row in rows:
        image = row["image"]
        if isinstance(image, dict):
            has_photo = Image.open(io.BytesIO(image["bytes"])).size == (64, 64)
        else:
            has_photo = (root / "images" / image).is_file()
        found += _of_lists(row, split, has_photo)
    return found


def by_pandas(root: Path, format: str) -> list[Seen]:
    pandas = _import("pandas")
    seen = []
    for path in _tables(root, format):
        is_lines = format == "jsonl"
        table = pandas.read_json(path, lines=True) if is_lines else pandas.read_parquet(path)
        seen += _of_rows(table.to_dict("records"), path, root)
    return seen


def by_polars(root: Path, format: str) -> list[Seen]:
    polars = _import("polars")
    seen = []
    for path in _tables(root, format):
        table = polars.read_ndjson(path) if format == "jsonl" else polars.read_parquet(path)
        seen += _of_rows(table.iter_rows(named=True), path, root)
    return seen


def by_duckdb(root: Path, format: str) -> list[Seen]:
    duckdb = _import("duckdb")
    seen = []
    for path in _tables(root, format):
        table = duckdb.sql(f"select * from '{path}'")
        rows = (dict(zip(table.columns, row, strict=True)) for row in table.fetchall())
        seen += _of_rows(rows, path, root)
    return seen


Reader = Callable[[Path, str], list[Seen]]
# Which reader is for which formats, and how it is called there.
READERS: dict[str, tuple[Reader, tuple[str, ...], str]] = {
    "captioning": (by_us, FORMATS, "`data=own data.root=FOLDER`"),
    "datasets": (by_datasets, FORMATS, "`load_dataset(FOLDER)`; `load_from_disk` of `datasets`"),
    "pycocotools": (by_pycocotools, ("coco",), "`COCO(FILE)` with `loadRes`"),
    "pandas": (by_pandas, ("jsonl", "parquet"), "`read_json(lines=True)`, `read_parquet`"),
    "polars": (by_polars, ("jsonl", "parquet"), "`read_ndjson`, `read_parquet`"),
    "DuckDB": (by_duckdb, ("jsonl", "parquet"), "`select * from 'FILE'`"),
    "webdataset": (by_webdataset, ("webdataset",), '`to_tuple("jpg", "txt", "json")`'),
    "open_clip": (by_open_clip_rule, ("webdataset",), "its filter of samples, `KEY.txt`"),
}
PAIRS = [(reader, format) for reader, (_, formats, _) in READERS.items() for format in formats]
SETS = ("no splits", "a column", "folders")


def _make(root: Path, kind: str, shift: int = 0) -> dict[str, Seen]:
    """Write a set with awkward names; what is to be seen of each caption."""
    split_of = {n: split for split, numbers in OF_SPLITS.items() for n in numbers}
    rows, expected = [], {}
    for number, name in enumerate(NAMES):
        split = None if kind == "no splits" else split_of[number]
        name = f"{split}/{Path(name).name}" if kind == "folders" else name
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.open(io.BytesIO(photo(number + shift, 64)))
        picture.save(target)
        for again in range(2 if number == 0 else 1):
            caption = f"A dog, the {number}th of {shift}, runs over a field {again}."
            rows.append([name, caption, *([split] if kind == "a column" else [])])
            expected[caption] = Seen(caption, name, split, True)
    head = ["file_name", "text", *(["split"] if kind == "a column" else [])]
    with (root / "captions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return expected


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Callable[[str, int, str], tuple[Path, dict[str, Seen]]]:
    """Exports of sets, all in folders of the same name, each made once."""
    root = tmp_path_factory.mktemp("sets")
    results: dict[tuple[str, int], tuple[Any, dict[str, Seen]]] = {}

    def get(kind: str, shift: int, format: str) -> tuple[Path, dict[str, Seen]]:
        if (kind, shift) not in results:
            source = root / f"{kind}{shift}".replace(" ", "_")
            expected = _make(source, kind, shift)
            results[kind, shift] = check(source, space="none", skip=SKIP, quiet=True), expected
        result, expected = results[kind, shift]
        # of no name that says a split
        out = root / f"{kind}{shift}-{format}".replace(" ", "_") / "cleaned"
        if not out.exists():
            photos = "copy" if format in ("coco", "jsonl") else None
            assert export_cleaned(result, out, format=format, photos=photos) == len(expected)
        return out, expected

    return get


def _compare(seen: list[Seen], expected: dict[str, Seen], *, first_only: bool = False) -> None:
    if first_only:  # the first caption of each photo
        firsts = {one.image_id: one for one in reversed(expected.values())}
        expected = {one.caption: one for one in firsts.values()}
    assert sorted(one.caption for one in seen) == sorted(expected)
    for one in seen:
        known = expected[one.caption]
        assert one.split == known.split
        assert one.image_id in (None, known.image_id)
        assert one.has_photo in (None, True)


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize(("reader", "format"), PAIRS)
def test_every_caption_arrives(exported, kind: str, reader: str, format: str) -> None:
    out, expected = exported(kind, 0, format)
    seen = READERS[reader][0](out, format)
    _compare(seen, expected, first_only=reader == "open_clip")


@pytest.mark.parametrize("format", FORMATS)
def test_a_second_set_is_not_taken_for_the_first(exported, format: str) -> None:
    for shift in (0, 100, 0):
        out, expected = exported("no splits", shift, format)
        _compare(by_datasets(out, format), expected)


@pytest.mark.parametrize("format", FORMATS)
def test_ids_of_captions_come_back(exported, format: str) -> None:
    source = exported("a column", 0, format)[0]
    again = source.with_name("again")
    result = check(source, space="none", skip=SKIP, quiet=True)
    ids = {s.caption: s.sample_id for s in result.roster.samples}
    assert ids["A dog, the 0th of 0, runs over a field 1."] == "red_train.jpg#1"
    export_cleaned(result, again, format="jsonl")
    lines = [line for path in again.glob("*.jsonl") for line in path.read_text().splitlines()]
    told = [json.loads(line) for line in lines if "captions" in line]
    assert {i for line in told if "sample_ids" in line for i in line["sample_ids"]} == {
        *ids.values()
    }
    shutil.rmtree(again)


def table() -> str:
    """Which reader reads which format, as Markdown."""
    lines = [
        f"| {reader} | {how} | " + " | ".join("yes" if f in formats else "" for f in FORMATS) + " |"
        for reader, (_, formats, how) in READERS.items()
    ]
    head = f"| reader | how | {' | '.join(f'`{format}`' for format in FORMATS)} |"
    return "\n".join((head, "|---|---|" + "---|" * len(FORMATS), *lines))


def with_table(page: str) -> str:
    """A page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert with_table(page) == page, "run python -m tests.contracts.test_shared_sets"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
