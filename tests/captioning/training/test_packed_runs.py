"""Whole runs on photos that stay packed: the same as on the photos in files of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from captioning.data.readers.imagefolder import read_imagefolder
from captioning.training import callbacks
from captioning.training.rosters import read_train
from captioning.training.settings import DataSettings
from captioning.vision.photo_places import place_in_shard
from curation.export.export import export
from curation.finished_run import read_run
from curation.record import RunRecord
from tests.packed_files import photo, table, write_arrow, write_parquet, write_tar
from tests.run_calls import train

SPLITS = {"train": range(12), "validation": range(12, 16), "test": range(16, 20)}
PHOTOS = [photo(number) for number in range(20)]
CAPTIONS = [[f"a dog of number {n % 5}", f"{n % 3} cats sit on the grass"] for n in range(20)]
POLICY = ("num_epochs=1", "curation=replace_caption", "curation.select.ratio=0.2")
REPLACE = (
    "curation=replace_image",
    "curation.select.ratio=0.3",
    "~curation/image_source",
    "+curation.image_source._target_=tests.curation.toy_source.ToySource",
)


def imagefolder(root: Path) -> list[str]:
    for split, numbers in SPLITS.items():
        (root / split).mkdir(parents=True)
        lines = []
        for number in numbers:
            (root / split / f"{number:02d}.jpg").write_bytes(PHOTOS[number])
            lines.append({"file_name": f"{number:02d}.jpg", "captions": CAPTIONS[number]})
        text = "\n".join(map(json.dumps, lines))
        (root / split / "metadata.jsonl").write_text(text)
    return ["data=imagefolder"]


def webdataset(root: Path) -> list[str]:
    root.mkdir()
    for split, numbers in SPLITS.items():
        for shard in (0, 1):
            members: dict[str, bytes] = {}
            for number in list(numbers)[shard * len(numbers) // 2 :][: len(numbers) // 2]:
                record = json.dumps({"captions": CAPTIONS[number]}).encode()
                members |= {f"{number:02d}.jpg": PHOTOS[number], f"{number:02d}.json": record}
            write_tar(root / f"{split}-{shard}.tar", members)
    names = zip(("train", "val", "test"), SPLITS, strict=True)
    shards = [f"data.{key}.shards='{split}-{{0..1}}.tar'" for key, split in names]
    return ["data=webdataset", "data.held_out=0", *shards]


def arrow(root: Path, write: Callable = write_arrow, suffix: str = "arrow") -> list[str]:
    for split, numbers in SPLITS.items():
        content = table([PHOTOS[n] for n in numbers], [CAPTIONS[n] for n in numbers])
        write(root / split / f"data-00000-of-00001.{suffix}", content)
    return ["data=arrow"]


def parquet(root: Path) -> list[str]:
    return arrow(root, write_parquet, "parquet")


LAYOUTS = {layout.__name__: layout for layout in (imagefolder, webdataset, arrow, parquet)}


@pytest.fixture
def config_of(small, tmp_path):
    """A resolved config of a small run on one of the layouts."""

    def build(layout: str, *overrides: str, folder: str = "run"):
        root = tmp_path / layout
        chosen = LAYOUTS[layout](root) if not root.exists() else known[layout]
        known[layout] = chosen
        own = (f"data.root={root}", "first_images=null", f"paths.cache={tmp_path}/cache-{layout}")
        return small(*chosen, *own, *overrides, folder=folder)

    known: dict[str, list[str]] = {}
    return build


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def same_weights(folder: Path, other_folder: Path) -> bool:
    first, second = weights(folder), weights(other_folder)
    return all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.long
def test_every_layout_trains_to_the_same_bits_and_leaves_its_shards(config_of, tmp_path):
    for layout in LAYOUTS:
        scores = train(config_of(layout, *POLICY, folder=f"run-{layout}"))
        run = tmp_path / f"run-{layout}"
        assert scores == json.loads((run / "metrics.json").read_text())["test"]["corpus"]
        assert same_weights(run, tmp_path / "run-imagefolder"), layout
        assert "data:image/jpeg;base64," in (run / "curation" / "report.html").read_text()
        record = read_run(run)
        inside = [place_in_shard(sample.image_path) for sample in record.view.roster.samples]
        assert all(inside) == (layout != "imagefolder")
        check_export(record, run, tmp_path / f"out-{layout}", can_link=not all(inside))


def check_export(record: RunRecord, run: Path, out: Path, *, can_link: bool) -> None:
    """The curated set with its photos can be read again."""
    export(record, run, out, format="imagefolder", photos="copy")
    exported = read_imagefolder(name="out", folder=out)
    live = record.view.samples()
    assert sorted(s.caption for s in exported.samples) == sorted(s.caption for s in live)
    assert {path.read_bytes() for path in out.rglob("*.jpg")} == set(PHOTOS[:12])
    links = out.with_name(f"links-{out.name}")
    if can_link:
        export(record, run, links, format="coco", photos="link")
        assert all(path.is_symlink() for path in links.rglob("*.jpg"))
        return
    with pytest.raises(ValueError, match="is in a shard and cannot be linked to"):
        export(record, run, links, format="coco", photos="link")
    assert not links.exists()


@pytest.mark.long
def test_a_killed_run_on_shards_ends_the_same(config_of, tmp_path, monkeypatch):
    pictures = f"+curation.image_source.folder={tmp_path / 'pictures'}"
    settings = ("num_epochs=2", *REPLACE, pictures)
    train(config_of("webdataset", *settings, folder="complete"))
    config = config_of("webdataset", *settings, folder="halves")
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 0:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    train(config)
    assert same_weights(tmp_path / "complete", tmp_path / "halves")
    journals = [(tmp_path / run / "curation.jsonl").read_bytes() for run in ("complete", "halves")]
    assert journals[0] == journals[1]
    assert b"replace_image" in journals[0]


def test_photos_that_cannot_be_opened_are_recorded(config_of, tmp_path):
    config = config_of("webdataset", "num_epochs=1")
    shard = tmp_path / "webdataset" / "train-0.tar"
    caption = json.dumps({"captions": ["a dog"]}).encode()
    members = {"x.jpg": b"no photo", "x.json": caption, "y.jpg": b"", "y.json": caption}
    good = {"z.jpg": PHOTOS[0], "z.json": caption}
    write_tar(shard, members | good)
    roster, _ = read_train(DataSettings.of(config))
    rules = {Path(drop.item).name: drop.rule for drop in roster.dropped}
    assert rules == {"x.jpg": "photo is not an image", "y.jpg": "photo is an empty file"}


@pytest.mark.long
def test_loader_processes_open_photos_in_shards(config_of, tmp_path):
    chosen = ("num_epochs=1", "features=none", "loader.num_workers=2")
    for layout in ("imagefolder", "parquet"):
        train(config_of(layout, *chosen, folder=f"run-{layout}"))
    assert same_weights(tmp_path / "run-imagefolder", tmp_path / "run-parquet")
