"""Compare a dataset before and after augmentation: object frequencies and photo-caption fit.

Figures 4.4 and 4.7 of the CutSwap thesis (Hahn, 2022): the distribution of similarities, and the
probability of each object class on a photo before and after (section 4.5.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from augmentation.cutswap.text import CaptionSwap
from augmentation.regions.mentions import MentionRules, find_mentions
from captioning.runtime.files import write_atomically, write_json
from captioning.text.object_words import ObjectWords
from captioning.types import Parse

NUM_BINS = 60
# Classes shown in the figure, the most frequent ones before.
MAX_CLASSES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionStatistics:
    """Statistics of the object mentions in a dataset's captions.

    Attributes:
        num_images: photos.
        num_captions: captions.
        num_mentions: objects in all captions.
        num_attributes: attributes of objects in all captions.
        objects: captions' mentions of each class.
        attributes: uses of each attribute.
        num_pairs: different pairs of object and attribute.
        image_share: share of each class, the share of photos with a caption that mentions it, in
            [0, 1].
    """

    num_images: int
    num_captions: int
    num_mentions: int
    num_attributes: int
    objects: Mapping[str, int]
    attributes: Mapping[str, int]
    num_pairs: int
    image_share: Mapping[str, float]


def mention_statistics(
    captions: Iterable[tuple[str, str, Parse]],
    *,
    object_words: ObjectWords,
    mention_rules: MentionRules | None = None,
) -> MentionStatistics:
    """Count object mentions in captions, in constant memory.

    Args:
        captions: (image id, caption, parse), each caption once, grouped by image.
        object_words: the classes.
        mention_rules: rules for objects; None: the rules' defaults.

    Raises:
        ValueError: a parse is of another caption.
    """
    rules = mention_rules or MentionRules()
    objects: Counter[str] = Counter()
    attributes: Counter[str] = Counter()
    photos: Counter[str] = Counter()
    pairs: set[tuple[str, str]] = set()
    num_images = num_captions = 0
    for _, image_captions in groupby(captions, key=itemgetter(0)):
        num_images += 1
        mentioned: set[str] = set()
        for _, caption, parse in image_captions:
            num_captions += 1
            mentions = find_mentions(caption, parse, object_words, rules)
            mentioned.update(mention.name for mention in mentions)
            objects.update(mention.name for mention in mentions)
            attributes.update(attribute for mention in mentions for attribute in mention.attributes)
            pairs.update(
                (mention.name, attribute)
                for mention in mentions
                for attribute in mention.attributes
            )
        photos.update(mentioned)
    return MentionStatistics(
        num_images=num_images,
        num_captions=num_captions,
        num_mentions=objects.total(),
        num_attributes=attributes.total(),
        objects=dict(sorted(objects.items())),
        attributes=dict(sorted(attributes.items())),
        num_pairs=len(pairs),
        image_share={name: photos[name] / num_images for name in sorted(photos)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of the objects of two datasets.

    Attributes:
        correlation: Pearson's, of the shares of photos that show each class; None where one of the
            two is the same for all classes.
        mean_difference: mean absolute difference of these shares.
        new_objects: classes after, but not before.
        lost_objects: classes before, but not after.
        largest: classes whose share changed most, with the shares before and after.
    """

    correlation: float | None
    mean_difference: float
    new_objects: tuple[str, ...]
    lost_objects: tuple[str, ...]
    largest: tuple[tuple[str, float, float], ...] = ()


def compare(before: MentionStatistics, after: MentionStatistics, *, num: int = 10) -> Comparison:
    """Measure how much the frequencies of the photos' objects have changed (section 4.5.3).

    Args:
        before: statistics of the original data.
        after: statistics of the augmented data.
        num: classes listed as those that changed most.

    Raises:
        ValueError: no caption of both datasets mentions an object.
    """
    names = sorted({*before.image_share, *after.image_share})
    if not names:
        raise ValueError("no caption mentions a listed object; check the object words")
    old = np.array([before.image_share.get(name, 0.0) for name in names])
    new = np.array([after.image_share.get(name, 0.0) for name in names])
    varied = old.std() > 0 and new.std() > 0
    order = np.argsort(-np.abs(new - old), kind="stable")[:num]
    return Comparison(
        correlation=float(np.corrcoef(old, new)[0, 1]) if varied else None,
        mean_difference=float(np.abs(new - old).mean()),
        new_objects=tuple(sorted(after.image_share.keys() - before.image_share.keys())),
        lost_objects=tuple(sorted(before.image_share.keys() - after.image_share.keys())),
        largest=tuple((names[i], float(old[i]), float(new[i])) for i in order),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapStatistics:
    """Counts of the changes that swaps made.

    Attributes:
        num_swaps: new captions.
        changed_objects: share of swaps with another object, in [0, 1].
        changed_attributes: share of swaps with another attribute, in [0, 1].
        plural: share of swaps of plural objects, in [0, 1].
        changes: ``"old > new"`` classes, the most frequent ones with counts.
    """

    num_swaps: int
    changed_objects: float
    changed_attributes: float
    plural: float
    changes: Mapping[str, int] = field(default_factory=dict)


def swap_statistics(swaps: Iterable[CaptionSwap], *, num: int = 50) -> SwapStatistics:
    """Count the swaps in the augmented pairs; list the ``num`` most frequent ones.

    Raises:
        ValueError: ``swaps`` is empty.
    """
    totals: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    for swap in swaps:
        totals["swaps"] += 1
        totals["objects"] += swap.old_object != swap.new_object
        totals["attributes"] += swap.old_attribute != swap.new_attribute
        totals["plural"] += swap.plural
        changes[f"{swap.old_object} > {swap.new_object}"] += 1
    if not totals:
        raise ValueError("swaps must not be empty: no caption was changed")
    common = sorted(changes.items(), key=lambda item: (-item[1], item[0]))[:num]
    return SwapStatistics(
        num_swaps=totals["swaps"],
        changed_objects=totals["objects"] / totals["swaps"],
        changed_attributes=totals["attributes"] / totals["swaps"],
        plural=totals["plural"] / totals["swaps"],
        changes=dict(common),
    )


def write_statistics(
    folder: str | Path,
    *,
    before: MentionStatistics,
    after: MentionStatistics,
    swaps: SwapStatistics | None = None,
    similarities: Sequence[float] | np.ndarray = (),
    threshold: float | None = None,
    space: str = "",
) -> tuple[str, ...]:
    """Write ``statistics.json``, ``objects.png`` and, given similarities, ``similarities.png``.

    Args:
        folder: made if need be.
        before: statistics of the original data.
        after: statistics of the augmented data.
        swaps: swaps of the augmented data.
        similarities: similarities of the augmented pairs.
        threshold: drawn among them.
        space: space of the similarities.

    Returns:
        Names of the files.

    Raises:
        ValueError: no caption of both datasets mentions an object.
    """
    folder, scores = Path(folder), np.asarray(similarities, dtype=np.float64)
    content = {
        "before": asdict(before),
        "after": asdict(after),
        "comparison": asdict(compare(before, after)),
        "swaps": asdict(swaps) if swaps else None,
        "similarities": _summary(scores, threshold, space) if len(scores) else None,
    }
    write_json(folder / "statistics.json", content)
    figure = _draw_objects(before, after)
    write_atomically(folder / "objects.png", lambda part: figure.savefig(part, dpi=100))
    if not len(scores):
        return "statistics.json", "objects.png"
    drawn = _draw_similarities(scores, threshold, space)
    write_atomically(folder / "similarities.png", lambda part: drawn.savefig(part, dpi=100))
    return "statistics.json", "objects.png", "similarities.png"


def _summary(scores: np.ndarray, threshold: float | None, space: str) -> dict[str, object]:
    counts, edges = np.histogram(scores, NUM_BINS)
    return {
        "space": space,
        "num_pairs": len(scores),
        "mean": float(scores.mean()),
        "std": float(scores.std()),
        "threshold": threshold,
        "share_kept": None if threshold is None else float((scores >= threshold).mean()),
        "counts": counts.tolist(),
        "edges": edges.tolist(),
    }


def _draw_objects(before: MentionStatistics, after: MentionStatistics) -> Figure:
    """Draw Figure 4.7: probability of each class in a photo, by its rank before augmentation."""
    old = before.image_share
    names = sorted({*old, *after.image_share}, key=lambda name: (-old.get(name, 0.0), name))
    names = names[:MAX_CLASSES]
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    new = [after.image_share.get(name, 0.0) for name in names]
    axes.plot(new, color="#d1603d", linewidth=1, label=f"augmented, {after.num_images} photos")
    axes.plot(
        [old.get(name, 0.0) for name in names],
        color="#4878a8",
        label=f"original, {before.num_images} photos",
    )
    axes.set(xlabel="object classes, most frequent first", ylabel="share of photos", yscale="log")
    axes.legend(frameon=False)
    return figure


def _draw_similarities(scores: np.ndarray, threshold: float | None, space: str) -> Figure:
    """Draw Figure 4.4: similarity of augmented photos and captions."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    counts, edges = np.histogram(scores, NUM_BINS)
    axes.stairs(counts, edges, fill=True, color="#4878a8", label=f"{len(scores)} pairs")
    if threshold is not None:
        axes.axvline(threshold, color="0.3", linestyle="--", label=f"threshold {threshold:.3g}")
    axes.set(xlabel=f"similarity {space}".strip(), ylabel="pairs")
    axes.legend(frameon=False)
    return figure
