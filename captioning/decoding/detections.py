"""Convert detected objects to constraints in words, as for nocaps (Agrawal et al., 2019).

Excluded and renamed classes and the class hierarchy are settings, because they belong to
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
    """Derive constraints from an image's detections: the labels with the highest scores.

    The steps: (1) remove blacklisted labels and labels outside ``only``; (2) keep one of each set
    of overlapping regions (`suppress_overlaps`); (3) rename labels; (4) keep each label's best
    region; (5) take the best ``max_constraints`` by falling score, then label, then box. The order
    of ``regions`` does not matter. With ``counted="regions"`` step 5 precedes step 4.

    Args:
        regions: detections of one image.
        only: allowed labels; None: all labels.
        blacklist: labels that are never constraints, such as body parts.
        renames: mapping from label to word, such as from a long class name to a common word.
        parents: mapping from label to parent label in the hierarchy.
        max_overlap: intersection over union above which two regions count as one object.
        max_constraints: maximum number of constraints.
        counted: unit of ``max_constraints``: ``"labels"``; or ``"regions"`` as in the nocaps code:
            the three best regions, if they share a label, give one constraint.
        forms: plural and synonyms of a word (after renaming), as mapping or function; may omit
            the word itself.

    Returns:
        Alternatives of each constraint, the word itself first; constraints by falling score.

    Raises:
        ValueError: a setting out of range, or a cycle in the hierarchy.
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
    """Drop regions that overlap a region of an equally specific or more specific class.

    Regions are processed from the most specific class to the most general, then by falling score,
    label and box. A region that overlaps an earlier kept region is dropped. The height of a class
    is the distance to its farthest descendant, so classes without children are most specific.
    Classes missing in the hierarchy have no children.

    Args:
        regions: detections of one image.
        parents: mapping from label to parent label.
        max_overlap: maximum intersection over union, in [0, 1].

    Raises:
        ValueError: ``max_overlap`` out of range, or a cycle in the hierarchy.
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
    """Return the distance from each class with children to its farthest descendant."""
    heights: dict[str, int] = {}
    for label in parents:
        path = [label]
        while (above := parents.get(path[-1])) is not None:
            if above in path:
                circle = " -> ".join([*path[path.index(above) :], above])
                raise ValueError(f"parents must not have cycles: got {circle}")
            heights[above] = max(heights.get(above, 0), len(path))
            path.append(above)
    return heights


def _overlap(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
