"""What errors of bad input hold: kind, place, problem and remedy, for every reader and command.

A row a reader or command is enough here: the branches of each have their tests beside it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from captioning.commands.main import COMMANDS, main
from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError
from tests.captioning.commands.test_first_look import AT_ONCE
from tests.conftest import REPOSITORY

DATA = REPOSITORY / "captioning" / "data"


class Row(NamedTuple):
    """Bad input of a reader, and its error.

    Attributes:
        reader: module below ``captioning.data.readers`` and function.
        files: contents by name; what is no text is written as JSON.
        arguments: of the reader; texts with a suffix or ``"."`` are places below the folder.
        kind: of the error.
        place: below the folder, where the problem is.
        problem: a part of it.
        remedy: a part of it, or the setting that it names.
    """

    reader: str
    files: Mapping[str, Any]
    arguments: Mapping[str, Any]
    kind: type[SettingError] | type[SettingNotFoundError]
    place: str
    problem: str
    remedy: str | Setting


def _images(**keys: Any) -> dict[str, Any]:
    return {"a.json": {"images": [{"id": 1, "file_name": "a.jpg"} | keys], "annotations": []}}


BAD, LOST = SettingError, SettingNotFoundError
JSON = {"annotations": "a.json", "image_folder": None}
LINES = {"annotations": "a.jsonl", "image_folder": None}
DOG = {"image": "a.jpg", "caption": "A dog."}
REGION = {"box": [0, 0, 3, 0], "label": "dog"}
ROWS = [
    Row("arrow.read_arrow", {}, {"folder": "no.where"}, LOST, "no.where", "no such folder",
        Setting("folder")),
    Row("caption_lines.read_caption_lines", {"a.txt": " "}, {"path": "a.txt"}, BAD, "a.txt",
        "holds no caption", "write one a line"),
    Row("coco.read_coco", _images(file_name=None), JSON, BAD, "a.json: images[0]",
        "'file_name' is null", "give it a value"),
    Row("coco.read_coco", _images(), JSON, BAD, "a.json: images[0]", "image '1' has no caption",
        Setting("missing_captions", "drop")),
    Row("coco.read_coco", {"a.json": "{"}, JSON, BAD, "a.json", "not JSON at line 1",
        "is the file truncated?"),
    Row("coco_entities.read_coco_entities", {"a.json": {"a": {"A": {"split": "test"}}}},
        {**JSON, "split": "test"}, BAD, "a.json: 'a'", "must be COCO's numbers", "get the file"),
    Row("flickr30k_entities.read_flickr30k_entities", {},
        {"annotations": "a.zip", "image_folder": None}, LOST, "a.zip", "no such zip or folder",
        "annotations.zip of Flickr30k Entities"),
    Row("flickr8k.read_flickr8k", {"a.txt": "a.jpg A dog."},
        {"token_file": "a.txt", "image_folder": None}, BAD, "a.txt:1", "must be 'NAME.jpg#K'",
        "is the line cut or the tab lost?"),
    Row("imagefolder.read_imagefolder", {"metadata.csv": "", "metadata.jsonl": ""},
        {"folder": "."}, BAD, "", "has both metadata.jsonl and metadata.csv", "keep one"),
    Row("jsonl.read_jsonl", {"a.jsonl": DOG | {"caption": " "}}, LINES, BAD,
        "a.jsonl:1: 'caption'", "the caption is empty", Setting("bad_captions", "drop")),
    Row("jsonl.read_jsonl", {"a.jsonl": {"caption": "A dog."}}, LINES, BAD, "a.jsonl:1",
        "", Setting("missing_photos", "drop")),
    Row("jsonl.read_jsonl", {"a.jsonl": DOG | {"captions": []}}, LINES, BAD, "a.jsonl:1",
        "needs exactly one of the keys", Setting("caption_columns")),
    Row("jsonl.read_jsonl", {"a.jsonl": DOG}, {**LINES, "image_folder": "."}, BAD, "a.jsonl:1",
        "no photo 'a.jpg' in", Setting("missing_photos", "drop")),
    Row("jsonl.read_jsonl", {"a.jsonl": DOG}, {**LINES, "image_folder": "no.where"}, LOST,
        "no.where", "no such photo folder", Setting("image_folder", "null")),
    Row("jsonl.read_jsonl", {"a.jsonl": DOG | {"image": "../a.jpg"}}, LINES, BAD, "a.jsonl:1",
        "file name '../a.jpg' must not lead out", "name a file in the folder"),
    Row("jsonl.read_jsonl", {"a.jsonl": DOG | {"regions": [REGION]}}, LINES, BAD,
        "a.jsonl:1: regions[0]", "box (0, 0, 3, 0) has no area", "it must be x1 < x2"),
    Row("jsonl.read_jsonl", {"a.jsonl": b"\xff"}, LINES, BAD, "a.jsonl", "line 1: not UTF-8",
        "save the file as UTF-8"),
    Row("karpathy.read_karpathy", {"a.json": {"images": [{"split": "tran"}]}},
        {**JSON, "split": "train"}, BAD, "a.json: images[0]", "'split' must be one of",
        "correct it"),
    Row("line_pairs.read_line_pairs", {"a.txt": "a.jpg\nb.jpg", "a.en": "A dog."},
        {"photos": "a.txt", "texts": ["a.en"], "image_folder": None}, BAD, "a.en",
        "1 lines for the 2 photos", "give each photo its line"),
    Row("nocaps.read_nocaps", _images(domain="mid-domain"), {**JSON, "domain": "in"}, BAD,
        "a.json: images[0]", "'domain' must be one of", "correct it"),
    Row("own.own.read_own", {}, {"folder": "no.where"}, LOST, "no.where", "no such folder",
        Setting("folder")),
    Row("own.own.read_own", {"a.jpg": "", "a.xml": ""}, {"folder": "."}, LOST, "",
        "no captions are found in it", "it holds 1 .jpg, 1 .xml, and needs photos"),
    Row("table.read_table", {"a.csv": "image,said\na.jpg,A dog."},
        {"annotations": "a.csv", "image_folder": None}, BAD, "a.csv",
        "none of the columns ['image', 'said']", Setting("caption_columns")),
    Row("text_files.read_text_files", {}, {"folder": "no.where"}, LOST, "no.where",
        "no such folder", Setting("folder")),
    Row("webdataset.read_webdataset", {}, {"folder": "."}, LOST, "", "no shard is named '*.tar'",
        Setting("shards")),
]  # fmt: skip


def _below(folder: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_below(folder, one) for one in value]
    return folder / value if isinstance(value, str) and "." in value else value


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.reader}: {row.problem}" for row in ROWS])
def test_an_error_of_a_reader_says_place_problem_and_remedy(row: Row, tmp_path: Path):
    for name, content in row.files.items():
        data = content if isinstance(content, str | bytes) else json.dumps(content)
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    module, name = row.reader.rsplit(".", 1)
    read = getattr(import_module(f"captioning.data.readers.{module}"), name)
    arguments = {key: _below(tmp_path, value) for key, value in row.arguments.items()}
    with pytest.raises(row.kind) as raised:
        read(name="r", **arguments)

    error = raised.value
    assert error.place == str(tmp_path / row.place)
    assert row.problem in error.problem
    assert row.remedy in error.remedy or row.remedy in "".join(map(str, error.remedy))
    assert str(error) == f"{error.place}: {error.problem}; {''.join(map(str, error.remedy))}"
    assert "\n" not in str(error)


def _functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def test_every_reader_has_a_row():
    root = DATA / "readers"
    readers = {
        f"{'.'.join(path.relative_to(root).with_suffix('').parts)}.{function.name}"
        for path in root.rglob("*.py")
        for function in _functions(path)
        if function.name.startswith("read_")
        and ast.unparse(function.returns or function) == "Roster"
    }
    assert readers == {row.reader for row in ROWS}


def _begins_with_place(call: ast.Call) -> bool:
    """Whether a message is ``f"{place}: ..."``."""
    text = call.args[0] if call.args else None
    first = text.values[:2] if isinstance(text, ast.JoinedStr) else []
    return [type(part) for part in first] == [ast.FormattedValue, ast.Constant] and ast.unparse(
        first[1]
    ).startswith("': ")


def test_errors_of_places_hold_fields_in_readers():
    """A message of one text would have to be cut apart for its problem."""
    files = [
        path
        for path in DATA.rglob("*.py")
        if "readers" in path.parts or "setting_error import" in path.read_text()
    ]
    assert len(files) > 20
    plain = [
        f"{path.name}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("ValueError", "FileNotFoundError")
        and _begins_with_place(node)
    ]
    assert plain == []


# Commands beside those whose errors come before slow imports, see `AT_ONCE`.
COMMAND_ROWS = [
    ("docs nowhere", "docs: no page is called 'nowhere'"),
    ("assess BLEU data.annotations=nowhere", "nowhere: no such file; get Flickr8k_text.zip"),
    ("augment method.writer=nowhere", "method.writer: there is no such key; method has "),
    ("augment captioned", "run: must be given"),
    ("augment compare", "captions.txt: no such file; `captioning prepare "),
    ("augment fine-tune nosuch=1", "nosuch: there is no such key; a new one is added by +nosuch="),
    ("augment pictures data=own data.root=nowhere", "nowhere: no such folder in "),
    ("augment round-trip", "captioner is missing: give captioner=RUN_FOLDER"),
    ("augment teach", "captions.txt: no such file; `captioning prepare "),
    ("compare nowhere there", "nowhere: no such folder; give a run folder"),
    ("controllability run=nowhere", "nowhere/config.yaml does not exist; is this a run folder?"),
    ("convert viecap nowhere --to x", "nowhere: no such file"),
    ("curate apply nowhere photo.jpg --out x.jsonl", "nowhere does not exist; was the run trained"),
    ("curate capfilt", "captioner.captioner.name: must be given (text)"),
    ("curate corrections there nowhere x", "captions by SOURCE"),
    ("curate study nowhere --out x", "nowhere is not a run folder and holds no manifest"),
    ("demo num_epoch=3", "num_epoch: there is no such key; did you mean num_epochs?"),
    ("diverse-captions run=nowhere", "nowhere/config.yaml does not exist; is this a run folder?"),
    ("find-lr data=own data.root=nowhere", "nowhere: no such folder in "),
    ("find-objects data=own data.root=nowhere", "nowhere: no such folder in "),
    ("image-distance real=nowhere other=nowhere", "nowhere: no images (.bmp, .gif, "),
    ("import-features nowhere --folder x", "nowhere: no such file or folder; name the features"),
    ("miniworld facts --num-scenes 0", "num_scenes must be at least 1"),
    ("miniworld sheet x.png --num-scenes 0", "num_scenes must be at least 1"),
    ("paper nowhere", "no paper is called 'nowhere'; there are "),
    ("record nowhere --out x.json", "nowhere: no config.yaml and no paper.json in it or below"),
    ("table nowhere", "nowhere: no such folder"),
    ("train-space data=own data.root=nowhere", "nowhere: no such folder in "),
]


@pytest.mark.parametrize(("command", "line"), COMMAND_ROWS, ids=[row[0] for row in COMMAND_ROWS])
def test_an_error_of_a_command_is_one_line(
    command: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "photo.jpg").touch()
    try:
        code, told = main(command.split()), ""
    except SystemExit as end:  # Python prints what it holds, and ends with 1
        code, told = (end.code, "") if isinstance(end.code, int) else (1, str(end.code))
    told = told or capsys.readouterr().err.strip()

    assert code == 1
    first, *rest = told.splitlines()
    assert line in first
    assert rest in ([], ["(HYDRA_FULL_ERROR=1 shows where it was raised)"])


def test_every_command_has_a_row():
    rows = [command for command, _ in [*AT_ONCE, *COMMAND_ROWS]]
    named = {" ".join(row.split()[:2]) for row in rows} | {row.split()[0] for row in rows}
    # The first takes no argument, the second a choice that argparse checks.
    assert {*COMMANDS} - named == {"prepare metrics", "completion"}
