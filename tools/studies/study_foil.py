"""Evaluate the three tasks of FOIL (Shekhar et al., ACL 2017) on available COCO photos.

    python tools/studies/study_foil.py data.image_folder=FOLDER
    python tools/studies/study_foil.py --report

The tasks are to find the caption with a wrong word, to find the word, and to correct it. As in the
paper, a COCO class is replaced by another class of the same super-category that no caption of the
photo names: the one that language expects most. Nothing is trained on foils. Each line of
docs/results/records/foil.jsonl is the result of one kind of evidence; ``--report`` builds the table
of docs/results/wrong_words.md, which says where this differs from the authors' protocol.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page_tables import fill, read_records
from study_check_words import photo_vectors

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import Roster, build_roster
from captioning.metrics.detection import area_under_roc
from captioning.runtime.files import write_lines
from captioning.text.cross_fitted_words import CrossFittedWords, deal_folds
from captioning.text.expected_words import PhotoFeatures
from captioning.text.masked_words import WordTraining
from captioning.text.word_rows import WORD, replace_word, row_words, same_thing, word_rows

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "foil.jsonl"
PAGE = ROOT / "docs" / "results" / "wrong_words.md"
NUM_FOLDS = 3
UNSEEN = 1000  # the last photos, which the space of photos and texts did not learn from
SUPER_CATEGORIES = {
    "vehicle": "bicycle car motorcycle airplane bus train truck boat",
    "animal": "bird cat dog horse sheep cow elephant bear zebra giraffe",
    "sports": "frisbee skis snowboard kite skateboard surfboard",
    "kitchen": "bottle cup fork knife spoon bowl",
    "food": "banana apple sandwich carrot pizza cake",
    "furniture": "chair couch bed",
    "electronic": "television laptop mouse keyboard",
    "accessory": "backpack umbrella handbag tie suitcase",
}
EVIDENCE = {
    "text": {"siblings": False, "photos": False},
    "photo": {"siblings": False, "photos": True},
    "siblings": {"siblings": True, "photos": False},
    "all": {"siblings": True, "photos": True},
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Word that can be foiled.

    Attributes:
        row: row of its caption in the roster.
        start: index of its first character.
        word: the word as written.
        others: index in the row of words, and word, of each class that can replace it.
    """

    row: int
    start: int
    word: str
    others: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Networks with the settings for their evaluation."""

    networks: CrossFittedWords
    photos: Sequence[int]
    folds: Sequence[int]
    features: PhotoFeatures | None

    def words(self, captions: Sequence[str]) -> dict[int, list[tuple[int, int, np.ndarray]]]:
        """Start, meaning and log-probabilities of each word for an object, by caption."""
        judged = self.networks.judge(captions, self.photos, self.folds, self.features)
        words: dict[int, list[tuple[int, int, np.ndarray]]] = {}
        is_object = np.array([row.topic == "object" for row in word_rows()])[judged.rows]
        for number in np.flatnonzero(is_object).tolist():
            row = int(judged.captions[number])
            one = int(judged.starts[number]), int(judged.meanings[number]), judged.log_probs[number]
            words.setdefault(row, []).append(one)
        return words


def main() -> None:
    """Measure the tasks, or build the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", default="cache", type=Path)
    parser.add_argument("--photos", type=int, default=2000, help="the last ones (2000)")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        report()
        return
    overrides = ["data=coco_train2014", "data.missing_photos=drop", *options.overrides]
    roster = last_photos(build_part(compose_config("train", overrides).data.train), options.photos)
    vectors = photo_vectors(roster, options.cache)
    language = judge_of(roster, vectors, "text", options.seed + 1000)  # not those that are measured
    foils = chosen(roster, language, np.random.default_rng(options.seed))
    print(f"{len(foils):,} foils in {len(roster):,} captions", flush=True)
    lines = []
    for evidence in EVIDENCE:
        judge = judge_of(roster, vectors, evidence, options.seed)
        line = measured(roster, foils, judge)
        lines.append(json.dumps({"evidence": evidence, "seed": options.seed, **line}))
        print(lines[-1], flush=True)
        write_lines(RECORDS, lines)


def last_photos(roster: Roster, number: int) -> Roster:
    """Captions of the last photos."""
    rows = [row for own in list(roster.rows_by_image.values())[-number:] for row in own]
    return build_roster(roster.name, [roster.samples[row] for row in rows])


def judge_of(roster: Roster, vectors: Mapping[Path, np.ndarray], evidence: str, seed: int) -> Judge:
    """Networks trained on the correct captions; each scores photos that it did not see."""
    images = list(roster.rows_by_image)
    numbers = {image: number for number, image in enumerate(images)}
    folds = deal_folds(images, NUM_FOLDS, seed)
    features = None
    if EVIDENCE[evidence]["photos"]:
        paths = [roster.samples[rows[0]].image_path for rows in roster.rows_by_image.values()]
        stacked = np.stack([vectors[path] for path in paths])
        stacked = stacked - stacked.mean(0)
        largest = np.linalg.eigvalsh(np.cov(stacked.T))[-1]
        means = torch.from_numpy(stacked * 3 / np.sqrt(largest)).float()
        features = PhotoFeatures(cells=means[:, None], means=means)
    photos = [numbers[sample.image_id] for sample in roster.samples]
    by_photo = [folds[image] for image in images]
    networks = CrossFittedWords(
        captions=[sample.caption for sample in roster.samples],
        photos=photos,
        folds=by_photo,
        features=features,
        network={"siblings": EVIDENCE[evidence]["siblings"]},
        training=WordTraining(),
        seed=seed,
    )
    return Judge(networks=networks, photos=photos, folds=by_photo, features=features)


def super_category(word: str) -> str:
    """Super-category of a word; empty if the word names no class."""
    names = same_thing().get(word.lower(), frozenset())
    for name, classes in SUPER_CATEGORIES.items():
        if names & set(classes.split()):
            return name
    return ""


def places(roster: Roster) -> Iterator[Place]:
    """Words of classes that another class of the same super-category can replace."""
    rows = word_rows()
    for own in roster.rows_by_image.values():
        captions = [roster.samples[row].caption for row in own]
        words = {word.lower() for caption in captions for word in WORD.findall(caption)}
        named = frozenset[str]().union(*(same_thing().get(word, frozenset()) for word in words))
        for row, caption in zip(own, captions, strict=True):
            for word in row_words(caption):
                kind = super_category(word.word)
                others = tuple(
                    (number, meaning[0])
                    for number, meaning in enumerate(rows[word.row].meanings)
                    if kind and super_category(meaning[0]) == kind and meaning[0] not in named
                )
                if others:
                    yield Place(row=row, start=word.start, word=word.word, others=others)


def chosen(
    roster: Roster, language: Judge, rng: np.random.Generator
) -> dict[int, tuple[Place, str]]:
    """A foil for each possible photo, with the word that language expects most, by row."""
    judged = language.words([sample.caption for sample in roster.samples])
    by_image: dict[str, list[Place]] = {}
    unseen = set(list(roster.rows_by_image)[-UNSEEN:])
    for place in places(roster):
        if roster.samples[place.row].image_id not in unseen:
            continue
        by_image.setdefault(roster.samples[place.row].image_id, []).append(place)
    foils = {}
    for candidates in by_image.values():
        place = candidates[int(rng.integers(len(candidates)))]
        log_probs = next(values for start, _, values in judged[place.row] if start == place.start)
        _, word = max(place.others, key=lambda other: log_probs[other[0]])
        foils[place.row] = place, word
    return foils


def measured(
    roster: Roster, foils: Mapping[int, tuple[Place, str]], judge: Judge
) -> dict[str, Any]:
    """Results of the three tasks."""
    captions = [sample.caption for sample in roster.samples]
    sound = judge.words(captions)
    foiled = list(captions)
    for row, (place, word) in foils.items():
        foiled[row] = replace_word(captions[row], place.start, place.word, word)
    wrong = judge.words(foiled)
    scores = np.array([[most_doubted(words[row])[1] for row in foils] for words in (sound, wrong)])
    found, chance, right, chance_right = [], [], [], []
    for row, (place, word) in foils.items():
        # an article before the word may have grown or shrunk
        shift = len(foiled[row]) - len(captions[row]) - (len(word) - len(place.word))
        start = place.start + shift
        found.append(most_doubted(wrong[row])[0] == start)
        chance.append(1 / len(wrong[row]))
        meaning, log_probs = next((m, values) for s, m, values in wrong[row] if s == start)
        others = np.where(np.arange(len(log_probs)) == meaning, -np.inf, log_probs)
        original = next(m for s, m, _ in sound[row] if s == place.start)
        right.append(int(others.argmax()) == original)
        chance_right.append(1 / (np.isfinite(log_probs).sum() - 1))
    labels = np.repeat([False, True], scores.shape[1])
    return {
        "photos": len(judge.folds),
        "foils": len(foils),
        "pairwise": float((scores[1] > scores[0]).mean()),
        "auc": area_under_roc(scores.ravel(), labels),
        # half are foils, so the upper half is refused: no threshold is learnt
        "accuracy": float(((scores > np.median(scores)) == labels.reshape(2, -1)).mean()),
        "word_found": float(np.mean(found)),
        "word_chance": float(np.mean(chance)),
        "corrected": float(np.mean(right)),
        "correction_chance": float(np.mean(chance_right)),
    }


def most_doubted(words: Sequence[tuple[int, int, np.ndarray]]) -> tuple[int, float]:
    """Start and log-odds of the word that another word would replace best."""
    best = (-1, -np.inf)
    for start, meaning, log_probs in words:
        others = np.where(np.arange(len(log_probs)) == meaning, -np.inf, log_probs)
        odds = float(others.max() - log_probs[meaning])
        best = max(best, (start, odds), key=lambda one: one[1])
    return best


def report() -> None:
    """Write the table of the page."""
    head = [
        *("evidence", "foils", "foil more suspect", "AUC", "captions classified"),
        *("word found (chance)", "corrected (chance)"),
    ]
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for line in read_records(RECORDS):
        cells = [line["evidence"], f"{line['foils']:,}"]
        cells += [f"{line['pairwise']:.1%}", f"{line['auc']:.3f}"]
        cells.append(f"{line['accuracy']:.1%}")
        cells.append(f"{line['word_found']:.1%} ({line['word_chance']:.1%})")
        cells.append(f"{line['corrected']:.1%} ({line['correction_chance']:.1%})")
        rows.append(f"| {' | '.join(cells)} |")
    fill(PAGE, {"foil": rows})


if __name__ == "__main__":
    main()
