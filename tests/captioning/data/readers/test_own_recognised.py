"""``data=own``: what is named is read, and why nothing is found is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioning.data.readers.own.own import read_own
from tests.packed_files import photo, table, write_parquet, write_tar

NAMES = [f"p{number}.jpg" for number in range(6)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(photo(number))
    return tmp_path


def rows(*columns: str, delimiter: str = ",") -> str:
    lines = [columns, *([name, *(f"{c} {name[1]}" for c in columns[1:])] for name in NAMES)]
    return "\n".join(delimiter.join(line) for line in lines) + "\n"


def captions_of(root: Path, **settings) -> list[str]:
    roster = read_own(name="o", folder=root, **settings)
    return [sample.caption for sample in roster.samples if sample.image_path.stem == "p1"]


def test_columns_of_other_names(root):
    (root / "all.csv").write_text(rows("picture", "title"))
    assert captions_of(root, file_column="picture", caption_columns=["title"]) == ["title 1"]
    (root / "all.csv").write_text(rows("image", "title"))
    assert captions_of(root, caption_columns="title") == ["title 1"]
    (root / "all.csv").write_text(rows("image", "caption", "text"))
    assert captions_of(root, caption_columns=["text"]) == ["text 1"]
    with pytest.raises(ValueError, match=r"no column 'label'; it has \['image', 'caption', 'text'"):
        read_own(name="o", folder=root, caption_columns="label", layout="table")


def test_columns_of_captions_are_all_read(root):
    (root / "all.csv").write_text(rows("image", "caption", "caption"))
    assert captions_of(root) == ["caption 1"] * 2
    (root / "all.csv").write_text(rows("image", "caption", "title", "caption2", "caption 3"))
    assert captions_of(root) == ["caption 1", "caption2 1", "caption 3 1"]
    (root / "all.csv").write_text(rows("image", "captions", "text_1"))
    assert captions_of(root) == ["captions 1"]
    (root / "all.csv").write_text(rows("image", "a", "a"))
    assert captions_of(root, caption_columns="a") == ["a 1"] * 2


@pytest.mark.parametrize("message", ["line 2: not UTF-8", "iconv -f WINDOWS-1252"])
def test_a_table_that_cannot_be_read_is_said(root, message):
    text = rows("image", "caption").replace("n 0", "n é")
    (root / "all.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(FileNotFoundError, match=rf"no captions .*all.csv: .*{message}"):
        read_own(name="o", folder=root)
    for settings in ({"layout": "table"}, {"annotations": "all.csv"}):
        with pytest.raises(ValueError, match=rf"all.csv: .*{message}"):
            read_own(name="o", folder=root, **settings)


def test_a_first_line_that_names_the_delimiter(root):
    text = 'sep=;\r\n"image";"caption"\r\np0.jpg;A dog, a cat, a bird.\r\np1.jpg; \r\n'
    (root / "all.csv").write_text(text, newline="")
    with pytest.raises(ValueError, match=r"all.csv:4: the caption is empty"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A dog, a cat, a bird."]


def test_a_file_in_a_folder_below(root):
    (root / "sub").mkdir()
    (root / "sub" / "c.csv").write_text(rows("image", "caption"))
    (root / "all.csv").write_text(rows("image", "text"))
    assert captions_of(root, annotations="sub/c.csv") == ["caption 1"]
    (root / "sub" / "c.csv").write_text(rows("name", "title"))
    with pytest.raises(ValueError, match=r"c.csv: none has a usual name .*choose file_column="):
        read_own(name="o", folder=root, annotations="sub/c.csv")
    (root / "sub" / "notes.json").write_text('{"a": 1}')
    with pytest.raises(
        ValueError, match=r"notes.json: must be a list of objects: got an object of 1"
    ):
        read_own(name="o", folder=root, annotations="sub/notes.json")


def test_metadata_may_be_named_among_others(root):
    (root / "all.csv").write_text(rows("image", "caption"))
    (root / "metadata.csv").write_text(rows("file_name", "text"))
    assert captions_of(root, annotations="metadata.csv") == ["text 1"]
    assert captions_of(root, annotations="all.csv") == ["caption 1"]


def write_karpathy(path: Path, *splits: str) -> None:
    images = [
        {"filename": name, "split": splits[n % len(splits)], "sentences": [{"raw": f"{path.stem}"}]}
        for n, name in enumerate(NAMES)
    ]
    path.write_text(json.dumps({"images": images}))


def test_karpathys_file_is_chosen_with_its_splits(root):
    for name in ("one.json", "two.json"):
        write_karpathy(root / name, "train", "val", "test")
    with pytest.raises(ValueError, match=r"p0.jpg: has captions in one and in two; .*annotations="):
        read_own(name="o", folder=root, part="train")
    roster = read_own(name="o", folder=root, part="test", annotations="two.json")
    assert [(s.image_path.name, s.caption) for s in roster.samples] == [
        ("p2.jpg", "two"),
        ("p5.jpg", "two"),
    ]


@pytest.mark.parametrize(
    "names",
    [("Train", "Val", "Test"), ("training", "validation", "testing"), ("train", "dev", "test")],
)
def test_other_names_of_karpathys_splits(root, names):
    write_karpathy(root / "dataset.json", *names)
    for place, part in enumerate(("train", "val", "test")):
        roster = read_own(name="o", folder=root, part=part)
        assert list(roster.rows_by_image) == NAMES[place::3]
    write_karpathy(root / "dataset.json", "fold1")
    with pytest.raises(ValueError, match=r"dataset.json: images\[0\]: 'split' must be one of"):
        read_own(name="o", folder=root)


def test_a_token_file_is_chosen_with_its_lists(root):
    for name in ("a.token.txt", "a.lemma.token.txt"):
        (root / name).write_text("".join(f"{photo_name}#0\t{name}\n" for photo_name in NAMES))
    (root / "a.trainImages.txt").write_text("\n".join(NAMES[:4]))
    (root / "a.devImages.txt").write_text(NAMES[4])
    (root / "a.testImages.txt").write_text(NAMES[5])
    for part, names in (("train", NAMES[:4]), ("val", NAMES[4:5]), ("test", NAMES[5:])):
        roster = read_own(name="o", folder=root, part=part, annotations="a.token.txt")
        assert list(roster.rows_by_image) == names
        assert {sample.caption for sample in roster.samples} == {"a.token.txt"}


def test_text_files_below_and_in_capitals(tmp_path):
    for place in ("2024/may/a.jpg", "P1.JPG"):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo())
        path.with_suffix(".TXT" if path.suffix == ".JPG" else ".txt").write_text("A dog.\nA cat.")
    roster = read_own(name="o", folder=tmp_path)
    assert {image_id: len(rows) for image_id, rows in roster.rows_by_image.items()} == {
        "P1.JPG": 2,
        "2024/may/a.jpg": 2,
    }
    (tmp_path / "P1.JPG").unlink()
    assert list(read_own(name="o", folder=tmp_path).rows_by_image) == ["2024/may/a.jpg"]


def parquet(root: Path, *captions: str) -> None:
    write_parquet(root / "all.parquet", table([photo(0), photo(1)], [list(captions), ["A cat."]]))


def shard(root: Path, *captions: str) -> None:
    texts = json.dumps({"captions": captions}).encode()
    members = {"a.jpg": photo(0), "a.json": texts, "b.jpg": photo(1), "b.txt": b"A cat."}
    write_tar(root / "0.tar", members)


def karpathy(root: Path, *captions: str) -> None:
    images = [
        {"filename": f"{n}.jpg", "split": "train", "sentences": [{"raw": text} for text in texts]}
        for n, texts in enumerate((captions, ["A cat."]))
    ]
    (root / "dataset.json").write_text(json.dumps({"images": images}))
    for n in range(2):
        (root / f"{n}.jpg").write_bytes(photo(n))


@pytest.mark.parametrize("write", [parquet, shard, karpathy])
def test_an_empty_caption_leaves_the_others_of_its_photo(tmp_path, write):
    write(tmp_path, "A dog.", " ", "Dogs.")
    with pytest.raises(ValueError, match=r"the caption is empty"):
        read_own(name="o", folder=tmp_path)
    roster = read_own(name="o", folder=tmp_path, bad_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A dog.", "Dogs.", "A cat."]
    assert len(roster.dropped) == 1
    write(tmp_path, " ")
    roster = read_own(name="o", folder=tmp_path, bad_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A cat."]
    assert [drop.rule for drop in roster.dropped][-1] == "photo without caption"


@pytest.mark.parametrize("value", [None, 5, ["A dog."]])
def test_captions_of_coco_that_are_no_text(root, value):
    images = [{"id": n, "file_name": name} for n, name in enumerate(NAMES)]
    notes = [{"id": n, "image_id": n, "caption": "A dog."} for n in range(6)]
    notes[3]["caption"] = value
    (root / "captions.json").write_text(json.dumps({"images": images, "annotations": notes}))
    message = "'caption' is null; give it" if value is None else "'caption' must be a text: got"
    with pytest.raises(ValueError, match=rf"annotations\[3\]: {message}"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert len(roster) == 5
    assert roster.dropped[0].rule == "caption is no text"
    assert "annotations[3]" in roster.dropped[0].item


@pytest.mark.parametrize("value", [5, ["A dog.", None]])
@pytest.mark.parametrize("name", ["metadata.jsonl", "all.jsonl"])
def test_captions_of_json_lines_that_are_no_text(root, name, value):
    key = "file_name" if name == "metadata.jsonl" else "image"
    lines = [{key: photo_name, "captions": ["A cat."]} for photo_name in NAMES]
    lines[1]["captions"] = value
    (root / name).write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match=rf"{name}:2: 'captions' must be"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert len(roster) == (5 if value == 5 else 6)
    assert roster.dropped[0].rule == "caption is no text"


def test_photos_that_cannot_be_opened_are_not_passed_over(root):
    for name in ("p1.jpg", "q.HEIC"):
        (root / name).write_bytes(photo(1))
        (root / name).with_suffix(".txt").write_text("A dog.\n")
    (root / "p1.heic").write_bytes(b"beside its JPEG")
    for hidden in ("._o.heic", "._o.txt"):  # what other systems leave beside files
        (root / hidden).write_bytes(b"no photo")
    with pytest.raises(ValueError, match=r"q.HEIC: photos of this kind are not read; save them"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, missing_photos="drop", missing_captions="drop")
    assert [sample.image_path.name for sample in roster.samples] == ["p1.jpg"]
    left_out = {(Path(dropped.item).name, dropped.rule) for dropped in roster.dropped}
    assert ("q.HEIC", "photo of a kind that is not read") in left_out


def test_the_remedy_names_the_key_of_this_data(root, monkeypatch):
    monkeypatch.chdir(root)
    with pytest.raises(FileNotFoundError, match=f"nowhere: no such folder in {root}; give"):
        read_own(name="o", folder="nowhere")
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such folder; give .* by folder="):
        read_own(name="o", folder=root / "nowhere")
    write_parquet(root / "a.parquet", table([photo()], [["A dog."]]).rename_columns(["x", "y"]))
    with pytest.raises(ValueError, match=r"\['x', 'y'\]; choose file_column="):
        read_own(name="o", folder=root, layout="arrow")
    (root / "a.csv").write_text("image,caption\np1.jpg,\n")
    with pytest.raises(ValueError, match=r"a.csv:2: .* such captions out by bad_captions=drop"):
        read_own(name="o", folder=root, layout="table")
