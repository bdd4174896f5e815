"""Measure how well ``captioning check`` finds and corrects planted wrong words.

    python tools/studies/study_check_words.py
    python tools/studies/study_check_words.py --faults uniform plausible none --photos 2000
    python tools/studies/study_check_words.py --report

Words of Flickr8k's captions are replaced by other words of their row. Datasets of fewer photos or
one caption per photo show how much data the check needs. Each line of
docs/results/records/check_words.jsonl is the result for one dataset; ``--report`` builds the tables
of docs/results/check.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from page_tables import fill, percent, read_records, share_of
from rich.progress import track
from study_words import captions_of, unseen_photos

from captioning.config.compose import compose_config
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.plant_faults import Planting, plant
from captioning.interfaces import TextEmbedder
from captioning.runtime.files import write_atomically, write_lines
from captioning.text.word_rows import same_thing
from captioning.vision.photo_keys import content_key
from captioning.vision.photos import load_rgb
from curation.check.checks import CHECKS, THRESHOLDS, Check
from curation.check.evidence import Evidence, PhotoFacts
from curation.check.folder_check import build_encoders
from curation.check.mend import MEND_FROM, Replacement, mendable
from curation.check.result import CheckResult
from curation.check.word_checks import NAME

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "check_words.jsonl"
PAGE = ROOT / "docs" / "results" / "check.md"
FAULTS: dict[str, dict[str, float]] = {
    "none": {},
    "uniform": {"color": 0.02, "number": 0.02, "object": 0.02},
    # of numbers fewer: there are too few captions whose number language would not expect
    "plausible": {"plausible_number": 0.01}
    | {f"plausible_{topic}": 0.02 for topic in ("color", "object", "people")},
}
SHOWN_FROM = (0.5, 0.7, 0.8)  # thresholds that are compared
CHANCES = (0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8)  # from which on words are counted, up to the next
UNSEEN = 2000  # photos of validation and test: the space learnt from those of training
# faults, photos, captions of each
SETS = (
    ("uniform", 200, 5),
    ("uniform", 400, 5),
    ("uniform", 1000, 5),
    ("uniform", 2000, 5),
    ("uniform", 6000, 5),
    ("uniform", 2000, 1),
    ("uniform", 6000, 1),
    ("plausible", 2000, 5),
    ("plausible", 6000, 5),
    ("none", 2000, 5),
    ("none", 6000, 5),
    ("none", 2000, 1),
    ("none", 6000, 1),
)
AT_ONCE = 64


def main() -> None:
    """Measure the check, or build the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, metavar="PHOTOS", help="kinds of faults to plant")
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--photos", nargs="+", type=int, metavar="NUMBER", help="of the sets")
    parser.add_argument("--cache", default="cache", type=Path)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        report()
        return
    for faults, photos, each in SETS:
        is_small = options.most is None or photos <= options.most
        is_named = faults in options.faults and photos in (options.photos or [photos])
        if is_small and is_named:
            roster = read(is_seen=photos > UNSEEN)
            vectors = photo_vectors(roster, options.cache)
            part = part_of(roster, photos, each)
            line = measured(part, vectors, faults, options.seed, options.cache)
            keep({"photos": photos, "each": each, "seen": photos > UNSEEN, **line})


def read(*, is_seen: bool) -> Roster:
    """Flickr8k's photos that trained the joint space, or the other photos."""
    config = compose_config("train", ["data=flickr8k"])
    return captions_of("flickr8k", [config.data.train]) if is_seen else unseen_photos(config)


def photo_vectors(roster: Roster, cache: Path) -> dict[Path, np.ndarray]:
    """Joint-space vector of each photo, cached for the next study of these annotations."""
    paths = list({sample.image_path: None for sample in roster.samples})
    file = cache / f"photo_vectors-{roster.fingerprint}.npy"
    if not file.is_file():
        vectors = embedded(paths)
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda part: save(part, vectors))
    return dict(zip(paths, np.load(file), strict=True))


def save(path: Path, vectors: np.ndarray) -> None:
    """Write an array to exactly this file name."""
    with path.open("wb") as file:
        np.save(file, vectors)


def embedded(paths: Sequence[Path]) -> np.ndarray:
    """Embed photos ``(len(paths), D)`` in the default space of the check."""
    encoder, _ = build_encoders("joint_space", None)
    if encoder is None:
        raise ValueError("there is no space of photos and texts")
    parts = []
    for start in track(range(0, len(paths), AT_ONCE), "photos"):
        photos = [load_rgb(path) for path in paths[start : start + AT_ONCE]]
        parts.append(encoder.embed_photos(photos).numpy())
    return np.concatenate(parts)


def evidence_of(
    roster: Roster,
    vectors: Mapping[Path, np.ndarray],
    seed: int,
    encoder: TextEmbedder | None = None,
) -> Evidence:
    """Evidence for the check of words; with an encoder also a second round of evidence."""
    paths = list({sample.image_path: None for sample in roster.samples})
    return Evidence(
        roster=roster,
        photos={path: PhotoFacts(key=content_key(path)) for path in paths},
        photo_vectors=np.stack([vectors[path] for path in paths]),
        encoder=encoder,
        space="joint_space",
        seed=seed,
    )


def words_check() -> Check:
    """Build the check of words."""
    return next(check for check in CHECKS if check.name == NAME)


def part_of(roster: Roster, photos: int, each: int) -> Roster:
    """First captions of the first photos."""
    rows = [own[:each] for own in list(roster.rows_by_image.values())[:photos]]
    return build_roster(roster.name, [roster.samples[row] for own in rows for row in own])


def measured(
    roster: Roster, vectors: Mapping[Path, np.ndarray], faults: str, seed: int, cache: Path
) -> dict[str, Any]:
    """Result of the check for a dataset with faults."""
    planting = plant(roster, kinds=FAULTS[faults], seed=seed, cache_folder=cache)
    encoder, _ = build_encoders("joint_space", cache)
    begin = processor_seconds()
    # other folds and parameters than those that faults were drawn by
    evidence = evidence_of(planting.roster, vectors, seed + 100, encoder)
    scores = words_check().score(evidence)
    limits = {**THRESHOLDS, NAME: MEND_FROM}
    result = CheckResult(roster=planting.roster, scores={NAME: scores}, thresholds=limits)
    cost = processor_seconds() - begin
    return {
        "faults": faults,
        "seed": seed,
        "captions": len(roster),
        "words": sum(map(len, scores.words.values())),
        "cpu_s": round(cost, 1),
        **counts(result, planting),
    }


def counts(result: CheckResult, planting: Planting) -> dict[str, Any]:
    """Number of planted, flagged and corrected captions, and how many of these are correct."""
    flagged = [s for s in planting.roster.samples if result.flags[NAME][s.row]]
    chances = result.scores[NAME].values[result.flags[NAME]]
    found = [sample for sample in flagged if sample.sample_id in planting.truth]
    mended = mendable(result) if result.scores[NAME].words else {}
    by_id = {planting.roster.samples[row].sample_id: new for row, new in mended.items()}
    return {
        "planted": len(planting.truth),
        "shown": shown(result, planting),
        "chances": by_chance(result, planting),
        "flagged": len(flagged),
        "right": len(found),
        "mean_chance": float(chances.mean()) if len(chances) else None,
        "mended": len(mended),
        "mended_faulty": sum(name in planting.truth for name in by_id),
        "mended_rightly": sum(is_right(planting, name, new) for name, new in by_id.items()),
    }


def shown(result: CheckResult, planting: Planting) -> list[dict[str, float]]:
    """Number of captions shown on a page at each threshold, and how many have planted words."""
    values, words = result.scores[NAME].values, result.scores[NAME].words
    samples = planting.roster.samples
    starts = {
        s.row: planting.words[s.sample_id].start for s in samples if s.sample_id in planting.words
    }
    lines = []
    for threshold in SHOWN_FROM:
        rows = np.flatnonzero(values >= threshold).tolist()
        planted = [row for row in rows if row in starts]
        named = sum(words[row][0].start == starts[row] for row in planted)
        lines.append(
            {"from": threshold, "shown": len(rows), "planted": len(planted), "named": named}
        )
    return lines


def by_chance(result: CheckResult, planting: Planting) -> list[dict[str, float]]:
    """Words by their probability of being wrong: number, mean probability, number planted."""
    samples = planting.roster.samples
    places = {
        (s.row, planting.words[s.sample_id].start) for s in samples if s.sample_id in planting.words
    }
    doubts = [doubt for own in result.scores[NAME].words.values() for doubt in own]
    values = np.array([doubt.probability for doubt in doubts])
    is_planted = np.array([(doubt.row, doubt.start) in places for doubt in doubts], dtype=bool)
    lines = []
    for least, most in zip(CHANCES, (*CHANCES[1:], np.inf), strict=True):
        own = (values >= least) & (values < most)
        if own.any():
            facts = {"words": int(own.sum()), "planted": int(is_planted[own].sum())}
            lines.append({"from": least, "mean": float(values[own].mean()), **facts})
    return lines


def is_right(planting: Planting, sample_id: str, new: Replacement) -> bool:
    """Whether the original word, or a word of the same meaning, was restored."""
    truth = planting.words.get(sample_id)
    if truth is None or truth.start != new.doubt.start:
        return False
    right = truth.right.lower()
    return new.doubt.alternative in same_thing().get(right, frozenset([right]))


def processor_seconds() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def keep(line: Mapping[str, Any]) -> None:
    """Write a line to the records, replacing an older line of the same dataset."""
    print(json.dumps(line), flush=True)
    keys = ("photos", "each", "faults", "seed")
    others = [old for old in read_records(RECORDS) if any(old[key] != line[key] for key in keys)]
    write_lines(RECORDS, [json.dumps(one) for one in [*others, line]])


def report() -> None:
    """Write the tables of the page."""
    lines = read_records(RECORDS)
    tables = {"words": table(lines), "word thresholds": threshold_table(lines)}
    fill(PAGE, {**tables, "word chances": chance_table(lines)})


def threshold_table(lines: list[dict[str, Any]]) -> list[str]:
    """Rows by dataset and threshold: what the page shows, and how much of it was planted."""
    head = ["faults", "photos", "captions", "planted", "from", "shown"]
    head += ["of these planted", "planted ones shown", "with that word marked"]
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for line in in_order(lines):
        for level in line.get("shown", ()):
            is_planted = line["planted"] > 0
            cells = [
                *set_cells(line),
                f"{level['from']:g}",
                f"{level['shown']:,}",
                share_of(level["planted"], level["shown"] if is_planted else 0),
                share_of(level["planted"], line["planted"]),
                share_of(level["named"], line["planted"]),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def chance_table(lines: list[dict[str, Any]]) -> list[str]:
    """Rows by probability: number of words, their mean probability, and number planted."""
    rows = ["| faults | captions of a photo | chance, from | words | mean chance | planted |"]
    rows.append("|---" + "|---:" * 5 + "|")
    for faults, several in itertools.product(FAULTS, (True, False)):
        own = [x for x in lines if x["faults"] == faults and (x["each"] > 1) == several]
        for least in CHANCES if faults != "none" else ():
            near = [x for line in own for x in line.get("chances", ()) if x["from"] == least]
            if near:
                number = sum(x["words"] for x in near)
                mean = sum(x["words"] * x["mean"] for x in near) / number
                share = sum(x["planted"] for x in near) / number
                cells = [faults, "5" if several else "1", f"{least:g}", f"{number:,}"]
                rows.append(f"| {' | '.join([*cells, f'{mean:.3f}', f'{share:.3f}'])} |")
    return rows


def set_cells(line: Mapping[str, Any]) -> list[str]:
    """First cells of a row: faults, photos, captions, and number of planted captions."""
    photos = f"{line['photos']:,}{'*' if line['photos'] > UNSEEN else ''}"
    return [line["faults"], photos, f"{line['captions']:,}", f"{line['planted']:,}"]


def in_order(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort lines in the order of `SETS`."""
    known = {(line["faults"], line["photos"], line["each"]): line for line in lines}
    return [known[key] for key in SETS if key in known]


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Rows by dataset, in the order of `SETS`."""
    head = [
        *(
            "faults",
            "photos",
            "captions",
            "planted",
            "flagged",
            "precision",
            "mean chance",
            "recall",
        ),
        *("replaced", "of these faulty", "right word given", "processor s"),
    ]
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for line in in_order(lines):
        is_planted = line["planted"] > 0
        cells = [
            *set_cells(line),
            f"{line['flagged']:,}",
            share_of(line["right"], line["flagged"] if is_planted else 0),
            percent(line["mean_chance"]),
            share_of(line["right"], line["planted"]),
            f"{line['mended']:,}",
            share_of(line["mended_faulty"], line["mended"] if is_planted else 0),
            share_of(line["mended_rightly"], line["mended"] if is_planted else 0),
            f"{line['cpu_s']:.0f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    main()
