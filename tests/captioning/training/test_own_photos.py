"""The commands of tutorials/own_photos.md and own_model.md, run in order on a few photos."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioning.commands.main import main
from tests.test_docs import COMMANDS, words_of
from tests.tiny_vlm import model_folder

PAGE = [command for page, command in COMMANDS if page == "own_photos.md"]
# The first says what the third does; a sweep takes four trainings.
OF_A_MODEL = [
    command for page, command in COMMANDS if page == "own_model.md" and " -m " not in command
][1:]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve photos in a flat folder with ``metadata.csv``, two captions each."""
    root = tmp_path / "my_photos"
    root.mkdir()
    rows = []
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((128, 96)).save(root / f"{number}.jpg")
        rows += [[f"{number}.jpg", f"A dog of number {number % 3} runs on the grass."]]
        rows += [[f"{number}.jpg", "I'm sorry, I can't." if number == 4 else "Two dogs run there."]]
    with (root / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file_name", "text"], *rows])
    return root


@pytest.mark.long
def test_the_page_is_a_way_that_can_be_gone(
    photos: Path, cache: Path, small_settings, monkeypatch, capfd
) -> None:
    monkeypatch.chdir(photos.parent)
    monkeypatch.setenv("CAPTIONING_CACHE", str(cache))
    for command in PAGE:
        arguments = words_of(command)
        if arguments[0] == "check":
            # Twelve photos are too few for the space, and one caption stands on all of them.
            arguments += ["--space", "none", "--skip", "same_caption"]
        elif arguments[0] == "train":
            # The captioner in the package wants the features that it knows.
            own = ("data", "features", "tokenizer.min_count")
            arguments += [entry for entry in small_settings if not entry.startswith(own)]
        assert main(arguments) == 0, f"{shlex.join(arguments)}: {capfd.readouterr().err}"
    for name in (
        "my_photos-check/report.html",
        "my_photos-check/cleaned/train/metadata.jsonl",
        "runs/first/metrics.json",
        "runs/mine/curation/report.html",
        "my_captioner",
        "my_curated_set/train/metadata.jsonl",
    ):
        assert (photos.parent / name).exists(), name
    files = (photos.parent / "my_photos-check" / "cleaned").rglob("metadata.jsonl")
    cleaned = "".join(file.read_text() for file in files)
    assert len(cleaned.splitlines()) == 12
    assert "sorry" not in cleaned


@pytest.mark.long
def test_a_pretrained_model_is_fine_tuned_and_handed_on(
    photos: Path, cache: Path, monkeypatch, capfd
) -> None:
    monkeypatch.chdir(photos.parent)
    monkeypatch.setenv("CAPTIONING_CACHE", str(cache))
    small = ("model.lora.modules=[query,value]", "model.prompt=", "search.max_length=6")
    small += ("num_epochs=1", "metrics=fast", "logger=none", "trainer.accelerator=cpu")
    for command in OF_A_MODEL:
        arguments = words_of(command.replace("MODEL", str(model_folder("git"))))
        if arguments[0] == "check":
            continue  # see above
        if arguments[0] == "train":
            arguments += small
        assert main(arguments) == 0, f"{shlex.join(arguments)}: {capfd.readouterr().err}"
    for name in ("before.csv", "after.csv", "my_captioner/model.safetensors"):
        assert (photos.parent / name).is_file(), name
    assert len((photos.parent / "after.csv").read_text().splitlines()) == 13
    assert (photos.parent / "runs/lora/curation/report.html").is_file()
