"""Work spread over a Ray cluster of two machines, of which processes and one machine are lost.

It takes two minutes, so ``make cluster-test`` alone runs it.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioning.config.compose import compose_config
from captioning.runtime.files import write_lines
from captioning.spread.local import Local
from captioning.spread.ray_data import RayData
from curation.capfilt.offline_set import capfilt
from tests.captioning.spread.toy_work import toy_job
from tests.cluster.conftest import REQUESTED
from tests.matching_folders import save_blip_captioner, save_blip_matching
from tests.task_calls import call
from tests.tiny import CAPTIONS

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="needs Ray: pip install 'ray[data]'",
    ),
    # of Ray's own connections, and of pandas in it
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
REPOSITORY = Path(__file__).resolve().parents[2]
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines, as far as Ray knows, of a processor each."""
    if REQUESTED not in os.environ:
        pytest.skip(f"starts a Ray cluster: make cluster-test, or {REQUESTED}=1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # workers import the tests, too
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    import ray
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "object_store_memory": 80 * MEGABYTE}
    cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    cluster.add_node(**options)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def here(folder: Path, **options: Any) -> list[Any]:
    """What one process gives."""
    return list(chain.from_iterable(Local().results(toy_job(folder, **options))))


def test_a_killed_worker_changes_nothing(cluster: Any, tmp_path: Path):
    job = toy_job(tmp_path, kills=9)
    records = list(chain.from_iterable(RayData().results(job)))
    assert (tmp_path / "killed").exists()
    assert records == here(tmp_path)
    assert not job.folder.exists()


def test_a_bad_item_is_told_and_the_rest_is_kept(cluster: Any, tmp_path: Path):
    with pytest.raises(ValueError, match=r"draws: shard 2: item 10 \(9\): 9.jpg: cannot be opened"):
        list(RayData().results(toy_job(tmp_path, bad=9)))
    assert len(list((tmp_path / "parts").glob("*.jsonl"))) == 2  # the first was taken
    records = list(chain.from_iterable(RayData().results(toy_job(tmp_path))))
    assert records == here(tmp_path)


def test_a_deadly_item_does_not_kill_for_ever(cluster: Any, tmp_path: Path):
    with pytest.raises(ValueError, match="shard 2: ended the process 4 times"):
        list(RayData().results(toy_job(tmp_path, deadly=9)))


def test_a_killed_command_goes_on(cluster: Any, tmp_path: Path):
    command = [sys.executable, "-m", "tests.captioning.spread.toy_work", str(tmp_path)]
    program = subprocess.Popen(
        [*command, cluster.address], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    with program.stdout as output:
        assert output.readline() == "6\n"
        program.send_signal(signal.SIGKILL)
        program.wait()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").glob("*.jsonl")}
    assert 1 <= len(files) <= 4
    results = RayData().results(toy_job(tmp_path))
    records = next(results)
    assert all(path.stat().st_mtime_ns == written for path, written in files.items())
    assert records + list(chain.from_iterable(results)) == here(tmp_path)


def test_a_lost_machine_changes_nothing(cluster: Any, tmp_path: Path):
    node = cluster.add_node(num_cpus=1, object_store_memory=80 * MEGABYTE)
    job = toy_job(tmp_path, 60, wait=0.2)
    results = RayData(num_workers=3).results(job)
    records = next(results)
    cluster.remove_node(node, allow_graceful=False)
    records += list(chain.from_iterable(results))
    assert records == here(tmp_path, number=60)


def test_capfilt_gives_the_same_set_by_any_number_of_workers(cluster: Any, tmp_path: Path):
    write_photos(tmp_path)
    names = ("curation.jsonl", "captions.json", "captions.jsonl", "shards/0001-of-0001.jsonl")
    options = (
        *("data=jsonl", f"data.root={tmp_path}", f"data.train.annotations={tmp_path}/train.jsonl"),
        *(f"data.train.image_folder={tmp_path}", f"paths.cache={tmp_path}/cache"),
        f"captioner.captioner.name={save_blip_captioner(tmp_path / 'captioner')}",
        f"filter.scorer.name={save_blip_matching(tmp_path / 'itm')}",
        *("captioner.captioner.search.max_length=8", "photos_at_once=2", "threshold=0.4"),
    )
    sets = {}
    for name, *spread in (
        ("here",),
        ("one", "spread=ray", "spread.num_workers=1"),
        ("two", "spread=ray", "spread.num_workers=2", "spread.shard_size=4"),
    ):
        call(capfilt, compose_config("capfilt", [*options, *spread, f"out={tmp_path / name}"]))
        sets[name] = [(tmp_path / name / file).read_bytes() for file in names]
    assert sets["one"] == sets["here"]
    assert sets["two"] == sets["here"]


def write_photos(folder: Path, number: int = 12) -> None:
    rng, lines = np.random.default_rng(1), []
    for n in range(number):
        pixels = rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.png")
        lines.append(json.dumps({"image": f"{n}.png", "captions": [CAPTIONS[n % 6]]}))
    write_lines(folder / "train.jsonl", lines)
