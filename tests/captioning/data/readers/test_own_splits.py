"""``data=own``: where the splits of one's own photos come from, and where the photos lie."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from captioning.data.readers.own.own import own_splits, read_own
from captioning.data.readers.webdataset import read_webdataset
from captioning.data.roster import Roster
from tests.packed_files import photo, table, write_arrow, write_parquet, write_tar

PARTS = ("train", "val", "test")


def photos(folder: Path, names: Sequence[str], first: int = 0) -> None:
    for number, name in enumerate(names, start=first):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(photo(number))


def write_csv(path: Path, names: Sequence[str], word: str = "Dog") -> None:
    rows = [f"{name},{word} {number} runs." for number, name in enumerate(names)]
    path.write_text("\n".join(["image,caption", *rows]))


def write_coco(path: Path, names: Sequence[str]) -> None:
    images = [{"id": n, "file_name": name} for n, name in enumerate(names)]
    notes = [{"id": n, "image_id": n, "caption": f"Dog {n}."} for n in range(len(names))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "annotations": notes}))


def parts_of(folder: Path, **settings) -> dict[str, Roster]:
    return {part: read_own(name=part, folder=folder, part=part, **settings) for part in PARTS}


def paths_of(roster: Roster, folder: Path) -> list[str]:
    places = (sample.image_path.relative_to(folder).as_posix() for sample in roster.samples)
    return sorted(dict.fromkeys(places))


NAMES = [f"p{number}.jpg" for number in range(6)]


@pytest.mark.parametrize("place", ["{}/images", "images/{}", "{}", "data/{}/photos"])
def test_photos_of_the_same_names_are_those_of_their_split(tmp_path, caplog, place):
    caplog.set_level(logging.INFO)
    for number, split in enumerate(("train", "valid", "test")):
        photos(tmp_path / place.format(split), NAMES, 10 * number)
        write_csv(tmp_path / f"captions_{split}.csv", NAMES, split)
    for part, roster in parts_of(tmp_path).items():
        folder = place.format({"val": "valid"}.get(part, part))
        assert paths_of(roster, tmp_path) == [f"{folder}/{name}" for name in NAMES]
        assert f"{part}: photos in {folder} (the setting image_folder names another)" in caplog.text


def test_a_folder_of_another_split_does_not_count_though_it_has_more_photos(tmp_path):
    photos(tmp_path / "train", NAMES[:4])
    photos(tmp_path / "test", NAMES, 10)
    for split in ("train", "test"):
        write_csv(tmp_path / f"captions_{split}.csv", NAMES)
    roster = read_own(name="t", folder=tmp_path, part="train", missing_photos="drop", held_out=0.2)
    assert all(path.startswith("train/") for path in paths_of(roster, tmp_path))


def test_several_folders_of_the_same_names_are_asked_about(tmp_path):
    for number, kind in enumerate(("rgb", "depth")):
        photos(tmp_path / kind, NAMES, 10 * number)
    write_csv(tmp_path / "captions.csv", NAMES)
    with pytest.raises(ValueError, match=r"\['depth', 'rgb'\] all have .*'p0.jpg'.*image_folder="):
        read_own(name="o", folder=tmp_path)
    roster = read_own(name="o", folder=tmp_path, image_folder="rgb")
    assert paths_of(roster, tmp_path)[0] == "rgb/p0.jpg"


@pytest.mark.parametrize("splits", [["val2017"], ["test"], ["val", "test"]])
def test_without_training_photos_no_photo_is_in_two_parts(tmp_path, caplog, splits):
    caplog.set_level(logging.INFO)
    names = []
    for split in splits:
        names += [f"{split}/{number}.jpg" for number in range(10)]
        photos(tmp_path / split, [f"{number}.jpg" for number in range(10)], len(names))
        write_coco(tmp_path / f"captions_{split}.json", [f"{number}.jpg" for number in range(10)])
    rosters = parts_of(tmp_path)
    found = [path for roster in rosters.values() for path in paths_of(roster, tmp_path)]
    assert sorted(found) == sorted(names)
    assert len(rosters["val"].rows_by_image) == len(rosters["test"].rows_by_image) == len(splits)
    for part in PARTS:
        assert f"{part}: photos in" in caplog.text
    assert caplog.text.count("no training photos: all are split again, 10% for val and 10%") == 3
    assert len(read_own(name="a", folder=tmp_path).rows_by_image) == len(names)


def of_packed(root: Path, suffix: str, *names: str) -> None:
    content = table([photo(n) for n in range(4)], [[f"Dog {n}."] for n in range(4)])
    for number, name in enumerate(names):
        if suffix == "tar":
            write_tar(root / f"{name}.tar", {f"{name}.jpg": photo(number), f"{name}.txt": b"Dog."})
        else:
            write = {"arrow": write_arrow, "parquet": write_parquet}[suffix]
            write(root / f"{name}.{suffix}", content.slice(number, 1))


@pytest.mark.parametrize("suffix", ["arrow", "parquet", "tar"])
def test_results_beside_packed_files_are_not_theirs(tmp_path, suffix):
    others = ["tmp12ab"] if suffix == "tar" else ["tmp12ab", "cache-0a1b"]
    of_packed(tmp_path, suffix, "train", "validation", "test", *others)
    assert [len(roster) for roster in parts_of(tmp_path).values()] == [1, 1, 1]
    of_packed(tmp_path, suffix, "embeddings", "more")
    with pytest.raises(ValueError, match=r"\['embed.*, 'more.*'\] do not say .*train, val, test"):
        read_own(name="o", folder=tmp_path)


def with_column(said: Sequence[str | None]) -> pa.Table:
    content = table([photo(n) for n in range(len(said))], [[f"Dog {n}."] for n in range(len(said))])
    return content.append_column("split", pa.array(said))


@pytest.mark.parametrize("file", ["all.parquet", "test-00000.parquet", "test-00000.arrow"])
def test_a_column_of_packed_files_says_the_split(tmp_path, file):
    write = write_arrow if file.endswith("arrow") else write_parquet
    said = ["train", "val", "restval", "test", "train"]
    write(tmp_path / file, with_column(said))
    parts = parts_of(tmp_path)
    rows = {part: [int(s.caption[4]) for s in roster.samples] for part, roster in parts.items()}
    assert rows == {"train": [0, 2, 4], "val": [1], "test": [3]}
    assert len(read_own(name="all", folder=tmp_path, part="all")) == 5


def test_names_of_packed_files_go_before_a_column(tmp_path):
    write_parquet(tmp_path / "train-0.parquet", with_column(["train", "val", "test"]))
    write_parquet(tmp_path / "validation-0.parquet", with_column(["train"]))
    parts = parts_of(tmp_path)
    assert len(parts["val"]) == 1
    assert len(parts["train"]) + len(parts["test"]) == 3
    other = tmp_path / "other"
    write_parquet(other / "all.parquet", with_column(["easy", "hard", "hard", "train"]))
    assert {part: len(roster) for part, roster in parts_of(other).items()} == {
        "train": 2, "val": 1, "test": 1,
    }  # fmt: skip


def test_a_row_without_a_split_is_not_divided_at_random(tmp_path):
    for number, empty in enumerate((None, "")):
        root = tmp_path / str(number)
        write_parquet(root / "all.parquet", with_column(["train", empty, "test"]))
        with pytest.raises(ValueError, match=r"some rows have no value in the column 'split', oth"):
            read_own(name="o", folder=root)


def test_arrow_and_parquet_of_one_split_are_refused(tmp_path):
    of_packed(tmp_path, "arrow", "train")
    of_packed(tmp_path, "parquet", "train", "test")
    with pytest.raises(
        ValueError, match=r"both .arrow and .parquet .*'?train.arrow and train.parq"
    ):
        read_own(name="o", folder=tmp_path, part="train")


SPLIT_OF = dict(
    zip(NAMES, ("train", "Training", "train", "dev", "validation", "test"), strict=True)
)


@pytest.mark.parametrize("layout", ["metadata.csv", "all.csv", "metadata.jsonl", "all.jsonl"])
def test_a_column_says_the_split(tmp_path, caplog, layout):
    caplog.set_level(logging.INFO)
    photos(tmp_path, NAMES)
    name = "file_name" if "metadata" in layout else "image"
    rows = [{name: file, "caption": "A dog.", "split": split} for file, split in SPLIT_OF.items()]
    lines = [",".join(row.values()) for row in (dict(zip(rows[0], rows[0], strict=True)), *rows)]
    lines = lines if layout.endswith(".csv") else list(map(json.dumps, rows))
    (tmp_path / layout).write_text("\n".join(lines))
    found = [paths_of(roster, tmp_path) for roster in parts_of(tmp_path).values()]
    assert found == [NAMES[:3], NAMES[3:5], NAMES[5:]]
    assert "train: splits: train, val, test" in caplog.text
    assert len(read_own(name="all", folder=tmp_path)) == len(NAMES)
    (tmp_path / layout).write_text("\n".join(lines).replace("dev", "fold3"))
    with pytest.raises(ValueError, match=rf"{layout}:\d: the split 'fold3' is none of train.*"):
        read_own(name="o", folder=tmp_path, part="train")


def _said_of(root: Path, layout: str, column: str) -> None:
    """A set whose splits a column says; ``beside``: JSON beside photos."""
    photos(root, [] if layout == "all.parquet" else NAMES)
    rows = [{"image": n, "caption": "A dog.", column: split} for n, split in SPLIT_OF.items()]
    if layout == "coco.json":
        write_coco(root / layout, NAMES)
        value = json.loads((root / layout).read_text())
        images = [{**i, column: SPLIT_OF[i["file_name"]]} for i in value["images"]]
        (root / layout).write_text(json.dumps({**value, "images": images}))
    elif layout == "beside":
        for row in rows:
            (root / row["image"]).with_suffix(".json").write_text(json.dumps(row))
    elif layout == "all.parquet":
        content = table([photo(n) for n in range(len(NAMES))], [["A dog."] for _ in NAMES])
        said = pa.array(list(SPLIT_OF.values()))
        write_parquet(root / layout, content.append_column(column, said))
    elif layout == "all.csv":
        lines = [",".join(row.values()) for row in ({k: k for k in rows[0]}, *rows)]
        (root / layout).write_text("\n".join(lines))
    else:
        (root / layout).write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("column", ["split", "Split", "subset", "Data set"])
@pytest.mark.parametrize("layout", ["all.csv", "all.jsonl", "coco.json", "all.parquet", "beside"])
def test_a_column_of_any_name_says_the_split_by_its_words(tmp_path, layout, column):
    _said_of(tmp_path, layout, column)
    found = own_splits(tmp_path)
    assert [found[path] for path in sorted(found)] == [*["train"] * 3, *["val"] * 2, "test"]


def test_columns_of_words_of_splits_that_differ_are_refused(tmp_path):
    photos(tmp_path, NAMES)
    rows = [
        ",".join((name, "A dog.", *sets))
        for name, *sets in zip(NAMES, SPLIT_OF.values(), reversed(SPLIT_OF.values()), strict=True)
    ]
    (tmp_path / "all.csv").write_text("\n".join(["image,caption,one,other", *rows]))
    with pytest.raises(ValueError, match=r"\['one', 'other'\] say different splits; call the one "):
        read_own(name="o", folder=tmp_path, part="test")
    (tmp_path / "all.csv").write_text("\n".join(["image,caption,split,other", *rows]))
    assert paths_of(read_own(name="o", folder=tmp_path, part="test"), tmp_path) == NAMES[5:]
    plain = [row.replace("dev", "easy").replace("validation", "hard") for row in rows]
    (tmp_path / "all.csv").write_text("\n".join(["image,caption,one,other", *plain]))
    assert own_splits(tmp_path) == {}  # of other words, too


def test_a_photo_of_two_splits_is_refused(tmp_path):
    photos(tmp_path, NAMES)
    rows = ["image,caption,split", "p0.jpg,A dog.,train", "p0.jpg,A cat.,test"]
    (tmp_path / "all.csv").write_text("\n".join(rows))
    with pytest.raises(ValueError, match=r"all.csv:3: 'p0.jpg' is of test here and of train above"):
        read_own(name="o", folder=tmp_path, part="test")


@pytest.mark.parametrize("kind", ["csv", "coco"])
def test_folders_in_names_say_the_split(tmp_path, caplog, kind):
    names = [f"{split}/{number}.jpg" for split in ("train", "test") for number in range(4)]
    photos(tmp_path, names)
    write = write_csv if kind == "csv" else write_coco
    write(tmp_path / ("all.csv" if kind == "csv" else "all.json"), names)
    rosters = parts_of(tmp_path)
    assert paths_of(rosters["test"], tmp_path) == sorted(names[4:])
    parted = paths_of(rosters["train"], tmp_path) + paths_of(rosters["val"], tmp_path)
    assert sorted(parted) == sorted(names[:4])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    photos(tmp_path, ["more/a.jpg"])
    write(tmp_path / ("all.csv" if kind == "csv" else "all.json"), [*names, "more/a.jpg"])
    found = [path for roster in parts_of(tmp_path).values() for path in paths_of(roster, tmp_path)]
    assert sorted(found) == sorted([*names, "more/a.jpg"])
    assert (
        "folders of 8 photos name the splits train, test, but those of 1 name none" in caplog.text
    )


def test_two_files_of_one_split_are_joined_or_refused(tmp_path):
    photos(tmp_path, NAMES)
    write_csv(tmp_path / "train_a.csv", NAMES[:3])
    write_csv(tmp_path / "train_b.csv", NAMES[3:])
    assert len(read_own(name="o", folder=tmp_path)) == len(NAMES)
    write_csv(tmp_path / "train_b.csv", NAMES[2:])
    with pytest.raises(ValueError, match=r"p2.jpg: has captions in train_a and in train_b; choose"):
        read_own(name="o", folder=tmp_path)


@pytest.mark.parametrize("kind", ["text_files", "imagefolder"])
def test_a_folder_without_split_beside_others_is_refused(tmp_path, kind):
    for split in ("train", "test", "more"):
        photos(tmp_path / split, NAMES)
        if kind == "text_files":
            for name in NAMES:
                (tmp_path / split / name).with_suffix(".txt").write_text("A dog.")
        else:
            write_csv(tmp_path / split / "metadata.csv", NAMES)
            path = tmp_path / split / "metadata.csv"
            path.write_text(path.read_text().replace("image", "file_name"))
    with pytest.raises(ValueError, match=r"\['more'\] do not say .* others there say train, test"):
        read_own(name="o", folder=tmp_path)


def below(folder: Path, write: Callable[[Path, Sequence[str]], None], name: str) -> None:
    """Folders of splits, each with its photos and a file of captions."""
    for number, split in enumerate(("train", "valid", "test")):
        names = [f"images/{n}.jpg" for n in range(3 - number)]
        photos(folder / split, names, first=10 * number)
        write(folder / split / name, names)


@pytest.mark.parametrize(
    ("write", "name", "kind"),
    [(write_csv, "captions.csv", "table"), (write_coco, "annotations.coco.json", "coco")],
)
def test_folders_of_splits_may_each_have_a_file_of_captions(tmp_path, write, name, kind):
    below(tmp_path, write, name)
    (tmp_path / "README.txt").write_text("Photos of dogs.\nWith captions.\n")
    parts = parts_of(tmp_path)
    assert {part: len(roster) for part, roster in parts.items()} == {
        "train": 3,
        "val": 2,
        "test": 1,
    }
    for part, folder in (("train", "train"), ("val", "valid"), ("test", "test")):
        for sample in parts[part].samples:
            assert sample.image_path.is_relative_to(tmp_path / folder / "images")
    assert len(read_own(name="all", folder=tmp_path, part="all")) == 6
    photos(tmp_path, ["a.jpg"])
    write_csv(tmp_path / "captions.csv", ["a.jpg", "train/images/0.jpg", "test/images/0.jpg"])
    assert len(read_own(name="all", folder=tmp_path, part="all")) == 3, "a file above goes first"


def write_shard(path: Path, splits: Sequence[str]) -> None:
    members = {}
    for number, split in enumerate(splits):
        about = {"caption": f"Dog {number}.", **({"split": split} if split else {})}
        members |= {f"{number}.jpg": photo(number), f"{number}.json": json.dumps(about).encode()}
    write_tar(path, members)


def test_splits_in_json_of_shards(tmp_path, caplog):
    write_shard(tmp_path / "0000.tar", ["train", "restval", "val", "test"])
    sizes = {part: len(roster) for part, roster in parts_of(tmp_path).items()}
    assert sizes == {"train": 2, "val": 1, "test": 1}
    assert sorted(own_splits(tmp_path).values()) == ["test", "train", "train", "val"]
    read_webdataset(name="w", folder=tmp_path)
    assert "the key 'split' in the shards' JSON is ignored; data=own" in caplog.text


def test_splits_in_json_of_shards_that_cannot_be_used_are_said(tmp_path, caplog):
    write_shard(tmp_path / "0000.tar", ["train", "val", "fold 3", "test"])
    assert not own_splits(tmp_path)
    assert "says 'fold 3', which is none of train, val and test: it is not used" in caplog.text
    write_shard(tmp_path / "0000.tar", ["train", "val", "", "test"])
    with pytest.raises(ValueError, match=r"JSON of '2': the split '' is none of train"):
        own_splits(tmp_path)
    (tmp_path / "0000.tar").unlink()
    write_shard(tmp_path / "train-0000.tar", ["train", "val", "train", "test"])
    assert set(own_splits(tmp_path).values()) == {"train"}
    assert "names of shards say train; the key 'split'" in caplog.text
    assert "says otherwise of 2 photos, such as 'val', and is not used" in caplog.text
