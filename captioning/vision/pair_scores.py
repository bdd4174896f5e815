"""Scores of photo-caption pairs, each computed once and cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image
from rich.progress import Progress
from torch import Tensor

from captioning.config.ranges import PositiveInt
from captioning.interfaces import PairScorer
from captioning.runtime.sharing import distribute, rank_and_size
from captioning.vision.line_store import LineStore, key_of
from captioning.vision.photo_keys import PhotoKeys, loading_for, read_ahead
from captioning.vision.photos import load_rgb, refusals_named

Pair = tuple[Path, str]
Elsewhere = Callable[[Sequence[tuple[Path, list[str]]]], Iterator[list[list[float]]]]
"""Function that scores the captions of photos: a list per photo, batch by batch."""


class PairScores:
    """Cache of a scorer's results: how well captions fit their photos.

    Cache keys combine the scorer's identity, the photo's content and the caption's text, so only
    changed pairs are scored again, and interrupted scoring resumes. With several processes each
    process scores its share of the photos.

    Args:
        scorer: the pair scorer.
        cache_folder: parent folder of all cached scores; None: memory only.
        photos_at_once: number of photos opened and encoded together.
        load: function that opens a photo.
    """

    def __init__(
        self,
        *,
        scorer: PairScorer,
        cache_folder: str | Path | None = None,
        photos_at_once: PositiveInt = 32,
        load: Callable[[Path], Image.Image] = load_rgb,
    ) -> None:
        self.scorer = scorer
        self._folder = None if cache_folder is None else Path(cache_folder)
        self._photos_at_once, self._load = photos_at_once, load
        self._photo_keys = PhotoKeys(self._folder and self._folder / "photos")
        self._store: LineStore | None = None
        # Read at the start in all processes, so that all of them agree on the missing pairs.
        self._known: dict[str, float] = {}

    @property
    def is_probability(self) -> bool:
        """Whether scores are probabilities; see `PairScorer`."""
        return self.scorer.is_probability

    @property
    def name(self) -> str:
        """Name of the score; see `PairScorer`."""
        return self.scorer.name

    def scores(self, pairs: Sequence[Pair]) -> Tensor:
        """Return scores ``(N,) float32``, higher for a better fit; all processes pass equal pairs.

        Scorers with ``leaves_out`` (such as a served judge) give NaN for pairs without score.

        Raises:
            FileNotFoundError: a photo does not exist.
            ValueError: an unreadable photo, a blank caption, or a score that is NaN.
            OSError: the cache cannot be written; scores stored before remain.
        """
        keys = self._keys(pairs)
        missing = _by_photo(keys, pairs, lambda key: key in self._known)
        if missing:
            groups = distribute(list(missing), lambda share: self._work(share, missing))
            for group in groups.values():
                self._known |= group
        return torch.tensor([self._known[key] for key in keys], dtype=torch.float32)

    def fill(self, pairs: Sequence[Pair], elsewhere: Elsewhere) -> None:
        """Let other processes compute the scores missing in the cache, and store them.

        Args:
            pairs: pairs as in `scores`.
            elsewhere: function that scores the captions of photos, batch by batch, in order.

        Raises:
            ValueError: a score is NaN, or an error of `scores` or ``elsewhere``.
        """
        store = self._stored()
        missing = _by_photo(self._keys(pairs), pairs, lambda key: store.get(key) is not None)
        photos = iter(missing.values())
        for records in elsewhere([(path, [*texts.values()]) for path, texts in missing.items()]):
            scored = zip(records, photos, strict=False)
            store.put({k: v for values, keys in scored for k, v in zip(keys, values, strict=True)})

    def _keys(self, pairs: Sequence[Pair]) -> list[str]:
        """Return the cache key of each pair."""
        for path, caption in pairs:
            if not caption.strip():
                raise ValueError(f"{path}: a blank caption cannot be scored; leave it out")
        photo_keys = self._photo_keys(path for path, _ in pairs)
        return [key_of(photo_keys[path], caption) for path, caption in pairs]

    def _stored(self) -> LineStore:
        if self._store is None:
            folder = self._folder and self._folder / key_of(self.scorer.identity)
            self._store = LineStore(folder)
        return self._store

    def release(self) -> None:
        """Free the accelerator; the next call uses it again."""
        self.scorer.release()

    def forget(self) -> None:
        """Drop values held only in memory, so that the next pairs are scored again."""
        if self._folder is None:
            self._known, self._store = {}, None

    def _work(
        self, photos: Sequence[Path], captions: dict[Path, dict[str, str]]
    ) -> dict[Path, dict[str, float]]:
        """Return this process's share: cached or new scores of each photo's captions, by key."""
        store = self._stored()
        new = [path for path in photos if any(store.get(key) is None for key in captions[path])]
        with Progress(transient=True, disable=not new or rank_and_size()[0] > 0) as bar:
            task = bar.add_task(f"scores: {self.name}", total=len(new))
            load = loading_for(self.scorer, self._load)
            for batch, opened in read_ahead(new, self._photos_at_once, load):
                wanted = [
                    (number, key, caption)
                    for number, path in enumerate(batch)
                    for key, caption in captions[path].items()
                    if store.get(key) is None
                ]
                store.put(self._scored(batch, opened, wanted))
                bar.advance(task, len(batch))
        return {path: {key: store.get(key) for key in captions[path]} for path in photos}

    def _scored(
        self,
        paths: Sequence[Path],
        photos: Sequence[Image.Image],
        wanted: Sequence[tuple[int, str, str]],
    ) -> dict[str, float]:
        photo_of, keys, captions = zip(*wanted, strict=True)
        with refusals_named(paths, photos):
            scores = self.scorer.score_pairs(photos, captions, photo_of)
        leaves_out = getattr(self.scorer, "leaves_out", False)
        if not leaves_out and not bool(torch.isfinite(scores).all()):
            position = int(torch.nonzero(~torch.isfinite(scores))[0])
            raise ValueError(
                f"{paths[photo_of[position]]}: {self.name} is {float(scores[position])} for "
                f"{captions[position]!r}; try the scorer's precision=float32, and check its weights"
            )
        return dict(zip(keys, scores.tolist(), strict=True))


def _by_photo(
    keys: Sequence[str], pairs: Sequence[Pair], is_known: Callable[[str], bool]
) -> dict[Path, dict[str, str]]:
    """Group captions with unknown scores by photo and key.

    Copies of a photo have equal keys; only the first copy is processed.
    """
    missing: dict[Path, dict[str, str]] = {}
    listed: set[str] = set()
    for key, (path, caption) in zip(keys, pairs, strict=True):
        if key not in listed and not is_known(key):
            listed.add(key)
            missing.setdefault(path, {})[key] = caption
    return missing
