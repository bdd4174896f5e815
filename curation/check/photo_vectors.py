"""Read every photo once: compute the measurements that checks need, and the photo's embedding."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.progress import Progress

from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder, TextEmbedder
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.vision.line_store import key_of
from captioning.vision.photo_keys import (
    NUM_THREADS,
    content_key,
    key_of_content,
    prepared_for,
    read_batches,
)
from captioning.vision.photo_places import open_photo, place_in_shard
from captioning.vision.photos import load_rgb, photo_sizes
from curation.check.evidence import Evidence, Floats, PhotoFacts
from curation.check.photo_checks import measured
from curation.score.duplicate import difference_hash

_PHOTOS_AT_ONCE = 64
_MOST_OF_A_SIZE = 512  # files that are read before they are put in order
_KEPT_AT_ONCE = 4096
_CAPTIONS_AT_ONCE = 4096
_SMALLEST_SIDE = 448  # what networks of today read; larger JPEGs are decoded at less
_GREY_SIDE = 64


def look_at(
    roster: Roster,
    encoder: JointEmbedder | None,
    sentences: TextEmbedder | None,
    *,
    seed: int = 0,
    quiet: bool = False,
    cache_folder: Path | None = None,
) -> Evidence:
    """Compute the evidence that checks read.

    Args:
        roster: the captions.
        encoder: encoder of photos and texts; None: checks use text and pixels alone.
        sentences: compares captions with each other; None: by the encoder.
        seed: seed of draws.
        quiet: whether no progress is shown.
        cache_folder: caches photos' vectors and the networks' scores of words; None: no cache.
    """
    paths = list(dict.fromkeys(sample.image_path for sample in roster.samples))
    captions = [sample.caption for sample in roster.samples]
    embedders: dict[str, TextEmbedder] = {}
    if encoder is not None:
        embedders["caption_vectors"] = encoder
    if encoder is not None and sentences is not None:
        embedders = {"sentence_vectors": sentences, **embedders}
    with Progress(transient=True, disable=quiet) as bar, _half_the_threads(), _worker() as worker:
        task = bar.add_task("photos", total=len(paths))

        def read() -> dict[str, Floats]:
            return {
                name: _texts(captions, embedder, bar, name.replace("_", " "))
                for name, embedder in embedders.items()
            }

        # Captions beside photos: two small networks use two cores better than one uses both. A
        # space of one network may move between devices, so it does one after the other.
        coming = worker.submit(read) if sentences is not None else None
        kept = None if encoder is None else KeptVectors(cache_folder, encoder.identity)
        facts, vectors = _photos(paths, encoder, kept, lambda n: bar.advance(task, n))
        texts = read() if coming is None else coming.result()
    return Evidence(
        roster=roster,
        photos=dict(zip(paths, facts, strict=True)),
        photo_vectors=vectors,
        encoder=encoder,
        space="" if encoder is None else encoder.space,
        seed=seed,
        cache_folder=cache_folder,
        caption_vectors=texts.get("caption_vectors"),
        sentence_vectors=texts.get("sentence_vectors"),
    )


@contextmanager
def _half_the_threads() -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(max(1, number // 2))
    try:
        yield
    finally:
        torch.set_num_threads(number)


def _worker() -> ThreadPoolExecutor:
    """Context manager: a worker thread with this thread's number of torch threads."""
    number = torch.get_num_threads()
    return ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(number,))


class KeptVectors:
    """Cache on disk of photo embeddings, by file content, for later checks.

    Args:
        folder: folder of all such vectors; None: no cache.
        identity: the encoder's identity.

    Raises:
        ValueError: a cache file is damaged.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._folder = None if folder is None else folder / "photo_vectors" / key_of(identity)
        self._known: dict[str, Floats] = {}
        self._new: dict[str, Floats] = {}
        files = [] if self._folder is None else sorted(self._folder.glob("[!.]*.safetensors"))
        for file in files:
            try:
                content, _ = read_tensors(file)
                keys = [bytes(key).hex() for key in content["keys"].numpy()]
                self._known |= zip(keys, content["vectors"].numpy(), strict=True)
            except (ValueError, KeyError) as error:
                raise ValueError(f"{file} is damaged ({error}); delete the file") from error

    def __call__(self, key: str) -> Floats | None:
        """Return the cached vector of a photo, or None if it must be computed."""
        return self._known.get(key)

    def keep(self, vectors: Mapping[str, Floats]) -> None:
        """Add vectors to the cache; `save` writes the remaining ones to disk."""
        self._new |= vectors
        if len(self._new) >= _KEPT_AT_ONCE:
            self.save()

    def save(self) -> None:
        """Write embeddings that were added to the cache to disk.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._new and self._folder is not None:
            joined = bytearray(bytes.fromhex("".join(self._new)))
            keys = torch.frombuffer(joined, dtype=torch.uint8).view(len(self._new), -1)
            vectors = torch.from_numpy(np.stack(list(self._new.values())))
            file = self._folder / f"{key_of_content(bytes(joined))}.safetensors"
            write_tensors(file, {"keys": keys, "vectors": vectors})
        self._new = {}


class _Look(NamedTuple):
    """Facts and embedding of one photo.

    Attributes:
        facts: for checks.
        picture: as the encoder takes it; None without photo or encoder, or where it has a vector.
        vector: as it was kept.
    """

    facts: PhotoFacts
    picture: Any = None
    vector: Floats | None = None


def _photos(
    paths: Sequence[Path],
    encoder: JointEmbedder | None,
    kept: KeptVectors | None,
    done: Callable[[int], None],
) -> tuple[list[PhotoFacts], Floats | None]:
    """Measure and embed photos; each photo is opened once.

    A network's last digits depend on which photos it sees at once: that shall not be the layout's.
    So they are embedded in the order of the files' sizes, and of their content where these agree.
    """
    facts: dict[Path, PhotoFacts] = {}
    vectors: dict[Path, Floats] = {}

    def look(path: Path) -> _Look:
        return _seen(path, encoder, kept)

    for batch, looks in read_batches(_blocks(paths), look):
        own = dict(zip(batch, looks, strict=True))
        facts |= {path: one.facts for path, one in own.items()}
        vectors |= {path: one.vector for path, one in own.items() if one.vector is not None}
        new = sorted(
            (path for path, one in own.items() if one.picture is not None),
            key=lambda path: (facts[path].file_size, facts[path].key),
        )
        if encoder is not None and kept is not None and new:
            embedded = encoder.embed_photos([own[path].picture for path in new]).numpy()
            vectors |= zip(new, embedded, strict=True)
            kept.keep({facts[path].key: vectors[path] for path in new})
        done(len(batch))
    if kept is not None:
        kept.save()
    return [facts[path] for path in paths], _stacked(paths, vectors)


def _stacked(paths: Sequence[Path], vectors: Mapping[Path, Floats]) -> Floats | None:
    """Stack vectors to ``(len(paths), D)``, NaN for photos without a vector; None without any."""
    if not vectors:
        return None
    empty = np.full_like(next(iter(vectors.values())), np.nan)
    return np.stack([vectors.get(path, empty) for path in paths])


def _blocks(paths: Sequence[Path]) -> list[list[Path]]:
    """Group photos into blocks for reading; files of one size stay together in all layouts."""
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        sizes = dict(zip(paths, pool.map(_file_size, paths), strict=True))
    blocks: list[list[Path]] = [[]]
    for _, group in itertools.groupby(sorted(paths, key=sizes.__getitem__), sizes.__getitem__):
        of_size = list(group)
        if len(of_size) > _MOST_OF_A_SIZE:  # as of a format that does not compress
            of_size.sort(key=content_key)
            starts = range(0, len(of_size), _PHOTOS_AT_ONCE)
            blocks += [*(of_size[start : start + _PHOTOS_AT_ONCE] for start in starts), []]
            continue
        blocks[-1] += of_size
        if len(blocks[-1]) >= _PHOTOS_AT_ONCE:
            blocks.append([])
    return [block for block in blocks if block]


def _file_size(path: Path) -> int:
    """File size of a photo in bytes; -1 if the file is missing. Photos in shards must be read."""
    try:
        if place_in_shard(path) is None:
            return os.path.getsize(path)
        with open_photo(path) as file:
            return file.seek(0, os.SEEK_END)
    except (OSError, ValueError):
        return -1


def _seen(path: Path, encoder: JointEmbedder | None, kept: KeptVectors | None) -> _Look:
    """Measure a photo and prepare it for the encoder; the file is read once."""
    content, key = b"", ""
    try:
        with open_photo(path) as file:
            content = file.read()
        key = key_of_content(content)
        size = photo_sizes(path, content=content)[1]
        photo = load_rgb(path, smallest_side=_SMALLEST_SIDE, content=content)
    except (OSError, ValueError) as error:
        problem = str(error).removeprefix(f"{path}: ")
        return _Look(PhotoFacts(problem=problem, key=key, file_size=len(content)))
    grey = np.asarray(photo.convert("L").resize((_GREY_SIDE, _GREY_SIDE), Image.Resampling.BOX))
    facts = PhotoFacts(
        size=size,
        contrast=float(grey.std()),
        hash=difference_hash(photo),
        measured=measured(photo),
        key=key,
        file_size=len(content),
    )
    vector = None if kept is None else kept(key)
    if encoder is None or vector is not None:
        return _Look(facts, vector=vector)
    return _Look(facts, picture=prepared_for(encoder, photo))


def _texts(captions: Sequence[str], embedder: TextEmbedder, bar: Progress, label: str) -> Floats:
    distinct = sorted(set(captions))  # in whatever order the layout has them
    task = bar.add_task(label, total=len(distinct))
    parts = []
    for start in range(0, len(distinct), _CAPTIONS_AT_ONCE):
        batch = distinct[start : start + _CAPTIONS_AT_ONCE]
        parts.append(embedder.embed_texts(batch).float().numpy())
        bar.advance(task, len(batch))
    places = {caption: place for place, caption in enumerate(distinct)}
    return np.concatenate(parts)[[places[caption] for caption in captions]]
