"""Every layout that ``data=own`` reads, written small and read.

``python -m tests.contracts.test_what_can_be_read`` writes the table of docs/guides/layouts.md.
"""

from __future__ import annotations

import gzip
import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import yaml

from captioning.data.readers.own.own import own_splits, read_own
from captioning.results.table_formats import put_between_marks
from tests.captioning.data.readers import test_own as usual
from tests.captioning.data.readers.test_own import CAPTIONS, photos
from tests.packed_files import photo, write_parquet, write_tar

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "layouts.md"
NAME = "layouts"  # of the page's marks
SPLITS = {
    name: ("train", "train", "train", "train", "val", "test")[n] for n, name in enumerate(CAPTIONS)
}
HUMAN = {"from": "human", "value": "<image>\nDescribe."}


class Layout(NamedTuple):
    """A layout that is read.

    Attributes:
        write: writes the set of `CAPTIONS` into a folder.
        what: it is, for the table.
        example: of its files.
        source: where it comes from.
        settings: with which it is read.
        has_splits: whether it says `SPLITS`; None: others.
        only_first: whether it has the first caption of each photo alone.
    """

    write: Callable[[Path], None]
    what: str
    example: str
    source: str
    settings: dict[str, Any] = {}  # noqa: RUF012
    has_splits: bool | None = False
    only_first: bool = False


def _dump(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _lines(path: Path, values: Any) -> None:
    path.write_text("\n".join(map(json.dumps, values)), encoding="utf-8")


def _in(folder: str, write: Callable[[Path, dict[str, list[str]]], None]) -> Callable[[Path], None]:
    """Photos in a folder, and what a function writes of their captions."""

    def written(root: Path) -> None:
        photos(root / folder)
        write(root, CAPTIONS)

    return written


def _json(
    name: str, value: Callable[[dict[str, list[str]]], Any], folder: str = "images"
) -> Callable[[Path], None]:
    return _in(folder, lambda root, captions: _dump(root / name, value(captions)))


def _rows(captions: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [{"image": name, "caption": texts} for name, texts in captions.items()]


def _beside(
    suffix: str, text: Callable[[list[str]], str], *, whole: bool = False, folder: str = ""
) -> Callable[[Path], None]:
    """Write a file for each photo; ``whole``: named `a.jpg.txt`, not `a.txt`."""

    def written(root: Path) -> None:
        photos(root / "images")
        for name, texts in CAPTIONS.items():
            stem = name if whole else name.removesuffix(".jpg")
            path = root / (folder or "images") / f"{stem}{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text(texts), encoding="utf-8")

    return written


def _texts(folder: Path, without: str = "") -> None:
    photos(folder)
    for name in CAPTIONS.keys() - {without}:
        (folder / name).with_suffix(".txt").write_text("\n".join(CAPTIONS[name]))


def _repeats(root: Path) -> None:
    _texts(root / "10_sks dog")


def _masks(root: Path) -> None:
    _texts(root)
    for number, name in enumerate(CAPTIONS):
        (root / name.replace(".jpg", "-masklabel.png")).write_bytes(photo(number))


def _default(root: Path) -> None:
    alone = list(CAPTIONS)[2]
    _texts(root, without=alone)
    (root / "default_caption.txt").write_text("\n".join(CAPTIONS[alone]))


def _prompts(root: Path) -> None:
    photos(root)
    rows = [{"file_name": name, "prompt": texts[0]} for name, texts in CAPTIONS.items()]
    _lines(root / "metadata.jsonl", rows)


def _splits_apart(root: Path) -> None:
    for name, texts in CAPTIONS.items():
        split = SPLITS[name]
        for kind in ("images", "captions"):
            (root / split / kind).mkdir(parents=True, exist_ok=True)
        (root / split / "images" / name).write_bytes(photo(int(name[1])))
        (root / split / "captions" / name).with_suffix(".txt").write_text("\n".join(texts))


def _files_of_splits(root: Path) -> None:
    photos(root / "images")
    for split in ("train", "val", "test"):
        rows = [row for row in _rows(CAPTIONS) if SPLITS[row["image"]] == split]
        _dump(root / f"coco_karpathy_{split}.json", rows)


def _of_split(captions: dict[str, list[str]], key: str) -> dict[str, Any]:
    return {
        s: {n: t for n, t in captions.items() if SPLITS[n] == s} for s in ("train", "val", "test")
    }


def _pandas_lists(root: Path, captions: dict[str, list[str]]) -> None:
    cells = (name + ',"[' + "\n ".join(map(repr, texts)) + ']"' for name, texts in captions.items())
    (root / "captions.csv").write_text("\n".join(["image,captions", *cells]))


def _bars(root: Path, captions: dict[str, list[str]]) -> None:
    rows = [
        f"{name}| {n}| {text}" for name, texts in captions.items() for n, text in enumerate(texts)
    ]
    (root / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *rows]))


def _names(root: Path) -> None:
    for number, texts in enumerate(CAPTIONS.values()):
        (root / f"{texts[0].removesuffix('.').replace(' ', '_')}_001.jpg").write_bytes(
            photo(number)
        )


def _task(name: str, texts: list[str]) -> dict[str, Any]:
    part = {"type": "textarea", "from_name": "caption", "value": {"text": texts}}
    return {
        "data": {"image": f"/data/upload/1/1a2b3c4d-{name}"},
        "annotations": [{"result": [part]}],
    }


def _chat(name: str, text: str) -> dict[str, Any]:
    return {"image": name, "conversations": [HUMAN, {"from": "gpt", "value": text}]}


def _messages(name: str, text: str) -> dict[str, Any]:
    asked = [{"type": "image", "image": name}, {"type": "text", "text": "Describe."}]
    answer = [{"type": "text", "text": text}]
    return {
        "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    }


def _each(make: Callable[[str, str], Any]) -> Callable[[dict[str, list[str]]], list[Any]]:
    return lambda captions: [make(name, text) for name, texts in captions.items() for text in texts]


def _multi30k(root: Path) -> None:
    photos(root / "flickr30k-images")
    for folder in ("image_splits", "raw"):
        (root / "task1" / folder).mkdir(parents=True)
    for split in ("train", "val", "test"):
        names = [name for name, own in SPLITS.items() if own == split]
        (root / "task1" / "image_splits" / f"{split}.txt").write_text("\n".join(names) + "\n")
        for number in (0, 1):
            lines = "\n".join(CAPTIONS[name][number] for name in names)
            (root / "task1" / "raw" / f"{split}.{number + 1}.en").write_text(lines + "\n")
        (root / "task1" / "raw" / f"{split}.1.de").write_text("x\n" * len(names))


def _token_file_of_others(root: Path, captions: dict[str, list[str]]) -> None:
    lines = [f"{n[:-4]}#zhc#{k} {t}" for n, x in captions.items() for k, t in enumerate(x)]
    (root / "captions.txt").write_text("\n".join(lines))


def _list_shards(root: Path) -> None:
    members = {name: photo(number) for number, name in enumerate(CAPTIONS)}
    members |= {
        name.replace(".jpg", ".json"): json.dumps(x).encode() for name, x in CAPTIONS.items()
    }
    write_tar(root / "0000.tar", members)


def _shards_with_splits(root: Path) -> None:
    members = {}
    for number, (name, texts) in enumerate(CAPTIONS.items()):
        about = {"caption": texts, "split": SPLITS[name]}
        members |= {name: photo(number), f"{name[:-4]}.json": json.dumps(about).encode()}
    write_tar(root / "0000.tar", members)


def _caption_shards(root: Path) -> None:
    members = {name: photo(number) for number, name in enumerate(CAPTIONS)}
    members |= {name.replace(".jpg", ".caption"): x[0].encode() for name, x in CAPTIONS.items()}
    write_tar(root / "0000.tar", members)


def _parquet(
    make: Callable[[Path, dict[str, list[str]]], pa.Table], folder: str = ""
) -> Callable[[Path], None]:
    """A Parquet file; photos lie in the folder if one is given."""

    def written(root: Path) -> None:
        if folder:
            photos(root / folder)
        write_parquet(root / "data.parquet", make(root, CAPTIONS))

    return written


def _packed(name: str) -> dict[str, Any]:
    return {"bytes": photo(int(name[1])), "path": name}


def _one_row_each(
    make: Callable[[str, str], dict[str, Any]],
) -> Callable[[Path, dict[str, list[str]]], pa.Table]:
    return lambda root, c: pa.Table.from_pylist([make(n, t) for n, x in c.items() for t in x])


def _turns(text: str) -> list[dict[str, Any]]:
    asked = [{"type": "image", "text": None}, {"type": "text", "text": "Describe."}]
    answer = [{"type": "text", "text": text}]
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def _with_views(root: Path, captions: dict[str, list[str]]) -> pa.Table:
    rows = [(name, text) for name, texts in captions.items() for text in texts]
    names, texts = (pa.array(column) for column in zip(*rows, strict=True))
    return pa.table(
        {"file_name": names.cast(pa.string_view()), "caption": texts.dictionary_encode()}
    )


def _renamed(
    name: Callable[[int, str], str], write: Callable[[Path], None]
) -> Callable[[Path], None]:
    """Photos in a folder under other names than files of captions have."""

    def written(root: Path) -> None:
        (root / "images").mkdir(parents=True)
        for number, own in enumerate(CAPTIONS):
            (root / "images" / name(number, own)).write_bytes(photo(number))
        write(root)

    return written


def _numbers(kind: type) -> Callable[[Path], None]:
    ids = list(map(kind, range(1, len(CAPTIONS) + 1)))
    rows = pa.table({"file": ids, "caption": list(CAPTIONS.values())})
    return lambda root: write_parquet(root / "data.parquet", rows) and None


def _table(root: Path) -> None:
    (root / "all.csv").write_text(usual.table_text())


def _ipc(name: str, new: Callable[..., Any]) -> Callable[[Path], None]:
    """A file of Arrow's under another suffix, with paths of photos."""

    def written(root: Path) -> None:
        photos(root / "images")
        rows = pa.table({"file_name": list(CAPTIONS), "caption": list(CAPTIONS.values())})
        with pa.OSFile(str(root / name), "wb") as file, new(file, rows.schema) as writer:
            writer.write_table(rows)

    return written


def _packed_texts(root: Path) -> None:
    _multi30k(root)
    for path in (root / "task1" / "raw").iterdir():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def _wide_table(root: Path, captions: dict[str, list[str]]) -> None:
    (root / "all.txt").write_text(usual.table_text("\t"), encoding="utf-16")


def _csv(columns: str, cells: Callable[[str, str], str]) -> Callable[[Path], None]:
    rows = [cells(name, text) for name, texts in CAPTIONS.items() for text in texts]
    text = "\n".join([columns, *rows][not columns :])
    return _in("images", lambda root, _: (root / "all.csv").write_text(text) and None)


def _narratives(root: Path) -> None:
    rows = [
        {"image_id": str(n + 1), "caption": text, "timed_caption": []}
        for n, texts in enumerate(CAPTIONS.values())
        for text in texts
    ]
    _lines(root / "narratives.jsonl", rows)


def _min(name: str, texts: list[str]) -> dict[str, Any]:
    about = {"id": 1, "annotator": 1, "annotation_id": 3, "created_at": "2024", "lead_time": 3.2}
    return {"image": f"/data/upload/1/1a2b3c4d-{name}", "says": {"text": texts}, **about}


def _each_of_one(root: Path) -> None:
    photos(root / "photos")
    for name, texts in CAPTIONS.items():
        about = {"image": name, "short_caption": texts[0], "extra_caption": texts[1]}
        _dump(root / "annotations" / name.replace(".jpg", ".json"), about)


def _joined(separator: str) -> Callable[[Path], None]:
    rows = [f'{name},"{separator.join(texts)}"' for name, texts in CAPTIONS.items()]
    text = "\n".join(["image,caption", *rows])
    return _in("images", lambda root, _: (root / "all.csv").write_text(text) and None)


def _concepts(root: Path) -> None:
    about = {"enabled": True, "include_subdirectories": False, "image": {}}
    values = []
    for split in ("train", "val", "test"):
        _texts(root / "all")
        (root / "sets" / split).mkdir(parents=True)
        for name in (name for name, own in SPLITS.items() if own == split):
            for end in (".jpg", ".txt"):
                file = name.replace(".jpg", end)
                (root / "all" / file).rename(root / "sets" / split / file)
        kind = "VALIDATION" if split == "val" else "STANDARD"
        text = {"prompt_source": "sample", "prompt_path": ""}
        values.append({"path": f"/srv/sets/{split}", "type": kind, "text": text, **about})
    shutil.rmtree(root / "all")
    _dump(root / "concepts.json", values)


def _accents(root: Path) -> None:
    rows = [f'Hüte_{name},"{text}"' for name, texts in CAPTIONS.items() for text in texts]
    (root / "all.csv").write_text("\n".join(["image,caption", *rows]), encoding="utf-8")


LAYOUTS = (
    Layout(
        usual.metadata_csv,
        "photos beside `metadata.csv`",
        "`file_name,text`",
        "Hugging Face's imagefolder",
    ),
    Layout(
        usual.metadata_lines,
        "photos beside `metadata.jsonl`",
        '`{"file_name": ..., "captions": [...]}`',
        "Hugging Face's imagefolder",
    ),
    Layout(
        _in(
            "",
            lambda root, c: (
                (root / "metadata.csv").write_text(
                    "image,prompt\n" + "".join(f'{n},"{t}"\n' for n, x in c.items() for t in x)
                )
                and None
            ),
        ),
        "photos beside `metadata.csv` with other columns",
        "`image,prompt`",
        "DiffSynth-Studio",
    ),
    Layout(
        usual.semicolons,
        "a table: CSV, TSV, semicolons or bars",
        "`image;caption`",
        "spreadsheets, Kaggle's Flickr8k",
    ),
    Layout(
        _in("flickr30k_images", _bars),
        "a table with bars",
        "`results.csv`: `a.jpg| 0| A dog.`",
        "Kaggle's Flickr30k",
    ),
    Layout(
        usual.tabs_without_head,
        "a table of two columns without names",
        "`a.jpg`, tab, `A dog.`",
        "",
    ),
    Layout(
        usual.columns_of_captions,
        "a table with a column for each caption",
        "`file,caption_0,caption_1`",
        "",
    ),
    Layout(
        usual.list_cells,
        "a table with lists of captions",
        '`["A dog.", "Dogs."]`',
        "Flickr30k on the hub",
    ),
    Layout(
        _in("images", _pandas_lists),
        "a table with lists of captions in pandas's form",
        "`['A dog.' 'Dogs.']`",
        "pandas, `Dataset.to_csv`",
    ),
    Layout(
        _joined("|"),
        "captions joined in one cell, recognised",
        "`A dog runs.\\|Dogs run.`, also `;` and line breaks",
        "spreadsheets",
    ),
    Layout(
        _joined("\n"),
        "captions joined in one cell, with a setting",
        "`A dog runs.`, line break, `Dogs run.`",
        "spreadsheets",
        {"caption_per": "line"},
    ),
    Layout(
        usual.coco, "COCO's captions", "`annotations/captions_val2017.json`", "COCO, NoCaps, VizWiz"
    ),
    Layout(
        _json(
            "result.json",
            lambda c: {
                "images": [{"id": n, "file_name": f"images\\{name}"} for n, name in enumerate(c)],
                "annotations": [
                    {"id": 9 * n + k, "image_id": n, "caption": t}
                    for n, x in enumerate(c.values())
                    for k, t in enumerate(x)
                ],
            },
        ),
        "COCO's captions with Windows paths",
        "`images\\a.jpg`",
        "Label Studio's COCO export",
    ),
    Layout(
        usual.karpathy,
        "Karpathy's JSON",
        "`dataset_coco.json`",
        "Karpathy and Fei-Fei (2015)",
        has_splits=None,
    ),
    Layout(
        usual.token_file, "Flickr8k's token file", "`a.jpg#0`, tab, `A dog.`", "Flickr8k, Flickr30k"
    ),
    Layout(usual.json_lines, "JSON Lines", '`{"image": "a.jpg", "caption": "A dog."}`', ""),
    Layout(usual.json_list, "a list in JSON", '`[{"image": "a.jpg", "captions": [...]}]`', "BLIP"),
    Layout(
        _files_of_splits,
        "a list for each split",
        "`coco_karpathy_train.json`",
        "BLIP",
        has_splits=True,
    ),
    Layout(
        _json("captions.json", lambda c: c),
        "names of photos as keys",
        '`{"a.jpg": ["A dog."]}`',
        "",
    ),
    Layout(
        _json(
            "meta_cap.json", lambda c: {n[:-4]: {"caption": t, "tags": "dog"} for n, t in c.items()}
        ),
        "names of photos without suffix as keys",
        '`{"a": {"caption": "A dog.", "tags": ...}}`',
        "kohya's `meta_cap.json`",
    ),
    Layout(
        _json(
            "meta_cap.json",
            lambda c: {f"/srv/set/images/{n[:-4]}": {"caption": t} for n, t in c.items()},
        ),
        "whole paths of photos as keys",
        '`{"/data/set/a": {"caption": "A dog."}}`',
        "kohya's `--full_path`",
    ),
    Layout(
        _json("data.json", lambda c: {s: _rows(o) for s, o in _of_split(c, "").items()}),
        "splits as keys",
        '`{"train": [{"image": ..., "caption": ...}], "val": ...}`',
        "",
        has_splits=True,
    ),
    Layout(
        _json(
            "data.json",
            lambda c: {
                k: [r for r in _rows(c) if (r["image"] < "p3.jpg") == (k == "dog")]
                for k in ("dog", "cat")
            },
        ),
        "classes as keys",
        '`{"dog": [{"image": ..., "caption": ...}]}`',
        "",
    ),
    Layout(
        _json(
            "data.json",
            lambda c: {"image": dict(enumerate(c)), "captions": dict(enumerate(c.values()))},
        ),
        "columns in JSON",
        '`{"image": {"0": "a.jpg"}, "captions": ...}`',
        "`DataFrame.to_json`",
    ),
    Layout(
        _in(
            "images",
            lambda root, c: _lines(
                root / "data.jsonl",
                [
                    {"image": n, "en": {"caption": t}, "de": {"caption": "x"}}
                    for n, x in c.items()
                    for t in x
                ],
            ),
        ),
        "captions in objects",
        '`{"image": "a.jpg", "en": {"caption": "A dog."}}`',
        "Crossmodal-3600",
        {"caption_columns": "en.caption"},
    ),
    Layout(
        _in(
            "images",
            lambda root, c: _lines(
                root / "data.jsonl",
                [
                    {"image": n, "captions": [{"caption": t, "id": k} for k, t in enumerate(x)]}
                    for n, x in c.items()
                ],
            ),
        ),
        "captions as objects",
        '`"captions": [{"caption": "A dog.", "id": 3}]`',
        "",
    ),
    Layout(
        _in(
            "images",
            lambda root, c: _lines(
                root / "data.jsonl",
                [
                    {"dataset_id": "x", "image_id": n[:-4], "caption": t}
                    for n, x in c.items()
                    for t in x
                ],
            ),
        ),
        "ids without suffix",
        '`{"image_id": "0042", "caption": "A dog."}`',
        "`localized-narratives`",
        {"file_column": "image_id"},
    ),
    Layout(
        _in(
            "images",
            lambda root, c: _lines(
                root / "dataset.jsonl",
                [
                    {"image_path": f"{root.resolve()}/images/{n}", "caption": t}
                    for n, x in c.items()
                    for t in x
                ],
            ),
        ),
        "absolute paths, also from another machine",
        '`{"image_path": "/data/set/images/a.jpg", ...}`',
        "open_clip, musubi-tuner",
    ),
    Layout(
        _json(
            "mix.json",
            lambda c: [
                *_each(_chat)(c),
                {"id": "t", "conversations": [HUMAN, {"from": "gpt", "value": "Hi."}]},
            ],
        ),
        "chats about photos; chats without photo are skipped",
        '`{"image": ..., "conversations": [...]}`',
        "LLaVA's `mix665k`",
        {"missing_photos": "drop"},
    ),
    Layout(
        _json("chats.json", _each(_messages)),
        "chats with the photo in a turn",
        '`"content": [{"type": "image", "image": ...}]`',
        "Qwen-VL, TRL",
    ),
    Layout(
        _json(
            "chats.json",
            _each(
                lambda n, t: {
                    "images": [n],
                    "messages": [
                        {"role": "user", "content": "<image>?"},
                        {"role": "assistant", "content": t},
                    ],
                }
            ),
        ),
        "chats with a list of one photo",
        '`{"images": ["a.jpg"], "messages": [...]}`',
        "LLaMA-Factory, ms-swift",
    ),
    Layout(
        _json(
            "chats.json",
            _each(
                lambda n, t: {
                    "images": [n],
                    "prompt": [{"role": "user", "content": "?"}],
                    "completion": [{"role": "assistant", "content": t}],
                }
            ),
        ),
        "`prompt` and `completion`",
        '`{"images": [...], "prompt": ..., "completion": ...}`',
        "TRL",
    ),
    Layout(
        _json("chats.json", _each(lambda n, t: {"query": f"<img>{n}</img>?", "response": t})),
        "`query` and `response`",
        '`{"query": "<img>a.jpg</img>...", "response": ...}`',
        "ms-swift, Qwen-VL",
    ),
    Layout(
        _json(
            "demo.json",
            _each(lambda n, t: {"images": [n], "text": f"<__dj__image> {t} <|__dj__eoc|>"}),
        ),
        "marks of data-juicer",
        '`"text": "<__dj__image> A dog. <|__dj__eoc|>"`',
        "data-juicer",
    ),
    Layout(
        _json(
            "samples.json",
            lambda c: {
                "samples": [
                    {"filepath": f"data/{n}", "caption": t, "tags": [SPLITS[n]]}
                    for n, t in c.items()
                ]
            },
            "data",
        ),
        "FiftyOne's samples",
        "`data/`, `samples.json`",
        "FiftyOne's `FiftyOneDataset`",
        has_splits=True,
    ),
    Layout(
        _json(
            "samples.json",
            lambda c: {
                "samples": [
                    {
                        "filepath": f"../images/{n}".removeprefix("../"),
                        "tags": [SPLITS[n]],
                        "suspects": {
                            "_cls": "Classifications",
                            "classifications": [{"_cls": "Classification", "label": x} for x in t],
                        },
                    }
                    for n, t in c.items()
                ]
            },
        ),
        "FiftyOne's labels",
        '`{"_cls": "Classification", "label": "A dog."}`',
        "`captioning curate suspects --export fiftyone`",
        has_splits=True,
    ),
    Layout(
        _json("project.json", lambda c: [_task(n, t) for n, t in c.items()]),
        "tasks of Label Studio",
        "`/data/upload/1/1a2b3c4d-a.jpg`",
        "Label Studio's JSON export",
    ),
    Layout(
        usual.text_files,
        "a text beside each photo, one caption a line",
        "`a.jpg`, `a.txt`",
        "kohya, ai-toolkit",
    ),
    Layout(
        _beside(".caption", "\n".join),
        "a caption file beside each photo",
        "`a.jpg`, `a.caption`",
        "kohya",
    ),
    Layout(
        _beside(".txt", "\n".join, whole=True),
        "a text with the photo's suffix in its name",
        "`a.jpg`, `a.jpg.txt`",
        "gallery-dl",
    ),
    Layout(
        _beside(".txt", "\n\n".join),
        "a text beside each photo, one caption a file",
        "`a.txt` with paragraphs",
        "OneTrainer, musubi-tuner",
        {"caption_per": "file"},
        only_first=True,
    ),
    Layout(
        _beside(".txt", json.dumps),
        "JSON in a text",
        '`a.txt`: `{"caption": "A dog."}`',
        "OneTrainer",
    ),
    Layout(
        _beside(".json", lambda t: json.dumps({"caption": t})),
        "JSON beside each photo",
        "`a.jpg`, `a.json`",
        "img2dataset, SimpleTuner",
    ),
    Layout(
        _beside(".yaml", lambda t: yaml.safe_dump({"caption": t})),
        "YAML beside each photo",
        "`a.jpg`, `a.yaml`",
        "",
    ),
    Layout(
        _beside(".txt", "\n".join, folder="captions"),
        "photos and texts apart",
        "`images/a.jpg`, `captions/a.txt`",
        "",
    ),
    Layout(
        _splits_apart,
        "photos and texts apart, in folders of splits",
        "`train/images/a.jpg`, `train/captions/a.txt`",
        "",
        has_splits=True,
    ),
    Layout(
        _names,
        "names of photos as captions, with a setting",
        "`A_dog_runs_001.jpg`",
        "",
        {"layout": "file_names"},
        only_first=True,
    ),
    Layout(
        usual.parquet,
        "Parquet with photos",
        "`train-00000-of-00001.parquet`",
        "`datasets`, the hub",
    ),
    Layout(
        _parquet(
            _one_row_each(
                lambda n, t: {"images": [_packed(n)], "messages": _turns(t), "image_id": n}
            )
        ),
        "Parquet of chats with a list of one photo",
        "columns `images`, `messages`",
        "TRL, `llava-instruct-mix-vsft`",
    ),
    Layout(
        _parquet(
            _one_row_each(
                lambda n, t: {
                    "image": _packed(n),
                    "prompt": _turns(t)[:1],
                    "completion": _turns(t)[1:],
                    "image_id": n,
                }
            )
        ),
        "Parquet of chats with `prompt` and `completion`",
        "columns `image`, `prompt`, `completion`",
        "TRL",
    ),
    Layout(
        _parquet(
            lambda root, c: pa.Table.from_pylist(
                [
                    {
                        "image": {"bytes": None, "path": f"{root.resolve()}/images/{n}"},
                        "captions": t,
                    }
                    for n, t in c.items()
                ]
            ),
            "images",
        ),
        "Parquet of paths alone",
        "`{'bytes': None, 'path': '/data/set/a.jpg'}`",
        "`Dataset.to_parquet`",
    ),
    Layout(
        _parquet(
            lambda root, c: pa.Table.from_pylist(
                [{"image": n, "sentences": [{"raw": x} for x in t]} for n, t in c.items()]
            ),
            "photos/all",
        ),
        "Parquet with photos in a folder below, captions in objects",
        "`photos/all/a.jpg`, `[{'raw': 'A dog.'}]`",
        "the hub",
    ),
    Layout(
        _parquet(_with_views, "."),
        "Parquet and Arrow of polars, categories of pandas",
        "types `string_view`, `dictionary`",
        "polars, pandas",
    ),
    Layout(
        _renamed(lambda n, _: f"{n + 1:012d}.jpg", _numbers(int)),
        "Parquet with numbers in the place of names",
        "`42` for `000000000042.jpg`",
        "the hub, pandas",
    ),
    Layout(
        _renamed(lambda n, _: f"{n + 1:04d}.jpg", _numbers(float)),
        "Parquet with floats in the place of names",
        "`42.0` for `0042.jpg`",
        "pandas, where values are missing",
    ),
    Layout(
        _renamed(lambda n, own: own.replace(".jpg", ".JPG"), _table),
        "names in another case",
        "`a.jpg` for `a.JPG`",
        "cameras, Windows",
    ),
    Layout(
        _renamed(lambda n, own: unicodedata.normalize("NFD", f"Hüte_{own}"), _accents),
        "names with accents in another Unicode form",
        "`Hüte.jpg`",
        "macOS",
    ),
    Layout(
        _json(
            "llava.json",
            lambda c: [_chat(f"coco/train2017/{n}", t) for n, x in c.items() for t in x],
        ),
        "names in folders that do not exist",
        "`coco/train2017/a.jpg` for `images/a.jpg`",
        "LLaVA, ShareGPT4V",
        has_splits=None,
    ),
    Layout(_ipc("data.feather", pa.ipc.new_file), "Feather", "`data.feather`", "pandas, polars, R"),
    Layout(
        _ipc("data.ipc", pa.ipc.new_stream),
        "Arrow files under other suffixes",
        "`.ipc`, `.arrows`",
        "polars",
    ),
    Layout(_in("images", _wide_table), "text in UTF-16", "`all.txt`", "Excel's Unicode text"),
    Layout(usual.arrow, "Arrow files", "`data-00000-of-00001.arrow`", "`Dataset.save_to_disk`"),
    Layout(
        _repeats,
        "folders whose names say how often an epoch repeats the photos",
        "`10_sks dog/a.png`, `10_sks dog/a.txt`",
        "kohya's sd-scripts",
    ),
    Layout(
        _masks,
        "text files, and masks of photos, which the reader ignores",
        "`a.jpg`, `a.txt`, `a-masklabel.png`",
        "OneTrainer",
    ),
    Layout(
        _concepts,
        "folders that `concepts.json` names",
        '`[{"path": "/data/set/dogs", "text": {"prompt_source": "sample"}}]`',
        "OneTrainer",
        has_splits=None,
    ),
    Layout(
        _default,
        "a default text for photos without a text",
        "`a.jpg`, `a.txt`, `b.jpg`, `default_caption.txt`",
        "ai-toolkit",
    ),
    Layout(
        _prompts,
        "photos beside `metadata.jsonl` with prompts",
        '`{"file_name": "a.jpg", "prompt": "A dog."}`',
        "diffusers",
        only_first=True,
    ),
    Layout(
        usual.shards,
        "tar shards",
        "`0000.tar` with `a.jpg`, `a.txt` or `a.json`",
        "webdataset, img2dataset",
    ),
    Layout(
        _in("images", _token_file_of_others),
        "a token file with the language",
        "`a#zhc#0 A dog.`",
        "Flickr8k-CN, COCO-CN",
    ),
    Layout(_list_shards, "tar shards with lists in JSON", '`a.json`: `["A dog.", "Dogs."]`', ""),
    Layout(
        _shards_with_splits,
        "tar shards whose JSON names the split",
        '`a.json`: `{"caption": "A dog.", "split": "val"}`',
        "webdataset",
        has_splits=True,
    ),
    Layout(
        _caption_shards,
        "tar shards with other texts",
        "`a.jpg`, `a.caption`",
        "kohya",
        only_first=True,
    ),
    Layout(
        _multi30k,
        "texts with a list of photos, line by line",
        "`image_splits/train.txt`, `raw/train.en`",
        "Multi30k",
        {"caption_columns": "en"},
        has_splits=True,
    ),
    Layout(
        _csv("image_path,alt_text", lambda n, t: f'{n},"{t}"'),
        "other names of columns",
        "`alt_text`, `caption_en`, `vlm_caption`, `raw`, `imageName`",
        "the web, PixelProse, RedCaps, Flickr30k on the hub",
    ),
    Layout(
        _csv("title\tfilepath", lambda n, t: f"{t}\timages/{n}"),
        "a table of titles and paths",
        "`title`, tab, `filepath`",
        "open_clip's CC3M",
    ),
    Layout(
        _renamed(lambda n, _: f"{n + 1:012d}.jpg", _narratives),
        "ids that are the names of the photos",
        '`{"image_id": "42", "caption": "A dog."}`',
        "Localized Narratives, AI Challenger, Open Images",
    ),
    Layout(
        _csv("ID,Caption", lambda n, t: f'{n[:-4]},"{t}"'),
        "ids alone in a table",
        "`ID,Caption`",
        "ROCO",
    ),
    Layout(
        _csv("", lambda n, t: f"{n[:-4]}\t{t}"),
        "a table of ids and captions without names",
        "`a`, tab, `A dog.`",
        "ROCO",
    ),
    Layout(
        _json(
            "TextCaps_val.json",
            lambda c: {
                "data": [
                    {"image_name": n[:-4], "image_path": f"x/{n}", "caption_str": t}
                    for n, x in c.items()
                    for t in x
                ]
            },
        ),
        "two keys that name one photo",
        '`{"image_name": "a", "image_path": "train/a.jpg", "caption_str": ...}`',
        "TextCaps",
        has_splits=None,
    ),
    Layout(
        _json(
            "birds.json",
            lambda c: {
                "info": {},
                "annotations": [
                    {"image_id": n[:-4], "caption": t, "raw_caption": "x"} for n, t in c.items()
                ],
            },
        ),
        "a list under a key, with ids",
        '`{"annotations": [{"image_id": "a", "caption": ...}]}`',
        "RedCaps",
    ),
    Layout(
        _json(
            "add_att.json",
            lambda c: {
                str(k): {"filename": n, "captions": t, "negative_caption": "x"}
                for k, (n, t) in enumerate(c.items())
            },
        ),
        "numbers as keys",
        '`{"0": {"filename": "a.jpg", "caption": ...}}`',
        "SugarCrepe",
    ),
    Layout(
        _json(
            "annotation.json",
            lambda c: {
                s: [{"id": n, "report": t, "image_path": [n]} for n, t in own.items()]
                for s, own in _of_split(c, "").items()
            },
        ),
        "reports of photos",
        '`{"train": [{"report": ..., "image_path": ["a.jpg"]}]}`',
        "R2Gen's MIMIC-CXR",
        has_splits=True,
    ),
    Layout(
        _each_of_one,
        "JSON of each photo in a folder apart",
        "`photos/a.jpg`, `annotations/a.json`",
        "DCI",
        {"caption_columns": ["short_caption", "extra_caption"]},
    ),
    Layout(
        _json("project.json", lambda c: [_min(n, t) for n, t in c.items()]),
        "tasks of Label Studio in short",
        '`{"image": ..., "caption": {"text": [...]}, "annotator": 1}`',
        "Label Studio's JSON-MIN export",
    ),
    Layout(
        _packed_texts,
        "texts and tables packed by gzip",
        "`raw/train.en.gz`, `all.csv.gz`",
        "Multi30k",
        {"caption_columns": "en"},
        has_splits=True,
    ),
)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.what}: {layout.source}")
def test_a_layout_is_read(tmp_path: Path, layout: Layout) -> None:
    layout.write(tmp_path)
    roster = read_own(name="own", folder=tmp_path, **layout.settings)
    groups = [[text.removesuffix(".") for text in group] for group in roster.references().values()]
    expected = [[text.removesuffix(".") for text in texts] for texts in CAPTIONS.values()]
    if layout.settings.get("caption_per") == "file":
        expected = [[" ".join(texts).removesuffix(".")] for texts in CAPTIONS.values()]
    elif layout.only_first:
        expected = [texts[:1] for texts in expected]
    assert sorted(groups) == sorted(expected)
    places = [Path(path) for path in dict.fromkeys(s.image_path for s in roster.samples)]
    assert len(places) == len(CAPTIONS)
    if layout.has_splits is None:
        return
    splits = own_splits(tmp_path, **layout.settings)
    assert [split for _, split in sorted(splits.items(), key=lambda item: item[0].name)] == (
        list(SPLITS.values()) if layout.has_splits else []
    )


def table() -> str:
    """The layouts as Markdown."""
    rows = []
    for layout in LAYOUTS:
        settings = " ".join(f"`data.{key}={value}`" for key, value in layout.settings.items())
        cells = (layout.what, layout.example, layout.source, settings)
        cells = (cell.replace("|", r"\|") for cell in cells)  # which would end the cell
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(("| layout | example | source | settings |", "|---|---|---|---|", *rows))


def write_table(page: Path) -> None:
    """Write the table between the page's marks."""
    put_between_marks(page, f"{table()}\n", NAME)


def test_the_page_has_the_table(tmp_path: Path) -> None:
    copy = Path(shutil.copy(PAGE, tmp_path))
    write_table(copy)
    assert copy.read_text() == PAGE.read_text(), (
        "run python -m tests.contracts.test_what_can_be_read"
    )


if __name__ == "__main__":
    write_table(PAGE)
