"""Which known objects a captioner takes novel objects for (Bujimalla et al., candidate objects)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from captioning.files import read_json
from captioning.text.word_forms import Patterns, mentioned_classes


def count_candidates(
    captions: Mapping[str, str], photos: Collection[str], patterns: Patterns, *, max_candidates: int
) -> tuple[str, ...]:
    """The objects that captions of photos of a novel class name most often.

    Args:
        captions: generated ones by image id.
        photos: ids of the photos that show the class.
        patterns: by known object, of its forms.
        max_candidates: the paper's m.

    Returns:
        At most ``max_candidates`` objects, the most frequent first, equals by name; may be empty.
    """
    counts: Counter[str] = Counter()
    for image_id in photos:
        counts.update(mentioned_classes(captions.get(image_id, ""), patterns))
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
