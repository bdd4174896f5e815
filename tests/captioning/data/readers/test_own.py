"""``data=own``: every layout gives the same photos and captions."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from captioning.data.readers.own.layout import recognise
from captioning.data.readers.own.own import own_splits, read_own
from tests.packed_files import photo, table, write_arrow, write_parquet, write_tar

NUMBER = 6
CAPTIONS = {f"p{n}.jpg": [f"Dog {n} runs.", f"A dog, number {n}."] for n in range(NUMBER)}


def photos(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CAPTIONS):
        (folder / name).write_bytes(photo(number))
    return folder


def table_text(delimiter: str = ",", head: str = "image,caption") -> str:
    rows = [f'{name}{delimiter}"{text}"' for name, texts in CAPTIONS.items() for text in texts]
    return "\n".join([head.replace(",", delimiter), *rows]) + "\n"


def coco(root: Path) -> None:
    photos(root / "images")
    images = [{"id": n, "file_name": name} for n, name in enumerate(CAPTIONS)]
    pairs = [(n, text) for n, texts in enumerate(CAPTIONS.values()) for text in texts]
    notes = [{"id": k, "image_id": n, "caption": text} for k, (n, text) in enumerate(pairs)]
    text = json.dumps({"images": images, "annotations": notes})
    (root / "annotations").mkdir()
    (root / "annotations" / "captions.json").write_text(text)
    (root / "annotations" / "instances_all.json").write_text('{"images": []}')


def metadata_lines(root: Path) -> None:
    photos(root)
    lines = [json.dumps({"file_name": n, "captions": texts}) for n, texts in CAPTIONS.items()]
    (root / "metadata.jsonl").write_text("\n".join(lines))


def metadata_csv(root: Path) -> None:
    photos(root)
    (root / "metadata.csv").write_text(table_text(head="file_name,text"))


def semicolons(root: Path) -> None:
    photos(root / "Images")
    (root / "captions.txt").write_text(table_text(";"))
    (root / "notes.csv").write_text("name,price\na,3\n")


def tabs_without_head(root: Path) -> None:
    photos(root)
    rows = [f"{name}\t{text}" for name, texts in CAPTIONS.items() for text in texts]
    (root / "captions.tsv").write_text("\n".join(rows))


def list_cells(root: Path) -> None:
    photos(root)
    rows = [f'{name}\t"{json.dumps(texts)}"' for name, texts in CAPTIONS.items()]
    rows = [row.replace('["', '[""').replace('", "', '"", ""').replace('"]', '""]') for row in rows]
    (root / "all.tsv").write_text("\n".join(["file\tcaptions", *rows]))


def columns_of_captions(root: Path) -> None:
    photos(root)
    rows = [",".join([name, *(f'"{text}"' for text in t)]) for name, t in CAPTIONS.items()]
    (root / "all.csv").write_text("\n".join(["file,caption_0,caption_1", *rows]))


def json_lines(root: Path) -> None:
    photos(root / "images")
    pairs = [(name, text) for name, texts in CAPTIONS.items() for text in texts]
    lines = [json.dumps({"image": name, "caption": text}) for name, text in pairs]
    (root / "captions.jsonl").write_text("\n".join(lines))


def json_list(root: Path) -> None:
    photos(root)
    lines = [{"image": name, "caption": texts} for name, texts in CAPTIONS.items()]
    (root / "captions.json").write_text(json.dumps(lines).replace('"caption"', '"captions"'))


def token_file(root: Path) -> None:
    photos(root / "images")
    lines = [f"{name}#{k}\t{text}" for name, t in CAPTIONS.items() for k, text in enumerate(t)]
    (root / "all.token.txt").write_text("\n".join(lines))


def karpathy(root: Path) -> None:
    photos(root / "pictures")
    images = [
        {"filename": name, "split": "train", "sentences": [{"raw": text} for text in texts]}
        for name, texts in CAPTIONS.items()
    ]
    (root / "dataset.json").write_text(json.dumps({"images": images}))


def parquet(root: Path) -> None:
    content = table([photo(n) for n in range(NUMBER)], list(CAPTIONS.values()))
    write_parquet(root / "all.parquet", content)


def arrow(root: Path) -> None:
    content = table([photo(n) for n in range(NUMBER)], list(CAPTIONS.values()))
    write_arrow(root / "data-00000-of-00001.arrow", content)
    (root / "dataset_info.json").write_text('{"features": {"images": 1}}')


def shards(root: Path) -> None:
    members = {}
    for number, (name, texts) in enumerate(CAPTIONS.items()):
        members[name] = photo(number)
        members[name.replace(".jpg", ".json")] = json.dumps({"captions": texts}).encode()
    write_tar(root / "0000.tar", members)


def text_files(root: Path) -> None:
    photos(root / "below")
    for name, texts in CAPTIONS.items():
        (root / "below" / name).with_suffix(".txt").write_text("\n".join(texts))


LAYOUTS: dict[Callable[[Path], None], str] = {
    coco: "coco",
    metadata_lines: "imagefolder",
    metadata_csv: "imagefolder",
    semicolons: "table",
    tabs_without_head: "table",
    list_cells: "table",
    columns_of_captions: "table",
    json_lines: "jsonl",
    json_list: "jsonl",
    token_file: "token_file",
    karpathy: "karpathy",
    parquet: "arrow",
    arrow: "arrow",
    shards: "webdataset",
    text_files: "text_files",
}


@pytest.mark.parametrize("write", LAYOUTS, ids=lambda write: write.__name__)
def test_a_layout_is_recognised_read_and_split(tmp_path, caplog, write):
    write(tmp_path)
    assert recognise(tmp_path).kind == LAYOUTS[write]
    caplog.set_level(logging.INFO)
    whole = read_own(name="own", folder=tmp_path)
    assert list(whole.references().values()) == list(CAPTIONS.values())
    assert str(tmp_path) in caplog.text
    if not any(s.image_path.is_file() for s in whole.samples):
        assert LAYOUTS[write] in ("arrow", "webdataset")
    parts = {p: read_own(name=p, folder=tmp_path, part=p) for p in ("train", "val", "test")}
    sizes = {part: len(roster.rows_by_image) for part, roster in parts.items()}
    assert sizes == {"train": NUMBER - 2, "val": 1, "test": 1}
    ids = [image_id for roster in parts.values() for image_id in roster.rows_by_image]
    assert sorted(ids) == sorted(whole.rows_by_image)
    assert all(len(rows) == 2 for p in parts.values() for rows in p.rows_by_image.values())


def test_the_seed_draws_the_photos(tmp_path):
    text_files(tmp_path)
    drawn = {
        next(iter(read_own(name="v", folder=tmp_path, part="val", seed=seed).rows_by_image))
        for seed in range(8)
    }
    assert len(drawn) > 1


def test_splits_of_the_folder_are_kept_and_those_that_lack_are_taken_from_train(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for split in ("train", "test"):
        metadata_csv(tmp_path / split)
    rosters = {p: read_own(name=p, folder=tmp_path, part=p) for p in ("train", "val", "test")}
    sizes = {part: len(roster.rows_by_image) for part, roster in rosters.items()}
    assert sizes == {"train": NUMBER - 1, "val": 1, "test": NUMBER}
    assert "of its training photos 10% for val (seed 0)" in caplog.text
    whole = read_own(name="all", folder=tmp_path)
    assert len(whole.rows_by_image) == 2 * NUMBER
    assert {image_id.split("/")[0] for image_id in whole.rows_by_image} == {"train", "test"}


def test_a_split_list_of_a_token_file_and_a_part_of_packed_files(tmp_path):
    token_file(tmp_path)
    (tmp_path / "f.trainImages.txt").write_text("p0.jpg\np1.jpg\np2.jpg\n")
    (tmp_path / "f.testImages.txt").write_text("p3.jpg\n")
    assert list(read_own(name="t", folder=tmp_path, part="test").rows_by_image) == ["p3.jpg"]
    assert len(read_own(name="a", folder=tmp_path).rows_by_image) == NUMBER
    content = table([photo(n) for n in range(NUMBER)], list(CAPTIONS.values()))
    write_parquet(tmp_path / "hub" / "train-00000.parquet", content)
    write_parquet(tmp_path / "hub" / "validation-00000.parquet", content.slice(0, 2))
    assert len(read_own(name="v", folder=tmp_path / "hub", part="val").rows_by_image) == 2
    assert len(read_own(name="a", folder=tmp_path / "hub").rows_by_image) == NUMBER + 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,caption\np0.jpg,A dog, running\n", r"all.csv:2: 3 cells in a table of 2 columns"),
        ("image,caption\np0.jpg, \n", r"all.csv:2: the caption is empty"),
        ("image,caption\np9.jpg,A dog.\n", r"all.csv:2: no photo 'p9.jpg'"),
        ("image,caption\n/x/q.jpg,A dog.\n", r"all.csv:2: photos have absolute .*image_folder="),
        ('image,caption\np0.jpg,"A dog\n', r"all.csv:2: .* close its quotation mark"),
        ('image,caption\np0.jpg,"A dog\np1.jpg,"A cat."\n', r"all.csv:2: .*quotation mark"),
        ('image,caption\np0.jpg,A dog.\np1.jpg,"Go" it says\n', r"all.csv:3: .*quotation mark"),
        ("image,image,caption\np0.jpg,p1.jpg,A dog.\n", r"'image' occurs twice; rename one"),
        (
            "name,title\np0.jpg,A dog.\n",
            r"no captions are found in it: .*all.csv: none has .*file_column=",
        ),
        ("image,photo,caption\np0.jpg,p0.jpg,A dog.\n", r"no captions are found"),
    ],
)
def test_bad_rows_are_named(tmp_path, content, message):
    photos(tmp_path)
    (tmp_path / "all.csv").write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_own(name="o", folder=tmp_path)


def test_bad_rows_are_left_out_where_that_is_said(tmp_path):
    photos(tmp_path)
    rows = ["image,caption", "p0.jpg,A dog.", "p1.jpg, ", "p2.jpg,a,b", "p9.jpg,A cat.", "p0.jpg,B"]
    (tmp_path / "all.csv").write_text("\n".join(rows))
    roster = read_own(name="o", folder=tmp_path, missing_photos="drop", bad_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A dog.", "B"]
    rules = {(drop.item.rpartition("/")[2], drop.rule) for drop in roster.dropped}
    assert ("all.csv:3", "caption empty") in rules
    assert ("all.csv:4", "3 cells in a table of 2 columns") in rules
    assert ("p9.jpg", "photo missing") in rules


def test_what_could_mean_several_things_is_asked_for(tmp_path):
    photos(tmp_path)
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(table_text())
    with pytest.raises(ValueError, match=r"'one.csv', 'two.csv'.*choose annotations="):
        read_own(name="o", folder=tmp_path)
    assert len(read_own(name="o", folder=tmp_path, annotations="two.csv")) == 2 * NUMBER
    with pytest.raises(FileNotFoundError, match=r"none.csv: no such file"):
        read_own(name="o", folder=tmp_path, annotations="none.csv")
    with pytest.raises(FileNotFoundError, match="needs the layout 'coco'"):
        read_own(name="o", folder=tmp_path, layout="coco")
    with pytest.raises(ValueError, match="layout must be one of"):
        recognise(tmp_path, kind="cocos")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="give its folder"):
        recognise(tmp_path / "one.csv")


def test_another_layout_may_be_chosen(tmp_path):
    semicolons(tmp_path)
    metadata_lines(tmp_path)
    assert recognise(tmp_path).kind == "imagefolder"
    roster = read_own(name="o", folder=tmp_path, layout="table", image_folder="Images")
    assert roster.samples[0].image_path == tmp_path / "Images" / "p0.jpg"


def test_too_few_photos_for_three_splits(tmp_path):
    photos(tmp_path)
    (tmp_path / "all.csv").write_text("image,caption\np0.jpg,A dog.\np1.jpg,A cat.\n")
    with pytest.raises(ValueError, match="2 photos are too few"):
        read_own(name="o", folder=tmp_path, part="train")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(("7", "7", "9"), ["7", "7", "9"]), (("7", "8", "9"), ["a.png", "a.png", "b.png"]),
     (("7", "7", "7"), ["a.png", "a.png", "b.png"]), (("7", "7", ""), ["a.png", "a.png", "b.png"])],
)  # fmt: skip
def test_ids_of_a_table_count_where_each_photo_has_its_own(tmp_path, ids, expected):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = zip(("a.png", "a.png", "b.png"), ids, strict=True)
    lines = [f"{name},{one},Dog {n}.,train" for n, (name, one) in enumerate(rows)]
    text = "\n".join(["file_name,image_id,caption,split", *lines])
    (tmp_path / "captions.csv").write_text(text)
    assert [s.image_id for s in read_own(name="x", folder=tmp_path).samples] == expected
    assert own_splits(tmp_path) == {tmp_path / name: "train" for name in ("a.png", "b.png")}
