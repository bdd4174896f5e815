"""``data=own``: layouts in which data sets come from a hub, read without a converter."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from captioning.data.readers.arrow import read_arrow
from captioning.data.readers.own.own import read_own
from captioning.data.readers.webdataset import read_webdataset
from tests.packed_files import photo, table, write_parquet, write_tar

NAMES = [f"p{number}.jpg" for number in range(6)]
ASKED = {"from": "human", "value": "<image>\nDescribe it."}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for number, name in enumerate(NAMES):
        (tmp_path / "images" / name).write_bytes(photo(number))
    return tmp_path


def write_lines(path: Path, records: list[dict]) -> None:
    texts = [json.dumps(record) for record in records]
    path.write_text(f"[{','.join(texts)}]" if path.suffix == ".json" else "\n".join(texts))


def captions_of(root: Path, name: str = "p1", **settings) -> list[str]:
    roster = read_own(name="o", folder=root, **settings)
    return [sample.caption for sample in roster.samples if sample.image_path.stem == name]


@pytest.mark.parametrize("file", ["data.json", "data.jsonl", "data.jsonlines"])
@pytest.mark.parametrize(
    ("record", "captions"),
    [
        ({"image": "{}", "caption_0": "A {}.", "caption_1": "B {}."}, ["A p1.jpg.", "B p1.jpg."]),
        ({"image": "{}", "caption": "A {}.", "caption_2": "B {}."}, ["A p1.jpg.", "B p1.jpg."]),
        ({"file_name": "{}", "text": "A {}."}, ["A p1.jpg."]),
        ({"image": "{}", "sentences": ["A {}.", "B"]}, ["A p1.jpg.", "B"]),
        ({"image_file": "{}", "description": "A {}.", "example_id": "{}"}, ["A p1.jpg."]),
        ({"url": "http://h/{}", "caption": "A {}.", "text": "9", "image": "{}"}, ["A p1.jpg."]),
        (
            {
                "id": "{}",
                "image": "{}",
                "conversations": [ASKED, {"from": "gpt", "value": "A {}."}],
            },
            ["A p1.jpg."],
        ),
        (
            {
                "images": ["images/{}"],
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]},
                    {"role": "assistant", "content": [{"type": "text", "text": "A {}."}]},
                ],
            },
            ["A p1.jpg."],
        ),
    ],
)
def test_lines_of_json(root, file, record, captions):
    text = json.dumps(record)
    write_lines(root / file, [json.loads(text.replace("{}", name)) for name in NAMES])
    assert captions_of(root) == captions


def test_a_chat_of_several_questions_is_no_caption(root):
    turns = [ASKED, {"from": "gpt", "value": "A dog."}]
    records = [{"image": name, "conversations": turns} for name in NAMES]
    records[1]["conversations"] = turns * 2
    write_lines(root / "llava.json", records)
    with pytest.raises(ValueError, match=r"llava.json\[1\]: 'conversations' .*bad_captions=drop"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert len(roster) == 5
    assert [drop.rule for drop in roster.dropped][:1] == ["caption is no text"]


def test_another_text_beside_captions_is_none(root):
    records = [{"image": name, "caption": "A dog.", "text": "STOP"} for name in NAMES]
    del records[1]["caption"]
    write_lines(root / "data.jsonl", records)
    assert captions_of(root, "p0") == ["A dog."]
    assert captions_of(root, "p1") == []


def test_keys_of_other_names_are_asked_for_and_named(root):
    write_lines(root / "data.jsonl", [{"image": name, "title": name} for name in NAMES])
    with pytest.raises(ValueError, match=r"data.jsonl:1: none of the keys .*caption_columns="):
        read_own(name="o", folder=root)
    assert captions_of(root, caption_columns="title") == ["p1.jpg"]
    records = [{"file": name, "path": "x", "caption": name} for name in NAMES]
    write_lines(root / "data.jsonl", records)
    with pytest.raises(ValueError, match=r"data.jsonl:1: \['file', 'path'\] .*file_column="):
        read_own(name="o", folder=root)
    assert captions_of(root, file_column="file") == ["p1.jpg"]


def test_an_image_folder_with_other_keys(root):
    records = [{"file_name": name, "caption_0": "A.", "caption_1": "B."} for name in NAMES]
    write_lines(root / "images" / "metadata.jsonl", records)
    assert captions_of(root / "images") == ["A.", "B."]
    write_lines(root / "images" / "metadata.jsonl", [{"file_name": n, "title": n} for n in NAMES])
    with pytest.raises(ValueError, match=r"metadata.jsonl:1: none of the keys .*caption_columns="):
        read_own(name="o", folder=root / "images")
    assert captions_of(root / "images", caption_columns="title") == ["p1.jpg"]


def test_parquet_beside_its_photos_with_rows_of_one_photo(root):
    (root / "images").rename(root / "train")
    rows = {"file_name": [name for name in NAMES for _ in "ab"], "text": ["a", "b"] * 6}
    write_parquet(root / "train" / "metadata.parquet", pa.table(rows))
    roster = read_own(name="o", folder=root)
    assert len(roster.rows_by_image) == 6
    assert captions_of(root) == ["a", "b"]


def test_chats_in_parquet(root):
    chats = [[ASKED, {"from": "gpt", "value": f"A {name}."}] for name in NAMES]
    chats[0] *= 2
    images = [f"images/{name}" for name in NAMES]
    write_parquet(root / "t.parquet", pa.table({"image": images, "conversations": chats}))
    with pytest.raises(ValueError, match="row 0: caption is not a text"):
        read_own(name="o", folder=root)
    assert captions_of(root, bad_captions="drop") == ["A p1.jpg."]


def test_shards_of_img2dataset_with_their_tables(tmp_path):
    for shard in range(2):
        members = {f"{shard}{n}.jpg": photo(n) for n in range(3)}
        texts = {f"{shard}{n}.txt": b"A dog." for n in range(3)}
        write_tar(tmp_path / f"0000{shard}.tar", dict(sorted((members | texts).items())))
        rows = pa.table({"url": ["http://h/a"], "caption": ["A dog."], "key": ["0"]})
        write_parquet(tmp_path / f"0000{shard}.parquet", rows)
    assert len(read_own(name="o", folder=tmp_path)) == 6
    (tmp_path / "00000.tar").rename(tmp_path / "00000.other")
    with pytest.raises(ValueError, match=r"00000.parquet: holds addresses of photos"):
        read_own(name="o", folder=tmp_path)


@pytest.mark.parametrize(
    ("record", "captions"),
    [
        ({"caption_0": "A.", "caption_1": "B.", "caption_2": None}, ["A.", "B."]),
        ({"caption": "A.", "caption_1": ["B.", "C."], "text": "D."}, ["A.", "B.", "C."]),
        ({"text": "A."}, ["A."]),
    ],
)
def test_keys_of_captions_in_shards(tmp_path, record, captions):
    write_tar(tmp_path / "a.tar", {"k.jpg": photo(), "k.json": json.dumps(record).encode()})
    roster = read_webdataset(name="o", folder=tmp_path)
    assert [sample.caption for sample in roster.samples] == captions


def test_a_null_caption_in_shards_is_none(tmp_path):
    record = {"caption": None, "text": "STOP"}
    members = {"k.jpg": photo(), "k.json": json.dumps(record).encode(), "l.txt": b"A dog."}
    write_tar(tmp_path / "a.tar", members | {"l.jpg": photo(1)})
    roster = read_webdataset(name="o", folder=tmp_path, missing_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A dog."]


def test_tables_without_head(root):
    (root / "data.tsv").write_text("".join(f"A {name}.\t{name}\n" for name in NAMES))
    assert captions_of(root) == ["A p1.jpg."]
    for text in ("A dog.\thttp://h/a.jpg\n", "url\tcaption\nhttp://h/a.jpg\tA dog.\n"):
        (root / "data.tsv").write_text(text)
        with pytest.raises(FileNotFoundError, match=r"data.tsv: holds addresses .*img2dataset"):
            read_own(name="o", folder=root)


def test_captions_that_vizwiz_marks_as_none_are_left_out(root):
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    flags = [{}, {"is_precanned": True, "is_rejected": False}, {"is_rejected": True}]
    captions = [
        {"id": 3 * number + n, "image_id": number, "caption": f"{n}"} | flag
        for number in range(6)
        for n, flag in enumerate(flags)
    ]
    (root / "train.json").write_text(json.dumps({"images": images, "annotations": captions}))
    assert captions_of(root) == ["0"]
    rules = [drop.rule for drop in read_own(name="o", folder=root).dropped]
    assert rules == ["caption precanned", "caption rejected"] * 6


def test_photos_alone_are_no_captions(root):
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    captions = [{"id": n, "image_id": n, "caption": f"{n}"} for n in range(6)]
    (root / "annotations").mkdir()
    for split, more in (("train", {"annotations": captions}), ("test", {})):
        path = root / "annotations" / f"{split}.json"
        path.write_text(json.dumps({"info": {}, "images": images} | more))
    assert captions_of(root) == ["1"]
    with pytest.raises(ValueError, match="test.json: key 'annotations' is missing"):
        read_own(name="o", folder=root, annotations="annotations/test.json")


def test_boxes_beside_captions_are_none(root):
    boxes = {"images": [], "annotations": [{"id": 1, "image_id": 1, "bbox": [0, 0, 1, 1]}]}
    (root / "_annotations.coco.json").write_text(json.dumps(boxes))
    (root / "dataset.json").write_text(json.dumps({"path": "x", "description": "Photos."}))
    (root / "data.csv").write_text("image,caption\n" + "".join(f"{n},{n}\n" for n in NAMES))
    assert captions_of(root) == ["p1.jpg"]


@pytest.mark.parametrize("value", ["A.", ["A."]])
def test_names_of_photos_as_keys(root, value):
    (root / "data.json").write_text(json.dumps(dict.fromkeys(NAMES, value)))
    with pytest.raises(FileNotFoundError, match="no captions are found"):
        read_own(name="o", folder=root)
    assert captions_of(root, annotations="data.json") == ["A."]
    (root / "data.json").rename(root / "captions.json")
    assert captions_of(root) == ["A."]


def test_files_in_folders_below_are_named(root):
    (root / "images" / "data.csv").write_text(
        "image,caption\n" + "".join(f"{n},A\n" for n in NAMES)
    )
    with pytest.raises(FileNotFoundError, match=r"annotations= names .* \['images/data.csv'\]"):
        read_own(name="o", folder=root)
    assert captions_of(root, annotations="images/data.csv") == ["A"]


def test_names_without_suffix(root):
    (root / "images").rename(root / "train_images")
    (root / "train_images" / "p1.txt").write_text("no photo")
    record = {
        "image_id": "p1",
        "image_name": "p1",
        "image_path": "train/p1.jpg",
        "caption_str": "A.",
    }
    document = {"dataset_name": "textcaps", "data": [record, record | {"caption_str": "B."}]}
    (root / "TextCaps_train.json").write_text(json.dumps(document))
    for column in (None, "image_id", "image_path"):  # all name one photo
        roster = read_own(name="o", folder=root, file_column=column)
        assert [s.image_path.name for s in roster.samples] == ["p1.jpg", "p1.jpg"]
        assert len(roster.dropped) == 5  # photos without captions
    document["data"][0]["image_path"] = "train/p2.jpg"
    (root / "TextCaps_train.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"train.json: data\[0\]: \['image_name', .*file_column="):
        read_own(name="o", folder=root)
    (root / "train_images" / "p1.png").write_bytes(photo())
    with pytest.raises(ValueError, match="no photo 'p1'"):
        read_own(name="o", folder=root, file_column="image_id")


def test_rows_of_one_photo_by_its_id(tmp_path, caplog):
    content = table([photo(n // 2) for n in range(6)], [[f"{n}"] for n in range(6)])
    images = [{"bytes": photo(n // 2), "path": f"{n // 2}.jpg"} for n in range(6)]
    ids = pa.array([f"id{n // 2}" for n in range(6)])
    content = content.set_column(0, "image", pa.array(images)).append_column("id", ids)
    write_parquet(tmp_path / "t.parquet", content)
    assert len(read_arrow(name="o", folder=tmp_path).rows_by_image) == 6
    assert "3 rows have photos of the same name" in caplog.text
    roster = read_arrow(name="o", folder=tmp_path, id_column="id")
    assert [s.sample_id for s in roster.samples][:3] == ["id0#0", "id0#1", "id1#0"]
    write_parquet(tmp_path / "t.parquet", content[:3])
    write_parquet(tmp_path / "u.parquet", content[3:])
    halves = read_arrow(name="o", folder=tmp_path, id_column="id")
    assert halves.fingerprint == roster.fingerprint, "a photo goes on in the next file"
    paths = pa.table({"file_name": [f"{n // 2}.jpg" for n in range(6)], "text": list("abcdef")})
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(photo(number))
    write_parquet(tmp_path / "t.parquet", paths[:3])
    write_parquet(tmp_path / "u.parquet", paths[3:])
    by_path = read_arrow(name="o", folder=tmp_path).rows_by_image.values()
    assert [tuple(rows) for rows in by_path] == [(0, 1), (2, 3), (4, 5)]
