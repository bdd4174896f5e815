"""Folders of models that cannot be read: each is refused by one line that names file and remedy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from captioning.runtime.processors import check_family, load_image_text, load_processor
from tests.families.registry import family_folder

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.fixture(scope="module")
def whole() -> Path:
    return family_folder("git")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def settings(**changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without_tokenizer(folder: Path) -> None:
    for path in (*folder.glob("tokenizer*"), *folder.glob("vocab*")):
        path.unlink()


def cut(size: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:size])

    return change


OF_PROCESSORS = {
    "no tokenizer": (without_tokenizer, r"model: no tokenizer\.json in it; save the model's tok"),
    "tokenizer": (write("tokenizer.json", "{"), r"tokenizer\.json is no JSON .*; fetch or save"),
    "config": (write("config.json", "{"), r"config\.json is no JSON .*; fetch or save"),
    "list": (write("config.json", "[]"), r"config\.json holds a list, not a model's settings; "),
    "no kind": (write("config.json", "{}"), r"config\.json names no model_type.*; fetch or save"),
    "unknown": (settings(model_type="nonesuch"), "no model_type 'nonesuch'.*; raise its version"),
    "llama": (settings(model_type="llama"), "'llama' reads text and no photos; choose an"),
    "bert": (settings(model_type="bert"), "'bert' reads text and no photos; choose an"),
    "t5": (settings(model_type="t5"), "'t5' reads text and no photos; choose an"),
    "detr": (settings(model_type="detr"), "'detr' writes no captions; choose an"),
}
OF_WEIGHTS = {
    "cut": (cut(5000), r"model\.safetensors is damaged or cut off \(.*\); fetch or save"),
    "empty": (cut(0), r"model\.safetensors is damaged or cut off \(.*\); fetch or save"),
    "pointer": (write("model.safetensors", LFS), r"model\.safetensors is a pointer of Git LFS"),
}


@pytest.mark.parametrize("name", OF_PROCESSORS)
def test_a_folder_without_a_readable_processor_is_refused(
    folder: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, message = OF_PROCESSORS[name]
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as refused:
        load_processor(folder)
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "[transformers]" not in capfd.readouterr().err


@pytest.mark.parametrize("name", OF_WEIGHTS)
def test_damaged_weights_are_named(folder: Path, name: str) -> None:
    spoil, message = OF_WEIGHTS[name]
    spoil(folder)
    with pytest.raises(ValueError, match=message) as refused:
        load_image_text(str(folder))
    assert str(folder / "model.safetensors") in str(refused.value)


def test_a_text_model_is_no_captioner_though_it_has_no_processor(folder: Path) -> None:
    settings(model_type="llama")(folder)
    for path in folder.glob("*processor_config.json"):
        path.unlink()
    with pytest.raises(ValueError, match="reads text and no photos"):
        load_processor(folder)


def test_a_whole_folder_is_read(whole: Path) -> None:
    check_family(whole, "git")
    assert load_processor(whole).tokenizer is not None
