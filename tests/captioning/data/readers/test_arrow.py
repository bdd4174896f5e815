from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from captioning.data.readers.arrow import read_arrow
from captioning.vision.photos import load_rgb, photo_problem
from captioning.vision.shards import arrow_rows
from tests.captioning.data.damage import damage_bytes
from tests.packed_files import photo, table, write_arrow, write_parquet

PHOTOS = [photo(number) for number in range(5)]
CAPTIONS = [[f"dog {number}", f"Dogs  {number}"] for number in range(5)]
WRITERS = {"arrow": write_arrow, "parquet": write_parquet}


def read(folder: Path, **settings):
    return read_arrow(**({"name": "t", "folder": folder} | settings))


def pixels(data: bytes) -> bytes:
    return Image.open(io.BytesIO(data)).convert("RGB").tobytes()


@pytest.mark.parametrize("kind", WRITERS)
def test_photos_are_those_of_their_rows(tmp_path, kind):
    file = WRITERS[kind](tmp_path / f"train.{kind}", table(PHOTOS, CAPTIONS))
    roster = read(tmp_path, part="train")
    assert [(s.sample_id, s.caption) for s in roster.samples][:3] == [
        ("train/0#0", "dog 0"),
        ("train/0#1", "Dogs 0"),
        ("train/1#0", "dog 1"),
    ]
    assert roster.samples[2].image_path == Path(f"{file}/@image/000000001.jpg")
    for sample in reversed(roster.samples):
        packed = PHOTOS[int(sample.image_id.removeprefix("train/"))]
        assert load_rgb(sample.image_path).tobytes() == pixels(packed)
    assert photo_problem(f"{file}/@image/000000005.jpg") == "photo missing"
    assert "no column 'other'" in photo_problem(f"{file}/@other/000000001.jpg")
    assert "is not a row number" in photo_problem(f"{file}/@image/x.jpg")
    assert "photo is truncated or damaged" in photo_problem(f"{file}/@captions/000000001.jpg")


def test_a_saved_data_set_and_its_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    for number, data in enumerate(PHOTOS):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    records = {"image": [str(tmp_path / f"{n}.jpg") for n in range(5)], "text": list("abcde")}
    saved = datasets.Dataset.from_dict(records).cast_column("image", datasets.Image())
    splits = {"train": saved.select(range(3)), "validation": saved.select([4, 3])}
    shards = {"train": 2, "validation": 1}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved", num_shards=shards)
    train = read(tmp_path / "saved", part="train")
    assert [sample.caption for sample in train.samples] == ["a", "b", "c"]
    val = read(tmp_path / "saved", part="val")
    assert [sample.caption for sample in val.samples] == ["e", "d"]
    assert load_rgb(val.samples[0].image_path).tobytes() == pixels(PHOTOS[4])
    (tmp_path / "saved" / "train" / "data-00009-of-00010.arrow").touch()  # of an earlier saving
    assert len(read(tmp_path / "saved", part="train")) == 3
    state = tmp_path / "saved" / "train" / "state.json"
    state.write_text(
        state.read_text().replace('"_data_files"', '"_indices_files": [1], "_data_files"')
    )
    with pytest.raises(ValueError, match=r"state.json: its rows are chosen by a file of indices"):
        read(tmp_path / "saved", part="train")


def test_files_of_a_part(tmp_path):
    for number, name in enumerate(("train-0-of-2", "train-1-of-2", "valid-0-of-1", "cache-test")):
        write_parquet(tmp_path / "data" / f"{name}.parquet", table([photo(number)], [[name]]))
    assert [s.caption for s in read(tmp_path, part="train").samples] == [
        "train-0-of-2",
        "train-1-of-2",
    ]
    assert [s.image_id for s in read(tmp_path, part="val").samples] == ["valid-0-of-1/0"]
    assert len(read(tmp_path)) == 3
    assert len(read(tmp_path, files="data/*{valid,1-of-2}*", part="test")) == 1 + 1
    with pytest.raises(
        FileNotFoundError,
        match=r"says \('test', 'testing', 'testimages'\) alone .*split_column= .*held_out=0.01",
    ):
        read(tmp_path, part="test")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        read(tmp_path / "other")
    write_arrow(tmp_path / "train.arrow", table([photo()], [["x"]]))
    with pytest.raises(ValueError, match=r"both .arrow and .parquet"):
        read(tmp_path, part="train")
    (tmp_path / "train.csv").touch()
    with pytest.raises(ValueError, match=r"train.csv: neither .arrow nor .parquet"):
        read(tmp_path, files="train.csv")


@pytest.mark.parametrize("convert", [False, True])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_column_says_the_split_of_each_row(tmp_path, kind, convert):
    said = ["train", "val", "restval", "test", "TRAIN"]
    content = table(PHOTOS, CAPTIONS).append_column("split", pa.array(said))
    file = WRITERS[kind](tmp_path / "root" / f"test-0.{kind}", content)
    options = {"split_column": "split", "convert": convert, "cache_folder": tmp_path / "cache"}
    train, test = (read(file.parent, part=part, **options) for part in ("train", "test"))
    assert [s.image_id for s in train.samples[::2]] == ["test-0/0", "test-0/2", "test-0/4"]
    assert load_rgb(test.samples[0].image_path).tobytes() == pixels(PHOTOS[3])
    assert len(read(file.parent, **options)) == 10
    with pytest.raises(ValueError, match=r"row 0: the split .*dog 0.* is none of train"):
        read(file.parent, part="val", split_column="captions")
    with pytest.raises(ValueError, match=r"no column 'fold'"):
        read(file.parent, part="val", split_column="fold")
    with pytest.raises(ValueError, match=r"set only one"):
        read(file.parent, part="val", split_column="split", held_out=0.1)


def test_one_set_is_divided(tmp_path):
    write_arrow(tmp_path / "all.arrow", table([b"x"] * 200, [["a"]] * 200))
    parts = [
        {s.image_id for s in read(tmp_path, part=part, held_out=0.2).samples}
        for part in ("train", "val", "test")
    ]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 200
    assert min(map(len, parts)) > 15


@pytest.mark.parametrize("kind", WRITERS)
def test_columns(tmp_path, kind):
    raw = [{"raw": f"raw {number}", "id": number} for number in range(5)]
    content = table(PHOTOS, CAPTIONS, sentences=[[r, r] for r in raw], one=list("abcde"), n=[1] * 5)
    content = content.append_column("flag", pa.array([True] * 5))
    file = WRITERS[kind](tmp_path / f"t.{kind}", content)

    def captions(*columns: str) -> list[str]:
        roster = read(tmp_path, caption_columns=list(columns))
        return [sample.caption for sample in roster.samples if sample.image_id == "t/2"]

    assert captions("one", "sentences.raw") == ["c", "raw 2", "raw 2"]
    assert captions("captions") == ["dog 2", "Dogs 2"]
    for settings, message in (
        ({}, r"\['captions', 'sentences'\] could be meant .*choose caption_columns="),
        ({"caption_columns": "capt"}, r"no column 'capt'; it has \['image', 'captions', 'sent"),
        ({"caption_columns": "one", "image_column": "flag"}, "'flag' holds bool, not photos"),
        ({"caption_columns": "one", "image_column": "n"}, "row 0: has captions and no photo '1'"),
        (
            {"caption_columns": "one", "id_column": "n"},
            "image id '1' is used twice, first at .*row 0",
        ),
        ({"caption_columns": "n"}, r"row 0: caption is not a text .*missing_captions=drop"),
        ({"caption_columns": "one", "id_column": "captions"}, "row 0: 'captions' must be an id"),
    ):
        with pytest.raises(ValueError, match=rf"{file}.*{message}"):
            read(tmp_path, **settings)
    assert [s.image_id for s in read(tmp_path, caption_columns="one", id_column="one").samples] == [
        *"abcde"
    ]


@pytest.mark.parametrize("kind", WRITERS)
def test_numbered_columns_are_all_read(tmp_path, kind):
    content = table(PHOTOS, CAPTIONS).drop(["captions"])
    for name in ("caption_0", "description", "caption_1"):
        content = content.append_column(name, pa.array([f"{name} of {n}" for n in range(5)]))
    WRITERS[kind](tmp_path / f"t.{kind}", content)
    assert [s.caption for s in read(tmp_path).samples[2:4]] == ["caption_0 of 1", "caption_1 of 1"]


@pytest.mark.parametrize("kind", WRITERS)
def test_photos_by_path_and_photos_that_are_not_there(tmp_path, kind):
    (tmp_path / "a.jpg").write_bytes(PHOTOS[0])
    images = [
        {"bytes": None, "path": "a.jpg"},
        {"bytes": PHOTOS[1], "path": None},
        {"bytes": None, "path": "none.jpg"},
        {"bytes": None, "path": None},
        None,
    ]
    content = pa.table({"image": images, "text": ["a", "b", "c", "d", None]})
    file = WRITERS[kind](tmp_path / f"t.{kind}", content)
    with pytest.raises(ValueError, match=r"row 2: has captions and no photo"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"row 4: photo without caption"):
        read(tmp_path, missing_photos="drop")
    roster = read(tmp_path, missing_photos="drop", missing_captions="drop")
    paths = [str(sample.image_path) for sample in roster.samples]
    assert paths == [f"{tmp_path}/a.jpg", f"{file}/@image/000000001.jpg"]
    assert [load_rgb(path).tobytes() for path in paths] == list(map(pixels, PHOTOS[:2]))
    assert len(roster.dropped) == 3
    content = pa.table({"image": ["a.jpg", "../a.jpg"], "text": ["a", "b"]})
    WRITERS[kind](file, content)
    with pytest.raises(ValueError, match=r"row 1: file name '../a.jpg' must not lead out"):
        read(tmp_path)


def test_bytes_alone_get_the_suffix_of_their_kind(tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "PNG")
    content = pa.table(
        {"png": pa.array([None, file.getvalue()], pa.large_binary()), "text": ["a", "b"]}
    )
    write_arrow(tmp_path / "t.arrow", content)
    sample = read(tmp_path, missing_photos="drop").samples[0]
    assert sample.image_path.name == "000000001.png"
    assert load_rgb(sample.image_path).getpixel((0, 0)) == (255, 0, 0)


def test_parquet_is_converted_once(tmp_path, monkeypatch):
    cache, file = tmp_path / "cache", tmp_path / "data" / "train.parquet"
    write_parquet(file, table(PHOTOS, CAPTIONS, other=[1] * 5))
    settings = {"part": "train", "convert": True, "cache_folder": cache}
    roster, plain = read(file.parent, **settings), read(file.parent, part="train")
    assert roster.fingerprint == plain.fingerprint
    for sample in roster.samples:
        place = Path(str(sample.image_path).partition("/@")[0])
        assert place.is_relative_to(cache)
        assert arrow_rows.open_table(str(place)).column_names == ["image", "captions"]
        packed = PHOTOS[int(sample.image_id.removeprefix("train/"))]
        assert load_rgb(sample.image_path).tobytes() == pixels(packed)
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.arrow")}
    assert read(file.parent, **settings) == roster
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.arrow")} == written
    with pytest.raises(ValueError, match="give cache_folder= or set convert=false"):
        read(file.parent, convert=True)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(OSError, match=r"Arrow files need 0.0 GB.*convert=false"):
        read(file.parent, **settings | {"cache_folder": tmp_path / "other"})


@pytest.mark.parametrize("kind", WRITERS)
def test_damage_ends_in_a_line_or_is_recorded(tmp_path, kind):
    file = tmp_path / f"train.{kind}"
    good = WRITERS[kind](file, table(PHOTOS, CAPTIONS)).read_bytes()
    num_read, lines = 0, []
    for seed in range(90):
        rng = np.random.default_rng(seed)
        data = bytearray(good if seed % 3 else damage_bytes(good, rng))
        if seed % 3:
            start = 0 if seed % 2 else len(data) - 1500
            for place in rng.integers(start, len(data), 3):
                data[place] = int(rng.integers(256))
        file.write_bytes(data)
        for kept in (arrow_rows._chunks, arrow_rows._group, arrow_rows._group_ends):
            kept.cache_clear()
        try:
            for sample in read(tmp_path, missing_photos="drop", missing_captions="drop").samples:
                photo_problem(sample.image_path)
            num_read += 1
        except ValueError as error:
            lines.append(str(error))
    assert num_read > 15
    assert len(lines) > 15
    assert all(line.startswith(str(tmp_path)) and "\n" not in line for line in lines)


def test_types_of_their_own_are_refused(tmp_path):
    content = table(PHOTOS, CAPTIONS)
    uuids = pa.array([bytes(16)] * 5, pa.uuid())
    write_arrow(tmp_path / "t.arrow", content.append_column("id", uuids))
    assert len(read(tmp_path)) == 10
    with pytest.raises(ValueError, match="column 'id' has a type of its own"):
        read(tmp_path, id_column="id")


def test_without_pyarrow_its_package_is_named(tmp_path, monkeypatch):
    write_arrow(tmp_path / "t.arrow", table(PHOTOS, CAPTIONS))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="extra 'arrow'"):
        read(tmp_path)


def test_a_split_file_is_json(tmp_path):
    write_arrow(tmp_path / "train" / "data.arrow", table(PHOTOS, CAPTIONS))
    (tmp_path / "train" / "state.json").write_text(json.dumps({"_data_files": [{"file": "x"}]}))
    with pytest.raises(ValueError, match=r"_data_files\[0\]: key 'filename' is missing"):
        read(tmp_path)
