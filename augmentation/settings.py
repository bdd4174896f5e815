"""The keys of ``augmentation.yaml`` with their types; keys of parts are typed at their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from captioning.config.ranges import Name, NonNegativeInt, PositiveInt, Seed
from captioning.training.settings import Corpus, Data, Part, Paths


class Smoke(TypedDict):
    """What ``debug=smoke`` sets."""

    first_images: PositiveInt
    max_pairs: PositiveInt


class AugmentationSettings(TypedDict):
    """All keys of an augmentation; only some methods read ``corpus`` and ``prior``."""

    seed: Seed
    split: Name
    first_images: PositiveInt | None
    steps: Mapping[str, Part]
    max_pairs: PositiveInt | None
    max_augmented: PositiveInt | None
    smoke: Smoke
    num_processes: NonNegativeInt
    sheet_number: NonNegativeInt
    out: Name
    plugins: NotRequired[Sequence[Name]]
    paths: Paths
    data: Data
    corpus: NotRequired[Corpus | None]
    prior: NotRequired[Corpus | None]
    held_out: NotRequired[Mapping[str, Part] | None]
    method: Part
    format: Part
    spread: NotRequired[Part]
