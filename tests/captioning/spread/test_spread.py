"""Shards, their files and what fails in them, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioning.spread import ray_data
from captioning.spread.base import Job, cut
from captioning.spread.local import Local
from captioning.spread.ray_data import (
    MAX_TRIES,
    Order,
    Outcome,
    RayData,
    ShardWorker,
    read_shard,
    tries_of,
    write_shard,
)
from tests.captioning.spread.toy_work import Backwards, Draws, toy_job


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_data, "VISIBLE_AFTER", 0.0)


def all_records(spread: Local | RayData, job: Job) -> list[Any]:
    return list(chain.from_iterable(spread.results(job)))


@pytest.mark.parametrize("shard_size", [None, 1, 5, 100])
def test_records_are_the_same_in_shards_of_any_size(tmp_path: Path, shard_size: int | None):
    job = toy_job(tmp_path)
    spread = Backwards(shard_size=shard_size)
    records = all_records(spread, job)
    assert records == all_records(Local(), job)
    assert [record["number"] for record in records] == list(range(20))
    assert records[7]["unit"] == [6, 7]
    assert not job.folder.exists()


def test_arrays_come_back_as_they_were(tmp_path: Path):
    job = toy_job(tmp_path, form="arrays")
    spread, here = all_records(Backwards(), job), all_records(Local(), job)
    for array, other in zip(spread, here, strict=True):
        assert array.dtype == np.float16
        np.testing.assert_array_equal(array, other)


def test_texts_may_hold_marks_that_end_lines(tmp_path: Path):
    shard = cut(toy_job(tmp_path), 2)[0]
    records = ["a\u2028dog", "a\u0085cat"]
    write_shard(shard, {"seed": 0}, records)
    assert read_shard(shard) == ({"seed": 0}, records)


def test_a_shard_has_whole_units():
    spread = RayData(shard_size=5)
    assert spread.shard_size(unit=2, save_every=6) == 6
    assert RayData().shard_size(unit=4, save_every=6) == 8
    assert Local().shard_size(unit=4, save_every=6) == 4


def test_other_work_has_other_files(tmp_path: Path):
    job = toy_job(tmp_path)
    others = (
        replace(job, settings={"seed": 1}),
        replace(job, unit=3),
        replace(job, name="others"),
        replace(job, items=range(1, 21)),
    )
    paths = {shard.path for shard in cut(job, 6)}
    assert len(paths) == 4
    for other in others:
        assert not paths & {shard.path for shard in cut(other, 6)}


def test_a_stopped_job_goes_on_with_what_is_left(tmp_path: Path):
    job, spread = toy_job(tmp_path), Backwards()
    results = spread.results(job)
    first = next(results)
    results.close()  # the caller was killed before it kept the first shard
    assert spread.computed == [4, 3, 2, 1]
    assert next(spread.results(job)) == first
    assert spread.computed == []
    # kept: the second shard is what comes next
    rest = replace(job, items=job.items[6:])
    assert all_records(spread, rest) == all_records(Local(), rest)
    assert spread.computed == []


def test_a_damaged_file_is_computed_again(tmp_path: Path):
    for form, damage in (("lines", b"{"), ("arrays", b"\0" * 9)):
        job, spread = toy_job(tmp_path / form, form=form), Backwards()  # pyright: ignore
        next(spread.results(job))
        shard = cut(job, 6)[2]
        shard.path.write_bytes(damage)
        assert read_shard(shard) is None
        assert len(all_records(spread, job)) == 20
        assert spread.computed == [3]


def test_a_bad_item_is_told_and_the_other_shards_are_kept(tmp_path: Path):
    spread = Backwards()
    with pytest.raises(ValueError) as caught:
        all_records(spread, toy_job(tmp_path, bad=9))
    message = str(caught.value)
    assert message.startswith("draws: shard 2: item 10 (9): 9.jpg: cannot be opened; what the")
    assert "\n" not in message
    # the first was taken; of the second there is a count of its beginnings
    assert len(list((tmp_path / "parts").iterdir())) == 2 + 1
    assert len(all_records(spread, toy_job(tmp_path))) == 20
    assert spread.computed == [2, 1]


def test_many_bad_shards_end_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Draws, "__call__", lambda *_: [][0])
    spread = Backwards(shard_size=2)
    with pytest.raises(ValueError, match=r"shard 6 \(and 4 others\): .*IndexError: list index"):
        all_records(spread, toy_job(tmp_path))
    assert spread.computed == [10, 9, 8, 7, 6]


def test_a_worker_that_cannot_be_built_ends_the_work(tmp_path: Path):
    spread = Backwards()
    with pytest.raises(ValueError, match="draws: shard 4: .*: no weights here; what"):
        all_records(spread, toy_job(tmp_path, build=1))
    assert spread.computed == [4]


def order_of(job: Job, token: Path) -> Order:
    return Order(build=job.build, unit=2, plugins=(), folder=Path.cwd(), token=token)


def test_a_shard_that_ends_every_process_is_given_up(tmp_path: Path):
    job = toy_job(tmp_path)
    shard = cut(job, 6)[0]
    token = tmp_path / "token"
    token.touch()
    job.folder.mkdir()
    tries_of(shard).write_bytes(b"." * MAX_TRIES)
    outcome = ShardWorker(order_of(job, token)).compute(shard)
    assert "ended the process 4 times" in outcome.problem
    assert not outcome.fatal
    tries_of(shard).write_bytes(b"." * (MAX_TRIES - 1))
    assert ShardWorker(order_of(job, token)).compute(shard) == Outcome()
    assert not tries_of(shard).exists()


def test_a_folder_that_is_not_shared_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_data, "appears", lambda path: path.exists())
    job = toy_job(tmp_path)
    outcome = ShardWorker(order_of(job, tmp_path / "elsewhere")).compute(cut(job, 6)[0])
    assert outcome.fatal
    assert "must lie on a disk that all machines share" in outcome.problem


def test_results_that_do_not_come_here_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ShardWorker, "compute", lambda *_: Outcome())
    monkeypatch.setattr("captioning.spread.ray_data.appears", lambda path: path.exists())
    with pytest.raises(OSError, match="all machines must share the disk of the results"):
        all_records(Backwards(), toy_job(tmp_path))


def test_workers_of_other_weights_are_refused(tmp_path: Path):
    job = toy_job(tmp_path)
    first, second = cut(job, 6)[:2]
    write_shard(first, {"identity": 1, "host": "one"}, [0] * 6)
    write_shard(second, {"identity": 2, "host": "two"}, [0] * 6)
    with pytest.raises(ValueError, match="two has other weights or settings than one"):
        all_records(Backwards(), job)


def test_the_caller_looks_at_the_identity_first(tmp_path: Path):
    def check(identity: Any) -> None:
        raise ValueError(f"others began this: {identity}")

    for spread in (Local(), Backwards()):
        with pytest.raises(ValueError, match="others began this: {'weights': 0}"):
            next(spread.results(replace(toy_job(tmp_path), check=check)))


def test_a_record_too_few_is_told(tmp_path: Path):
    with pytest.raises(ValueError, match="5 records for 6 items"):
        write_shard(cut(toy_job(tmp_path), 6)[0], {}, [1] * 5)


@pytest.mark.long
def test_an_address_without_a_cluster_is_told_at_once():
    pytest.importorskip("ray")
    spread = RayData(address="127.0.0.1:9", patience=5)
    with pytest.raises(ConnectionError, match="spread.address=127.0.0.1:9: nothing answers there"):
        next(spread.results(toy_job(Path("never"))))
    with pytest.raises(ValueError, match="spread.address must be HOST:PORT, auto or null"):
        next(RayData(address="head").results(toy_job(Path("never"))))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"spread=ray: .*'ray'.*pip install"):
        next(RayData().results(toy_job(Path("never"))))


@pytest.mark.parametrize("uses_gpu", [True, False])
def test_workers_are_told_whether_the_work_uses_a_gpu(
    tmp_path: Path, orders: list[Order], uses_gpu: bool
):
    all_records(Backwards(), replace(toy_job(tmp_path), uses_gpu=uses_gpu))
    assert [order.uses_gpu for order in orders] == [uses_gpu]


def test_workers_fit_into_the_cluster():
    spread = RayData(num_workers=3, num_cpus=2)
    assert spread._share({"CPU": 16}, 10) == (0.0, 3)
    assert spread._share({"CPU": 4}, 10) == (0.0, 2)
    assert spread._share({"CPU": 16}, 1) == (0.0, 1)
    assert RayData()._share({"CPU": 16, "GPU": 2}, 10) == (1.0, 2)
    assert RayData()._share({"CPU": 16, "GPU": 2}, 10, uses_gpu=False) == (0.0, 10)
    assert RayData(num_gpus=1)._share({"CPU": 16, "GPU": 2}, 10, uses_gpu=False) == (1, 2)
    assert RayData(num_gpus=0.5)._share({"CPU": 16, "GPU": 2}, 10) == (0.5, 4)
    assert RayData(num_gpus=0)._share({"CPU": 16, "GPU": 2}, 10) == (0, 10)
    with pytest.raises(ValueError, match="spread.num_cpus=2 .* does not fit .* 1 CPUs and 0"):
        spread._share({"CPU": 1}, 10)
