"""How far annotators agree, by Krippendorff's alpha.

Alpha is 1 minus the observed disagreement over that expected by chance: 1 is perfect agreement, 0
is chance. It takes any number of annotators a picture (Krippendorff, "Computing Krippendorff's
Alpha-Reliability", 2011); nltk computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from nltk.metrics.agreement import AnnotationTask
from nltk.metrics.distance import binary_distance, masi_distance

from curation.study.categories import KEYS
from curation.study.store import Annotation

Label = tuple[str, int, Hashable]  # annotator, item, value
NOTHING = "no error"


def alpha(
    labels: Sequence[Label], distance: Callable[..., float] = binary_distance
) -> float | None:
    """Krippendorff's alpha, at most 1; None where it is undefined.

    It is undefined where no item has two labels, and where all labels are the same: nothing could
    have been disagreed about.

    Args:
        labels: at most one of an annotator and item.
        distance: of two labels, in [0, 1]; by default 0 for the same and 1 for different ones.
    """
    counts = Counter(item for _, item, _ in labels)
    paired = [label for label in labels if counts[label[1]] > 1]
    if len({value for _, _, value in paired}) < 2:
        return None
    return float(AnnotationTask(data=paired, distance=distance).alpha())


def agreement(annotations: Sequence[Annotation]) -> dict[str, float | None]:
    """Alpha of each category (ticked or not), and over all as ``"all"``.

    Over all, the sets of ticked categories are compared by the MASI distance (Passonneau, 2006),
    which counts part of an overlap.
    """
    alphas: dict[str, float | None] = {
        "all": alpha(
            [
                (
                    annotation.annotator,
                    annotation.number,
                    frozenset(annotation.categories or (NOTHING,)),
                )
                for annotation in annotations
            ],
            masi_distance,
        )
    }
    for key in KEYS:
        alphas[key] = alpha(
            [
                (annotation.annotator, annotation.number, key in annotation.categories)
                for annotation in annotations
            ]
        )
    return alphas
