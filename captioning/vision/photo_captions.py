"""Captions that a model writes for photos, each generated once and cached."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from captioning.interfaces import CaptionWriter
from captioning.runtime.sharing import distribute, rank_and_size
from captioning.vision.line_store import LineStore, key_of
from captioning.vision.photo_keys import PhotoKeys


class PhotoCaptions:
    """Cache of a captioner's captions.

    Cache keys combine the captioner's identity and the photo's content: captioned photos
    cost nothing, and an interrupted run resumes. With several processes each process captions its
    share of the photos.

    Args:
        captioner: the captioner.
        cache_folder: parent folder of all cached captions; None: memory only.
    """

    def __init__(self, *, captioner: CaptionWriter, cache_folder: str | Path | None = None) -> None:
        self.captioner = captioner
        self._folder = None if cache_folder is None else Path(cache_folder)
        self._photo_keys = PhotoKeys(self._folder and self._folder / "photos")
        self._store: LineStore | None = None
        # Read at the start in all processes, so that all of them agree on the missing photos.
        self._known: dict[str, list[str]] = {}

    @property
    def name(self) -> str:
        """The captioner's name."""
        return self.captioner.name

    def captions(
        self, photos: Sequence[Path], beginnings: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Return captions of each photo, in the order of `CaptionWriter.write_captions`.

        All processes must pass equal photos.

        Args:
            photos: paths of I photos.
            beginnings: I texts of whole sentences that the captions continue (not part of the
                result), empty for whole captions. None: whole captions.

        Raises:
            FileNotFoundError: a photo does not exist.
            ValueError: a photo cannot be opened, or an error of the captioner.
            OSError: the cache cannot be written; captions stored before remain.
        """
        photo_keys, texts = self._photo_keys(photos), beginnings or [""] * len(photos)
        keys = [
            f"{photo_keys[path]}-{key_of(text)}" if text else photo_keys[path]
            for path, text in zip(photos, texts, strict=True)
        ]
        # Identical photos are captioned once.
        missing = {
            key: (path, text)
            for key, path, text in zip(keys, photos, texts, strict=True)
            if key not in self._known
        }
        if missing:
            self._known |= distribute(list(missing), lambda share: self._work(share, missing))
        return [list(self._known[key]) for key in keys]

    def release(self) -> None:
        """Free the accelerator; the next call uses it again."""
        self.captioner.release()

    def forget(self) -> None:
        """Drop captions held only in memory, so that the next photos are captioned again."""
        if self._folder is None:
            self._known, self._store = {}, None

    def _work(self, keys: Sequence[str], asked: dict[str, tuple[Path, str]]) -> dict[str, Any]:
        """Return this process's share: cached or new captions by key.

        Args:
            keys: keys of the captions to write.
            asked: photo and beginning of each key.
        """
        if self._store is None:
            folder = self._folder and self._folder / key_of(self.captioner.identity)
            self._store = LineStore(folder)
        store, size = self._store, self.captioner.batch_size
        new = [key for key in keys if store.get(key) is None]
        if new:
            self.captioner.prepare_photos([asked[key][0] for key in new], keys=new)
        with Progress(transient=True, disable=not new or rank_and_size()[0] > 0) as bar:
            task = bar.add_task(f"captions by {self.name}", total=len(new))
            for start in range(0, len(new), size):
                batch = new[start : start + size]
                photos, texts = zip(*(asked[key] for key in batch), strict=True)
                # users' own captioners may not accept beginnings
                begun = {"beginnings": texts} if any(texts) else {}
                written = self.captioner.write_captions(photos, keys=batch, **begun)
                store.put({key: _tidy(texts) for key, texts in zip(batch, written, strict=True)})
                bar.advance(task, len(batch))
        return {key: store.get(key) for key in keys}


def _tidy(captions: Sequence[str]) -> list[str]:
    """Remove line ends, doubled spaces, repeated and empty captions."""
    texts = (" ".join(caption.split()) for caption in captions)
    return list(dict.fromkeys(text for text in texts if text))
