"""Looks at every photo once: what checks need of it, and its vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.progress import Progress

from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder, TextEmbedder
from captioning.vision.photo_keys import NUM_THREADS, content_key, prepared_for, read_ahead
from captioning.vision.photos import load_rgb, photo_sizes
from curation.check.evidence import Evidence, Floats, PhotoFacts
from curation.check.photos import measured
from curation.score.duplicate import difference_hash

_PHOTOS_AT_ONCE = 64
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
) -> Evidence:
    """What checks look at.

    Args:
        roster: the captions.
        encoder: of photos and texts; None: checks by text and pixels alone.
        sentences: compares captions with each other; None: by the encoder.
        seed: of draws.
        quiet: whether no progress is shown.
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
        facts, vectors = _in_order_of_content(paths, encoder, lambda n: bar.advance(task, n))
        texts = read() if coming is None else coming.result()
    return Evidence(
        roster=roster,
        photos=dict(zip(paths, facts, strict=True)),
        photo_vectors=vectors,
        encoder=encoder,
        space="" if encoder is None else encoder.space,
        seed=seed,
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
    """A thread beside this one, with as many threads of torch, set by thread."""
    number = torch.get_num_threads()
    return ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(number,))


def _in_order_of_content(
    paths: Sequence[Path], encoder: JointEmbedder | None, done: Callable[[int], None]
) -> tuple[list[PhotoFacts], Floats | None]:
    """What `_photos` sees, embedded in the order of the photos' content.

    A network's last digits depend on which photos it sees at once: that shall not be the layout's.
    """
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        keys = list(pool.map(content_key, paths))
    order = sorted(range(len(paths)), key=keys.__getitem__)
    facts, vectors = _photos([paths[place] for place in order], encoder, done)
    places = np.argsort(np.array(order, dtype=np.int64))
    seen = [replace(facts[place], key=keys[number]) for number, place in enumerate(places.tolist())]
    return seen, None if vectors is None else vectors[places]


def _photos(
    paths: Sequence[Path], encoder: JointEmbedder | None, done: Callable[[int], None]
) -> tuple[list[PhotoFacts], Floats | None]:
    facts: list[PhotoFacts] = []
    vectors: list[Floats] = []

    def seen(path: Path) -> tuple[PhotoFacts, Any]:
        return _seen(path, encoder)

    for batch, opened in read_ahead(paths, _PHOTOS_AT_ONCE, seen):
        facts += [photo for photo, _ in opened]
        if encoder is not None:
            vectors.append(_vectors([picture for _, picture in opened], encoder))
        done(len(batch))
    width = max((part.shape[1] for part in vectors), default=0)
    if not width:
        return facts, None
    empty = [np.full((len(part), width), np.nan, np.float32) for part in vectors]
    return facts, np.concatenate(
        [
            part if part.shape[1] == width else blank
            for part, blank in zip(vectors, empty, strict=True)
        ]
    )


def _vectors(pictures: Sequence[Any], encoder: JointEmbedder) -> Floats:
    """``(len(pictures), D)``, NaN where there is no picture; without one ``(_, 0)``."""
    good = [place for place, picture in enumerate(pictures) if picture is not None]
    if not good:
        return np.empty((len(pictures), 0), np.float32)
    embedded = encoder.embed_photos([picture for picture in pictures if picture is not None])
    vectors = np.full((len(pictures), embedded.shape[1]), np.nan, np.float32)
    vectors[good] = embedded.numpy()
    return vectors


def _seen(path: Path, encoder: JointEmbedder | None) -> tuple[PhotoFacts, Any]:
    """Facts of a photo, and the photo as the encoder takes it; None without photo or encoder."""
    try:
        size = photo_sizes(path)[1]
        photo = load_rgb(path, smallest_side=_SMALLEST_SIDE)
    except (OSError, ValueError) as error:
        return PhotoFacts(problem=str(error).removeprefix(f"{path}: ")), None
    grey = np.asarray(photo.convert("L").resize((_GREY_SIDE, _GREY_SIDE), Image.Resampling.BOX))
    facts = PhotoFacts(
        size=size,
        contrast=float(grey.std()),
        hash=difference_hash(photo),
        measured=measured(photo),
    )
    return facts, None if encoder is None else prepared_for(encoder, photo)


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
