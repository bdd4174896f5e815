"""Every format of an exported set, read by the programs that people read such sets with.

``python -m tests.contracts.test_shared_sets`` writes the table of docs/guides/share.md.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import tarfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.readers.split_words import Split
from captioning.results.table_formats import put_between_marks
from curation.check import check
from curation.check.check_files import export_cleaned
from curation.check.result import CheckResult
from curation.export.tool_files import Style
from tests.image_text_folders import save_image_text
from tests.packed_files import photo

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "share.md"
NAME = "readers"  # of the page's marks
# Formats, those of several forms by the name of the form.
FORMATS = (
    *("coco", "jsonl", "imagefolder", "parquet", "datasets", "webdataset"),
    *("messages", "sharegpt", "llava", "text_files", "kohya", "csv", "karpathy"),
)
OF_FORMAT = {"sharegpt": "messages", "llava": "messages", "kohya": "text_files"}
BESIDE = ("coco", "jsonl", "messages", "sharegpt", "llava", "csv", "karpathy")
QUESTION = "What can be seen?"
SKIP = ("duplicate_photo", "too_short", "same_caption", "tiny_photo", "file_name")
NAMES = (
    "red_train.jpg", "COCO_val2014_000000000042.jpg", "a b.jpeg", "sub/bob.JPG", "sub/a.b.jpg",
    "test/eval 1.jpg", "zoë.png", "plain.bmp",
)  # fmt: skip
HUB = {"train": "train", "val": "validation", "test": "test"}
MORE_NAMES = ("val.jpg", "dev/9 b.jpg", "10.JPG", "sub/val/11.png")  # for ten and more photos
PARTS: tuple[Split, ...] = ("train", "val", "test")
OF_SPLITS = {"train": range(4), "val": range(4, 6), "test": range(6, 8)}


class Seen(NamedTuple):
    """What a reader has found of a caption; None: it does not read that."""

    caption: str
    image_id: str | None
    split: str | None
    has_photo: bool | None


def _import(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[readers]'")


def _of_lists(row: dict[str, Any], split: str | None, has_photo: bool | None) -> list[Seen]:
    return [Seen(c, row["image_id"], split, has_photo) for c in row["captions"]]


def _split_of(path: Path, root: Path) -> str | None:
    """The split that our own names of files say."""
    said = path.relative_to(root).as_posix()
    return next((split for split, name in HUB.items() if name in said.split("000")[0]), None)


def by_us(root: Path, format: str) -> list[Seen]:
    splits = own_splits(root)
    samples = read_own(name="x", folder=root).samples
    return [
        Seen(s.caption, None if format == "kohya" else s.image_id, splits.get(s.image_path), True)
        for s in samples
    ]


def by_datasets(root: Path, format: str) -> list[Seen]:
    datasets = _import("datasets")
    datasets.disable_progress_bars()
    if format == "datasets":
        loaded = datasets.load_from_disk(str(root))
        loaded = loaded if isinstance(loaded, dict) else {"train": loaded}
    else:
        cache = str(root.parents[1] / "cache")  # one of all sets
        loaded = datasets.load_dataset(str(root), cache_dir=cache)
    names = {hub: split for split, hub in HUB.items()} if len(loaded) > 1 else {}
    return [
        one
        for part, rows in loaded.items()
        for row in rows
        for one in _of_row(row.get("json", row) | _photo_of(row), root, names.get(part))
    ]


def _photo_of(row: dict[str, Any]) -> dict[str, Any]:
    image = row.get("image", row.get("jpg"))
    return {"decoded": image} if isinstance(image, Image.Image) else {}


def _of_row(row: dict[str, Any], root: Path, split: str | None) -> list[Seen]:
    """What a row says, in whatever format."""
    split = row.get("split") or split
    image_id = row.get("image_id") or None
    if "sample_id" in row and "file_name" not in row:  # of COCO, where it is a number
        image_id = None
    folder = root / "images"
    image = row.get("image")
    if "decoded" in row:
        has_photo: bool | None = row["decoded"].size == (64, 64)
    elif isinstance(image, dict):
        has_photo = Image.open(io.BytesIO(image["bytes"])).size == (64, 64)
    elif "images" in row or "conversations" in row:
        has_photo = (root / (image or row["images"][0])).is_file()
    elif "filename" in row:
        has_photo = (folder / (row.get("filepath") or "") / row["filename"]).is_file()
    else:
        name = image or row.get("file_name")
        has_photo = (folder / name).is_file() if name else None
    return [Seen(caption, image_id, split, has_photo) for caption in _captions(row)]


def _captions(row: dict[str, Any]) -> list[str]:
    if "messages" in row:
        question, answer = row["messages"]
        assert (question["role"], question["content"]) == ("user", QUESTION)
        assert answer["role"] == "assistant"
        return [answer["content"]]
    if "conversations" in row:
        question, answer = row["conversations"]
        mark = "<image>\n" if "id" in row else "<image>"
        assert (question["from"], question["value"]) == ("human", mark + QUESTION)
        assert answer["from"] == "gpt"
        return [answer["value"]]
    if "sentences" in row:
        return [sentence["raw"] for sentence in row["sentences"]]
    return row.get("captions") or [row.get("caption") or row["text"]]


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


TABLES = {"parquet": "data/*.parquet", "jsonl": "captions*.jsonl", "csv": "captions.csv"}
TABLES["messages"] = "messages*.jsonl"


def _of_rows(
    read: Callable[[Path], Iterable[dict[str, Any]]], root: Path, format: str
) -> list[Seen]:
    return [
        one
        for path in sorted(root.glob(TABLES[format]))
        for row in read(path)
        for one in _of_row(_without_missing(row), root, _split_of(path, root))
    ]


def _without_missing(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def by_pandas(root: Path, format: str) -> list[Seen]:
    pandas = _import("pandas")

    def read(path: Path) -> list[dict[str, Any]]:
        if path.suffix == ".csv":
            return pandas.read_csv(path).to_dict("records")
        is_lines = path.suffix == ".jsonl"
        table = pandas.read_json(path, lines=True) if is_lines else pandas.read_parquet(path)
        rows = table.to_dict("records")
        return [row | {"captions": list(row.get("captions", []))} for row in rows]

    return _of_rows(read, root, format)


def by_polars(root: Path, format: str) -> list[Seen]:
    polars = _import("polars")
    ways = {".jsonl": polars.read_ndjson, ".csv": polars.read_csv, ".parquet": polars.read_parquet}
    return _of_rows(lambda path: ways[path.suffix](path).iter_rows(named=True), root, format)


def by_duckdb(root: Path, format: str) -> list[Seen]:
    duckdb = _import("duckdb")

    def read(path: Path) -> Iterator[dict[str, Any]]:
        table = duckdb.sql(f"select * from '{path}'")
        return (dict(zip(table.columns, row, strict=True)) for row in table.fetchall())

    return _of_rows(read, root, format)


def by_trl(root: Path, format: str) -> list[Seen]:
    """The batch that SFTTrainer makes of each row for a model of photos and texts."""
    datasets, transformers = _import("datasets"), _import("transformers")
    sft = pytest.importorskip(
        "trl.trainer.sft_trainer", reason="trl is not installed: pip install '.[readers]'"
    )
    folder = root.parents[1] / "processor"
    if not folder.exists():
        save_image_text(folder, "qwen2_vl")
    processor = transformers.AutoProcessor.from_pretrained(folder)
    collator = sft.DataCollatorForVisionLanguageModeling(processor)
    datasets.disable_progress_bars()
    seen = []
    for path in sorted(root.glob("messages*.jsonl")):
        cache = str(root.parents[1] / "cache")
        rows = datasets.load_dataset("json", data_files=str(path), cache_dir=cache)["train"]
        rows = rows.map(lambda row: {"images": [str(root / name) for name in row["images"]]})
        rows = rows.cast_column("images", datasets.List(datasets.Image()))
        for row in rows:
            batch = collator([{"messages": row["messages"], "images": row["images"]}])
            [text] = processor.batch_decode(batch["input_ids"], skip_special_tokens=True)
            user, question, role, caption = text.strip().split("\n")
            assert (user, question, role) == ("user", QUESTION, "assistant")
            has_photo = len(batch["image_grid_thw"]) == 1
            seen.append(Seen(caption, row["image_id"], _split_of(path, root), has_photo))
    return seen


def by_swift_rule(root: Path, format: str) -> list[Seen]:
    """A photo is in ROOT_IMAGE_DIR; its mark is written if none is: Template._add_default_tags."""
    lines = [
        (path, json.loads(line))
        for path in sorted(root.glob("messages*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    seen = []
    for path, row in lines:
        assert "<image>" not in row["messages"][0]["content"]
        assert len(row["images"]) == 1
        seen += _of_row(row, root, _split_of(path, root))
    return seen


def by_llama_factory_rule(root: Path, format: str) -> list[Seen]:
    """Files of dataset_info.json: SharegptDatasetConverter; a mark for each photo of media_dir."""
    names = {hub: split for split, hub in HUB.items()}
    seen = []
    for name, about in json.loads((root / "dataset_info.json").read_text()).items():
        assert about["formatting"] == "sharegpt"
        columns = about["columns"]
        for row in json.loads((root / about["file_name"]).read_text(encoding="utf-8")):
            turns, photos = row[columns["messages"]], row[columns["images"]]
            assert [turn["from"] for turn in turns] == ["human", "gpt"]
            assert sum(turn["value"].count("<image>") for turn in turns) == len(photos)
            seen += _of_row(row, root, names.get(name))
    return seen


def by_llava_rule(root: Path, format: str) -> list[Seen]:
    """A list of rows whose photo lies in image_folder: LazySupervisedDataset."""
    seen = []
    for path in sorted(root.glob("conversations*.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))
        assert len({row["id"] for row in rows}) == len(rows)
        seen += [one for row in rows for one in _of_row(row, root, _split_of(path, root))]
    return seen


def by_kohya_rule(root: Path, format: str) -> list[Seen]:
    """Folders N_name of a train_data_dir: generate_dreambooth_subsets_config_by_subdirs.

    A caption is one of the lines, with enable_wildcard: read_caption.
    """
    seen = []
    for split in (*HUB, None):
        place = root if split is None else root / HUB[split]
        for folder in sorted(place.glob("*/")) if place.is_dir() else []:
            number = folder.name.split("_")[0]
            if not number.isdecimal():
                continue
            assert int(number) == (10 if split in ("train", None) else 1)
            photos = [path for path in folder.iterdir() if path.suffix.lower() != ".txt"]
            for path in photos:
                assert path.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp", ".bmp")
                lines = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
                seen += [Seen(line.strip(), None, split, True) for line in lines]
    return seen


def by_karpathy_rule(root: Path, format: str) -> list[Seen]:
    """Sentences by ids, words as tokens, photos at filepath/filename, as its loaders take them."""
    [path] = root.glob("dataset_*.json")
    images = json.loads(path.read_text(encoding="utf-8"))["images"]
    sentences = [sentence for image in images for sentence in image["sentences"]]
    assert [sentence["sentid"] for sentence in sentences] == [*range(len(sentences))]
    for number, image in enumerate(images):
        assert image["imgid"] == number
        assert image["sentids"] == [sentence["sentid"] for sentence in image["sentences"]]
        assert all(s["tokens"][:2] == ["a", "dog"] for s in image["sentences"])
    return [one for image in images for one in _of_row(image, root, None)]


Reader = Callable[[Path, str], list[Seen]]
# Which reader is for which formats, and how it is called there.
READERS: dict[str, tuple[Reader, tuple[str, ...], str]] = {
    "captioning": (by_us, FORMATS, "`data=own data.root=FOLDER`"),
    "datasets": (by_datasets, FORMATS, "`load_dataset(FOLDER)`; `load_from_disk` of `datasets`"),
    "pycocotools": (by_pycocotools, ("coco",), "`COCO(FILE)` with `loadRes`"),
    "pandas": (by_pandas, tuple(TABLES), "`read_json(lines=True)`, `read_parquet`, `read_csv`"),
    "polars": (by_polars, tuple(TABLES), "`read_ndjson`, `read_parquet`, `read_csv`"),
    "DuckDB": (by_duckdb, tuple(TABLES), "`select * from 'FILE'`"),
    "webdataset": (by_webdataset, ("webdataset",), '`to_tuple("jpg", "txt", "json")`'),
    "open_clip": (by_open_clip_rule, ("webdataset",), "its filter of samples, `KEY.txt`"),
    "TRL": (by_trl, ("messages",), "batches of `SFTTrainer`, `images` as `datasets.Image`"),
    "ms-swift": (by_swift_rule, ("messages",), "its rule, `ROOT_IMAGE_DIR=FOLDER`"),
    "LLaMA-Factory": (by_llama_factory_rule, ("sharegpt",), "its rule, `dataset_dir: FOLDER`"),
    "LLaVA": (by_llava_rule, ("llava",), "its rule, `--image_folder FOLDER`"),
    "kohya's sd-scripts": (by_kohya_rule, ("kohya",), "its rule, `enable_wildcard`"),
    "Karpathy's loaders": (by_karpathy_rule, ("karpathy",), "their rule"),
}
CAPTIONS_ALONE = (("datasets", "text_files"), ("datasets", "kohya"))
PAIRS = [(reader, format) for reader, (_, formats, _) in READERS.items() for format in formats]
SETS = ("no splits", "a column", "folders", "drawn splits")


def _make(root: Path, kind: str, shift: int = 0) -> dict[str, Seen]:
    """Write a set with awkward names; what is to be seen of each caption.

    Of a set without splits some are drawn, unless it is small.
    """
    split_of = {n: split for split, numbers in OF_SPLITS.items() for n in numbers}
    rows, expected = [], {}
    for number, name in enumerate((*NAMES, *(MORE_NAMES if kind == "drawn splits" else ()))):
        split = split_of[number] if kind in ("a column", "folders") else None
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
    if kind == "drawn splits":
        for part in PARTS:
            roster = read_own(name="x", folder=root, part=part, split_by="content")
            for caption in (sample.caption for sample in roster.samples):
                expected[caption] = expected[caption]._replace(split=part)
    return expected


def write(result: CheckResult, out: Path, format: str) -> int:
    """Export in one of `FORMATS`."""
    plain = OF_FORMAT.get(format, format)
    style = Style(form=None if plain == format else format)
    style = replace(style, question=QUESTION if plain == "messages" else None)
    style = replace(style, repeats=10 if format == "kohya" else 1)
    photos = "copy" if format in BESIDE else None
    return export_cleaned(result, out, format=plain, photos=photos, style=style)


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
            count = write(result, out, format)
            assert count == len(expected)
        return out, expected

    return get


def _held(expected: dict[str, Seen], format: str, kind: str) -> dict[str, Seen]:
    """What a format holds of a set; docs/guides/export.md says what it loses."""
    if kind != "no splits" or format not in ("karpathy", "text_files"):
        return expected
    if format == "karpathy":
        return {caption: one._replace(split="train") for caption, one in expected.items()}
    names = {f"test/{name}": f"xtest/{name}" for name in ("eval 1.jpg",)}
    return {
        caption: one._replace(image_id=names.get(one.image_id or "", one.image_id))
        for caption, one in expected.items()
    }


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
    _compare(seen, _held(expected, format, kind), first_only=reader == "open_clip")
    if format != "coco":
        is_alone = (reader, format) in CAPTIONS_ALONE
        assert {one.has_photo for one in seen} == {None if is_alone else True}


@pytest.mark.parametrize("format", FORMATS)
def test_a_second_set_is_not_taken_for_the_first(exported, format: str) -> None:
    for shift in (0, 100, 0):
        out, expected = exported("no splits", shift, format)
        _compare(by_datasets(out, format), _held(expected, format, "no splits"))


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "kohya"])
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


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in ("text_files", "kohya")])
def test_stated_ids_come_back(tmp_path: Path, format: str) -> None:
    """Ids that are no names, of captions whose numbers have gaps."""
    source = tmp_path / "set"
    source.mkdir()
    rows = []
    for number in range(3):
        (source / f"p{number}.png").write_bytes(photo(number, 64))
        about = {"image": f"p{number}.png", "image_id": f"photo-{number}"}
        captions = [f"A dog, {number}, runs {n}." for n in range(2)]
        keys = [f"photo-{number}#{key}" for key in (1, 4)]
        rows.append(json.dumps({**about, "captions": captions, "sample_ids": keys}))
    (source / "captions.jsonl").write_text("\n".join(rows))
    result = check(source, space="none", skip=SKIP, quiet=True)
    write(result, tmp_path / "out", format)
    ids = {s.caption: (s.image_id, s.sample_id) for s in result.roster.samples}
    assert ids["A dog, 2, runs 1."] == ("photo-2", "photo-2#4")
    back = read_own(name="x", folder=tmp_path / "out", part="all").samples
    assert {s.caption: (s.image_id, s.sample_id) for s in back} == ids


def _cell(reader: str, format: str, formats: Sequence[str]) -> str:
    if format not in formats:
        return ""
    return "captions" if (reader, format) in CAPTIONS_ALONE else "yes"


def table() -> str:
    """Which reader reads which format, as Markdown."""
    lines = [
        f"| {reader} | {how} | " + " | ".join(_cell(reader, f, formats) for f in FORMATS) + " |"
        for reader, (_, formats, how) in READERS.items()
    ]
    head = f"| reader | how | {' | '.join(f'`{format}`' for format in FORMATS)} |"
    return "\n".join((head, "|---|---|" + "---|" * len(FORMATS), *lines))


def write_table(page: Path) -> None:
    """Write the table between the page's marks."""
    put_between_marks(page, f"{table()}\n", NAME)


def test_the_page_has_the_table(tmp_path: Path) -> None:
    copy = Path(shutil.copy(PAGE, tmp_path))
    write_table(copy)
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "run python -m tests.contracts.test_shared_sets"
    )


if __name__ == "__main__":
    write_table(PAGE)
