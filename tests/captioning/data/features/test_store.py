"""The file format of the feature store: kills, full disks, damage."""

from __future__ import annotations

import copy
import errno
import json
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from captioning.data.features import writer as feature_writer
from captioning.data.features.index import FeatureIndex, load_index
from captioning.data.features.store import FeatureStore
from captioning.data.features.writer import FeatureWriter


def small_index(dim: int = 3) -> FeatureIndex:
    return FeatureIndex(identity="x", kind="imported", image_size=0, dim=dim)


@pytest.mark.parametrize("when", ["append", "commit"])
def test_full_disk_leaves_a_valid_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    rows = np.ones((2, 3), dtype=np.float16)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill() -> None:
        with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
            writer.append("a", rows)
            writer.commit()
            writer.append("b", rows * 2)
            if when == "commit":
                monkeypatch.setattr(feature_writer.os, "fsync", full)
                writer.commit()
            with feature_writer._explained(tmp_path):
                full()

    with pytest.raises(OSError, match="the disk is full; what was committed before is valid"):
        fill()
    store = FeatureStore.open(tmp_path)
    assert len(store) == 1
    assert (tmp_path / "features.bin").stat().st_size == 2 * 3 * 2


def test_files_that_cannot_be_closed_hide_no_full_disk(tmp_path: Path) -> None:
    def fill() -> None:
        with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
            writer._file.close()
            writer._file = Path("/dev/full").open("ab")  # noqa: SIM115 - closed by the writer
            writer.append("a", np.ones((2, 3), dtype=np.float16))
            writer.commit()

    with pytest.raises(OSError, match="the disk is full; what was") as told:
        fill()
    assert told.value.filename == str(tmp_path)


def test_rows_of_a_killed_run_are_cut_off(tmp_path: Path) -> None:
    with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
        writer.append("a", np.ones((1, 3), dtype=np.float16))
        writer.commit()
    with (tmp_path / "features.bin").open("ab") as file:
        file.write(b"torn")
    assert len(FeatureStore.open(tmp_path)) == 1
    with FeatureWriter(folder=tmp_path, index=load_index(tmp_path)) as writer:
        writer.append("b", np.full((2, 3), 5, dtype=np.float16))
        writer.commit()
    store = FeatureStore.open(tmp_path)
    features, mask = store.read(store.positions_of_ids(["b", "a"]))
    assert features[:, :, 0].tolist() == [[5, 5], [1, 0]]
    assert mask is not None
    assert mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("index.json", lambda data: data[: len(data) // 2]),
        ("index.json", lambda data: b"[]"),
        ("index.json", lambda data: data.replace(b'"format": 2', b'"format": 9')),
        ("index.json", lambda data: data.replace(b'"dim"', b'"dom"')),
        ("index.json", lambda data: data.replace(b'"dim": 3', b'"dim": 0')),
        ("records.log", lambda data: data.replace(b'"a"', b'"b"')),
        ("records.log", lambda data: data * 2),
        ("records.log", lambda data: b"no line at all\n"),
        ("features.bin", lambda data: data[:-1]),
    ],
)
def test_damaged_files_say_what_to_do(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    write(tmp_path, {"a": 1})
    path = tmp_path / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="build again"):
        FeatureStore.open(tmp_path)


def write(folder: Path, records: dict[str, int], **options: int) -> None:
    """A commit for each record; all its values are its number of rows."""
    index = load_index(folder) if (folder / "index.json").exists() else small_index()
    with FeatureWriter(folder=folder, index=index, **options) as writer:
        for key, count in records.items():
            writer.append(key, np.full((count, 3), count, dtype=np.float16))
            writer.commit()


@pytest.mark.parametrize("counts", [(2, 2, 2, 2, 2), (1, 4, 2, 3, 1)])
def test_shards_are_read_as_one_file(tmp_path: Path, counts: tuple[int, ...]) -> None:
    records = dict(zip("abcde", counts, strict=True))
    for folder, size in (("one", 2**30), ("many", 12)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, records, shard_bytes=size)
    one, many = (FeatureStore.open(tmp_path / folder) for folder in ("one", "many"))
    assert len(list((tmp_path / "many").glob("features*.bin"))) > 2
    positions = one.positions_of_ids(["d", "a", "e", "b", "c"])
    for whole, part in zip(one.read(positions), many.read(positions), strict=True):
        assert whole is part is None or torch.equal(whole, part)  # type: ignore[arg-type]
    write(tmp_path / "many", {"f": 5}, shard_bytes=12)
    assert len(many) == 5
    assert FeatureStore.open(tmp_path / "many").read([5])[0].tolist() == [[[5.0] * 3] * 5]
    assert copy.deepcopy(many).read([0])[0].shape == (1, counts[0], 3)


@pytest.mark.parametrize("shard_bytes", [12, 2**30])
def test_a_flipped_bit_is_noticed_when_it_is_read(tmp_path: Path, shard_bytes: int) -> None:
    write(tmp_path, {"a": 2, "b": 2, "c": 2}, shard_bytes=shard_bytes)
    path = tmp_path / ("features-0002.bin" if shard_bytes == 12 else "features.bin")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    store = FeatureStore.open(tmp_path)
    store.read([0, 1])
    for _ in range(2):
        with pytest.raises(ValueError, match="features of c differ from their checksum"):
            store.read([1, 2])


def test_a_flipped_box_is_noticed(tmp_path: Path) -> None:
    index = small_index()
    index.has_boxes = True
    rows, boxes = np.ones((2, 3), dtype=np.float16), np.ones((2, 4), dtype=np.float32)
    with FeatureWriter(folder=tmp_path, index=index) as writer:
        writer.append("a", rows, boxes=boxes)
        with pytest.raises(ValueError, match="either all records"):
            writer.append("b", rows)
        with pytest.raises(ValueError, match="boxes must be"):
            writer.append("b", rows, boxes=boxes[:1])
        writer.commit()
    assert FeatureStore.open(tmp_path).read_boxes([0]).tolist() == [[[1.0] * 4] * 2]
    (tmp_path / "boxes.bin").write_bytes(b"\0" * 32)
    with pytest.raises(ValueError, match="features of a differ"):
        FeatureStore.open(tmp_path).read([0])
    (tmp_path / "boxes.bin").write_bytes(b"\0" * 31)
    with pytest.raises(ValueError, match=r"boxes\.bin: holds 31 bytes"):
        FeatureStore.open(tmp_path)


def test_a_torn_line_of_the_log_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"a": 2, "b": 1})
    whole = (tmp_path / "records.log").read_bytes()
    for size in range(whole.index(b"\n") + 1, len(whole)):
        (tmp_path / "records.log").write_bytes(whole[:size])
        assert len(FeatureStore.open(tmp_path)) == 1
    write(tmp_path, {"b": 1})
    assert (tmp_path / "records.log").read_bytes() == whole
    assert (tmp_path / "features.bin").stat().st_size == 3 * 3 * 2


def write_format_1(folder: Path, rows: np.ndarray) -> None:
    """As the first versions wrote it."""
    rows.astype(np.float16).tofile(folder / "features.bin")
    index = {"format": 1, "identity": "x", "kind": "imported", "image_size": 0, "dim": 3}
    content = {**index, "records": {"a": [0, 2], "b": [2, 1]}, "paths": {"/p": [1, 2, "sha"]}}
    (folder / "index.json").write_text(json.dumps(content))


def test_stores_of_the_first_format_are_read_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_format_1(tmp_path, np.arange(1, 10).reshape(3, 3))
    store = FeatureStore.open(tmp_path)
    assert store.read(store.positions_of_ids(["b"]))[0].tolist() == [[[7, 8, 9]]]
    assert not store.has_boxes
    with monkeypatch.context() as patch:
        patch.setattr(FeatureIndex, "save_header", stop)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, {"c": 1})
    assert len(FeatureStore.open(tmp_path)) == 2
    write(tmp_path, {"c": 1})
    assert json.loads((tmp_path / "index.json").read_text())["format"] == 2
    store = FeatureStore.open(tmp_path)
    features, _ = store.read(store.positions_of_ids(["c", "a"]))
    assert features.tolist() == [[[1, 1, 1], [0, 0, 0]], [[1, 2, 3], [4, 5, 6]]]
    assert load_index(tmp_path).paths == {"/p": (1, 2, "sha")}


def stop(*_: object) -> None:
    """A kill in the middle of it."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("value", [0, np.nan])
def test_an_old_store_without_values_is_damaged(tmp_path: Path, value: float) -> None:
    write_format_1(tmp_path, np.full((3, 3), value))
    with pytest.raises(ValueError, match="features of b differ"):
        FeatureStore.open(tmp_path).read([1])


def test_wrong_records_and_questions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="captioning prepare"):
        FeatureStore.open(tmp_path / "nothing")
    with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
        with pytest.raises(ValueError, match="must have 3 values: got 4"):
            writer.append("a", np.ones((1, 4), dtype=np.float16))
        with pytest.raises(ValueError, match="float16"):
            writer.append("a", np.ones((1, 3), dtype=np.float32))
        writer.append("a", np.ones((1, 3), dtype=np.float16))
        writer.commit()
    store = FeatureStore.open(tmp_path)
    with pytest.raises(ValueError, match="positions_of_ids"):
        store.positions(["a.jpg"])
    with pytest.raises(ValueError, match="no features for 1 of 2 images.*such as b"):
        store.positions_of_ids(["a", "b"])


def test_all_records_can_be_verified(tmp_path: Path) -> None:
    with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
        for number, name in enumerate("abcd"):
            writer.append(name, np.full((1 + number, 3), number + 1, dtype=np.float16))
        writer.commit()
    store = FeatureStore.open(tmp_path)
    store.verify()
    store.read(store.positions_of_ids(["b"]))  # what was read is verified again
    content = bytearray((tmp_path / "features.bin").read_bytes())
    content[6] ^= 1
    content[-1] ^= 1
    (tmp_path / "features.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"2 of 4 records .* such as b, d; copy the"):
        FeatureStore.open(tmp_path).verify()


def test_a_limit_of_file_sizes_names_the_folder(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
        writer.append("a", np.ones((1, 3), dtype=np.float16))
        writer.commit()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            told = rf"features cannot be written .*: .{tmp_path}"
            with pytest.raises(OSError, match=told):
                writer.append("b", np.ones((9000, 3), dtype=np.float16))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(FeatureStore.open(tmp_path)) == 1
