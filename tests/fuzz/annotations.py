"""Readers of annotations, of packed photos, of lists and of what belongs to data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from captioning.data.readers.arrow import read_arrow
from captioning.data.readers.caption_lines import read_caption_lines
from captioning.data.readers.jsonl import read_jsonl
from captioning.data.readers.webdataset import read_webdataset
from captioning.data.steps.added_captions import read_added_captions
from captioning.data.steps.take_detections import read_all_detections
from captioning.text.entities import read_names, read_photo_names
from captioning.text.word_tables import load_word_vectors
from captioning.vision.photos import photo_problem
from curation.loop.planted_faults import load_truth
from curation.study.items import read_items
from tests.captioning.data import test_fuzz_readers as readers
from tests.fuzz.harness import Subject, Target
from tests.packed_files import photo, table, write_arrow, write_parquet, write_tar

READERS = (
    *(readers.flickr8k, readers.coco, readers.coco_entities, readers.nocaps, readers.karpathy),
    *(readers.imagefolder, readers.jsonl, readers.entities, readers.entities_zip),
)


def annotations(make: Callable[[Path], Any], folder: Path) -> Subject:
    case = make(folder)
    return Subject(call=case.read, files=list(dict.fromkeys(case.files)), names=case.names)


def _open_all(roster: Any) -> None:
    for sample in roster.samples:
        photo_problem(sample.image_path)


def tar_shards(folder: Path) -> Subject:
    members = {f"{k}.jpg": photo(n) for n, k in enumerate("ab")}
    members |= {"a.txt": b"A dog.", "b.json": b'{"captions": ["A cat.", "Cats."]}'}
    path = write_tar(folder / "s.tar", members)

    def call() -> None:
        _open_all(read_webdataset(name="w", folder=folder))

    return Subject(call=call, files=[path])


def tar_listing(folder: Path) -> Subject:
    """What shards hold, as it is kept in the cache: damaged, it is listed anew."""
    cache = folder / "cache"
    write_tar(folder / "s.tar", {"a.jpg": photo(), "a.txt": b"A dog."})
    call = partial(read_webdataset, name="w", folder=folder, cache_folder=cache)
    call()
    files = [path for path in cache.rglob("*") if path.is_file()]
    return Subject(call=call, files=files)


def tables(write: Callable[..., Path], suffix: str, folder: Path) -> Subject:
    content = table([photo(n) for n in range(3)], [[f"dog {n}"] for n in range(3)])
    path = write(folder / f"train.{suffix}", content)

    def call() -> None:
        _open_all(read_arrow(name="t", folder=folder, part="train"))

    return Subject(call=call, files=[path])


def caption_lines(folder: Path) -> Subject:
    texts = {"c.txt": "A dog.\nCats.\n", "c.jsonl": '{"caption": "A dog."}\n"Cats."\n'}
    texts["c.json"] = json.dumps({"annotations": [{"caption": "A dog."}, {"caption": "Cats."}]})
    for name, text in texts.items():
        (folder / name).write_text(text)

    def call() -> None:
        for name in texts:
            read_caption_lines(name="c", path=folder / name)

    return Subject(call=call, files=[folder / name for name in texts])


def detections(folder: Path) -> Subject:
    region = {"box": [1, 2, 30, 10.5], "label": "dog", "score": 0.5}
    line = {"image_id": "a", "file_name": "a.jpg", "size": [40, 20], "regions": [region]}
    path = folder / "found.jsonl"
    path.write_text(f'{{"detector": "d"}}\n{json.dumps(line)}\n')
    return Subject(call=partial(read_all_detections, [path]), files=[path])


def added_captions(folder: Path) -> Subject:
    """A set of captions that was made for photos."""
    Image.new("RGB", (40, 20)).save(folder / "a.jpg")
    region = {"box": [1, 2, 30, 10.5], "label": "dog"}
    own = {"image": "a.jpg", "image_id": 1, "caption": "A dog.", "regions": [region]}
    (folder / "own.jsonl").write_text(json.dumps(own) + "\n")
    roster = read_jsonl(name="j", annotations=folder / "own.jsonl", image_folder=folder)
    phrase = {"start": 2, "text": "dog", "chain_id": "1", "kinds": ["animals"], "regions": [0]}
    box = {"region": 0, "box": [1, 2, 30, 10.5]}
    line = {"image_id": "1", "caption": "A dog runs.", "phrases": [phrase], "boxes": [box]}
    (folder / "set").mkdir()
    path = folder / "set" / "captions.jsonl"
    path.write_text(json.dumps(line) + "\n")
    return Subject(call=partial(read_added_captions, path.parent, roster), files=[path])


def study(folder: Path) -> Subject:
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    value = {"image": "a.png", "caption": "A dog.", "loss": 1.5, "clip_score": 0.5}
    path, table_path = folder / "l" / "manifest.jsonl", folder / "t" / "manifest.csv"
    for file in (path, table_path):
        file.parent.mkdir()
        shutil.copy(folder / "a.png", file.parent)
    path.write_text(json.dumps(value) + "\n")
    table_path.write_text("image,caption,loss\na.png,A dog.,1.5\n")

    def call() -> None:
        read_items(path.parent)
        read_items(table_path.parent)

    return Subject(call=call, files=[path, table_path])


def small_files(folder: Path) -> Subject:
    """Lists of names, word vectors, planted faults."""
    files: Mapping[str, tuple[str, Callable[[Path], object]]] = {
        "names.txt": ("dog\n# no\ncat, kitten\n", read_names),
        "photo_names.txt": ("dog\nfire hydrant\n", read_photo_names),
        "photo_names.json": ('{"dog": 1, "cat": 2}', read_photo_names),
        "truth.json": ('{"a#0": "swap"}', load_truth),
        "vectors.txt": (
            "dog 1.0 2.0\ncat 0.5 -1e3\n",
            lambda path: load_word_vectors(path=path, words=["dog", "cat"], size=2),
        ),
    }
    for name, (text, _) in files.items():
        (folder / name).write_text(text)

    def call() -> None:
        for name, (_, read) in files.items():
            read(folder / name)

    return Subject(call=call, files=[folder / name for name in files])


TARGETS = [
    *(
        Target(name=f"annotations: {make.__name__}", make=partial(annotations, make), share=2)
        for make in READERS
    ),
    Target(name="photos in tar shards", make=tar_shards),
    Target(name="listing of tar shards in the cache", make=tar_listing),
    Target(name="photos in Arrow", make=partial(tables, write_arrow, "arrow")),
    Target(name="photos in Parquet", make=partial(tables, write_parquet, "parquet")),
    Target(name="captions alone", make=caption_lines),
    Target(name="detections", make=detections),
    Target(name="made set of captions", make=added_captions),
    Target(name="pictures of a study", make=study),
    Target(name="names, word vectors, planted faults", make=small_files),
]
