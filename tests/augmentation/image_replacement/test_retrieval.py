"""Photos of a pool: the nearest, never a photo that is known, under whatever name."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from augmentation.base import ImageRequest
from augmentation.image_replacement import retrieval
from augmentation.image_replacement.retrieval import (
    EmbeddedPhotos,
    Retrieval,
    find_photos,
    same_photo,
    thumbnail,
)
from captioning.data.roster import build_roster
from captioning.types import Sample

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 210), "grey": (99,) * 3}


class ColourSpace:
    """A space in which a photo lies where its mean colour does, and a text where its word does."""

    space = identity = "colours"

    def __init__(self) -> None:
        self.num_images = 0

    def embed_photos(self, images):
        self.num_images += len(images)
        means = [np.asarray(image, dtype=np.float32).mean((0, 1)) for image in images]
        return torch.nn.functional.normalize(torch.tensor(np.stack(means)), dim=-1)

    def embed_texts(self, texts):
        words = [next((COLOURS[w] for w in t.split() if w in COLOURS), (9,) * 3) for t in texts]
        return torch.nn.functional.normalize(torch.tensor(words, dtype=torch.float32), dim=-1)


def photo(path: Path, colour: str, number: int = 0, size: int = 64) -> Path:
    """A noisy photo in a colour; another one for each number."""
    rng = np.random.default_rng([number, *colour.encode()])
    cells = np.clip(np.array(COLOURS[colour]) + rng.normal(0, 25, (8, 8, 3)), 0, 255)
    image = Image.fromarray(cells.astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def request(caption: str, path: Path, *more: Path) -> ImageRequest:
    sample = Sample(row=0, sample_id="a#0", image_id="a", image_path=path, caption=caption)
    return ImageRequest(sample=sample, captions=(caption,), photos=(path, *more))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    for colour in ("red", "green", "blue"):
        for number in range(2):
            photo(tmp_path / "pool" / colour / f"{number}.png", colour, number)
    return tmp_path / "pool"


def test_the_nearest_photo_is_given(pool, tmp_path):
    own_photo = photo(tmp_path / "own.png", "grey")
    source = Retrieval(pool=pool, encoder=ColourSpace())
    captions = ("a green lawn", "a red car", "a blue sky")
    pictures = source.images([request(caption, own_photo) for caption in captions], seed=0)
    assert [picture.path.parent.name for picture in pictures] == ["green", "red", "blue"]
    assert pictures[0].origin.startswith("retrieval:colours ")
    assert pictures[0].origin.endswith(pictures[0].path.relative_to(pool).as_posix())
    assert source.images([], seed=0) == []


def test_the_encoder_leaves_its_device_to_training(pool, tmp_path):
    encoder, own_photo = ColourSpace(), photo(tmp_path / "own.png", "grey")
    left = []
    encoder.release = lambda: left.append(encoder.num_images)
    source = Retrieval(pool=pool, encoder=encoder)
    source.start(build_roster("train", [request("a red car", own_photo).sample]))
    assert left == [6]
    source.release()
    assert left == [6, 6]


def test_a_photo_the_sample_has_or_had_is_never_given_whatever_its_name_size_or_format(pool):
    encoder = ColourSpace()
    first = Retrieval(pool=pool, encoder=encoder).images(
        [request("red", photo(pool.parent / "own.png", "grey"))], seed=0
    )[0]
    copies = [pool.parent / name for name in ("copy.png", "copy.jpg", "large.png")]
    shutil.copy(first.path, copies[0])
    with Image.open(first.path) as image:
        image.save(copies[1], quality=60)
        image.resize((150, 100)).save(copies[2])
    for copy in copies:
        second = Retrieval(pool=pool, encoder=encoder).images([request("red", copy)], seed=0)[0]
        assert second.path != first.path
        assert second.path.parent.name == "red"
    red_request = request("red", *(pool / "red" / f"{n}.png" for n in range(2)))
    third = Retrieval(pool=pool, encoder=encoder).images([red_request], seed=0)[0]
    assert third.path.parent.name != "red"


def test_validation_and_test_photos_are_never_given(pool, tmp_path):
    own_photo = photo(tmp_path / "own.png", "grey")
    held_out = tmp_path / "val" / "saved_again.jpg"
    held_out.parent.mkdir()
    with Image.open(pool / "red" / "0.png") as image:
        image.save(held_out, quality=80)
    sample = Sample(row=0, sample_id="v#0", image_id="v", image_path=held_out, caption="red")
    exclude = [build_roster("val", [sample]), None]
    source = Retrieval(pool=pool, encoder=ColourSpace(), exclude=exclude)
    assert source.images([request("red", own_photo)], seed=0)[0].path == pool / "red" / "1.png"
    everything = [
        Sample(row=0, sample_id=str(path), image_id="v", image_path=path, caption="red")
        for path in find_photos(pool)
    ]
    source = Retrieval(pool=pool, encoder=ColourSpace(), exclude=[build_roster("v", everything)])
    with pytest.raises(ValueError, match="every photo in the pool is a validation or test photo"):
        source.start(build_roster("train", [sample]))


def test_what_cannot_be_had_leaves_the_sample_alone(pool, tmp_path):
    shutil.rmtree(pool / "green")
    shutil.rmtree(pool / "blue")
    own_photos = [pool / "red" / f"{n}.png" for n in range(2)]
    source = Retrieval(pool=pool, encoder=ColourSpace())
    nothing = source.images([request("red", *own_photos)], seed=0)[0]
    assert (nothing.path, nothing.problem) == (None, "no other photo in the pool")
    source = Retrieval(pool=pool, encoder=ColourSpace(), min_similarity=0.9)
    nothing = source.images([request("blue", photo(tmp_path / "own.png", "grey"))], seed=0)[0]
    assert (nothing.path, nothing.problem) == (None, "no photo of the pool is like the caption")


def test_many_requests_are_answered_in_blocks_as_at_once(pool, tmp_path, monkeypatch):
    own_photo = photo(tmp_path / "own.png", "grey")
    requests = [request(word, own_photo) for word in ("red", "green", "blue", "grey", "red")]
    at_once = Retrieval(pool=pool, encoder=ColourSpace()).images(requests, seed=0)
    monkeypatch.setattr(retrieval, "REQUESTS_AT_ONCE", 2)
    sizes = []
    answer = Retrieval._answer

    def noting(self, pool, request, similarity):
        sizes.append(similarity.untyped_storage().nbytes() // (4 * len(pool.paths)))
        return answer(self, pool, request, similarity)

    monkeypatch.setattr(Retrieval, "_answer", noting)
    assert Retrieval(pool=pool, encoder=ColourSpace()).images(requests, seed=0) == at_once
    assert sizes == [2, 2, 2, 2, 1]


def test_samples_without_a_photo_of_their_own_get_none(pool, tmp_path):
    damaged, sound = tmp_path / "damaged.png", photo(tmp_path / "own.png", "grey")
    damaged.write_bytes(sound.read_bytes()[:100])
    source = Retrieval(pool=pool, encoder=ColourSpace())
    requests = [request("red", p) for p in (damaged, sound, tmp_path / "gone.png")]
    pictures = source.images(requests, seed=0)
    problem = "a photo of the sample cannot be opened"
    assert [picture.problem for picture in pictures] == [problem, "", problem]
    assert [picture.path is None for picture in pictures] == [True, False, True]
    source.start(build_roster("train", [requests[0].sample]))
    with pytest.raises(FileNotFoundError, match=r"1 of 1 photos of train do not exist.*gone\.png"):
        source.start(build_roster("train", [requests[2].sample]))


def test_a_pool_without_photos_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Retrieval(pool=tmp_path / "nowhere", encoder=ColourSpace())
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no photo")
    with pytest.raises(ValueError, match="its subfolders hold no photos"):
        Retrieval(pool=tmp_path / "empty", encoder=ColourSpace())
    (tmp_path / "empty" / "broken.jpg").write_bytes(b"no photo either")
    source = Retrieval(pool=tmp_path / "empty", encoder=ColourSpace())
    with pytest.raises(ValueError, match="none of 1 photos can be opened"):
        source.images([request("red", tmp_path / "own.png")], seed=0)


def test_broken_photos_of_the_pool_are_left_out(pool, tmp_path, caplog):
    (pool / "red" / "broken.png").write_bytes((pool / "red" / "0.png").read_bytes()[:200])
    source = Retrieval(pool=pool, encoder=ColourSpace())
    picture = source.images([request("red", photo(tmp_path / "own.png", "grey"))], seed=0)[0]
    assert picture.path.name != "broken.png"
    assert "skipping 1 unreadable of 7 photos" in caplog.text


def test_the_pool_is_embedded_once(pool, tmp_path):
    encoder, cache = ColourSpace(), tmp_path / "cache"
    own_photo = photo(tmp_path / "own.png", "grey")
    first = Retrieval(pool=pool, encoder=encoder, cache_folder=cache)
    pictures = first.images([request("red", own_photo)], seed=0)
    before = encoder.num_images
    again = Retrieval(pool=pool, encoder=encoder, cache_folder=cache)
    assert again.images([request("red", own_photo)], seed=1) == pictures
    assert encoder.num_images == before
    photo(pool / "red" / "0.png", "red", number=7)  # a photo that changed is looked at again
    Retrieval(pool=pool, encoder=encoder, cache_folder=cache).images(
        [request("red", own_photo)], seed=0
    )
    assert encoder.num_images == before + 1
    shard = next(cache.rglob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{shard.name} is damaged"):
        Retrieval(pool=pool, encoder=encoder, cache_folder=cache)


def test_thumbnails_tell_photos_apart(tmp_path):
    images = [Image.open(photo(tmp_path / f"{n}.png", "red", n)) for n in range(6)]
    small = torch.stack([thumbnail(image) for image in images])
    paths = tuple(tmp_path / f"{n}.png" for n in range(6))
    pool = EmbeddedPhotos(paths=paths, vectors=torch.zeros(6, 2), thumbnails=small)
    for number, thumb in enumerate(small):
        assert same_photo(pool, thumb).tolist() == [number]
    brighter = (small[2].int() + 3).clamp(max=255).byte()  # compressed again, it may be so
    assert same_photo(pool, brighter).tolist() == [2]
    assert same_photo(pool, 255 - small[2]).tolist() == []


def test_a_photo_is_given_once_and_samples_stay_where_none_is_left(pool, tmp_path):
    own_photo = photo(tmp_path / "own.png", "grey")
    source = Retrieval(pool=pool, encoder=ColourSpace(), min_similarity=0.9, give_once=True)
    first = source.images([request("red", own_photo)], seed=0)[0]
    journalled = tmp_path / "run" / "picture.png"  # as a resumed run knows it, under another name
    journalled.parent.mkdir()
    shutil.copy(first.path, journalled)
    requests = [replace(request("red", own_photo), given=(journalled,)) for _ in range(2)]
    second, third = source.images(requests, seed=0)
    assert {first.path, second.path} == {pool / "red" / f"{n}.png" for n in range(2)}
    assert (third.path, third.problem) == (None, "no photo of the pool is like the caption")
    repeated = Retrieval(pool=pool, encoder=ColourSpace()).images(requests, seed=0)
    assert repeated[0].path == repeated[1].path == first.path


def test_captions_are_compared_with_the_captions_of_the_pool(pool, tmp_path):
    own_photo = photo(tmp_path / "own.png", "grey")
    said = {"red/0": "a blue sky", "red/1": "a green lawn", "blue/0": "the grey sea"}
    samples = [
        Sample(row=0, sample_id=n, image_id=n, image_path=pool / f"{n}.png", caption=text)
        for n, text in [*said.items(), ("blue/0", "a red boat at sea")]
    ]
    captions = build_roster("pool", [replace(s, sample_id=f"{i}") for i, s in enumerate(samples)])
    encoder = ColourSpace()
    source = Retrieval(pool=pool, encoder=encoder, captions=captions)
    words = ("blue", "green", "red")
    pictures = source.images([request(word, own_photo) for word in words], seed=0)
    names = ("red/0.png", "red/1.png", "blue/0.png")
    assert [picture.path for picture in pictures] == [pool / name for name in names]
    assert pictures[0].origin == "retrieval:captions in colours 1.000 red/0.png"
    assert encoder.num_images == len(said)  # photos without a caption are no part of the pool
    without_red = build_roster("pool", captions.samples[:3])
    near = Retrieval(pool=pool, encoder=encoder, captions=without_red, min_similarity=0.9)
    kept, green = near.images([request(word, own_photo) for word in ("red", "green")], seed=0)
    assert (kept.path, green.path) == (None, pool / "red" / "1.png")
    elsewhere = [replace(sample, image_path=own_photo) for sample in captions.samples]
    with pytest.raises(ValueError, match="no photo in the pool has a caption in elsewhere"):
        Retrieval(pool=pool, encoder=encoder, captions=build_roster("elsewhere", elsewhere))
