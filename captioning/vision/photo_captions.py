"""Captions that a model writes for photos, each written once."""

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
    """A captioner with a cache of its captions.

    Captions are kept under the captioner's identity and the photo's content, so captioned photos
    cost nothing, and an interrupted run resumes. With several processes each writes for its share
    of the photos.

    Args:
        captioner: writes captions.
        cache_folder: parent of all cached captions; None keeps them in memory alone.
    """

    def __init__(self, *, captioner: CaptionWriter, cache_folder: str | Path | None = None) -> None:
        self.captioner = captioner
        self._folder = None if cache_folder is None else Path(cache_folder)
        self._photo_keys = PhotoKeys(self._folder and self._folder / "photos")
        self._store: LineStore | None = None
        # Filled alike in all processes, so that all of them know the same photos to be missing.
        self._known: dict[str, list[str]] = {}

    @property
    def name(self) -> str:
        """The captioner's."""
        return self.captioner.name

    def captions(
        self, photos: Sequence[Path], beginnings: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Captions of each photo, as `CaptionWriter.write_captions` orders them.

        Every process gives the same photos.

        Args:
            photos: I files.
            beginnings: I texts of whole sentences that the captions continue, empty for whole
                captions; the result lacks them. None: whole captions.

        Raises:
            FileNotFoundError: a photo is not there.
            ValueError: a photo cannot be opened, or the captioner raises.
            OSError: the cache cannot be written; captions stored before remain.
        """
        photo_keys, texts = self._photo_keys(photos), beginnings or [""] * len(photos)
        keys = [
            f"{photo_keys[path]}-{key_of(text)}" if text else photo_keys[path]
            for path, text in zip(photos, texts, strict=True)
        ]
        # Equal photos are captioned once.
        missing = {
            key: (path, text)
            for key, path, text in zip(keys, photos, texts, strict=True)
            if key not in self._known
        }
        if missing:
            self._known |= distribute(list(missing), lambda share: self._work(share, missing))
        return [list(self._known[key]) for key in keys]

    def release(self) -> None:
        """Leave the accelerator to others; the next call comes back."""
        self.captioner.release()

    def forget(self) -> None:
        """Drop values held in memory only: the next photos count as the first."""
        if self._folder is None:
            self._known, self._store = {}, None

    def _work(self, keys: Sequence[str], asked: dict[str, tuple[Path, str]]) -> dict[str, Any]:
        """This process's share: captions by key, from the store or new.

        Args:
            keys: keys of what to write.
            asked: the photo and the beginning of each.
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
                # users' own captioners may not take beginnings
                begun = {"beginnings": texts} if any(texts) else {}
                written = self.captioner.write_captions(photos, keys=batch, **begun)
                store.put({key: _tidy(texts) for key, texts in zip(batch, written, strict=True)})
                bar.advance(task, len(batch))
        return {key: store.get(key) for key in keys}


def _tidy(captions: Sequence[str]) -> list[str]:
    """Captions without line ends and doubled spaces; repeats and empty ones are left out."""
    texts = (" ".join(caption.split()) for caption in captions)
    return list(dict.fromkeys(text for text in texts if text))
