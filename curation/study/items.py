"""The pictures of a study, and their division into balanced sets."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from captioning.runtime.files import check_inside

SET_SIZE = 20  # pictures of a set, half of high and half of low loss
NUM_SETS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A picture to be judged.

    Attributes:
        name: its file relative to the folder, or the sample's id.
        path: the file.
        captions: that it should show.
        loss: of the captioner on it, in nats a token.
        clip_score: its CLIPScore, or None where unknown.
    """

    name: str
    path: Path
    captions: tuple[str, ...]
    loss: float
    clip_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An item in its set; ``half`` is ``"high"`` or ``"low"`` and hidden from annotators."""

    item: Item
    set_number: int
    half: str


def checked_picture(path: Path, folders: Sequence[Path]) -> Path:
    """The real path of a picture that lies in one of the folders.

    Raises:
        ValueError: it lies elsewhere, also by ``..`` or a symbolic link.
        FileNotFoundError: no such file.
    """
    remedy = "so it is not shown; move it there, or name its folder with --within"
    real = check_inside(path, folders, remedy=remedy)
    if not real.is_file():
        raise FileNotFoundError(f"{path}: no such picture; is the manifest of another folder?")
    return real


def divide(
    items: Sequence[Item], *, num_sets: int = NUM_SETS, size: int = SET_SIZE, seed: int = 0
) -> list[Placed]:
    """The pictures of highest and of lowest loss, dealt out to sets of equal halves.

    The worst and the best of all are taken, as in the paper, and each set gets its share of both
    at random. Fewer pictures than ``num_sets * size`` make fewer or smaller sets.

    Args:
        items: at least two.
        num_sets: at most.
        size: of a set; even.
        seed: of the dealing and of the order within sets.

    Raises:
        ValueError: an odd or too small size, too few items, or a loss that is not finite.
    """
    if size < 2 or size % 2 or num_sets < 1:
        raise ValueError(f"a set needs an even size of at least 2: got {num_sets} sets of {size}")
    broken = next((item for item in items if not math.isfinite(item.loss)), None)
    if broken is not None:
        raise ValueError(f"{broken.name}: loss must be finite: got {broken.loss}")
    if len(items) < 2:
        raise ValueError(f"a study needs at least 2 pictures with a loss: got {len(items)}")
    ordered = sorted(items, key=lambda item: (item.loss, item.name))
    num_sets = min(num_sets, max(1, len(items) // size))
    each = min(size // 2, len(items) // (2 * num_sets))
    rng = np.random.default_rng(seed)
    sets: list[list[Placed]] = [[] for _ in range(num_sets)]
    for half, chosen in (
        ("low", ordered[: each * num_sets]),
        ("high", ordered[-each * num_sets :]),
    ):
        for place, number in enumerate(rng.permutation(len(chosen)).tolist()):
            target = place % num_sets
            sets[target].append(Placed(item=chosen[number], set_number=target, half=half))
    return [
        members[number] for members in sets for number in rng.permutation(len(members)).tolist()
    ]


def fingerprint(placed: Sequence[Placed]) -> str:
    """16 hex digits that identify a study's pictures; where the files lie does not count."""
    digest = hashlib.sha256()
    for entry in placed:
        record = asdict(entry.item) | {"path": "", "set": entry.set_number}
        digest.update(json.dumps(record, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()[:16]
