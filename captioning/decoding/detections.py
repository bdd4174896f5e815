"""Detected objects to constraints in words, as for nocaps (Agrawal et al., 2019).

Which classes are left out or renamed, and the hierarchy of classes, are settings: they belong to
the detector's label set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, get_args

from captioning.config.ranges import Fraction, NonNegativeInt
from captioning.types import Box, Region

Forms = Mapping[str, Sequence[str]] | Callable[[str], Sequence[str]]
Counted = Literal["labels", "regions"]

NO_NAMES: Mapping[str, str] = {}
NO_FORMS: Mapping[str, Sequence[str]] = {}


def detection_constraints(
    regions: Sequence[Region],
    *,
    only: Collection[str] | None = None,
    blacklist: Collection[str] = (),
    renames: Mapping[str, str] = NO_NAMES,
    parents: Mapping[str, str] = NO_NAMES,
    max_overlap: Fraction = 0.85,
    max_constraints: NonNegativeInt = 3,
    counted: Counted = "labels",
    forms: Forms = NO_FORMS,
) -> list[tuple[str, ...]]:
    """Constraints from an image's detections: the labels with the highest scores.

    In this order: blacklisted labels are left out, and those outside of ``only``; of overlapping
    regions one remains (`suppress_overlaps`); labels are renamed; each label counts once, with its
    best region; the best ``max_constraints`` are taken, by falling score, then label, then box. The
    result does not depend on the order of ``regions``. With ``counted="regions"`` the best regions
    are taken before labels that are equal are joined.

    Args:
        regions: detections of one image.
        only: labels that alone may be constraints; None: all.
        blacklist: labels that are never constraints, such as parts of bodies.
        renames: label to word, such as a long class name to an everyday word.
        parents: label to the label above it in the hierarchy.
        max_overlap: intersection over union above which two regions are one object.
        max_constraints: most constraints.
        counted: the unit of ``max_constraints``: ``"labels"``, or ``"regions"``, as in nocaps'
            code: three surest regions of one label are one constraint.
        forms: plural and synonyms of a word (after renaming), by mapping or by function; the word
            itself need not be among them.

    Returns:
        The alternatives of each constraint, the word itself first; constraints by falling score.

    Raises:
        ValueError: a setting out of its range, or a circle in the hierarchy.
    """
    if max_constraints < 0:
        raise ValueError(f"max_constraints must be at least 0: got {max_constraints}")
    if counted not in get_args(Counted):
        raise ValueError(f"counted must be one of {get_args(Counted)}: got {counted!r}")
    allowed = [
        region
        for region in regions
        if region.label not in blacklist and (only is None or region.label in only)
    ]
    remaining = suppress_overlaps(allowed, parents=parents, max_overlap=max_overlap)
    surest = sorted(remaining, key=_by_score)
    if counted == "regions":
        surest = surest[:max_constraints]
    words = dict.fromkeys(renames.get(region.label, region.label) for region in surest)
    find = forms if callable(forms) else lambda word: forms.get(word, ())
    return [tuple(dict.fromkeys([word, *find(word)])) for word in list(words)[:max_constraints]]


def suppress_overlaps(
    regions: Sequence[Region], *, parents: Mapping[str, str] = NO_NAMES, max_overlap: float = 0.85
) -> list[Region]:
    """Regions without those that overlap one of an equally low or lower class of the hierarchy.

    Regions are visited from the lowest class to the highest; equally low ones by falling score,
    then label, then box. A region that overlaps an earlier remaining one is dropped. The height of
    a class is counted from below: a class without children is lowest, whatever the depth of its
    branch. Classes that the hierarchy does not name have no children.

    Args:
        regions: detections of one image.
        parents: label to the label above it.
        max_overlap: intersection over union in [0, 1]; more than that is an overlap.

    Raises:
        ValueError: ``max_overlap`` out of its range, or a circle in the hierarchy.
    """
    if not 0 <= max_overlap <= 1:
        raise ValueError(f"max_overlap must be in [0, 1]: got {max_overlap}")
    heights = _heights(parents)
    remaining: list[Region] = []
    for region in sorted(regions, key=lambda r: (heights.get(r.label, 0), *_by_score(r))):
        if all(_overlap(region.box, other.box) <= max_overlap for other in remaining):
            remaining.append(region)
    return remaining


def _by_score(region: Region) -> tuple[float, str, Box]:
    return -region.score, region.label, region.box


def _heights(parents: Mapping[str, str]) -> dict[str, int]:
    """For each class that has children, the steps down to its farthest descendant."""
    heights: dict[str, int] = {}
    for label in parents:
        path = [label]
        while (above := parents.get(path[-1])) is not None:
            if above in path:
                circle = " -> ".join([*path[path.index(above) :], above])
                raise ValueError(f"parents must have no circles: got {circle}")
            heights[above] = max(heights.get(above, 0), len(path))
            path.append(above)
    return heights


def _overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
