"""Settings that messages about bad folders name are typed back as they stand there."""

from __future__ import annotations

import ast
import json
import pickle
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import captioning
from captioning.commands.main import main
from captioning.config.build import build_part, typed
from captioning.config.compose import compose_config
from captioning.config.setting_error import Setting, SettingError, SettingNotFoundError
from tests.packed_files import photo

# A setting of a message: KEY=VALUE, or KEY= where the reader of the message fills in the value.
HINT = re.compile(r"(\+?[a-z_]+(?:\.[a-z_]+)*)=([\w.]*)")
NUMBER = 12


def table(folder: Path, *lines: str, head: str = "file_name,caption", name: str = "") -> None:
    path = folder / (name or "captions.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *lines, ""]))


def good_lines() -> list[str]:
    return [f"p{number}.png,a dog runs {'far ' * (number % 5)}" for number in range(NUMBER)]


def good(folder: Path) -> None:
    table(folder, *good_lines())


def empty_caption(folder: Path) -> None:
    table(folder, *good_lines(), "p0.png,")


def lost_photo(folder: Path) -> None:
    table(folder, *good_lines(), "lost.png,a lost dog")


def two_tables(folder: Path) -> None:
    table(folder, *good_lines(), name="one.csv")
    table(folder, *good_lines(), name="two.csv")


def no_columns(folder: Path) -> None:
    lines = [{"image": f"p{n}.png", "said": "a dog runs"} for n in range(NUMBER)]
    (folder / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def two_columns(folder: Path) -> None:
    lines = [{"image": f"p{n}.png", "caption": "a", "captions": ["b"]} for n in range(NUMBER)]
    (folder / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def two_photo_folders(folder: Path) -> None:
    table(folder, *good_lines())
    for name in ("rgb", "depth"):
        (folder / name).mkdir()
        for path in folder.glob("*.png"):
            (folder / name / path.name).write_bytes(path.read_bytes())
    for path in folder.glob("*.png"):
        path.unlink()


def in_a_folder(folder: Path) -> None:
    table(folder / "inner", *good_lines())


def a_chat(folder: Path) -> None:
    turns = [{"from": "human", "value": "what?"}] * 3
    chats = [{"image": f"p{n}.png", "conversations": turns} for n in range(NUMBER)]
    (folder / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in chats))


def other_layout(folder: Path) -> None:
    table(folder, *good_lines(), name="metadata.csv")


# A bad folder, the settings it is read with, the settings that are named, and their values where
# the message leaves these to its reader.
CASES: list[tuple[Callable[[Path], None], list[str], dict[str, str]]] = [
    (empty_caption, [], {"data.bad_captions": "drop"}),
    (lost_photo, [], {"data.missing_photos": "drop"}),
    (two_tables, [], {"data.annotations": "two.csv", "data.layout": "text_files"}),
    (no_columns, [], {"data.caption_columns": "said"}),
    (two_columns, [], {"data.caption_columns": "captions"}),
    (two_photo_folders, [], {"data.image_folder": "rgb"}),
    (in_a_folder, [], {"data.annotations": "inner/captions.csv"}),
    (a_chat, [], {"data.bad_captions": "drop"}),
    (other_layout, ["data.image_folder=x"], {"data.layout": "table"}),
    (good, ["data.image_folder=x"], {"data.image_folder": "."}),
    (good, ["data.annotations=x.csv"], {"data.annotations": "captions.csv"}),
    (good, ["data.root=nowhere"], {"data.root": "set"}),
]
# Messages whose remedy leads to another fault of these small folders.
ELSEWHERE = {"data.layout", "data.image_folder", "data.bad_captions"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    for number in range(NUMBER):
        (tmp_path / "set" / f"p{number}.png").write_bytes(photo(number, 32))
    return tmp_path / "set"


def _read(*overrides: str) -> str:
    """What reading the training photos of a command says, or nothing."""
    config = compose_config("train", ["data=own", "data.root=set", *overrides])
    try:
        build_part(config.data.train)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("make", "given", "named"), CASES, ids=[f"{make.__name__}{given}" for make, given, _ in CASES]
)
def test_a_setting_that_a_message_names_is_taken(
    make: Callable[[Path], None], given: list[str], named: dict[str, str], folder: Path
) -> None:
    make(folder)
    message = _read(*given)
    hints = dict(HINT.findall(message))

    assert set(hints) == set(named), message
    for key, value in hints.items():
        assert value in ("", "NAME", named[key])
        then = _read(*given, f"{key}={named[key]}")  # Hydra takes it, or this raises
        assert then != message
        assert then == "" or key in ELSEWHERE


def test_a_file_in_the_place_of_its_folder_is_read_by_both_settings(folder: Path) -> None:
    good(folder)
    message = _read("data.root=set/captions.csv")
    hints = dict(HINT.findall(message))

    assert hints == {"data.root": "", "data.annotations": "captions.csv"}
    assert _read("data.root=set", "data.annotations=captions.csv") == ""


def test_a_reader_of_a_format_names_its_own_key(tmp_path: Path, folder: Path) -> None:
    content = {"images": [{"id": 1, "file_name": "p0.png"}], "annotations": []}
    content["annotations"] = [{"id": 1, "image_id": 1, "caption": "", "file_name": "p0.png"}]
    (folder / "a.json").write_text(json.dumps(content))
    data = ["data=coco", "data.train.annotations=set/a.json", "data.train.instances=null"]
    data += ["data.train.image_folder=set"]

    def read(*overrides: str) -> None:
        build_part(compose_config("train", [*data, *overrides]).data.train)

    with pytest.raises(SettingError, match=r"\+data\.train\.bad_captions=drop") as raised:
        read()
    [(key, value)] = HINT.findall(str(raised.value))
    with pytest.raises(ValueError, match="missing_captions=drop"):
        read(f"{key}={value}")


def test_a_check_names_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_tables(folder)
    assert main(["check", "set", "--space", "none"]) == 1
    said = capsys.readouterr().err
    assert "choose --annotations NAME, or another --layout" in said
    assert not HINT.findall(said)
    named = shlex.split("--annotations two.csv")
    assert main(["check", "set", "--space", "none", *named]) == 0
    assert main(["check", "nowhere"]) == 1
    assert "give the folder of the photos and their captions by FOLDER" in capsys.readouterr().err


def test_what_a_reader_of_own_photos_has_not_is_named_without_a_key(folder: Path) -> None:
    (folder / "train.tar").write_bytes(b"no archive" * 100)
    message = _read()
    assert "by the setting damaged_shards of data=webdataset" in message
    assert set(HINT.findall(message)) == {("data", "webdataset"), ("data", "arrow")}


def test_of_a_run_the_command_that_trained_it_takes_the_setting(tmp_path: Path) -> None:
    from captioning.results.folder_config import read_folder_config

    data = {"root": "set", "train": {"_target_": "reader", "folder": "set"}}
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create({"data": data})))
    config = read_folder_config(tmp_path / "config.yaml")

    expected = f"data.root= in the command that trained {tmp_path}"
    assert typed(config.data.train, Setting("folder")) == expected


def test_a_setting_of_its_own_is_named_where_the_group_says_otherwise() -> None:
    overrides = ["data=own", "data.train.bad_captions=error", "data.bad_captions=drop"]
    part = compose_config("train", overrides).data.train

    assert typed(part, Setting("bad_captions", "drop")) == "data.train.bad_captions=drop"
    assert typed(part, Setting("layout")) == "data.layout="


def test_in_python_a_setting_is_an_argument() -> None:
    error = SettingNotFoundError("a.csv", "no such file", "give its ", Setting("folder"))

    assert str(error) == "a.csv: no such file; give its folder="
    worded = error.worded(lambda setting: f"--{setting.name}")
    assert str(worded) == "a.csv: no such file; give its --folder"
    assert str(pickle.loads(pickle.dumps(worded))) == str(worded)  # noqa: S301  # of our own
    assert error.settings == (Setting("folder"),)
    assert isinstance(error, FileNotFoundError)


# Keys that no file of configs/ holds: of Lightning's trainer and learning rate finder, of Hydra,
# and of groups that are put where a message says (+writer@method.writer=NAME).
ADDED = re.compile(
    r"hydra\.|trainer\.|find_lr\.|method\.writer|curation\.filter$|model\.lora\.within$"
)
DOTTED = re.compile(r"(?<![\w.`{/@-])([a-z_]+(?:\.[a-z_]+)+)=(?!=)")


def _texts(source: str) -> list[str]:
    """Texts of a module that are shown: no docstring, and more than one word."""
    tree = ast.parse(source)
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    docstrings = {id(value) for value in statements if isinstance(value, ast.Constant)}
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (value.value for value in node.values if isinstance(value, ast.Constant))
            texts.append("{}".join(map(str, values)))
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            texts.append(str(node.value))
    return [text for text in texts if " " in text]


def _keys(values: object, prefix: str) -> set[str]:
    """Keys below a config, with dots."""
    if not isinstance(values, dict):
        return set()
    below = (_keys(value, f"{prefix}{key}.") for key, value in values.items())
    return {f"{prefix}{key}" for key in values}.union(*below)


def test_keys_with_dots_in_messages_stand_in_the_configs() -> None:
    root = Path(captioning.__file__).parents[1]
    known: set[str] = set()
    places = {
        ("data", "augmented"),
        ("matching", "pairs"),
        ("judgements", "data"),
    }  # of groups that have other places too
    for path in (root / "configs").rglob("*.yaml"):
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        group = ".".join(path.relative_to(root / "configs").parts[:-1])
        for name in (group, *(place for first, place in places if first == group)):
            known |= _keys(values, f"{name}." if name else "")
    named: dict[str, str] = {}
    for package in ("captioning", "curation", "augmentation"):
        for path in (root / package).rglob("*.py"):
            for text in _texts(path.read_text(encoding="utf-8")):
                named |= dict.fromkeys(DOTTED.findall(text), path.name)

    assert len(named) > 30
    wrong = {key: file for key, file in named.items() if key not in known}
    assert {key: file for key, file in wrong.items() if not ADDED.match(key)} == {}
