"""Commands leave the same files whether shards are computed here or elsewhere, in another order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from augmentation.image_replacement.made_ahead import make_ahead
from augmentation.run import augment
from captioning.config.compose import compose_config
from captioning.spread.base import Job
from captioning.spread.ray_data import Order
from captioning.training import prepare as prepare_module
from captioning.training.prepare import prepare
from captioning.training.settings import Features
from curation.detect import score_data
from tests.captioning.spread.toy_work import Backwards
from tests.task_calls import call

TOYS = "tests.captioning.spread.toy_work"
ELSEWHERE = (
    "spread=ray",
    f"spread._target_={TOYS}.Backwards",
    "spread.shard_size=4",
)
WORLD = ("data=miniworld_tiny", "data.train.num_scenes=10", "data.train.size=32")


def compose(name: str, folder: Path, *overrides: str) -> DictConfig:
    return compose_config(name, [*WORLD, f"paths.cache={folder / 'cache'}", *overrides])


def contents(folder: Path, *left_out: str) -> dict[str, bytes]:
    """All files below a folder but locks and some others."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("lock", *left_out)
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        ("method=ssa", "method.rules.min_well_formedness=0"),
        ("method=toca", "method.pace.num_captions=70", "method.pace.batch_size=5"),
    ],
    ids=["ssa", "toca"],
)
def test_captions(tmp_path: Path, method: tuple[str, ...], orders: list[Order]):
    sets = []
    for name, spread in (("here", ()), ("elsewhere", ELSEWHERE)):
        out = tmp_path / name
        call(augment, compose("augmentation", tmp_path, *method, *spread, f"out={out}"))
        sets.append(contents(out, "card.json"))
    assert sets[0] == sets[1]
    assert any(name.startswith("captions.") and text for name, text in sets[0].items())
    assert Backwards.computed
    assert orders
    assert not any(order.uses_gpu for order in orders)  # rules and trigrams


@pytest.mark.long
def test_a_killed_synthesis_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from augmentation.toca.method import Synthesis

    pace = ("method=toca", "method.pace.num_captions=70", "method.pace.batch_size=5")
    call(augment, compose("augmentation", tmp_path, *pace, f"out={tmp_path / 'whole'}"))
    batch, number = Synthesis._batch, []

    def dies(*arguments: Any, **options: Any) -> Any:
        number.append(None)
        if len(number) == 7:  # in the midst of the second shard
            raise KeyboardInterrupt
        return batch(*arguments, **options)

    config = compose("augmentation", tmp_path, *pace, *ELSEWHERE, f"out={tmp_path / 'killed'}")
    with monkeypatch.context() as patch:
        patch.setattr(Synthesis, "_batch", dies)
        with pytest.raises(KeyboardInterrupt):
            call(augment, config)
    first = list(Backwards.computed)
    call(augment, config)
    assert len(Backwards.computed) < len(first)
    whole, killed = (contents(tmp_path / name, "card.json") for name in ("whole", "killed"))
    assert whole == killed


def test_pasted_pairs_are_made_by_one_machine(tmp_path: Path):
    with pytest.raises(ValueError, match="spread=ray works only for methods that make captions"):
        call(augment, compose("augmentation", tmp_path, *ELSEWHERE, f"out={tmp_path / 'out'}"))


@pytest.mark.long
def test_features(tmp_path: Path, orders: list[Order]):
    stores = []
    splits = ("~data.val", "~data.test", "~data.test_near", "~data.test_out")
    for name, spread in (("here", ()), ("elsewhere", (*ELSEWHERE, "spread.shard_size=64"))):
        folder = tmp_path / name
        options = (f"features.folder={folder}", "+features.chunk_size=64", *splits)
        config = compose("prepare", tmp_path, "data.train.num_scenes=70", *options, *spread)
        config.features.backbone = {"_target_": f"{TOYS}.seeded_backbone"}
        assert call(prepare, config)
        stores.append(contents(folder))
    assert stores[0] == stores[1]
    assert sorted(Path(name).name for name in stores[0]) == [
        "features.bin",
        "index.json",
        "records.log",
    ]
    assert Backwards.computed == [2, 1]
    assert [order.uses_gpu for order in orders] == [True]
    assert orders[0].unit == 64  # on a GPU, where threads decode ahead, more


def test_photos_of_several_batches_are_decoded_one_beside_another_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    jobs: list[Job] = []
    monkeypatch.setattr(Backwards, "results", lambda _, job: jobs.append(job) or iter(()))
    config = compose("prepare", tmp_path, *ELSEWHERE)
    for device, batch_size in (("cpu", None), ("cuda", None), ("cuda", 96)):
        chosen: Any = lambda _, device=device: torch.device(device)  # noqa: E731
        monkeypatch.setattr(prepare_module, "chosen_device", chosen)
        config.features.batch_size = batch_size
        chosen = Features.of(config.features)
        computed = prepare_module.spread_features(chosen, config.spread, "a backbone")
        assert computed is not None
        list(computed(()))
    assert [job.unit for job in jobs] == [64, 512, 576]


def test_scores_of_pairs(tmp_path: Path):
    results = []
    for name, spread in (("here", ()), ("elsewhere", ELSEWHERE)):
        config = compose("score", tmp_path, *spread)
        config.pairs = {
            "_target_": "captioning.vision.pair_scores.PairScores",
            "scorer": {"_target_": f"{TOYS}.BrightWords"},
            "cache_folder": str(tmp_path / name),
            "photos_at_once": 2,
        }
        Backwards.computed.clear()
        results.append(call(score_data, config))
    assert results[0] == results[1]
    assert len(results[0][1]) == 50
    assert Backwards.computed == [3, 2, 1]
    assert not (tmp_path / "elsewhere" / "parts").exists()
    assert call(score_data, config) == results[0]  # all of them from the cache
    assert Backwards.computed == []
    config.pairs.cache_folder = None
    with pytest.raises(ValueError, match="set pairs.cache_folder=FOLDER"):
        call(score_data, config)


def test_pictures(tmp_path: Path):
    folders = []
    for name, spread in (("here", ()), ("elsewhere", ELSEWHERE)):
        config = compose("pictures", tmp_path, "first_images=3", *spread)
        config.curation.image_source = {
            "_target_": "augmentation.image_replacement.generated.GeneratedImages",
            "ahead": True,
            "cache": {
                "_target_": "augmentation.image_replacement.cache.PictureCache",
                "folder": str(tmp_path / name),
            },
            "generator": {
                "_target_": "tests.augmentation.image_replacement.squares.Squares",
                "batch_size": 2,
            },
        }
        assert call(make_ahead, config) == {"made": 15}
        folders.append(contents(tmp_path / name))
    assert folders[0] == folders[1]
    assert len(folders[0]) == 15
    assert len(Backwards.computed) == 4
