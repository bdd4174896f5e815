"""What runs log by default, and that a resumed run goes on with its curves."""

from __future__ import annotations

import csv
import mmap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from pytorch_lightning.loggers import TensorBoardLogger

from captioning.data.roster import build_roster
from captioning.training import callbacks
from captioning.training.callbacks import markdown, memory, process_bytes, sample_rows, thumbnails
from captioning.types import Sample
from tests.run_calls import train
from tests.tiny import make_batch

OFTEN = ("logger=[csv,tensorboard]", "trainer.log_every_n_steps=2")
STEP_NAMES = ("train/learning_rate", "train/gradient_norm", "speed/interval", "memory/process_mib")


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "logs" / "csv" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def series(rows: list[dict[str, str]], name: str) -> list[tuple[str, str]]:
    return [(row["step"], row[name]) for row in rows if row[name]]


@pytest.mark.long
def test_a_stopped_run_has_the_curves_of_one_that_was_not(small, tmp_path, monkeypatch) -> None:
    train(small("num_epochs=3", *OFTEN, folder="complete"))
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, *args) -> None:
        if trainer.current_epoch == 1 and args[-1] == 3:
            raise KeyboardInterrupt
        original(self, trainer, *args)

    monkeypatch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(small("num_epochs=3", *OFTEN, folder="halves"))
    monkeypatch.undo()
    before = len(rows_of(tmp_path / "halves"))
    train(small("num_epochs=3", *OFTEN, folder="halves"))
    complete, halves = rows_of(tmp_path / "complete"), rows_of(tmp_path / "halves")
    assert 0 < before < len(halves)
    for name in ("train/loss", "train/gradient_norm", "train/learning_rate", "val/CIDEr-D"):
        assert series(complete, name), name
        assert series(complete, name) == series(halves, name), name
    steps = [int(step) for step, _ in series(halves, "speed/interval")]
    assert steps == list(range(1, 15, 2))
    for name in STEP_NAMES:
        values = [float(value) for _, value in series(halves, name)]
        assert len(values) == 7, name
        assert min(values) > 0, name


def test_speed_is_that_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process had three captions; this one repeats one of them in the last batch."""
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(callbacks.dist, "all_reduce", lambda captions: captions.add_(3))
    logged: dict[str, float] = {}
    module: Any = SimpleNamespace(device=torch.device("cpu"), log=logged.__setitem__)
    trainer: Any = SimpleNamespace(world_size=2, global_step=0, loggers=["csv"])
    trainer.log_every_n_steps = 2
    monitor, batch = callbacks.Monitor(), make_batch()
    monitor.on_train_batch_start(trainer, module, batch, 0)
    for step in (1, 2):
        trainer.global_step = step
        monitor.on_train_batch_end(trainer, module, None, replace(batch, filler=step == 2), step)
    assert float(logged["speed/interval"]) == (len(batch) + 3) / 2


@pytest.mark.long
def test_tensorboard_shows_captions_and_photos(small, tmp_path: Path, monkeypatch) -> None:
    texts, photos = [], []

    class Writer:
        def add_text(self, name, text, step):
            texts.append((name, text, step))

        def add_image(self, name, pixels, step, dataformats):
            photos.append((name, pixels.shape, step))

    monkeypatch.setattr(TensorBoardLogger, "experiment", Writer())
    monkeypatch.setattr(TensorBoardLogger, "log_metrics", lambda *args, **kwargs: None)
    monkeypatch.setattr(TensorBoardLogger, "save", lambda *args: None)
    monkeypatch.setattr(TensorBoardLogger, "finalize", lambda *args: None)
    monkeypatch.setattr(TensorBoardLogger, "log_hyperparams", lambda *args, **kwargs: None)
    monkeypatch.setattr(TensorBoardLogger, "log_graph", lambda *args, **kwargs: None)
    train(small("num_epochs=2", "logger=tensorboard", "trainer.log_every_n_steps=5"))
    assert [(name, step) for name, _, step in texts] == [("val/captions", 4), ("val/captions", 9)]
    assert all(len(text.splitlines()) == 2 + 8 for _, text, _ in texts)
    assert len(photos) == 8
    assert all(shape[2] == 3 and step == 4 for _, shape, step in photos)


def test_captions_are_shown_and_not_interpreted() -> None:
    table = markdown([("i", "<img src=x>|![a](b)", "two\nlines")])
    assert len(table.splitlines()) == 3
    assert "<" not in table
    assert r"\!\[a\](b)" in table


def test_photos_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    Image.new("RGB", (1000, 500)).save(tmp_path / "a.png")
    samples = [
        Sample(
            row=n,
            sample_id=f"{n}",
            image_id=name,
            caption=name,
            image_path=tmp_path / f"{name}.png",
        )
        for n, name in enumerate(("a", "b"))
    ]
    roster = build_roster("val", samples)
    captions = {"a": "x", "b": "y"}
    assert sample_rows(captions, roster) == [("a", "x", "a"), ("b", "y", "b")]
    small_photos = thumbnails(captions, roster)
    assert {name: photo.size for name, photo in small_photos.items()} == {"a": (256, 128)}


def test_memory_is_that_of_the_process() -> None:
    before = process_bytes()
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # not of what was freed before
    with mmap.mmap(-1, 60 * 2**20, flags=private) as pages:
        pages.write(b"1" * len(pages))
        assert process_bytes() - before > 50 * 2**20
    assert list(memory(torch.device("cpu"))) == ["process_mib"]


def test_wandb_gets_a_table_with_photos(monkeypatch) -> None:
    tables = []

    class Tables:
        def log_table(self, key, columns, data):
            tables.append((key, columns, data))

    class Library:
        Image = staticmethod(lambda photo: ("photo", photo.size))

    monkeypatch.setattr(callbacks.importlib, "import_module", lambda name: Library)
    rows = [("a", "x", "ref"), ("b", "y", "ref")]
    callbacks._log_wandb(Tables(), rows, {"a": Image.new("RGB", (2, 3))})
    ((key, columns, data),) = tables
    assert (key, len(columns)) == ("val/captions", 4)
    assert data == [["a", ("photo", (2, 3)), "x", "ref"], ["b", None, "y", "ref"]]
