"""A run belongs to its data: what each command says once they have changed."""

from __future__ import annotations

import csv
import json
import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from captioning.commands.main import main
from captioning.config.compose import compose_config
from captioning.results.run_folder import RunFolder
from captioning.training import callbacks
from tests.captioning.conftest import SMALL
from tests.packed_files import photo
from tests.run_calls import train

NUMBER = 16
Config = Callable[..., DictConfig]


def write_set(folder: Path, shift: int = 0) -> None:
    """Photos with a column of splits; each has the captions of the photo ``shift`` further on."""
    folder.mkdir(exist_ok=True)
    splits = ["val"] * 2 + ["test"] * 3 + ["train"] * (NUMBER - 5)
    with (folder / "captions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption", "split"))
        for number, split in enumerate(splits):
            (folder / f"p{number}.png").write_bytes(photo(number, 64))
            for own in range(2):
                text = f"a dog runs {'far ' * ((number + shift) % 7)}on grass {own}"
                writer.writerow((f"p{number}.png", text, split))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A set, a finished run of one epoch, and one of two that was stopped in its second."""
    root = tmp_path_factory.mktemp("made")
    write_set(root / "set")
    train(config_of(root, cache, "num_epochs=1", run="finished"))
    with pytest.MonkeyPatch.context() as patch:
        stop(patch, 1, config_of(root, cache, run="stopped"))
    return root


def config_of(root: Path, cache: Path, *overrides: str, run: str = "run") -> DictConfig:
    own = [e for e in SMALL if not e.startswith(("data=", "first_images", "model"))]
    place = [f"data.root={root / 'set'}", f"run_dir={root / run}", f"paths.cache={cache}"]
    chosen = ["data=own", "num_epochs=2", "model=updown_tiny", "report=false", *own, *place]
    config = compose_config("train", [*chosen, *overrides])
    OmegaConf.resolve(config)
    return config


def stop(patch: pytest.MonkeyPatch, epoch: int, config: DictConfig) -> None:
    """Begins a run, and stops it in an epoch."""
    original = callbacks.Speed.on_train_batch_end

    def interrupt(self, trainer, module, *args) -> None:
        if trainer.current_epoch == epoch:
            raise KeyboardInterrupt
        original(self, trainer, module, *args)

    patch.setattr(callbacks.Speed, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt, match="resume=auto"):
        train(config)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "set", tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def config(folder: Path, cache: Path, tmp_path: Path) -> Config:
    return partial(config_of, tmp_path, cache)


def copied(run: Path, to: Path, root: Path) -> Path:
    """A run that knows the set in its new place."""
    shutil.copytree(run, to)
    text = (to / "config.yaml").read_text()
    (to / "config.yaml").write_text(text.replace(str(run.parent), str(root)))
    return to


@pytest.fixture
def stopped(made: Path, folder: Path, tmp_path: Path) -> Path:
    return copied(made / "stopped", tmp_path / "run", tmp_path)


@pytest.fixture
def finished(made: Path, folder: Path, tmp_path: Path) -> Path:
    return copied(made / "finished", tmp_path / "run", tmp_path)


@pytest.mark.long
def test_a_run_whose_captions_were_exchanged_does_not_go_on(stopped, config, folder) -> None:
    write_set(folder, shift=1)
    with pytest.raises(ValueError, match="its data have changed since it began") as refused:
        train(config())
    message = str(refused.value)
    assert f"{2 * NUMBER} captions have other words ('p5.png" in message
    assert "data.accept_changes=true" in message
    assert not RunFolder(stopped).finished()
    write_set(folder)
    train(config())
    assert RunFolder(stopped).finished()


@pytest.mark.long
def test_changes_that_are_accepted_are_kept(stopped, config, folder) -> None:
    table = folder / "captions.csv"
    text = table.read_text()
    table.write_text(text.replace("p5.png", "?").replace("p6.png", "p5.png").replace("?", "p6.png"))
    train(config("data.accept_changes=true"))
    [entry] = json.loads((stopped / "data.json").read_text())["accepted"]
    assert "4 captions have other words ('p" in " ".join(entry["changes"])
    train(config())  # finished, and of the data as they are now


@pytest.mark.long
def test_a_run_without_results_begins_with_the_data_of_now(config, folder, tmp_path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop(patch, 0, config())
    before = (tmp_path / "run" / "data.json").read_text()
    write_set(folder, shift=1)
    train(config())
    assert RunFolder(tmp_path / "run").finished()
    assert (tmp_path / "run" / "data.json").read_text() != before


def test_a_finished_run_does_not_pass_its_scores_off_as_those_of_other_data(
    finished, config, folder, caplog
) -> None:
    caplog.set_level(logging.INFO)
    train(config("num_epochs=1"))
    assert "is finished" in caplog.text
    (folder / "p7.png").write_bytes(photo(99, 64))
    with pytest.raises(ValueError, match=r"1 photos have other contents \('p7.png'\)"):
        train(config("num_epochs=1"))
    shutil.rmtree(folder)
    caplog.clear()
    assert train(config("num_epochs=1"))
    assert "its data are not compared with the present data" in caplog.text


@pytest.mark.long
def test_an_evaluation_of_changed_captions_is_refused_or_recorded(
    finished, folder, tmp_path
) -> None:
    settings = [f"run={finished}", "metrics=fast", "metrics.tokenizer=python", "resamples=0"]
    assert main(["evaluate", *settings]) == 0
    write_set(folder, shift=1)
    out = f"out={tmp_path / 'out'}"
    with pytest.raises(SystemExit) as refused:
        main(["evaluate", *settings, out])
    said = str(refused.value)
    assert "6 captions have other words ('p2.png" in said
    assert "data.accept_changes=true" in said
    assert not (tmp_path / "out").exists()
    assert main(["evaluate", *settings, out, "data.accept_changes=true"]) == 0
    evaluated = json.loads((tmp_path / "out" / "metrics.json").read_text())["evaluated"]
    assert evaluated["accept_changes"] is True


def test_a_good_page_is_not_overwritten_by_a_poorer_one(finished, folder, capfd) -> None:
    assert main(["report", str(finished), "--no-figures"]) == 0
    page = (finished / "report.html").read_bytes()
    write_set(folder, shift=1)
    assert main(["report", str(finished), "--no-figures"]) == 1
    said = capfd.readouterr().err
    assert "its data have changed since it began" in said
    assert "the complete report.html is kept" in said
    assert (finished / "report.html").read_bytes() == page
    assert (finished / "report-partial.html").is_file()


@pytest.mark.long
def test_photos_that_the_start_was_trained_on_are_no_test_photos(finished, config, folder) -> None:
    table = folder / "captions.csv"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    turned = {"p2.png": "train", "p9.png": "test", "p10.png": "test"}
    table.write_text("\n".join(",".join([n, c, turned.get(n, s)]) for n, c, s in rows))
    again = (f"start_from={finished}", "num_epochs=1")
    with pytest.raises(ValueError, match=r"2 of 4 test photos were training photos") as refused:
        train(config(*again, run="second"))
    assert "'p9.png', 'p10.png'" in str(refused.value)
    train(config(*again, "data.accept_changes=true", run="third"))


@pytest.mark.long
def test_copies_across_splits_are_told(config, folder, caplog) -> None:
    (folder / "p2.png").write_bytes((folder / "p8.png").read_bytes())
    train(config("num_epochs=1"))
    assert "1 of 3 test photos are also training photos ('p2.png is p8.png')" in caplog.text


def test_other_data_that_the_run_was_trained_on_are_told(finished, folder, capfd) -> None:
    settings = ["metrics=fast", "metrics.tokenizer=python", "resamples=0", "split=train"]
    other = ["data=own", f"data.root={folder}", f"out={folder.parent / 'out'}"]
    assert main(["evaluate", f"run={finished}", *settings, *other]) == 0
    assert "11 of 11 photos of own/train were training photos of" in capfd.readouterr().out


@pytest.mark.long
def test_the_same_data_in_another_place_are_the_same_run(stopped, config, folder, tmp_path) -> None:
    folder.rename(tmp_path / "moved")
    train(config(f"data.root={tmp_path / 'moved'}", f"paths.cache={tmp_path / 'other'}"))
    assert RunFolder(stopped).finished()


@pytest.mark.long
def test_a_finished_run_keeps_where_its_data_lie_now(finished, config, folder, tmp_path) -> None:
    settings = ["num_epochs=1", f"data.root={tmp_path / 'moved'}"]
    folder.rename(tmp_path / "moved")
    train(config(*settings))
    assert RunFolder(finished).config().data.root == str(tmp_path / "moved")
    assert main(["report", str(finished), "--no-figures"]) == 0
    assert main(["evaluate", f"run={finished}", f"out={tmp_path / 'out'}"]) == 0


def test_other_data_in_another_place_are_refused(stopped, config, folder, tmp_path) -> None:
    write_set(tmp_path / "second", shift=1)
    with pytest.raises(ValueError, match="its data have changed since it began: 32 captions"):
        train(config(f"data.root={tmp_path / 'second'}"))


@pytest.mark.long
def test_a_folder_in_another_spelling_is_the_same(stopped, config, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(config("data.root=./set/"))
    assert RunFolder(stopped).finished()
