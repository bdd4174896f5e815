"""Speed up readers that create millions of samples."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from captioning.types import Phrase, Region, Sample


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collection in the block; also a decorator.

    Records hold no cycles, yet each collection walks all of them again, which took half of the time
    of reading COCO.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


MANY = 500_000  # objects that are worth a word with the collector


@contextmanager
def lasting_records() -> Iterator[None]:
    """Exclude the many records created in the block from later garbage collections.

    These would walk them again and again, and write to their memory, which loader processes then no
    longer share. Unneeded objects that an earlier block froze are collected first.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    with collector_paused():
        yield
        if gc.get_count()[0] > MANY:
            gc.freeze()
            # Python collects what is left as it ends; of what stays, extensions print a list.
            atexit.unregister(gc.unfreeze)
            atexit.register(gc.unfreeze)


_new_sample = object.__new__
_set_row, _set_id, _set_image, _set_path, _set_caption, *_set_others = (
    Sample.__dict__[field.name].__set__ for field in fields(Sample)
)
_set_regions, _set_phrases, _set_origin, _set_weight, _set_masks, *_set_last = _set_others
_set_size, _set_bucket, _set_file_name = _set_last


def quick_sample(
    row: int,
    sample_id: str,
    image_id: str,
    image_path: Path,
    caption: str,
    regions: tuple[Region, ...] = (),
    phrases: tuple[Phrase, ...] = (),
    size: tuple[float, float] | None = None,
    file_name: str = "",
) -> Sample:
    """Create a `Sample` of a human caption in 40% of the constructor's time."""
    sample = _new_sample(Sample)
    _set_row(sample, row)
    _set_id(sample, sample_id)
    _set_image(sample, image_id)
    _set_path(sample, image_path)
    _set_caption(sample, caption)
    _set_regions(sample, regions)
    _set_phrases(sample, phrases)
    _set_origin(sample, "human")
    _set_weight(sample, 1.0)
    _set_masks(sample, ())
    _set_size(sample, size)
    _set_bucket(sample, 0)
    _set_file_name(sample, file_name)
    return sample
