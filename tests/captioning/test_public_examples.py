"""Every public name has a docstring with an example that runs as written."""

from __future__ import annotations

import doctest
import inspect
import json
import re
from pathlib import Path

import pytest

import captioning
from captioning.miniworld.dataset import read_miniworld

NUM_PHOTOS = 12
FINDER = doctest.DocTestFinder(recurse=False)


class Checker(doctest.OutputChecker):
    """Lets an example that shows no output print its progress."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``my_photos``: photos and ``metadata.jsonl``; examples share what they make."""
    folder = tmp_path_factory.mktemp("examples")
    photos = folder / "my_photos"
    photos.mkdir()
    scenes = {"name": "scenes", "folder": folder / "drawn", "split": "train", "size": 64}
    roster = read_miniworld(**scenes, num_scenes=NUM_PHOTOS)
    lines = []
    for rows in roster.rows_by_image.values():
        samples = [roster.samples[row] for row in rows]
        drawn = samples[0].image_path
        (photos / drawn.name).write_bytes(drawn.read_bytes())
        captions = [sample.caption for sample in samples]
        lines.append(json.dumps({"file_name": drawn.name, "captions": captions}) + "\n")
    (photos / "metadata.jsonl").write_text("".join(lines), "utf-8")
    return folder


def examples_of(name: str) -> doctest.DocTest:
    (found,) = FINDER.find(getattr(captioning, name), name, globs={})
    return found


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", captioning.__all__)
def test_an_example_runs(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    test = examples_of(name)
    assert any(example.want for example in test.examples), f"{name}: no example with a result"
    runner = doctest.DocTestRunner(Checker(), verbose=False)
    told: list[str] = []
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)


@pytest.mark.parametrize("name", captioning.__all__)
def test_arguments_fields_and_errors_are_documented(name: str) -> None:
    public = getattr(captioning, name)
    text = inspect.getdoc(public) or ""
    if inspect.isfunction(public):
        assert "\nRaises:\n" in text
        named = inspect.signature(public).parameters
    else:
        named = getattr(public, "__dataclass_fields__", {})
    heads = re.findall(r"^ {4}([\w*, ]+):", text, re.MULTILINE)
    documented = re.findall(r"\w+", " ".join(heads))
    assert [name for name in named if name not in documented] == []


def test_an_example_that_fails_is_noticed() -> None:
    parsed = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "x", None, None)
    told: list[str] = []
    assert doctest.DocTestRunner(Checker()).run(parsed, out=told.append).failed == 1
