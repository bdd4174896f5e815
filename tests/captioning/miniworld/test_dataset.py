"""The reader: same bytes by any number of processes, whole or not at all, changed data refused."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from PIL import Image, features

from captioning.miniworld import build as building
from captioning.miniworld.build import contact_sheet
from captioning.miniworld.dataset import read_graphs, read_miniworld
from captioning.miniworld.icons import font_version
from captioning.miniworld.sample import SPLITS, sample_scene, scene_graph

SMALL = {"split": "train", "num_scenes": 12, "seed": 0, "size": 64}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file under a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def split_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("miniworld")
    read_miniworld(name="mini", folder=folder, **SMALL)
    return folder


def test_roster_has_five_grounded_captions_a_scene(split_folder: Path) -> None:
    roster = read_miniworld(name="mini", folder=split_folder, **SMALL)
    assert roster.name == "mini/train"
    assert len(roster) == 60
    assert all(len(rows) == 5 for rows in roster.rows_by_image.values())
    for sample in roster.samples:
        with Image.open(sample.image_path) as image:
            assert image.size == (64, 64)
            assert image.mode == "RGB"
        for region in sample.regions:
            x1, y1, x2, y2 = region.box
            assert 0 <= x1 < x2 <= 64
            assert 0 <= y1 < y2 <= 64
        for phrase in sample.phrases:
            stop = phrase.start + len(phrase.text)
            assert sample.caption[phrase.start : stop] == phrase.text
            labels = {sample.regions[number].label for number in phrase.regions}
            assert len(labels) == (0 if phrase.chain_id == "place" else 1)


def test_graphs_are_kept(split_folder: Path) -> None:
    graphs = read_graphs(folder=split_folder, **SMALL)
    assert len(graphs) == 12
    graph = graphs["train_0_000003"]
    assert graph == json.loads(json.dumps(scene_graph(seed=0, split="train", index=3)))
    roster = read_miniworld(name="mini", folder=split_folder, **SMALL)
    for sample in roster.samples:
        nodes = graphs[sample.image_id]["nodes"]
        for phrase in sample.phrases:
            if phrase.chain_id.isdigit():
                node = nodes[int(phrase.chain_id)]
                assert len(phrase.regions) == node["count"]
                assert sample.regions[phrase.regions[0]].label == node["class"]


@pytest.mark.long
def test_number_of_processes_changes_no_byte(
    split_folder: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(building, "CHUNK", 5)
    read_miniworld(name="mini", folder=tmp_path, workers=2, **SMALL)
    assert digests(tmp_path) == digests(split_folder)


def test_a_shorter_split_is_the_beginning_of_a_longer_one(
    split_folder: Path, tmp_path: Path
) -> None:
    short = read_miniworld(name="mini", folder=tmp_path, **{**SMALL, "num_scenes": 4})
    long = read_miniworld(name="mini", folder=split_folder, **SMALL)
    for first, second in zip(short.samples, long.samples, strict=False):
        assert (first.caption, first.regions, first.phrases) == (
            second.caption,
            second.regions,
            second.phrases,
        )
        assert first.image_path.read_bytes() == second.image_path.read_bytes()


def test_other_settings_live_in_other_folders(split_folder: Path) -> None:
    before = digests(split_folder)
    read_miniworld(name="mini", folder=split_folder, **{**SMALL, "seed": 1, "num_scenes": 2})
    after = digests(split_folder)
    assert before.items() <= after.items()
    assert len({name.split("/")[0] for name in after}) == 2


def test_two_processes_building_at_once_leave_one_whole_folder(
    split_folder: Path, tmp_path: Path
) -> None:
    settings = building.make_settings(**SMALL)
    folder = tmp_path / settings.folder_name()
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=building.build, args=(settings, folder)) for _ in range(2)]
    for process in running:
        process.start()
    for process in running:
        process.join(timeout=120)
    assert [process.exitcode for process in running] == [0, 0]
    expected = next(path for path in split_folder.iterdir() if "-seed0-" in path.name)
    assert [path.name for path in tmp_path.iterdir()] == [expected.name]
    assert digests(tmp_path / expected.name) == digests(expected)


RECORDED = {"freetype": "2.14.3", "font": "6.6.0", "version": 3, "digest": "c03c6e0846651ca8"}


def test_version_is_raised_when_scenes_or_captions_change() -> None:
    """Folders are named by the version: a change without it would leave old data in use."""
    if (features.version("freetype2"), font_version()) != (RECORDED["freetype"], RECORDED["font"]):
        pytest.skip("recorded with FreeType 2.14.3 and fontawesomefree 6.6.0: shapes may differ")
    digest = hashlib.sha256()
    for split in SPLITS:
        for index in range(40):
            scene = sample_scene(seed=0, split=split, index=index)
            captions = building.make_captions(scene, seed=0, split=split, index=index)
            digest.update(
                json.dumps([scene.graph(), [caption.text for caption in captions]]).encode()
            )
    version = building.VERSION
    assert version == RECORDED["version"]
    assert digest.hexdigest()[:16] == RECORDED["digest"], (
        "raise VERSION in build.py and record the new digest here"
    )


def test_a_second_build_leaves_the_first_as_it_is(tmp_path: Path) -> None:
    settings = building.make_settings(**{**SMALL, "num_scenes": 2})
    target = tmp_path / settings.folder_name()
    stamps = []
    for _ in range(2):
        building.build(settings, target)
        stamps.append({path: path.stat().st_mtime_ns for path in target.rglob("*")})
    assert stamps[0] == stamps[1]
    assert len(stamps[0]) == 5
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(building, "encode", fail)
    with pytest.raises(OSError, match="No space left on device") as caught:
        read_miniworld(name="mini", folder=tmp_path / "cache", **SMALL)
    assert "CAPTIONING_CACHE" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("x", encoding="utf-8")
    with pytest.raises(OSError, match="cannot be drawn into"):
        read_miniworld(name="mini", folder=tmp_path / "cache", **SMALL)


def test_a_foreign_folder_is_not_taken_over(tmp_path: Path) -> None:
    settings = building.make_settings(**SMALL)
    target = tmp_path / settings.folder_name()
    target.mkdir()
    (target / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(OSError, match="MiniWorld did not make it"):
        read_miniworld(name="mini", folder=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.rglob("*")] == [target.name, "mine.txt"]


@pytest.mark.parametrize("harm", ["cut", "edit", "gone", "photo", "manifest"])
def test_changed_data_are_refused(tmp_path: Path, harm: str) -> None:
    few = {**SMALL, "num_scenes": 2, "size": 32}
    read_miniworld(name="mini", folder=tmp_path, **few)
    folder = next(tmp_path.iterdir())
    lines = folder / "annotations.jsonl"
    text = lines.read_text(encoding="utf-8")
    if harm == "cut":
        lines.write_text(text[: len(text) // 2], encoding="utf-8")
    elif harm == "edit":
        lines.write_text(text.replace('"A', '"B', 1), encoding="utf-8")
    elif harm == "gone":
        lines.unlink()
    elif harm == "manifest":
        (folder / "manifest.json").write_text("{", encoding="utf-8")
    else:
        next((folder / "images").iterdir()).unlink()
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        read_miniworld(name="mini", folder=tmp_path, **few)
    assert "draw the split again" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"split": "dev"}, "split"), ({"num_scenes": 0}, "num_scenes"), ({"seed": -1}, "seed"),
     ({"size": 8}, "size"), ({"workers": -1}, "workers")],
)  # fmt: skip
def test_wrong_settings_are_named(tmp_path: Path, wrong: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_miniworld(name="mini", folder=tmp_path, **{**SMALL, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_configs_name_the_arguments_of_the_reader(repository: Path) -> None:
    config = OmegaConf.load(repository / "configs" / "data" / "miniworld.yaml")
    tiny = OmegaConf.merge(
        config, OmegaConf.load(repository / "configs" / "data" / "miniworld_tiny.yaml")
    )
    for group, size in ((config, 128), (tiny, 96)):
        root = OmegaConf.merge({"paths": {"cache": "cache"}}, {"data": group})
        parts = OmegaConf.to_container(root, resolve=True)["data"]
        for key, split in (("train", "train"), ("val", "val"), ("test", "test_in"),
                           ("test_near", "test_near"), ("test_out", "test_out")):  # fmt: skip
            arguments = dict(parts[key])
            assert arguments.pop("_target_").endswith("miniworld.dataset.read_miniworld")
            assert set(arguments) == {
                    "name", "folder", "split", "num_scenes", "seed", "size", "limit"
                }  # fmt: skip
            assert arguments["split"] == split
            assert arguments["size"] == size
            assert arguments["folder"] == "cache/miniworld"


def test_contact_sheet_shows_the_scenes() -> None:
    sheet = contact_sheet(split="val", num_scenes=3, size=64, columns=2, boxes=True)
    assert sheet.width == 2 * 74
    assert len(sheet.crop((5, 5, 69, 69)).getcolors(64 * 64)) > 20


def test_limited_split_is_the_first_scenes_of_the_full_one(
    split_folder: Path, tmp_path: Path
) -> None:
    full = read_miniworld(name="mini", folder=split_folder, **SMALL)
    limited = read_miniworld(name="mini", folder=tmp_path, limit=5, **SMALL)
    assert [s.caption for s in limited.samples] == [s.caption for s in full.samples[:25]]
    assert [s.image_id for s in limited.samples] == [s.image_id for s in full.samples[:25]]
    for one, other in zip(limited.samples, full.samples[:25], strict=True):
        assert one.image_path.read_bytes() == other.image_path.read_bytes()
    assert len(list(tmp_path.rglob("*.jpg"))) == 5
    beyond = read_miniworld(name="mini", folder=split_folder, limit=99, **SMALL)
    assert beyond.fingerprint == full.fingerprint
