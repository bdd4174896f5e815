"""The keys of ``capfilt.yaml`` with their types; keys of parts are typed at their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.training.settings import Data, Part, Paths


class CapFiltSettings(TypedDict):
    """All keys of ``curate capfilt``."""

    seed: Seed
    data: Data
    paths: Paths
    split: Name
    first_images: PositiveInt | None
    steps: Mapping[str, Part]
    parts: Literal["both", "captioner", "filter"]
    captioner: Part
    filter: Part
    threshold: float
    per_photo: PositiveInt
    photos_at_once: PositiveInt
    shard: Name | None
    out: Name
    spread: Part
    plugins: NotRequired[Sequence[Name]]
