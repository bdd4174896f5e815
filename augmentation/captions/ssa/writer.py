"""New captions written as a set to train on: captions.jsonl, statistics, a figure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.progress import track

from augmentation.captions.ssa.method import NewCaption
from augmentation.captions.ssa.penman import write_penman
from augmentation.set_folder import claim_folder
from captioning.data.added_captions import FILE, focus, read_added_captions
from captioning.data.roster import Roster
from captioning.files import read_json, write_json, write_lines, write_whole
from captioning.lengths import count_words, length_level
from captioning.types import Sample

LOW = 0.3  # coverage below which a caption is of a small part of the photo
BINS = 10


def write_captions(
    groups: Iterable[list[NewCaption]],
    *,
    folder: Path,
    roster: Roster,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Write all captions, or leave a set as it is that was written to its end.

    Args:
        groups: captions by photo, the same in every run of the same settings.
        folder: of the set.
        roster: that they were made from.
        settings: plain values that they depend on; another set is refused the folder.

    Returns:
        Counts and statistics: ``captions``, ``photos``, and coverage and length of people's
        captions, of those made, and of both.

    Raises:
        ValueError: the folder holds another set, or no caption was made.
        OSError: something cannot be written.
    """
    claim_folder(folder, settings)
    if not (folder / FILE).is_file():
        lines = [
            json.dumps(_record(one), ensure_ascii=False)
            for found in track(groups, description="captions", total=len(roster.rows_by_image),
                               transient=True)
            for one in found
        ]  # fmt: skip
        if not lines:
            raise ValueError(
                "no caption was made: all candidates were refused; more photos, or "
                "method.rules.least_well_formed=0, show why"
            )
        write_lines(folder / FILE, lines)
        write_json(folder / "statistics.json", _statistics(folder, roster))
        write_whole(folder / "statistics.png", lambda path: _draw(folder, path))
    return read_json(folder / "statistics.json")


def _record(one: NewCaption) -> dict[str, Any]:
    """A line: the caption, its control signals, and what it was made of."""
    regions = sorted({region for phrase in one.phrases for region in phrase.regions})
    verbs = [node.names[0].word for node in one.graph.nodes.values()
             if node.is_predicate and node.names[0].word]  # fmt: skip
    words = count_words(one.text)
    return {
        "image_id": one.sample.image_id,
        "caption": one.text,
        "phrases": [
            {"start": phrase.start, "text": phrase.text, "chain_id": phrase.chain_id,
             "kinds": list(phrase.kinds), "regions": list(phrase.regions)}
            for phrase in one.phrases
        ],
        "boxes": [{"region": n, "box": list(one.sample.regions[n].box)} for n in regions],
        "words": words,
        "level": length_level(words),
        "verb": verbs[0] if verbs else "",
        "score": one.score,
        "graph": write_penman(one.graph),
    }  # fmt: skip


def _statistics(folder: Path, roster: Roster) -> dict[str, Any]:
    made = read_added_captions(folder, roster)
    own = list(roster.samples)
    return {
        "captions": len(made),
        "photos": len({sample.image_id for sample in made}),
        "photos of the data": len(roster.rows_by_image),
        "people's": described(own),
        "made": described(made),
        "together": described([*own, *made]),
    }


def described(samples: list[Sample]) -> dict[str, Any]:
    """Coverage and length of captions: means, histograms, the share of low coverage."""
    covered = np.array([focus(sample) for sample in samples])
    words = [count_words(sample.caption) for sample in samples]
    counts = np.histogram(covered, BINS, (0, 1))[0]
    return {
        "captions": len(samples),
        "coverage below 0.3": round(float((covered < LOW).mean()), 4),
        "mean coverage": round(float(covered.mean()), 4),
        "coverage by tenths": counts.tolist(),
        "mean words": round(float(np.mean(words)), 2),
        "words": {str(number): count for number, count in sorted(Counter(words).items())},
    }


def _draw(folder: Path, path: Path) -> None:
    """Histograms of coverage and length, people's captions and those made (as Fig. 10 and 11)."""
    found = read_json(folder / "statistics.json")
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, colour, shift in (("people's", "0.6", -0.2), ("made", "#4878a8", 0.2)):
        shares = np.array(found[name]["coverage by tenths"]) / found[name]["captions"]
        left.bar(np.arange(BINS) * 10 + 5 + 10 * shift, 100 * shares, 4, color=colour, label=name)
        words = found[name]["words"]
        heights = [100 * count / found[name]["captions"] for count in words.values()]
        right.bar([int(n) + shift for n in words], heights, 0.4, color=colour, label=name)
    left.set(xlabel="coverage of the photo (%)", ylabel="captions (%)")
    right.set(xlabel="words", ylabel="captions (%)")
    right.legend(frameon=False)
    figure.savefig(path, dpi=100)
