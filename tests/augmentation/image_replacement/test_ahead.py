"""A process makes pictures ahead: the same pictures, an orderly end, and no harm when it dies."""

from __future__ import annotations

import multiprocessing
import time

import pytest
from squares import Squares, request

from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generated import AheadWorker, GeneratedImages
from augmentation.image_replacement.generator import Job, Producer
from captioning.data.roster import build_roster

# Each starts a process that has to import torch.
pytestmark = pytest.mark.slow
WAIT = 60  # seconds


def source(folder, generator, *, ahead) -> GeneratedImages:
    return GeneratedImages(
        generator=generator,
        cache=PictureCache(folder=folder),
        ahead=ahead,
    )


def requests(*captions):
    return [request(caption, sample_id=caption) for caption in captions]


def wait_for(condition) -> None:
    end = time.monotonic() + WAIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.long
def test_pictures_made_ahead_are_those_made_in_place(tmp_path):
    image_requests = requests(*(f"a red ball {n}" for n in range(6)))
    likely = requests("a blue ball", *(f"a red ball {n}" for n in range(4)))
    generator, plain = Squares(), source(tmp_path / "plain", Squares(), ahead=False)
    assert not plain.works_ahead
    plain.expect(likely, seed=0)
    ahead = source(tmp_path / "ahead", generator, ahead=True)
    assert ahead.works_ahead
    ahead.expect(likely, seed=0)
    wait_for(lambda: len(list((tmp_path / "ahead").rglob("[!.]*.png"))) == 5)
    pictures = ahead.images(image_requests, seed=0)
    made_here = {prompt for batch in generator.batches for prompt in batch}
    assert made_here == {"a red ball 4", "a red ball 5"}
    for picture, other in zip(pictures, plain.images(image_requests, seed=0), strict=True):
        assert picture.path.read_bytes() == other.path.read_bytes()
        assert picture.origin == other.origin
    # it goes on with the next list, and a closed source can be used again
    ahead.expect(requests("a green ball"), seed=0)
    wait_for(lambda: len(list((tmp_path / "ahead").rglob("[!.]*.png"))) == 8)
    ahead.close()
    ahead.close()
    assert ahead.images(image_requests, seed=0) == pictures


@pytest.mark.long
def test_a_worker_that_dies_is_reported_and_replaced_by_working_in_place(tmp_path, caplog):
    generator = Squares()
    ahead = source(tmp_path, generator, ahead=True)
    ahead.expect(requests("a red ball that will die"), seed=0)
    wait_for(lambda: not multiprocessing.active_children())
    pictures = ahead.images(requests("a red ball"), seed=0)
    assert pictures[0].path.is_file()
    assert "generates images ahead ended with exit code 7" in caplog.text
    assert not ahead.works_ahead
    ahead.expect(requests("a blue ball"), seed=0)
    assert multiprocessing.active_children() == []
    assert caplog.text.count("exit code") == 1
    ahead.close()


@pytest.mark.long
def test_a_pause_waits_for_the_batch_under_way_and_drops_the_rest(tmp_path):
    cache = PictureCache(folder=tmp_path)
    worker = AheadWorker(generator=Squares(batch_size=1), cache=cache)
    worker.pause()  # nothing has begun
    jobs = [Job(prompt=f"a red ball {n}", seed=n) for n in range(2000)]
    worker.order(jobs)
    wait_for(lambda: any(tmp_path.rglob("[!.]*.png")))
    worker.pause()
    made = len(list(tmp_path.rglob("[!.]*.png")))
    assert 0 < made < 2000
    time.sleep(0.3)
    assert len(list(tmp_path.rglob("[!.]*.png"))) == made
    worker.order(jobs[-1:])
    last = Producer(generator=Squares(), cache=cache)
    wait_for(lambda: last.find(jobs[-1]) is not None)
    worker.close()


def test_a_worker_that_has_not_begun_to_work_is_not_waited_for(tmp_path):
    ahead = source(tmp_path, Squares(), ahead=True)
    ahead.start(build_roster("r", [request("a red ball").sample]))
    assert len(multiprocessing.active_children()) == 1
    ahead.expect(requests("a blue ball"), seed=0)
    started = time.monotonic()
    assert ahead.images(requests("a red ball"), seed=0)[0].path.is_file()
    assert time.monotonic() - started < 1
    # what was ordered before the pause is dropped; what comes after it is made
    ahead.expect(requests("a green ball"), seed=0)
    wait_for(lambda: len(list(tmp_path.rglob("[!.]*.png"))) == 2)
    ahead.images(requests("a red ball"), seed=0)
    assert len(list(tmp_path.rglob("[!.]*.png"))) == 2
    ahead.close()


@pytest.mark.long
def test_a_failed_picture_does_not_stop_the_worker(tmp_path):
    ahead = source(tmp_path, Squares(batch_size=2), ahead=True)
    ahead.expect(requests("will raise", "a red ball", "nan", "a blue ball"), seed=0)
    wait_for(lambda: len(list(tmp_path.rglob("[!.]*.png"))) == 2)
    pictures = ahead.images(requests("will raise"), seed=0)
    assert pictures[0].problem == "ValueError: no such picture"
    ahead.close()
