"""LMDB read without its library, against the library that wrote it."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.data.features.formats import open_lmdb
from tests.captioning.data.damage import NUM_FILES


def write(path: Path, number: int) -> dict[bytes, bytes]:
    """Values from none to several pages; some entries deleted and written anew."""
    draw = random.Random(number)
    entries = {
        f"key{draw.randrange(10**9)}".encode(): draw.randbytes(draw.choice([0, 9, 2000, 9000]))
        for _ in range(number)
    }
    with lmdb.open(str(path), map_size=2**26, subdir=False, lock=False) as environment:
        for start in range(0, number, 100):
            with environment.begin(write=True) as transaction:
                for key in list(entries)[start : start + 100]:
                    transaction.put(key, b"old" * 900)
        with environment.begin(write=True) as transaction:
            for key, value in entries.items():
                transaction.delete(key)
                transaction.put(key, value)
    return entries


@pytest.mark.parametrize("number", [0, 1, 3, 700])
def test_entries_are_those_that_the_library_wrote(tmp_path: Path, number: int) -> None:
    entries = write(tmp_path / "data.mdb", number)
    with open_lmdb(tmp_path / "data.mdb") as file:
        assert file.num_entries == len(entries)
        assert list(file.entries()) == sorted(entries.items())


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content, message in (
        (b"", "is an empty file"),
        (b"x" * 9000, "is not an LMDB of version 0.9"),
    ):
        (tmp_path / "data.mdb").write_bytes(content)
        with pytest.raises(ValueError, match=message), open_lmdb(tmp_path / "data.mdb"):
            pass


@pytest.mark.long
@settings(max_examples=NUM_FILES)
@given(data=st.data())
def test_damage_ends_in_an_error_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.mdb"
    if not path.exists():
        write(path, 60)
        path.with_suffix(".whole").write_bytes(path.read_bytes())
    content = bytearray(path.with_suffix(".whole").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        page = 4096 * data.draw(st.integers(0, len(content) // 4096 - 1))
        content[page + data.draw(st.integers(0, 63))] = data.draw(st.integers(0, 255))
    path.with_suffix(".damaged").write_bytes(content)
    message = str(path)
    try:
        with open_lmdb(path.with_suffix(".damaged")) as file:
            assert all(isinstance(value, bytes) for _, value in file.entries())
    except ValueError as error:
        message = str(error)
    assert str(path.with_suffix("")) in message
