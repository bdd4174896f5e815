"""Files that appear whole or not at all."""

from __future__ import annotations

import errno

import pytest

from captioning.runtime.files import read_json, write_atomically, write_json, write_lines


def test_written_values_are_read_again(tmp_path) -> None:
    path = tmp_path / "deep" / "er" / "a.json"
    write_json(path, {"ü": [1, None, "x"]})
    assert read_json(path) == {"ü": [1, None, "x"]}
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]


def test_lines_get_their_ends(tmp_path) -> None:
    write_lines(tmp_path / "a.txt", ["one", "two"])
    assert (tmp_path / "a.txt").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyError("x")])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, error) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(part) -> None:
        part.write_text("half")
        raise error

    with pytest.raises(type(error), match="free space" if isinstance(error, OSError) else "x"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_numbers_that_json_lacks_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", float("nan"))
    assert not list(tmp_path.iterdir())


def test_missing_and_broken_files_are_named(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json is not valid JSON"):
        read_json(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"bad\.json must hold an object {...}: got \[1\]"):
        read_json(tmp_path / "bad.json", dict)
