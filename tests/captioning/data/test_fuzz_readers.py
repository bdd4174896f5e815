"""Damaged files a reader: the documented errors that name the file, or every caption of it.

All damage is seeded. A reader that returns must hold each caption of the damaged file, or record
its image as dropped: the lenient parsers below say which captions a file has.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from PIL import Image

from captioning.config.setting_error import SettingError, SettingNotFoundError
from captioning.data.readers.coco import read_coco
from captioning.data.readers.coco_entities import read_coco_entities
from captioning.data.readers.flickr8k import read_flickr8k
from captioning.data.readers.flickr30k_entities import read_flickr30k_entities
from captioning.data.readers.imagefolder import read_imagefolder
from captioning.data.readers.jsonl import read_jsonl
from captioning.data.readers.karpathy import read_karpathy
from captioning.data.readers.nocaps import read_nocaps
from captioning.data.roster import Roster
from tests.captioning.data.damage import DAMAGES, NUM_FILES

Captions = list[tuple[str, str]]

# Errors that a user may see of bad files.
KINDS = (ValueError, FileNotFoundError, SettingError, SettingNotFoundError)


@dataclass
class Case:
    """A reader, its valid input files, and what captions its (possibly damaged) files hold."""

    read: Callable[[], Roster]
    files: list[Path]
    captions: Callable[[], Captions]
    names: tuple[str, ...] = field(default=())


def plain(text: str) -> str:
    return " ".join(text.split())


def file_key(name: str) -> str:
    return str(PurePosixPath(name))


def lines_of(path: Path) -> list[str]:
    text = path.read_bytes().decode("utf-8-sig")
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def photos(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20)).save(folder / name)
    return folder


def flickr8k(folder: Path) -> Case:
    tokens, split = folder / "tokens.txt", folder / "split.txt"
    tokens.write_text(
        "a.jpg#0\tA dog runs .\na.jpg#1\tThe café dog .\nb.jpg#0\tTwo cats .\nc.jpg#0\tBirds\n"
    )
    split.write_text("a.jpg\nb.jpg\n")
    images = photos(folder / "images", "a.jpg", "b.jpg", "c.jpg")

    def captions() -> Captions:
        listed = set(lines_of(split))
        pairs = [re.split(r"#[0-9]+\t", line, maxsplit=1) for line in lines_of(tokens)]
        expected = {file_key(entry.split()[-1]) for entry in listed}
        return [(file_key(a), plain(b)) for a, b in pairs if file_key(a) in expected]

    def read() -> Roster:
        return read_flickr8k(
            name="f", token_file=tokens, image_folder=images, split_file=split,
            missing_photos="drop",
        )  # fmt: skip

    return Case(read, [tokens, split], captions)


def coco(folder: Path) -> Case:
    images = [
        {"id": 7, "file_name": "a.jpg", "width": 40, "height": 20},
        {"id": 9, "file_name": "b.jpg", "width": 80, "height": 40},
    ]
    annotations = [
        {"id": n, "image_id": image, "caption": text}
        for n, (image, text) in enumerate([(9, "Two cats."), (7, "A café."), (9, "Cats \n sit")])
    ]
    boxes = [
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2.5, 30, 10], "iscrowd": 0},
        {"id": 2, "image_id": 9, "category_id": 3, "bbox": [0, 0, 80, 40], "iscrowd": 1},
    ]
    captions_file, instances = folder / "captions.json", folder / "instances.json"
    captions_file.write_text(json.dumps({"images": images, "annotations": annotations}, indent=0))
    categories = [{"id": 3, "name": "dog"}]
    instances.write_text(json.dumps({"annotations": boxes, "categories": categories}, indent=0))
    ids = folder / "ids.txt"
    ids.write_text("x/a.jpg 7\nx/b.jpg 9\n")
    root = photos(folder / "images", "a.jpg", "b.jpg")

    def captions() -> Captions:
        expected = {line.split()[-1] for line in lines_of(ids)}
        captions_ = coco_captions(captions_file)
        return [(file, text) for image_id, file, text in captions_ if image_id in expected]

    def read() -> Roster:
        return read_coco(
            name="c", annotations=captions_file, instances=instances, image_folder=root,
            image_ids=ids, missing_photos="drop", missing_captions="drop", bad_boxes="drop",
        )  # fmt: skip

    return Case(read, [captions_file, captions_file, instances, ids], captions)


def lenient(text: str) -> dict:
    """JSON whose keys are unique, as a reader that returns must have found it."""

    def unique(pairs: list) -> dict:
        assert len(dict(pairs)) == len(pairs), f"a key is lost: {pairs}"
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def coco_captions(path: Path) -> list[tuple[str, str, str]]:
    document = lenient(path.read_bytes().decode("utf-8-sig"))
    files = {str(image["id"]): file_key(image["file_name"]) for image in document["images"]}
    return [
        (str(a["image_id"]), files[str(a["image_id"])], plain(a["caption"]))
        for a in document["annotations"]
    ]


def coco_entities(folder: Path) -> Case:
    riding = {
        "det_sequences": ["man", "man", None, "_", "_", "horse", "horse"],
        "noun_chunks": [["a man", "man"], ["a horse", "horse"]],
        "detections": {"man": [[3, [1, 2, 30, 10.5]]], "horse": [[0, [2, 2, 20, 20]]]},
        "split": "train",
    }
    short = riding | {"det_sequences": ["man", "man"]}
    path = folder / "coco_entities.json"
    content = {"7": {"a man rides with it a horse": riding, "a caf\u00e9": short}}
    content["12"] = {"the man": short}
    path.write_text(json.dumps(content, indent=0))
    root = photos(folder / "images", "000000000007.jpg", "000000000012.jpg")

    def captions() -> Captions:
        document = lenient(path.read_bytes().decode("utf-8-sig"))
        return [
            (f"{int(image):012d}.jpg", caption)
            for image, captions in document.items()
            for caption, captions_ in captions.items()
            if captions_["split"] == "train"
        ]

    def read() -> Roster:
        return read_coco_entities(
            name="c", annotations=path, image_folder=root, split="train",
            missing_photos="drop", bad_boxes="drop",
        )  # fmt: skip

    return Case(read, [path], captions)


def nocaps(folder: Path) -> Case:
    images = [
        {"id": n, "file_name": f"{n}.jpg", "domain": domain, "width": 40, "height": 20}
        for n, domain in enumerate(["in-domain", "out-domain"])
    ]
    annotations = [{"id": n, "image_id": n % 2, "caption": f"Thing {n}."} for n in range(4)]
    path = folder / "nocaps.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations}, indent=0))
    root = photos(folder / "images", "0.jpg", "1.jpg")
    return Case(
        lambda: read_nocaps(name="n", annotations=path, image_folder=root, missing_photos="drop"),
        [path],
        lambda: [(file, text) for _, file, text in coco_captions(path)],
    )


def karpathy(folder: Path) -> Case:
    images = [
        {
            "filepath": "v",
            "filename": f"{n}.jpg",
            "cocoid": n,
            "split": "train" if n else "restval",
            "sentences": [{"raw": f"Thing {n} {k}.", "sentid": 10 * n + k} for k in range(2)],
        }
        for n in range(3)
    ]
    path = folder / "dataset.json"
    path.write_text(json.dumps({"images": images}, indent=0))
    root = photos(folder / "images", "v/0.jpg", "v/1.jpg", "v/2.jpg")

    def captions() -> Captions:
        document = lenient(path.read_bytes().decode("utf-8-sig"))
        captions_ = []
        for image in document["images"]:
            name = file_key(
                f"{image['filepath']}/{image['filename']}"
                if image.get("filepath") is not None
                else image["filename"]
            )
            if image["split"] in ("train", "restval"):
                captions_ += [(name, plain(sentence["raw"])) for sentence in image["sentences"]]
        return captions_

    return Case(
        lambda: read_karpathy(
            name="k", annotations=path, image_folder=root, split="train", missing_photos="drop"
        ),
        [path],
        captions,
    )


def line_captions(path: Path, file: str, keys: tuple[str, ...]) -> Captions:
    captions_ = []
    for line in lines_of(path):
        record = lenient(line)
        for key in keys:
            value = record.get(key)
            texts = [value] if isinstance(value, str) else value or []
            if record.get(file):  # others are left out, as photos that are not there
                captions_ += [(file_key(record[file]), plain(text)) for text in texts]
    return captions_


def imagefolder(folder: Path) -> Case:
    root = photos(folder / "images", "a.jpg", "d/b.jpg", "c.jpg")
    path = root / "metadata.jsonl"
    path.write_text(
        '{"file_name": "a.jpg", "captions": ["A dog.", "A café."]}\n'
        '{"file_name": "d/b.jpg", "text": "A cat."}\n{"file_name": "c.jpg", "caption": "Birds"}\n'
    )
    return Case(
        lambda: read_imagefolder(name="i", folder=root, missing_photos="drop"),
        [path],
        lambda: line_captions(path, "file_name", ("captions", "caption", "text")),
    )


def jsonl(folder: Path) -> Case:
    root = photos(folder / "images", "a.jpg", "b.jpg")
    path = folder / "own.jsonl"
    region = '{"box": [1, 2, 30, 10.5], "label": "dog", "score": 0.5}'
    path.write_text(
        f'{{"image": "a.jpg", "image_id": 1, "caption": "A dog.", "regions": [{region}]}}\n'
        '{"image": "b.jpg", "captions": ["A cat.", "A café."]}\n'
        '{"image": "a.jpg", "image_id": 1, "caption": "Dogs."}\n'
    )
    return Case(
        lambda: read_jsonl(
            name="j", annotations=path, image_folder=root, missing_photos="drop", bad_boxes="drop"
        ),
        [path],
        lambda: line_captions(path, "image", ("captions", "caption")),
    )


XML = """<annotation><filename>1.jpg</filename>
<size><width>80</width><height>40</height></size>
<object><name>1</name><name>2</name>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox></object>
<object><name>3</name><nobndbox>1</nobndbox></object>
</annotation>
"""
SENTENCES = """[/EN#1/people Two men] in [/EN#2/clothing green shirts] run .
A café of [/EN#3/vehicles/scene a boat] , [/EN#0/notvisual it] .
"""


def entities(folder: Path) -> Case:
    root = folder / "entities"
    for kind, suffix, text in (("Annotations", "xml", XML), ("Sentences", "txt", SENTENCES)):
        (root / kind).mkdir(parents=True)
        for image in ("1", "2"):
            (root / kind / f"{image}.{suffix}").write_text(text)
    split = folder / "split.txt"
    split.write_text("1.jpg\n2_ab.jpg\n")
    images = photos(folder / "images", "1.jpg", "2_ab.jpg")
    sentences = root / "Sentences" / "1.txt"

    def captions() -> Captions:
        listed = [line.split()[-1].removesuffix(".jpg") for line in lines_of(split)]
        files = {"1": "1.jpg", "2": "2_ab.jpg"}
        captions_ = []
        for image_id in (entry.split("_")[0] for entry in listed):
            path = root / "Sentences" / f"{image_id}.txt"
            unbracketed = [re.sub(r"\[\S+ |\]", "", plain(line)) for line in lines_of(path)]
            captions_ += [(files[image_id], text) for text in unbracketed]
        return captions_

    def read() -> Roster:
        return read_flickr30k_entities(
            name="e", annotations=root, image_folder=images, split_file=split,
            missing_photos="drop", bad_boxes="drop",
        )  # fmt: skip

    return Case(read, [sentences, root / "Annotations" / "1.xml", split], captions, ("entities",))


def entities_zip(folder: Path) -> Case:
    case = entities(folder)
    path = folder / "annotations.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((folder / "entities").rglob("*.*")):
            archive.write(file, file.relative_to(folder / "entities"))

    def read() -> Roster:
        return read_flickr30k_entities(
            name="e", annotations=path, image_folder=folder / "images", missing_photos="drop"
        )

    return Case(read, [path], case.captions)


def rewrite(path: Path, data: bytes) -> None:
    """A new file in place of the old one: truncating makes some file systems wait for the disk."""
    path.unlink()
    path.write_bytes(data)


def check_error(error: Exception, case: Case) -> None:
    message = str(error)
    assert type(error) in KINDS, f"{type(error)}: {message}"
    names = (*(path.name for path in case.files), *case.names)
    assert any(name in message for name in names), message
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    assert last is not None
    raised_in = Path(last.tb_frame.f_code.co_filename)
    assert ("captioning", "data") in zip(raised_in.parts, raised_in.parts[1:], strict=False), (
        raised_in
    )


def check_nothing_lost(roster: Roster, case: Case, root: Path) -> None:
    dropped = {drop.item for drop in roster.dropped}
    expected = Counter(
        pair for pair in case.captions() if pair[0].replace("\\", "/").lstrip("/") not in dropped
    )
    counts = Counter(
        (sample.image_path.relative_to(root).as_posix(), sample.caption)
        for sample in roster.samples
    )
    assert counts == expected


@pytest.mark.parametrize(
    "make",
    [
        *(flickr8k, coco, coco_entities, nocaps, karpathy, imagefolder, jsonl),
        *(entities, entities_zip),
    ],
)
def test_damaged_files(tmp_path, make):
    case = make(tmp_path)
    check_nothing_lost(case.read(), case, tmp_path / "images")
    originals = {path: path.read_bytes() for path in case.files}
    rng = np.random.default_rng(20261121)
    outcomes: Counter[str] = Counter()
    for number in range(NUM_FILES):
        path = case.files[number % len(case.files)]
        damage = DAMAGES[rng.integers(len(DAMAGES))]
        rewrite(path, damage(originals[path], rng))
        try:
            roster = case.read()
        except Exception as error:  # noqa: BLE001 - any other exception is what the test is for
            check_error(error, case)
            outcomes["refused"] += 1
        else:
            check_nothing_lost(roster, case, tmp_path / "images")
            outcomes["read"] += 1
        rewrite(path, originals[path])
    assert min(outcomes["refused"], outcomes["read"]) > NUM_FILES // 100, outcomes
