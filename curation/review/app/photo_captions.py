"""Captions of one photo at a time, with where the captioner looked."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from captioning.inference.attention import AttendedWord, square_grid
from captioning.inference.captioner import Captioner
from captioning.types import Prediction, Region
from captioning.vision.photos import load_rgb

# Upper bounds keep a slip of the finger from minutes of search.
MAX_CAPTIONS, MAX_BEAM, MAX_WORDS, MAX_SEED = 20, 50, 100, 2**31 - 1


class PhotoCaptions:
    """Some captioners, asked one question at a time.

    Args:
        captioners: by the name that people choose them by, in order.
        regions: boxes by image id, for captioners on regions; a photo's image id is its file's
            name, or that without suffix.
    """

    def __init__(
        self, captioners: Mapping[str, Captioner], regions: Mapping[str, Sequence[Region]]
    ) -> None:
        self._captioners = dict(captioners)
        self._regions = regions
        self._lock = threading.Lock()

    def models(self) -> list[dict[str, Any]]:
        """What the page offers: names, and whether they attend and look at boxes."""
        return [
            {
                "name": name,
                "attends": captioner.model.attends,
                "takes_boxes": captioner.takes_boxes,
                "beam": captioner.model.search.settings.beam_size,
            }
            for name, captioner in self._captioners.items()
        ]

    def caption(
        self, path: Path, size: tuple[int, int], name: str, record: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Captions of a photo, best first.

        Args:
            path: the photo.
            size: its width and height.
            name: of its file, by which its boxes are found.
            record: ``model`` and the settings, as the page sends them.

        Raises:
            ValueError: a setting out of its range, a word that the captioner does not know, or no
                boxes for a captioner on regions.
        """
        captioner = self._captioner(record)
        regions = self._boxes(captioner, name)
        boxes = None if regions is None else [region.box for region in regions]
        settings = _settings(record)
        with self._lock:
            photo = load_rgb(path)  # draws depend on a file's path, and this one is temporary
            by_photo = None if boxes is None else [boxes]
            (found,) = captioner.caption([photo], boxes=by_photo, **settings)
            texts = [prediction.caption for prediction in found.captions]
            attended = captioner.attention(photo, texts, boxes=boxes)
        return {
            "captions": [
                _caption(prediction, words)
                for prediction, words in zip(found.captions, attended, strict=True)
            ],
            "grid": None if captioner.takes_boxes else captioner.grid_size or _square(attended),
            "boxes": [_shown(region, size) for region in regions or ()],
            "attends": captioner.model.attends,
        }

    def suggest(self, path: Path, record: Mapping[str, Any]) -> str:
        """A captioner's best caption by its own search.

        Raises:
            ValueError: it needs boxes, or the photo is broken.
        """
        captioner = self._captioner(record)
        regions = self._boxes(captioner, path.name)
        boxes = None if regions is None else [[region.box for region in regions]]
        with self._lock:
            return captioner.caption([path], boxes=boxes)[0].caption

    def _captioner(self, record: Mapping[str, Any]) -> Captioner:
        number = record.get("model")
        if type(number) is not int or not 0 <= number < len(self._captioners):
            raise ValueError("there is no such captioner; reload the page")
        return list(self._captioners.values())[number]

    def _boxes(self, captioner: Captioner, name: str) -> Sequence[Region] | None:
        if not captioner.takes_boxes:
            return None
        for key in (name, Path(name).stem):
            if key in self._regions:
                return self._regions[key]
        raise ValueError(
            f"this captioner looks at boxes, and there are none for {name!r:.80}: find them by "
            "captioning find-objects, and start this program with --boxes FILE"
        )


def _square(attended: Sequence[Sequence[AttendedWord]]) -> tuple[int, int] | None:
    """The grid of photos that are read as squares, such as BLIP's, by its number of cells."""
    words = [word for caption in attended for word in caption]
    return square_grid(len(words[0].weights)) if words else None


def _caption(prediction: Prediction, words: Sequence[AttendedWord]) -> dict[str, Any]:
    return {
        "caption": prediction.caption,
        "score": round(prediction.score, 4) if isfinite(prediction.score) else None,
        "has_words": prediction.satisfied,
        "words": [
            {
                "text": word.text,
                "probability": round(word.probability, 4),
                "weights": [round(weight, 5) for weight in word.weights],
            }
            for word in words
        ],
    }


def _shown(region: Region, size: tuple[int, int]) -> dict[str, Any]:
    """A box in shares of the photo's sides."""
    width, height = size
    x1, y1, x2, y2 = region.box
    return {"box": [x1 / width, y1 / height, x2 / width, y2 / height], "label": region.label}


def _settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the page sent, as `Captioner.stream` takes them; others are left out."""
    limits = {
        "num_captions": (1, MAX_CAPTIONS),
        "beam_size": (1, MAX_BEAM),
        "min_words": (0, MAX_WORDS),
        "max_words": (1, MAX_WORDS),
        "seed": (0, MAX_SEED),
    }
    settings: dict[str, Any] = {}
    for name, (least, most) in limits.items():
        value = record.get(name)
        if value is None:
            continue
        if type(value) is not int or not least <= value <= most:
            what = name.replace("_", " ")
            raise ValueError(f"{what} must be a whole number from {least} to {most}: got {value!r}")
        settings[name] = value
    words = record.get("must_include", [])
    if not isinstance(words, list) or not all(_is_texts(group) for group in words):
        raise ValueError("must_include must be a list of lists of words")
    diverse = record.get("diverse") is True
    return settings | {"diverse": diverse, "must_include": [tuple(group) for group in words]}


def _is_texts(group: Any) -> bool:
    return isinstance(group, list) and bool(group) and all(isinstance(x, str) for x in group)
