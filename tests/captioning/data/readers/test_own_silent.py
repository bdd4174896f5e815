"""``data=own``: sets that could be read wrong without a word."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from captioning.data.line_files import decode
from captioning.data.readers.caption_columns import listed
from captioning.data.readers.entries import UNNAMED
from captioning.data.readers.own.own import own_splits, read_own
from captioning.vision.photo_places import open_photo
from tests.packed_files import photo, write_parquet, write_tar

NAMES = [f"p{number}.jpg" for number in range(6)]
CAPTIONS = ["It's a dog .", 'He says "go" .', "A 'b' \"c\" café \\ d", "Two\nlines", "/ sign"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(photo(number))
    return tmp_path


@pytest.mark.parametrize(
    "cell",
    [
        str(np.array(CAPTIONS, dtype=object)),
        repr(np.array(CAPTIONS, dtype=object)),
        str(np.array(CAPTIONS)),
        str(CAPTIONS),
        str(tuple(CAPTIONS)),
        json.dumps(CAPTIONS),
        json.dumps(CAPTIONS).replace("/", "\\/"),
        json.dumps(CAPTIONS, ensure_ascii=False, indent=1),
        str([*CAPTIONS, None]),
    ],
)
def test_a_cell_with_a_list_holds_its_captions(cell):
    assert listed(cell, "all.csv:2") == CAPTIONS


@pytest.mark.parametrize("cell", ['("Stop") says the sign.', "[1, 2]", "[a dog]", "('a')"])
def test_a_caption_in_brackets_is_no_list(cell):
    assert listed(cell, "all.csv:2") == [cell]


@pytest.mark.parametrize(
    "cell",
    [
        "{'A dog.', 'Two, or \"more\".'}",
        '{"A dog.","Two, or \\"more\\"."}',
        str([{"caption": "A dog."}, {"caption": 'Two, or "more".'}]),
        json.dumps([{"raw": "A dog.", "sentid": 3}, {"raw": 'Two, or "more".'}]),
        json.dumps({"captions": ["A dog.", 'Two, or "more".'], "lang": "en"}),
        json.dumps([["A dog."], ['Two, or "more".']]),
    ],
)
def test_objects_and_sets_in_a_cell_or_text_hold_captions(root, cell):
    """As JSON, Python and PostgreSQL write them; alike in cells, packed files and texts."""
    expected = ["A dog.", 'Two, or "more".']
    assert listed(cell, "all.csv:2") == expected
    (root / "p0.txt").write_text(cell)
    assert [s.caption for s in read_own(name="o", folder=root).samples] == expected
    (root / "shards").mkdir()
    write_tar(root / "shards" / "0.tar", {"p0.jpg": photo(), "p0.txt": cell.encode()})
    found = read_own(name="o", folder=root / "shards").samples
    assert [sample.caption for sample in found] == expected


@pytest.mark.parametrize(
    "cell", ["{subject} runs.", '{"a": "b", "c": "d"}', "[[dog]]", '[{"n": 1}]']
)
def test_an_object_without_captions_is_one(cell):
    assert listed(cell, "all.csv:2") == [cell]


@pytest.mark.parametrize(
    "lines", ["{'caption': 'A dog.'}\n{'caption': 'Dogs.'}", "['A dog.']\nDogs."]
)
def test_a_line_of_a_text_may_be_a_list(root, lines):
    (root / "p0.txt").write_text(lines)
    found = read_own(name="o", folder=root).samples
    assert [sample.caption for sample in found] == ["A dog.", "Dogs."]


def _task(name: str, **answers: str) -> dict:
    """A task of Label Studio with texts in fields."""
    parts = [
        {"type": "textarea", "from_name": field, "value": {"text": [text]}}
        for field, text in answers.items()
    ]
    return {
        "data": {"image": f"/data/upload/1/1a2b3c4d-{name}"},
        "annotations": [{"result": parts}],
    }


def test_notes_of_label_studio_are_no_captions(root):
    tasks = [_task("p0.jpg", my_caption="A dog.", notes="Blurred."), _task("p1.jpg", notes="No.")]
    (root / "all.json").write_text(json.dumps([*tasks, _task("p2.jpg", my_caption="Dogs.")]))
    found = read_own(name="o", folder=root)
    assert [sample.caption for sample in found.samples] == ["A dog.", "Dogs."]
    (root / "all.json").write_text(json.dumps([_task("p0.jpg", answer="A dog.")]))
    assert [s.caption for s in read_own(name="o", folder=root).samples] == ["A dog."]
    tasks = [_task("p0.jpg", caption_en="A dog.", caption_de="Ein Hund."), _task("p1.jpg")]
    (root / "all.json").write_text(json.dumps(tasks))
    with pytest.raises(ValueError, match="caption_en"):
        read_own(name="o", folder=root)
    found = read_own(name="o", folder=root, caption_columns="caption_de")
    assert [sample.caption for sample in found.samples] == ["Ein Hund."]


@pytest.mark.parametrize("numbers", [(0, 0, 1, 1), (0, 1, 2, 3)])
def test_rows_of_one_id_are_joined_where_their_photos_are_one(tmp_path, numbers):
    rows = {"image": [photo(n) for n in numbers], "text": [f"Dog {n}." for n in range(4)]}
    write_parquet(tmp_path / "all.parquet", pa.table({**rows, "image_id": [7, 7, 8, 8]}))
    found = read_own(name="o", folder=tmp_path)
    assert [sample.caption for sample in found.samples] == [f"Dog {n}." for n in range(4)]
    shown = [open_photo(sample.image_path).read() for sample in found.samples]
    assert shown == [photo(n) for n in numbers]
    assert ("7" in found.rows_by_image) == (numbers == (0, 0, 1, 1))


def test_lists_in_captions_of_coco_are_read(root):
    images = [{"id": n, "file_name": name} for n, name in enumerate(NAMES)]
    texts = [str(["A dog.", "Dogs."]), "[sks] dog", "['A cat.', 'Ca"]
    notes = [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(texts)]
    (root / "all.json").write_text(json.dumps({"images": images, "annotations": notes[:2]}))
    found = read_own(name="o", folder=root).samples
    assert [s.sample_id for s in found] == ["0#0", "0#1", "1#0"]
    assert [s.caption for s in found] == ["A dog.", "Dogs.", "[sks] dog"]
    (root / "all.json").write_text(json.dumps({"images": images, "annotations": notes}))
    with pytest.raises(ValueError, match=r"annotations\[2\]: 'caption': begins as a list .*=drop"):
        read_own(name="o", folder=root)
    found = read_own(name="o", folder=root, bad_captions="drop")
    assert len(found) == 3
    assert any("begins as a list" in drop.rule for drop in found.dropped)


@pytest.mark.parametrize("text", ["A dog.\rDogs.\r", "A dog.\r\nDogs.\r\n"])
def test_carriage_returns_end_lines(root, text):
    (root / "p0.txt").write_bytes(text.encode())
    found = read_own(name="o", folder=root).samples
    assert [sample.caption for sample in found] == ["A dog.", "Dogs."]


def test_boxes_beside_photos_are_no_captions(root):
    for name in NAMES[:4]:
        (root / name).with_suffix(".txt").write_text("0 0.5 0.25 .1 0.2\n16 1 0 3e-05 0.5 0.9 0\n")
    with pytest.raises(ValueError, match=r"p0.txt: holds boxes .*, and 3 files more; move it out"):
        read_own(name="o", folder=root)
    (root / "p1.txt").write_text("A dog.")
    found = read_own(name="o", folder=root, bad_captions="drop")
    assert [sample.caption for sample in found.samples] == ["A dog."]
    (root / "p0.txt").write_text("4 dogs 5 cats 6 birds\n")
    found = read_own(name="o", folder=root, bad_captions="drop")
    assert [sample.caption for sample in found.samples] == ["4 dogs 5 cats 6 birds", "A dog."]


def test_a_list_that_pandas_wrote_without_commas_is_read(root):
    rows = [f"{name},\"['A dog {name[1]} .'\n 'Dogs {name[1]}']\"" for name in NAMES]
    (root / "all.csv").write_text("\n".join(["image,captions", *rows, "p0.jpg,[]"]))
    roster = read_own(name="o", folder=root)
    expected = [[f"A dog {name[1]} .", f"Dogs {name[1]}"] for name in NAMES]
    assert list(roster.references().values()) == expected


@pytest.mark.parametrize("cell", ["['A dog' 'Dogs' ... 'Cats']", "['A dog', 'Do", "['A dog',"])
def test_a_list_that_was_cut_is_refused(root, cell):
    (root / "all.csv").write_text(f'image,captions\np0.jpg,"{cell}"\np1.jpg,A cat.\n')
    with pytest.raises(ValueError, match=r"all.csv:2: begins as a list .*bad_captions=drop"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A cat."]
    assert any("begins as a list" in dropped.rule for dropped in roster.dropped)


@pytest.mark.parametrize(
    ("encoding", "name", "text"),
    [
        ("cp1252", "WINDOWS-1252", "A dog by the man\N{RIGHT SINGLE QUOTATION MARK}s house."),
        ("latin-1", "WINDOWS-1252", "Ein Mädchen läuft über die Straße."),
        ("mac-roman", "MACINTOSH", "A dog by the man\N{RIGHT SINGLE QUOTATION MARK}s house."),
        ("cp1250", "WINDOWS-1250", "Mała dziewczynka stoi na łące."),
        ("cp1251", "WINDOWS-1251", "Собака бежит — быстро."),
        ("koi8-r", "KOI8-R", "Собака бежит по снегу."),
        ("cp932", "SHIFT_JIS", "犬が雪の中を走る。"),
        ("euc_jp", "EUC-JP", "犬が雪の中を走っている。"),
        ("cp949", "EUC-KR", "개가 눈 속을 달린다."),
        ("gb18030", "GB18030", "一只狗在雪地里奔跑。"),
        ("big5", "BIG5", "一隻狗在雪地裡奔跑。"),
        ("utf-16-le", "UTF-16", "一只狗在 A 雪地里奔跑。"),
    ],
)
def test_the_encoding_of_a_text_is_named(encoding, name, text):
    with pytest.raises(ValueError, match=f"a.txt: line 1: not UTF-8 .* iconv -f {name} -t UTF-8"):
        decode(text.encode(encoding), "a.txt")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("file", ["all.csv", "all.token.txt", "all.json", "p1.txt"])
def test_texts_of_wide_characters_are_read_and_said(root, caplog, encoding, file):
    captions = {name: f"Ein Mädchen, {name[1]}." for name in NAMES}
    text = {
        "all.csv": "".join(f'{name},"{text}"\n' for name, text in captions.items()),
        "all.token.txt": "".join(f"{name}#0\t{text}\n" for name, text in captions.items()),
        "all.json": json.dumps([{"image": n, "caption": t} for n, t in captions.items()]),
        "p1.txt": captions["p1.jpg"],
    }[file]
    (root / file).write_bytes(text.encode(encoding))
    assert first_captions(root, missing_captions="drop") == ["Ein Mädchen, 1."]
    name = encoding.upper().replace("-16-", "-16") + ("LE" if encoding[-2:].isdigit() else "")
    assert f"*.{file.rpartition('.')[2]} was read as {name}; save" in caplog.text


def test_wide_characters_that_are_cut_are_refused():
    with pytest.raises(ValueError, match=r"a.txt: not whole as UTF-16LE \(truncated data\); get"):
        decode("A dog.".encode("utf-16")[:-1], "a.txt")
    assert decode(b"A dog runs over the wet grass.\0", "a.txt").endswith("\0")  # is refused later


@pytest.mark.parametrize("file", ["all.csv.gz", "all.jsonl.gz", "all.json.gz", "all.token.gz"])
def test_files_packed_by_gzip_are_read(root, file):
    captions = {name: f"A dog, {name[1]}." for name in NAMES}
    records = [{"image": name, "caption": text} for name, text in captions.items()]
    text = {
        "all.csv.gz": "image,caption\n" + "".join(f'{n},"{t}"\n' for n, t in captions.items()),
        "all.jsonl.gz": "\n".join(map(json.dumps, records)),
        "all.json.gz": json.dumps(records),
        "all.token.gz": "".join(f"{name}#0\t{text}\n" for name, text in captions.items()),
    }[file]
    packed = gzip.compress(text.encode())
    (root / file).write_bytes(packed)
    assert first_captions(root) == ["A dog, 1."]
    (root / file.removesuffix(".gz")).write_text(text)  # beside what it holds
    assert first_captions(root) == ["A dog, 1."]
    (root / file.removesuffix(".gz")).unlink()
    (root / file).write_bytes(packed[:-12])
    with pytest.raises(ValueError, match=rf"{file}: not a complete gzip file .*; get it again"):
        read_own(name="o", folder=root, annotations=file)


def test_no_encoding_is_named_where_none_can_be_told():
    with pytest.raises(ValueError, match=r"save the file as UTF-8$"):
        decode(b"\x81\x8d\x8f\xff\xfe\x9d", "a.txt")


def test_a_row_of_too_few_cells_gets_its_own_advice(root):
    (root / "all.csv").write_text("image|n|caption\np0.jpg| 0| A dog\np1.jpg| 1 A cat\n")
    with pytest.raises(ValueError, match=r"all.csv:3: 2 cells .* are missing, .*bad_captions=drop"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["A dog"]
    (root / "all.csv").write_text("image,caption\np0.jpg,A dog, two cats\n")
    with pytest.raises(ValueError, match=r"all.csv:2: 3 cells .*quotation marks .*bad_captions="):
        read_own(name="o", folder=root)


def test_photos_of_other_splits_are_not_left_out(root):
    (root / "images").mkdir()
    for name in NAMES:
        (root / name).rename(root / "images" / name)
    for split, names in (("train", NAMES[:3]), ("val", NAMES[3:4]), ("test", NAMES[4:5])):
        lines = [{"image": f"images/{name}", "caption": [f"A dog {name[1]}."]} for name in names]
        (root / f"coco_karpathy_{split}.json").write_text(json.dumps(lines))
    whole = read_own(name="o", folder=root)
    assert [(drop.item, drop.rule) for drop in whole.dropped] == [("images/p5.jpg", UNNAMED)]
    for part, number in (("train", 3), ("val", 1), ("test", 1)):
        roster = read_own(name="o", folder=root, part=part)
        assert (len(roster), roster.dropped) == (number, ())


def test_what_one_file_of_all_splits_leaves_out_is_said_once(root):
    images = [
        {"filename": name, "split": split, "sentences": [{"raw": text} for text in texts]}
        for name, split, texts in (("p0.jpg", "train", ["A dog.", " "]), ("p1.jpg", "val", ["A."]))
    ]
    (root / "dataset.json").write_text(json.dumps({"images": images}))
    roster = read_own(name="o", folder=root, bad_captions="drop")
    rules = [drop.rule for drop in roster.dropped]
    assert sorted(rules) == sorted(["caption empty", *[UNNAMED] * 4])


@pytest.mark.parametrize(
    "name",
    [
        "{root}/images/sub/{name}",  # where it lies
        "/srv/other/set/images/sub/{name}",  # on another machine
        "C:\\photos\\sub\\{name}",
        "images\\sub\\{name}",
        "file:///data/images/sub/{name}",
        "/data/upload/1/{name}",
        "/data/upload/1/1a2b3c4d-{name}",
        "/data/local-files/?d=images/sub/{name}",
    ],
)
@pytest.mark.parametrize("split", ["", ",split"])
def test_absolute_paths_and_those_of_windows(root, name, split):
    folder = root / "images" / "sub"
    folder.mkdir(parents=True)
    for own in NAMES:
        (root / own).rename(folder / own)
    end = ",train" if split else ""
    rows = [f"{name.format(root=root, name=own)},A dog {own[1]}.{end}" for own in NAMES]
    (root / "all.csv").write_text("\n".join([f"image,caption{split}", *rows]))
    roster = read_own(name="o", folder=root)
    assert [sample.image_path for sample in roster.samples] == [folder / own for own in NAMES]
    assert not roster.dropped
    assert all(
        f"images/sub/{sample.image_id}".endswith(sample.image_path.name)
        for sample in roster.samples
    )
    assert own_splits(root) == ({folder / own: "train" for own in NAMES} if split else {})


def test_photos_outside_the_folder_are_named(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("captions")
    (other / "all.csv").write_text(
        "filepath,title\n" + "".join(f"{root}/{n},A dog.\n" for n in NAMES)
    )
    with pytest.raises(ValueError, match=rf"all.csv:2: .*none of 6 is in .* image_folder={root}$"):
        read_own(name="o", folder=other, caption_columns="title", missing_photos="drop")
    roster = read_own(name="o", folder=other, caption_columns="title", image_folder=root)
    assert [sample.image_id for sample in roster.samples] == NAMES


def write_texts(root: Path, suffix: str, text: str = "A dog {n}.") -> None:
    for n, name in enumerate(NAMES):
        (root / name).with_suffix(suffix).write_text(text.format(n=n), encoding="utf-8")


def first_captions(root: Path, **settings) -> list[str]:
    return read_own(name="o", folder=root, **settings).references()["p1.jpg"]


def test_two_texts_beside_a_photo_are_asked_about(root):
    write_texts(root, ".txt", "dog, snow, {n}")
    write_texts(root, ".caption")
    with pytest.raises(ValueError, match=r"p0.txt: .*p0.caption has another .*caption_columns=\."):
        read_own(name="o", folder=root)
    assert first_captions(root, caption_columns=".caption") == ["A dog 1."]
    assert first_captions(root, caption_columns=[".txt"]) == ["dog, snow, 1"]
    assert first_captions(root, caption_columns=[".caption", ".txt"]) == [
        "A dog 1.",
        "dog, snow, 1",
    ]
    write_texts(root, ".caption", "dog, snow, {n}")  # the same text twice
    assert first_captions(root) == ["dog, snow, 1"]
    write_texts(root, ".json", '{{"caption": "A cat {n}."}}')  # facts, as img2dataset writes them
    assert first_captions(root) == ["dog, snow, 1"]
    assert first_captions(root, caption_columns=".json") == ["A cat 1."]


def test_json_in_a_text_is_one_caption_or_holds_it(root, caplog):
    prompt = '{{\n  "scene": "A dog {n}.",\n  "style": "photo"\n}}'
    write_texts(root, ".txt", prompt)
    assert first_captions(root) == ['{ "scene": "A dog 1.", "style": "photo" }']
    assert "6 text files hold JSON without a key of captions, such as p0.txt" in caplog.text
    write_texts(root, ".txt", '{{"caption": "A dog {n}.", "style": "photo"}}')
    assert first_captions(root) == ["A dog 1."]
    write_texts(root, ".txt", '["A dog {n}.", "Dogs {n}."]')
    assert first_captions(root) == ["A dog 1.", "Dogs 1."]
    write_texts(root, ".txt", "[A dog {n}]\n{{a cat}}")  # no JSON
    assert first_captions(root) == ["[A dog 1]", "{a cat}"]


def test_paragraphs_are_said_and_read_as_one_where_asked(root, caplog):
    write_texts(root, ".txt", "A dog {n}.\n\nIt runs.\nFast.\n")
    assert first_captions(root) == ["A dog 1.", "It runs.", "Fast."]
    assert "6 text files have blank lines between others" in caplog.text
    assert "caption_per=file" in caplog.text
    assert first_captions(root, caption_per="file") == ["A dog 1. It runs. Fast."]
    write_texts(root, ".txt", "A dog {n}.\nDogs.\n\n")
    caplog.clear()
    assert first_captions(root) == ["A dog 1.", "Dogs."]
    assert "blank lines" not in caplog.text
    (root / "all.csv").write_text("image,caption\np0.jpg,A dog.\n")
    with pytest.raises(ValueError, match="a table .* which does not read caption_per"):
        read_own(name="o", folder=root, caption_per="file")


def test_texts_in_another_encoding_are_counted(root):
    write_texts(root, ".txt")
    for name in NAMES[:4]:
        (root / name).with_suffix(".txt").write_bytes("A café.".encode("cp1252"))
    message = r"p0.txt: line 1: not UTF-8 .* and 3 files more; .*WINDOWS-1252"
    with pytest.raises(ValueError, match=rf"{message}.*bad_captions=drop"):
        read_own(name="o", folder=root)
    lenient = {"bad_captions": "drop", "missing_captions": "drop"}
    roster = read_own(name="o", folder=root, **lenient)
    assert len(roster) == 2
    assert [drop.rule for drop in roster.dropped if "UTF-8" in drop.rule] == [
        "line 1: not UTF-8 (byte 0xe9)"
    ] * 4
    for name in NAMES[4:]:
        (root / name).with_suffix(".txt").write_bytes("A café.".encode("cp1252"))
    with pytest.raises(ValueError, match=message.replace("3 files", "5 files")):
        read_own(name="o", folder=root, **lenient)


def test_two_texts_in_a_shard_are_asked_about(tmp_path):
    members = {f"{n}.jpg": photo(n) for n in range(3)}
    members |= {f"{n}.txt": b"dog, snow" for n in range(3)}
    members |= {f"{n}.caption": b"A dog." if n else b"dog, snow" for n in range(3)}
    write_tar(tmp_path / "0.tar", members)
    with pytest.raises(ValueError, match=r"0.tar/1: its .txt and .caption differ; name one"):
        read_own(name="o", folder=tmp_path, missing_captions="error")
    roster = read_own(name="o", folder=tmp_path, missing_captions="drop")
    assert [sample.caption for sample in roster.samples] == ["dog, snow"]
    for name, captions in (
        (".caption", ["dog, snow", "A dog.", "A dog."]),
        ("txt", ["dog, snow"] * 3),
    ):
        roster = read_own(name="o", folder=tmp_path, caption_columns=name)
        assert [sample.caption for sample in roster.samples] == captions


def test_texts_with_a_list_of_photos(root):
    (root / "all.txt").write_text("\n".join(NAMES) + "\n")
    for language in ("en", "de"):
        (root / f"all.{language}").write_text("".join(f"{language} {name}\n" for name in NAMES))
    with pytest.raises(ValueError, match=r"all.txt: texts of several kinds .*caption_columns="):
        read_own(name="o", folder=root)
    assert first_captions(root, caption_columns="de") == ["de p1.jpg"]
    with pytest.raises(ValueError, match=r"all.txt: no text 'fr' go with it, \['de', 'en'\]"):
        read_own(name="o", folder=root, caption_columns="fr")
    (root / "all.de").unlink()
    assert first_captions(root) == ["en p1.jpg"]
    (root / "all.en").write_text("a dog\n")
    with pytest.raises(ValueError, match=r"all.en: 1 lines for the 6 photos of .*all.txt; give"):
        read_own(name="o", folder=root)


def test_what_cannot_be_read_is_said_in_a_line(root):
    message = r"no captions are found in it; it holds 6 \.jpg, 1 \.xml, and needs photos beside"
    (root / "a.xml").write_text("<a/>")
    with pytest.raises(FileNotFoundError, match=message):
        read_own(name="o", folder=root)
    (root / "boxes.json").write_text(json.dumps([{"image": name, "boxes": []} for name in NAMES]))
    with pytest.raises(ValueError, match=r"boxes.json: none of the keys \['image', 'boxes'\] has"):
        read_own(name="o", folder=root)
    (root / "boxes.json").write_text('{"version": 3, "items"')
    with pytest.raises(FileNotFoundError, match=r"found in it: .*boxes.json: not JSON at line 1"):
        read_own(name="o", folder=root)


def test_chats_without_a_photo_are_left_out_and_counted(root):
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "A dog."}]
    chats = [{"conversations": turns}, *({"image": n, "conversations": turns} for n in NAMES[:3])]
    chats += [{"image": None, "conversations": turns}, {"image": "", "conversations": turns}]
    (root / "mix.json").write_text(json.dumps(chats))
    said = r"mix.json\[0\]: key 'image' is missing.*missing_photos=drop"
    with pytest.raises(ValueError, match=said):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, missing_photos="drop")
    assert len(roster) == 3
    assert [drop.rule for drop in roster.dropped].count("photo missing") == 3
    (root / "mix.json").write_text(
        json.dumps([*chats[1:4], {"images": NAMES[:2], "caption": "A."}])
    )
    roster = read_own(name="o", folder=root, bad_captions="drop")
    assert len(roster) == 3


def test_captions_of_several_languages_are_asked_about(root):
    rows = [{"image": name, "caption": {"en": "A dog.", "de": "Ein Hund."}} for name in NAMES]
    (root / "all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=r"all.jsonl:1: 'caption' holds an object .*caption.en"):
        read_own(name="o", folder=root)
    assert first_captions(root, caption_columns="caption.de") == ["Ein Hund."]


def test_the_first_version_of_feather_is_named(root):
    (root / "all.feather").write_bytes(b"FEA1" + bytes(64) + b"FEA1")
    with pytest.raises(ValueError, match=r"all.feather: Feather version 1 is not supported"):
        read_own(name="o", folder=root)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "sits_val.csv",
            "image,caption,score\n" + "".join(f"{n},{n}#2,4.5\n" for n in NAMES),
            r"captions such as 'p0.jpg#2' are names of captions in another file; give that by",
        ),
        (
            "sbu.json",
            json.dumps({"image_urls": ["https://x/p0.jpg"], "captions": ["A dog."]}),
            r"sbu.json: holds addresses of photos and no photos; download",
        ),
        (
            "pairs.jsonl",
            json.dumps({"image_0": "p0", "image_1": "p1", "caption_0": "A dog."}),
            r"pairs.jsonl:1: none of the keys \['image_0', .*such as 'image' .*file_column=",
        ),
        (
            "results.json",
            json.dumps([{"image_id": 77, "caption": "A dog."}]),
            r"results.json: none of the keys \['image_id', 'caption'\] .*or is one that photos",
        ),
        (
            "all.csv",
            "image,original_caption,vlm_caption,caption_id\n" + "p0.jpg,A dog.,Dogs.,3\n",
            r"all.csv: \['original_caption', 'vlm_caption'\] could be meant",
        ),
    ],
)
def test_what_files_lack_is_said(root, file, content, message):
    (root / file).write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_own(name="o", folder=root)


def test_json_of_each_photo_with_several_captions_is_asked_about(root):
    for name in NAMES:
        about = json.dumps({"image": name, "short_caption": "A.", "long_caption": "B."})
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / name).with_suffix(".json").write_text(about)
    (root / "photos").mkdir()
    for name in NAMES:
        (root / name).rename(root / "photos" / name)
    with pytest.raises(FileNotFoundError, match=r"\['short_caption', 'long_caption'\] could be"):
        read_own(name="o", folder=root)
    roster = read_own(name="o", folder=root, caption_columns="long_caption")
    assert [sample.caption for sample in roster.samples] == ["B."] * 6


def write_cells(root: Path, file: str, cells: list[str]) -> None:
    rows = list(zip(NAMES, cells, strict=True))
    if file.endswith(".parquet"):
        content = {"file_name": NAMES, "caption": cells}
        write_parquet(root / file, pa.table(content))
    elif file.endswith(".jsonl"):
        lines = [json.dumps({"file_name": name, "caption": cell}) for name, cell in rows]
        (root / file).write_text("\n".join(lines))
    else:
        lines = [f'{name},"{cell}"' for name, cell in rows]
        (root / file).write_text("\n".join(["file_name,caption", *lines]))


FILES = ["all.csv", "metadata.csv", "all.jsonl", "all.parquet"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("separator", "name", "pieces"),
    [
        ("|", "bar", ["a dog runs fast", "a brown dog"]),
        (" || ", "bar", ["A dog runs.", "Dogs run."]),
        ("; ", "semicolon", ["A dog runs.", "Two dogs run."]),
        (";", "semicolon", ["a dog runs", "a brown dog", "one dog on grass"]),
        ("\n", "line", ["a dog runs", "a brown dog on grass"]),
        (
            "|",
            "bar",
            ["\u72d7\u5728\u96ea\u5730\u91cc\u5954\u8dd1", "\u4e00\u53ea\u72d7\u5728\u8dd1\u6b65"],
        ),
    ],
)
def test_captions_joined_in_cells_are_told(root, caplog, file, separator, name, pieces):
    write_cells(root, file, [separator.join(pieces)] * 5 + [pieces[0]])
    roster = read_own(name="o", folder=root)
    assert list(roster.references().values()) == [pieces] * 5 + [pieces[:1]]
    assert "several captions stand in one cell, joined by" in caplog.text
    whole = read_own(name="o", folder=root, caption_per="cell")
    assert len(whole) == 6
    said = read_own(name="o", folder=root, caption_per=name)
    assert [s.caption for s in said.samples] == [s.caption for s in roster.samples]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("a dog runs; it is brown and wet", "semicolon"),
        ("dog|snow|tree", "bar"),
        ("The photo shows a dog.\n\nIt is brown.", "line"),
        ("A dog.\n" + "It runs on and on over the wet grass of the park. " * 5, "line"),
    ],
)
def test_marks_in_captions_that_may_join_them_are_said(root, caplog, file, cell, name):
    write_cells(root, file, [cell] * 6)
    roster = read_own(name="o", folder=root)
    assert [s.caption for s in roster.samples] == [" ".join(cell.split())] * 6
    assert f"and each is read as one; the setting caption_per={name} splits them" in caplog.text
    caplog.clear()
    assert len(read_own(name="o", folder=root, caption_per=name)) > 6
    assert len(read_own(name="o", folder=root, caption_per="cell")) == 6
    assert not caplog.text


def test_few_marks_in_captions_are_not_said(root, caplog):
    write_cells(root, "all.csv", ["A dog; it runs."] * 2 + ["A dog."] * 4)
    assert len(read_own(name="o", folder=root)) == 6
    assert not caplog.text


def test_what_joins_captions_is_for_cells_and_files_for_texts(root):
    write_texts(root, ".txt")
    with pytest.raises(ValueError, match=r"text files beside them.* does not read caption_per=bar"):
        read_own(name="o", folder=root, caption_per="bar")
    assert len(read_own(name="o", folder=root, caption_per="line")) == 6


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("a.xlsx", b"PK", "a.xlsx is a spreadsheet: save it as CSV"),
        ("sub/0.tar.gz", b"x", "sub/0.tar.gz is packed shards: unpack them to .tar"),
        ("a.pkl", b"x", "a.pkl is objects of Python, whose code is not run: write names"),
        ("urls.txt", b"https://x.org/a.jpg\n", "urls.txt holds addresses of photos and no photos"),
        ("notes.txt", b"A dog.\nDogs.\n", "notes.txt is text that begins with 'A dog.' and names"),
        ("all.yaml", b"p0: A dog.", "all.yaml is YAML that is beside no photo: write it as JSON"),
    ],
)
def test_what_a_file_looks_like_is_said(root, file, content, said):
    (root / file).parent.mkdir(exist_ok=True)
    (root / file).write_bytes(content)
    with pytest.raises(FileNotFoundError, match=rf"it holds 6 \.jpg.*own_photos.md\); {said}"):
        read_own(name="o", folder=root)
