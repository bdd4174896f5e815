"""The file format of the feature store: kills, full disks, damage."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from captioning.data.features import store as feature_store
from captioning.data.features.store import FeatureIndex, FeatureStore, FeatureWriter


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
                monkeypatch.setattr(feature_store.os, "fsync", full)
                writer.commit()
            with feature_store._explained(tmp_path):
                full()

    with pytest.raises(OSError, match="the disk is full; what was committed before is valid"):
        fill()
    store = FeatureStore.open(tmp_path)
    assert len(store) == 1
    assert (tmp_path / "features.bin").stat().st_size == 2 * 3 * 2


def test_rows_of_a_killed_run_are_cut_off(tmp_path: Path) -> None:
    with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
        writer.append("a", np.ones((1, 3), dtype=np.float16))
        writer.commit()
    with (tmp_path / "features.bin").open("ab") as file:
        file.write(b"torn")
    assert len(FeatureStore.open(tmp_path)) == 1
    with FeatureWriter(folder=tmp_path, index=feature_store.load_index(tmp_path)) as writer:
        writer.append("b", np.full((2, 3), 5, dtype=np.float16))
        writer.commit()
    store = FeatureStore.open(tmp_path)
    features, mask = store.read(store.positions_of_ids(["b", "a"]))
    assert features[:, :, 0].tolist() == [[5, 5], [1, 0]]
    assert mask is not None
    assert mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"format": 1', '"format": 9'),
        lambda text: text.replace('"dim"', '"dom"'),
        lambda text: text.replace('"a": [0, 1]', '"a": [1, 1]'),
        lambda text: text.replace('"a": [0, 1]', '"a": [0, 99]'),
        lambda text: text.replace('"a": [0, 1]', '"a": "zero"'),
    ],
)
def test_damaged_index_says_what_to_do(tmp_path: Path, damage: Callable[[str], str]) -> None:
    with FeatureWriter(folder=tmp_path, index=small_index()) as writer:
        writer.append("a", np.ones((1, 3), dtype=np.float16))
        writer.commit()
    path = tmp_path / "index.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match="build anew"):
        FeatureStore.open(tmp_path)


def test_wrong_records_and_questions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="captioning.prepare"):
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
