"""Which known objects a captioner takes novel objects for (Bujimalla et al., candidate objects)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from augmentation.novel_objects.novel_class import NovelClass
from captioning.runtime.files import read_json
from captioning.text.word_forms import form_patterns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What a novel class may replace.

    Attributes:
        labels: of boxes of the data.
        without_boxes: the others, which the paper leaves out too ("stove", "bread").
    """

    labels: tuple[str, ...]
    without_boxes: tuple[str, ...]


def choose_candidates(
    classes: Sequence[NovelClass],
    labels: Collection[str],
    count: Callable[[NovelClass], tuple[str, ...]] | None = None,
) -> dict[str, Candidates]:
    """Candidates by class: configured ones, else counted ones, else likely ones.

    Args:
        classes: novel classes.
        labels: of the boxes of photos with captions.
        count: counts candidates in captions; None: there are none to count in.

    Raises:
        ValueError: a class without any.
    """
    chosen = {}
    for novel in classes:
        names = novel.candidates
        if names is None:
            names = novel.likely if count is None else count(novel)
        if not names and novel.candidates is None and count is None:
            raise ValueError(
                f"{novel.name!r} has no candidates: name them (candidates, or likely), or give "
                "method.predictions=RUN/predictions.json to count them in"
            )
        chosen[novel.name] = Candidates(
            labels=tuple(name for name in names if name in labels),
            without_boxes=tuple(name for name in names if name not in labels),
        )
        if names and not chosen[novel.name].labels:
            log.warning(f"{novel.name!r} gets no pictures: no box is called {', '.join(names)}")
        elif not names and novel.candidates is None:
            log.warning(f"{novel.name!r} gets no pictures: captions of it name no known object")
    return chosen


def count_candidates(
    captions: Mapping[str, str],
    photos: Collection[str],
    names: Mapping[str, Iterable[str]],
    *,
    max_candidates: int,
) -> tuple[str, ...]:
    """The objects that captions of photos of a novel class name most often.

    Every mention counts. Where names overlap, the first and longest counts alone: a "hot dog" is no
    dog where hot dogs are known objects.

    Args:
        captions: generated ones by image id.
        photos: ids of the photos that show the class.
        names: by known object, all words for it.
        max_candidates: the paper's m.

    Returns:
        At most ``max_candidates`` objects, the most frequent first, equals by name; may be empty.
    """
    objects: dict[str, list[str]] = {}
    for label, label_names in names.items():
        for name in dict.fromkeys(" ".join(name.lower().split()) for name in label_names):
            objects.setdefault(name, []).append(label)
    if not objects:
        return ()
    longest_first = sorted(objects, key=len, reverse=True)
    pattern = form_patterns({"known objects": longest_first})["known objects"]
    counts: Counter[str] = Counter()
    for image_id in photos:
        for name in pattern.findall(captions.get(image_id, "")):
            counts.update(objects[" ".join(name.lower().split())])
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[:max_candidates])


def read_predictions(path: str | Path) -> dict[str, str]:
    """Captions by image id from a run's ``predictions.json``; the best where there are several.

    Raises:
        FileNotFoundError, ValueError: no such file, or not a list of captions with image ids.
    """
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: wanted a list of image_id and caption, as a run writes it")
    return {str(_value(e, "image_id", path)): str(_caption(e, path)) for e in entries}


def _caption(entry: object, path: str | Path) -> object:
    captions = entry.get("captions") if isinstance(entry, dict) else None
    if isinstance(captions, Sequence) and captions:
        return captions[0]
    return _value(entry, "caption", path)


def _value(entry: object, key: str, path: str | Path) -> object:
    if not isinstance(entry, dict) or key not in entry:
        raise ValueError(f"{path}: every entry needs {key!r}: got {str(entry)[:60]}")
    return entry[key]
