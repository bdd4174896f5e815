"""``captioning augment`` on MiniWorld in small."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from captioning.commands.main import main
from captioning.data.readers.coco import read_coco

HELD_OUT = "method.classes={truck: {candidates: [pickup truck, van]}, cat: {candidates: [dog]}}"


# CutSwap judges pictures and captions of all scenes: fewer are enough.
FEW = "data.train.num_scenes=40"


def settings(folder: Path, overrides: Sequence[str]) -> list[str]:
    folders = [f"paths.cache={folder / 'cache'}", f"out={folder / 'out'}"]
    return ["data=miniworld_tiny", "num_processes=0", "debug=smoke", *folders, *overrides]


def run(folder: Path, *overrides: str) -> str | None:
    """Run the command here; the message that it ended with, None where it ended well."""
    try:
        main(["augment", *settings(folder, overrides)])
    except SystemExit as end:
        return str(end.code)
    return None


@pytest.mark.long
@pytest.mark.slow
def test_the_command_writes_a_set_that_is_read_back(tmp_path: Path):
    assert run(tmp_path, HELD_OUT) is None
    out = tmp_path / "out"
    roster = read_coco(
        name="x",
        annotations=out / "captions.json",
        instances=out / "instances.json",
        image_folder=out / "images",
    )
    card = json.loads((out / "card.json").read_text())
    assert card["counts"]["captions"] == len(roster) > 0
    assert set(card["method"]["classes"]) == {"truck", "cat"}
    assert all("truck" in s.caption or "cat" in s.caption for s in roster.samples)
    assert (out / "sheet.png").is_file()
    refused = run(tmp_path, HELD_OUT, "seed=1")
    assert refused is not None
    assert refused.startswith("augment: ")
    assert "other settings" in refused
    assert len(refused.splitlines()) == 2  # with how to see where it was raised


@pytest.mark.long
def test_cutswap_makes_pairs_that_are_read_back(tmp_path: Path):
    # photos of MiniWorld mean little to the joint space
    few = ["method.rules.num_captions=3", "method.num_patches=2", "method.similarity=-1"]
    assert run(tmp_path, "method=cutswap", FEW, "smoke.max_pairs=4", *few) is None
    out = tmp_path / "out"
    roster = read_coco(
        name="x",
        annotations=out / "captions.json",
        instances=out / "instances.json",
        image_folder=out / "images",
    )
    card = json.loads((out / "card.json").read_text())
    assert card["counts"]["pictures"] == len(roster) > 0
    assert card["method"]["threshold"]["value"] == -1
    for name in ("sheet.png", "statistics/statistics.json", "clusters/clusters.md"):
        assert (out / name).is_file()
    parallel = [*few, "num_processes=2", f"out={tmp_path / 'several'}"]
    assert run(tmp_path, "method=cutswap", FEW, "smoke.max_pairs=4", *parallel) is None
    for path in (out / "captions.json", out / "provenance.jsonl", *(out / "images").iterdir()):
        assert path.read_bytes() == (tmp_path / "several" / path.relative_to(out)).read_bytes()
    refused = run(tmp_path, "method=cutswap", "method.num_patches=0", f"out={tmp_path / 'x'}")
    assert refused is not None
    assert "num_patches" in refused.splitlines()[0]


@pytest.mark.long
def test_the_thesis_cutswap_makes_pairs(tmp_path: Path):
    few = ["smoke.max_pairs=2", "method.similarity=-1"]
    assert run(tmp_path, "method=cutswap_thesis", FEW, *few) is None
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert 0 < card["counts"]["pictures"] <= 2 * 3
    assert card["config"]["method"]["rules"]["num_captions"] == 32
