"""Pictures by prompt and seed: the same again, whatever fails, and nothing lost."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from squares import Squares, request

from augmentation.image_replacement import generator as generator_module
from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generated import GeneratedImages, picture_seed
from augmentation.image_replacement.generator import Job, Producer, is_out_of_memory
from captioning.data.roster import build_roster


def source(folder, generator=None, **options) -> GeneratedImages:
    return GeneratedImages(
        generator=generator or Squares(),
        cache=PictureCache(folder=folder),
        **options,
    )


def pixels(picture) -> np.ndarray:
    with Image.open(picture.path) as image:
        return np.asarray(image)


def test_each_request_gets_its_picture_in_order(tmp_path):
    requests = [request(f"a {c} ball", sample_id=c) for c in ("red", "green", "blue", "red")]
    requests[3] = request("a red ball", sample_id="another red")
    pictures = source(tmp_path).images(requests, seed=3)
    middle = [pixels(picture)[8, 8].argmax() for picture in pictures]
    assert middle == [0, 1, 2, 0]
    assert len({picture.path for picture in pictures}) == 4
    seed = picture_seed(3, "red", 1)
    assert pictures[0].origin == f"generated:squares@1 seed {seed}: a red ball"
    assert pictures[0].problem == ""


def test_the_same_again_is_not_made_again(tmp_path):
    first, second = Squares(), Squares()
    requests = [request("a red ball")]
    pictures = source(tmp_path, first).images(requests, seed=0)
    assert source(tmp_path, second).images(requests, seed=0) == pictures
    assert (len(first.batches), second.batches, second.num_loads) == (1, [], 0)
    assert source(tmp_path, first).images([], seed=0) == []


def test_seed_prompt_model_and_number_of_pictures_each_make_another_picture(tmp_path):
    plain = source(tmp_path).images([request("a red ball")], seed=0)[0].path
    others = [
        source(tmp_path).images([request("a red ball")], seed=1)[0].path,
        source(tmp_path).images([request("a red  box")], seed=0)[0].path,
        source(tmp_path).images([request("a red ball", had=2)], seed=0)[0].path,
        source(tmp_path).images([request("a red ball", sample_id="b")], seed=0)[0].path,
        source(tmp_path, Squares(version=2)).images([request("a red ball")], seed=0)[0].path,
    ]
    assert len({plain, *others}) == 6


def test_batches_are_always_full_and_pictures_do_not_depend_on_them(tmp_path):
    requests = [request(f"a red ball {n}", sample_id=str(n)) for n in range(5)]
    large, single = Squares(batch_size=4), Squares(batch_size=1)
    together = source(tmp_path / "a", large).images(requests, seed=0)
    apart = source(tmp_path / "b", single).images(requests, seed=0)
    assert [len(batch) for batch in large.batches] == [4, 4]
    assert [len(batch) for batch in single.batches] == [1] * 5
    for picture, other in zip(together, apart, strict=True):
        assert picture.path.read_bytes() == other.path.read_bytes()


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("raise", "ValueError: no such picture"),
        ("nan", "values that are not numbers"),
        ("small", "wrong size: (8, 16, 3) instead of (16, 16, 3)"),
        ("blank", "blank picture"),
        ("unsafe", "withheld by the safety checker"),
    ],
)
def test_a_failed_picture_leaves_its_sample_alone_and_the_others_get_theirs(
    tmp_path, caplog, word, problem
):
    captions = ["a red ball", "a green ball", f"a {word} ball", "a blue ball"]
    requests = [request(caption, sample_id=caption) for caption in captions]
    pictures = source(tmp_path).images(requests, seed=0)
    assert [picture.path is None for picture in pictures] == [False, False, True, False]
    assert pictures[2].problem == problem
    assert f"1 of 4 images failed (1 x {problem})" in caplog.text
    assert len(list(tmp_path.rglob("*.png"))) == 3


def test_where_memory_runs_out_smaller_batches_do_it(tmp_path, caplog):
    generator = Squares(batch_size=8, room=3)
    requests = [request(f"a red ball {n}", sample_id=str(n)) for n in range(10)]
    pictures = source(tmp_path, generator).images(requests, seed=0)
    assert all(picture.path is not None for picture in pictures)
    assert [len(batch) for batch in generator.batches] == [8, 4, 2, 2, 2, 2, 2]
    assert "out of memory: batch_size 8 is halved" in caplog.text
    generator = Squares(batch_size=8, room=0)
    nothing = source(tmp_path / "b", generator).images(requests[:2], seed=0)
    assert [picture.problem for picture in nothing] == ["out of memory"] * 2


def test_other_failures_leave_the_batch_as_large_as_it_was(tmp_path):
    generator = Squares(batch_size=4)
    captions = ["a red ball", "will raise", "a green ball", "a blue ball", "a ball"]
    source(tmp_path, generator).images([request(c, sample_id=c) for c in captions], seed=0)
    assert [len(batch) for batch in generator.batches] == [4, 2, 1, 1, 2, 4]


def test_errors_of_memory_are_known():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
    )
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize("caption", ["", "  ", "word" * 500])
def test_prompts_that_cannot_be_used_leave_the_sample_alone(tmp_path, caption):
    generator = Squares(max_tokens=3)
    generator.count_tokens = lambda text: len(text) // 4
    image_request = request(caption)
    image_request = replace(image_request, sample=replace(image_request.sample, caption=caption))
    picture = source(tmp_path, generator).images([image_request], seed=0)[0]
    assert picture.path is None
    assert picture.problem in ("empty prompt", "prompt too long to be shortened at a word")
    assert generator.batches == []


def test_a_file_that_was_cut_short_or_changed_is_made_again(tmp_path, caplog):
    requests = [request("a red ball")]
    pictures = source(tmp_path).images(requests, seed=0)
    full_bytes = pictures[0].path.read_bytes()
    other = source(tmp_path).images([request("a blue ball")], seed=0)[0].path.read_bytes()
    with Image.open(pictures[0].path) as image:
        changed = image.point(lambda value: 255 - value)
    for number, damage in enumerate((full_bytes[: len(full_bytes) // 2], b"", other, None)):
        if damage is None:
            changed.save(pictures[0].path, pnginfo=_notes(full_bytes, tmp_path))
        else:
            pictures[0].path.write_bytes(damage)
        again = Squares()
        assert source(tmp_path, again).images(requests, seed=0) == pictures
        assert len(again.batches) == 1
        assert pictures[0].path.read_bytes() == full_bytes
        assert caplog.text.count("the image is generated again") == number + 1


def _notes(content, folder):
    """The texts of a PNG file, to be put into another."""
    (folder / "copy.png").write_bytes(content)
    with Image.open(folder / "copy.png") as image:
        notes = PngInfo()
        for key, value in image.info.items():
            notes.add_itxt(key, value)
    return notes


def test_a_cache_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("in the way")
    roster = build_roster("r", [request("a red ball").sample])
    with pytest.raises(OSError, match="cache of generated images cannot be written") as raised:
        source(tmp_path / "file" / "cache").start(roster)
    assert str(tmp_path / "file" / "cache") in str(raised.value)
    source(tmp_path / "cache").start(roster)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_disk_that_fills_up_is_named_and_what_was_made_stays(tmp_path, monkeypatch):
    requests = [request(f"a red ball {n}", sample_id=str(n)) for n in range(6)]
    store, stored, lock = PictureCache.store, [], threading.Lock()

    def fill(self, recipe, picture):
        with lock:  # several threads store
            if len(stored) == 4:
                raise OSError(
                    28, "No space left on device; free space or choose another place", "x.png"
                )
            stored.append(store(self, recipe, picture))

    monkeypatch.setattr(PictureCache, "store", fill)
    with pytest.raises(OSError, match=r"No space left on device; free space.*x\.png"):
        source(tmp_path).images(requests, seed=0)
    monkeypatch.undo()
    assert len(list(tmp_path.rglob("*.png"))) == 4
    generator = Squares()
    assert all(p.path for p in source(tmp_path, generator).images(requests, seed=0))
    assert len({prompt for batch in generator.batches for prompt in batch}) == 2


def test_an_interrupted_write_leaves_no_picture(tmp_path, monkeypatch):
    def interrupted(image, path, **options):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, "save", interrupted)
    producer = Producer(generator=Squares(), cache=PictureCache(folder=tmp_path))
    with pytest.raises(KeyboardInterrupt):
        producer.produce([Job(prompt="a red ball", seed=1)])
    assert list(tmp_path.rglob("*.png")) == []


def test_a_model_that_was_loaded_is_freed_and_comes_back(tmp_path):
    generator = Squares()
    pictures = source(tmp_path, generator)
    pictures.release()
    pictures.images([request("a red ball")], seed=0)
    pictures.release()
    pictures.images([request("a red ball")], seed=0)  # of the cache
    pictures.release()
    assert (generator.num_loads, generator.num_releases) == (1, 1)
    assert pictures.images([request("a blue ball")], seed=0)[0].path.is_file()
    assert generator.num_loads == 2


def jobs_of(number: int) -> list[Job]:
    return [Job(prompt=f"a red ball {n}", seed=n) for n in range(number)]


def test_the_next_batch_is_made_while_pictures_are_stored(tmp_path, monkeypatch):
    generator, begun = Squares(batch_size=2), threading.Event()
    store, generate = PictureCache.store, generator.generate
    caller, storers = threading.get_ident(), set()

    def slow(self, recipe, picture):
        assert begun.wait(20)
        storers.add(threading.get_ident())
        return store(self, recipe, picture)

    def noted(jobs):
        pictures = generate(jobs)
        if len(generator.batches) == 2:
            begun.set()
        return pictures

    monkeypatch.setattr(PictureCache, "store", slow)
    monkeypatch.setattr(generator, "generate", noted)
    producer = Producer(generator=generator, cache=PictureCache(folder=tmp_path))
    assert producer.produce(jobs_of(4)) == {}
    assert len(list(tmp_path.rglob("*.png"))) == 4  # nothing waits any more
    assert caller not in storers


def test_few_pictures_wait_to_be_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(generator_module, "MOST_WAITING", 3)
    store, lock = PictureCache.store, threading.Lock()
    made, stored, waiting = 0, 0, []

    def slow(self, recipe, picture):
        nonlocal stored
        time.sleep(0.02)
        path = store(self, recipe, picture)
        with lock:
            stored += 1
        return path

    class Counted(Squares):
        def generate(self, jobs):
            nonlocal made
            with lock:
                waiting.append(made - stored)
            made += 1
            return super().generate(jobs)

    monkeypatch.setattr(PictureCache, "store", slow)
    producer = Producer(generator=Counted(batch_size=1), cache=PictureCache(folder=tmp_path))
    assert producer.produce(jobs_of(20)) == {}
    assert 1 <= max(waiting) <= 3 + generator_module.STORING_THREADS


def test_a_picture_that_cannot_be_stored_stops_the_making(tmp_path, monkeypatch):
    def full(self, recipe, picture):
        raise OSError(28, "No space left on device", "x.png")

    monkeypatch.setattr(PictureCache, "store", full)
    monkeypatch.setattr(generator_module, "MOST_WAITING", 3)
    generator = Squares(batch_size=1)
    producer = Producer(generator=generator, cache=PictureCache(folder=tmp_path))
    with pytest.raises(OSError, match="No space left"):
        producer.produce(jobs_of(100))
    assert len(generator.batches) <= 5


def test_pixels_and_key_do_not_depend_on_the_compression(tmp_path):
    recipe, picture = {"prompt": "a"}, np.arange(300, dtype=np.uint16).astype(np.uint8)
    picture = picture.reshape(10, 10, 3)
    cache = PictureCache(folder=tmp_path)
    path = cache.store(recipe, picture)
    with Image.open(path) as image:
        image.load()
        notes, kept = dict(image.info), np.asarray(image)
    assert (kept == picture).all()
    older = PngInfo()
    for key, value in notes.items():
        older.add_itxt(key, value)
    fast = path.read_bytes()
    Image.fromarray(kept).save(path, pnginfo=older, compress_level=9)  # as it was stored before
    assert path.read_bytes() != fast
    assert cache.find(recipe) == path
