"""README.md: short, in order, with the numbers of the records, and its snippets run as written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from captioning.commands.main import main
from captioning.inference.loading import SHIPPED
from captioning.miniworld.dataset import read_miniworld
from tests.front_page import PARTS, PICTURE, README, demo_scores, part

TEXT = README.read_text(encoding="utf-8")
SECTIONS = (
    *("Install", "Find bad captions", "Curate in your own loop", "Train a captioner"),
    *("Caption photos", "What is in it", "Does it work", "Reproduce papers", "Extend", "Limits"),
)
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
NUM_SCENES = 40


def test_it_is_short_and_in_order() -> None:
    assert len(TEXT.splitlines()) <= 120
    assert tuple(re.findall(r"^## (.*)$", TEXT, re.MULTILINE)) == SECTIONS


def test_the_set_up_commands_stand_in_the_first_screen() -> None:
    first = TEXT.splitlines()[:20]
    for command in ("make env", "make test", "make demo"):
        assert any(line.startswith(command) for line in first), command


@pytest.mark.parametrize("name", PARTS)
def test_its_numbers_are_those_of_the_records(name: str) -> None:
    written = part(name, TEXT)
    assert re.search(r"\d", written)
    assert written == PARTS[name](), "make tables writes it"


def test_the_picture_has_the_scores_of_the_records() -> None:
    assert f"({PICTURE.relative_to(README.parent).as_posix()})" in TEXT
    assert PICTURE.stat().st_size < 200_000
    with Image.open(PICTURE) as picture:
        assert json.loads(picture.info["scores"]) == demo_scores()


def test_recommended_removes_nothing_from_sound_captions() -> None:
    """What the README says of Flickr8k as it is."""
    path = README.parent / "docs/results/records/recommended.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    sound = [line["removed"] for line in lines if line["noise"] == "none"]
    assert len(sound) == 6
    assert set(sound) == {0}


def test_what_check_prints_is_as_printed() -> None:
    block = re.search(r"^captioning check my_photos\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    printed = re.search(r"as printed\]\((benchmarks/results/\S+)\)", TEXT)
    lines = (README.parent / printed[1]).read_text(encoding="utf-8").splitlines()
    assert len(block[1].splitlines()) == 3
    assert set(block[1].splitlines()) <= set(lines)
    said = re.search(r"([\d,]+) of the [\d,]+ captions are swapped .*? flags ([\d,]+) of", TEXT)
    truth = next(line for line in lines if line.startswith("# compared with the truth"))
    assert f" {said[1]} swapped captions" in truth
    flags = re.search(r"^ +([\d,]+)  fit ", block[1], re.MULTILINE)
    assert f" {said[2]} of the {flags[1]} flags of fit" in truth


def test_the_score_of_the_captioner_in_the_package_is_its_cards() -> None:
    card = json.loads((SHIPPED / "card.json").read_text(encoding="utf-8"))
    assert f"test CIDEr-D {card['scores']['CIDEr-D']:.2f} on Flickr8k" in TEXT


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `my_photos`, of which a fifth of the captions are swapped, and `my_git`."""
    sys.path.insert(0, str(README.parent / "examples"))
    import small_git

    folder = tmp_path_factory.mktemp("readme")
    photos = folder / "my_photos"
    photos.mkdir()
    roster = read_miniworld(
        name="miniworld", folder=folder / "cache", split="train", num_scenes=NUM_SCENES, size=96
    )
    scenes = [[roster.samples[row] for row in rows] for rows in roster.rows_by_image.values()]
    lines = []
    for number, samples in enumerate(scenes):
        captions = [sample.caption for sample in samples]
        captions[0] = scenes[(number + 1) % NUM_SCENES][0].caption
        shutil.copy(samples[0].image_path, photos)
        name = samples[0].image_path.name
        lines += [json.dumps({"file_name": name, "text": text}) for text in captions]
    (photos / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "captions.txt").write_text("\n".join(s.caption for s in roster.samples))
    small_git.main(str(folder / "my_git"), str(folder / "captions.txt"), hidden=48, layers=1)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.mark.long
def test_its_snippets_run_as_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find, loop = SNIPPETS
    exec(compile(find, "README.md", "exec"), {})
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    assert 0 < len(printed) <= 10
    assert all(line.startswith("my_photos/train_0_") for line in printed)
    exec(compile(loop, "README.md", "exec"), {})
    edits = (place / "my_run/curation.jsonl").read_text().splitlines()
    assert sum('"remove"' in line for line in edits) > NUM_SCENES / 2
    assert list((place / "my_run").rglob("*.html"))


@pytest.mark.long
def test_its_commands_for_photos_run_as_written(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for begin in ("captioning check ", "captioning caption "):
        line = next(line for line in TEXT.splitlines() if line.startswith(begin))
        assert main(shlex.split(line, comments=True)[1:]) in (0, None)
        assert capsys.readouterr().out
    assert (place / "my_photos-check/report.html").is_file()
    assert (place / "my_photos-check/issues.csv").is_file()
