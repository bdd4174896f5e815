"""Measure how well each check of ``captioning check`` finds planted faults.

    python tools/studies/study_check.py flickr8k miniworld
    python tools/studies/study_check.py coco data.image_folder=FOLDER data.missing_photos=drop
    python tools/studies/study_check.py --report

The shipped joint space was not trained on these photos and captions: Flickr8k's test split, the
last 1,000 of the available COCO photos, and generated scenes. One kind of fault is planted at a
time; each line of docs/results/records/check.jsonl is the result of one check. ``--report`` builds
the tables of docs/results/check.md.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from page_tables import fill, percent, read_records, share_of
from PIL import Image

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.plant_faults import plant_faults
from captioning.runtime.files import write_lines
from captioning.types import Sample
from captioning.vision.photos import load_rgb
from curation.check.checks import CHECKS, THRESHOLDS
from curation.check.evidence import Evidence, PhotoFacts
from curation.check.folder_check import build_encoders
from curation.check.photo_vectors import look_at
from curation.check.result import CheckResult
from curation.score.duplicate import difference_hash

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "check.jsonl"
PAGE = ROOT / "docs" / "results" / "check.md"
NAMES = {
    "flickr8k": "Flickr8k's test (photos)",
    "coco": "COCO (photos)",
    "miniworld": "MiniWorld (generated scenes)",
}
RUN = 50  # photos of a shifted run
TEXTS = {
    "address": ["Prints at www.myphotos.example", "photo by me@mail.example.org", "http://t.co/x1"],
    "file_name": ["IMG_4711", "DSC01234.JPG", "OLYMPUS DIGITAL CAMERA", "20190412_153020"],
    "code": [
        "<p>A dog runs.</p>",
        "dog 0.93 grass 0.41",
        '{"caption": "a dog"}',
        "A man &amp; dog",
    ],
    "refusal": [
        "I'm sorry, but I can't help with that.",
        "As an AI language model, I cannot see images.",
        "I'm unable to identify people in photos.",
        "Sure! Here's a caption for the photo.",
    ],
    "too_short": ["dog", "-", "nice"],
    "other_language": [
        "Ein Mann mit einem Hut steht auf der Straße.",
        "Un chien court dans l'herbe avec une balle.",
        "Una mujer está sentada en un banco con su perro.",
        "Мальчик прыгает в воду.",
        "两个人在海滩上散步",
        "Een jongen springt in het water van een zwembad.",
    ],
}
Planted = tuple[Evidence, "np.ndarray"]
Look = Callable[[Roster], Evidence]


def main() -> None:
    """Measure the checks, or build the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="DATA", help=f"{', '.join(NAMES)}; KEY=VALUE")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--cache", default="cache")
    parser.add_argument("--photos", type=int, default=1000, help="of each data set (1000)")
    options = parser.parse_intermixed_args()
    overrides = [word for word in options.words if "=" in word]
    for data in (word for word in options.words if word not in overrides):
        keep(data, measured(data, Path(options.cache), overrides, options.photos))
    if options.report:
        report()


def measured(
    data: str, cache: Path, overrides: Sequence[str], num_photos: int
) -> list[dict[str, Any]]:
    """Results of every check for every fault in a dataset."""
    roster = read(data, overrides, num_photos)
    encoder, sentences = build_encoders("joint_space", cache)
    clean = look_at(roster, encoder, sentences)

    def look(faulty: Roster) -> Evidence:
        return seen_again(clean, faulty, encoder, sentences)

    lines = []
    for fault, (evidence, truth, for_checks) in planted(clean, look).items():
        scores = {c.name: c.score(evidence) for c in CHECKS if c.name in for_checks}
        result = CheckResult(roster=evidence.roster, scores=scores, thresholds=THRESHOLDS)
        for name in for_checks:
            line = counts(result, name, truth)
            lines.append({"data": data, "fault": fault, "check": name, **line})
            print(json.dumps(lines[-1]), flush=True)
    return lines


def read(data: str, overrides: Sequence[str], num_photos: int) -> Roster:
    """Read the last photos of a dataset, on which the joint space was not trained."""
    name = {"coco": "coco_train2014"}.get(data, data)
    split = "train" if data == "coco" else "test"
    config = compose_config("train", [f"data={name}", *overrides])
    roster = build_part(config.data[split])
    last = set(list(roster.rows_by_image)[-num_photos:])
    return build_roster(roster.name, [s for s in roster.samples if s.image_id in last])


def seen_again(clean: Evidence, faulty: Roster, encoder: Any, sentences: Any) -> Evidence:
    """Evidence of a faulty roster, reusing embeddings of unchanged photos and captions."""
    rows = {sample.caption: sample.row for sample in clean.roster.samples}
    captions = [sample.caption for sample in faulty.samples]
    new = list(dict.fromkeys(caption for caption in captions if caption not in rows))
    places = [rows.get(caption, -1) for caption in captions]
    vectors = {}
    for name, embedder in (("caption_vectors", encoder), ("sentence_vectors", sentences)):
        values = getattr(clean, name)[places]
        if new:
            embedded = dict(zip(new, embedder.embed_texts(new).float().numpy(), strict=True))
            for row, caption in enumerate(captions):
                values[row] = embedded.get(caption, values[row])
        vectors[name] = values
    return replace(clean, roster=faulty, **vectors)


def planted(clean: Evidence, look: Look) -> dict[str, tuple[Evidence, np.ndarray, tuple[str, ...]]]:
    """Evidence with a planted fault, its faulty rows and the checks to run, by fault."""
    roster, rng = clean.roster, np.random.default_rng(0)
    every = tuple(check.name for check in CHECKS)
    none = np.zeros(len(roster), bool)
    cases: dict[str, tuple[Evidence, np.ndarray, tuple[str, ...]]] = {"none": (clean, none, every)}
    for share in (0.01, 0.05, 0.2):
        faulty, truth = plant_faults(roster, kinds={"swap": share}, seed=0)
        cases[f"swap {share:.0%}"] = (look(faulty), bears(faulty, truth), ("fit",))
    single = one_caption(roster)
    faulty, truth = plant_faults(single, kinds={"swap": 0.05}, seed=0)
    cases["swap 5%, one caption a photo"] = (look(faulty), bears(faulty, truth), ("fit",))
    for kind, name in (("object", "object"), ("color", "colour"), ("number", "number")):
        faulty, truth = plant_faults(roster, kinds={kind: 0.02}, seed=0)
        cases[f"{name} word 2%"] = (look(faulty), bears(faulty, truth), ("fit", "wrong_word"))
    faulty, truth = plant_faults(roster, kinds={"overlong": 0.05}, seed=0)
    cases["overlong 5%"] = (look(faulty), bears(faulty, truth), ("too_long",))
    faulty, rows = moved_photos(roster, rng)
    cases["photo of another 5%"] = (look(faulty), rows, ("wrong_photo", "fit"))
    faulty, rows = shifted(roster)
    cases[f"{RUN} photos shifted"] = (look(faulty), rows, ("shifted", "wrong_photo"))
    for name, texts in TEXTS.items():
        faulty, rows = with_texts(roster, texts, rng)
        cases[f"{name} 1%"] = (look(faulty), rows, (name,))
    faulty, rows = with_texts(roster, ["Photo of the day, taken in summer."], rng)
    cases["one caption on 1%"] = (look(faulty), rows, ("same_caption",))
    evidence, rows = copied(clean, rng)
    cases["near-copies 5%"] = (evidence, rows, ("duplicate_photo",))
    return cases


def bears(roster: Roster, truth: Mapping[str, str]) -> np.ndarray:
    """Mask ``(N,)`` of the faulty rows."""
    return np.array([sample.sample_id in truth for sample in roster.samples])


def one_caption(roster: Roster) -> Roster:
    """First caption of each image."""
    return build_roster(
        roster.name, [roster.samples[rows[0]] for rows in roster.rows_by_image.values()]
    )


def moved_photos(roster: Roster, rng: np.random.Generator) -> tuple[Roster, np.ndarray]:
    """Exchange the photos of a twentieth of the images."""
    ids = list(roster.rows_by_image)
    chosen = [ids[place] for place in rng.permutation(len(ids))[: len(ids) // 20]]
    path = {
        image_id: roster.samples[rows[0]].image_path
        for image_id, rows in roster.rows_by_image.items()
    }
    new = dict(zip(chosen, [path[image_id] for image_id in chosen[1:] + chosen[:1]], strict=True))
    samples = [replace(s, image_path=new.get(s.image_id, s.image_path)) for s in roster.samples]
    return build_roster(roster.name, samples), np.array([s.image_id in new for s in samples])


def shifted(roster: Roster) -> tuple[Roster, np.ndarray]:
    """Give a run of images the captions of the next image."""
    ids = list(roster.rows_by_image)
    start = len(ids) // 3
    texts = roster.references()
    new = {ids[n]: texts[ids[n + 1]] for n in range(start, start + RUN)}
    places = {i: {row: k for k, row in enumerate(rows)} for i, rows in roster.rows_by_image.items()}

    def moved(sample: Sample) -> Sample:
        if sample.image_id not in new:
            return sample
        captions = new[sample.image_id]
        place = places[sample.image_id][sample.row]
        return replace(sample, caption=captions[place % len(captions)])

    samples = [moved(sample) for sample in roster.samples]
    return build_roster(roster.name, samples), np.array([s.image_id in new for s in samples])


def with_texts(
    roster: Roster, texts: Sequence[str], rng: np.random.Generator
) -> tuple[Roster, np.ndarray]:
    """Replace a hundredth of the captions."""
    rows = rng.permutation(len(roster))[: max(len(texts), 5, len(roster) // 100)]
    new = {int(row): texts[place % len(texts)] for place, row in enumerate(rows)}
    samples = [replace(s, caption=new.get(s.row, s.caption)) for s in roster.samples]
    return build_roster(roster.name, samples), np.isin(np.arange(len(roster)), rows)


def copied(clean: Evidence, rng: np.random.Generator) -> Planted:
    """Append near-copies of a twentieth of the photos: smaller, cropped or more compressed.

    The copies reuse the photos' vectors, which hardly differ.
    """
    roster, paths = clean.roster, list(clean.photos)
    chosen = rng.permutation(len(paths))[: len(paths) // 20]
    photos, samples, rows = dict(clean.photos), list(roster.samples), []
    for number, place in enumerate(chosen.tolist()):
        path = Path(f"copy{number}.jpg")
        photos[path] = degraded(paths[place], number % 3)
        row = int(np.flatnonzero(clean.photo_of == place)[0])
        rows.append(row)
        change = {"image_path": path, "image_id": path.name, "sample_id": f"{path.name}#0"}
        samples.append(replace(roster.samples[row], **change))
    added = {"photo_vectors": chosen, "caption_vectors": rows, "sentence_vectors": rows}
    vectors = {
        name: np.concatenate([getattr(clean, name), getattr(clean, name)[places]])
        for name, places in added.items()
    }
    evidence = replace(clean, roster=build_roster(roster.name, samples), photos=photos, **vectors)
    return evidence, np.arange(len(samples)) >= len(roster)


def degraded(path: Path, how: int) -> PhotoFacts:
    """Image of a copy: a third of the size, strongly compressed, or cropped by 2% per side."""
    photo = load_rgb(path)
    width, height = photo.size
    if how == 0:
        photo = photo.resize((max(1, width // 3), max(1, height // 3)), Image.Resampling.BICUBIC)
    elif how == 1:
        file = io.BytesIO()
        photo.save(file, "JPEG", quality=15)
        with tempfile.NamedTemporaryFile(suffix=".jpg") as copy:
            copy.write(file.getvalue())
            copy.flush()
            photo = load_rgb(copy.name)
    else:
        photo = photo.crop((width // 50, height // 50, width - width // 50, height - height // 50))
    return PhotoFacts(size=photo.size, contrast=50, hash=difference_hash(photo))


def counts(result: CheckResult, name: str, truth: np.ndarray) -> dict[str, Any]:
    """Number of planted captions, of flagged captions and of captions that are both."""
    flags = result.flags[name]
    chances = result.scores[name].values
    return {
        "captions": len(truth),
        "planted": int(truth.sum()),
        "flagged": int(flags.sum()),
        "right": int((flags & truth).sum()),
        "expected_precision": result.expected_precision(name),
        "estimated_share": round(float(np.nanmean(chances)), 4)
        if name == "fit" and not np.isnan(chances).all()
        else None,
    }


def keep(data: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Replace the earlier lines of a dataset in the records."""
    old = RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.is_file() else []
    others = [line for line in old if json.loads(line)["data"] != data]
    write_lines(RECORDS, [*others, *(json.dumps(line) for line in lines)])


def report() -> None:
    """Write the tables of the page."""
    records = read_records(RECORDS)
    tables = {
        data: [table(title, [line for line in records if line["data"] == data])]
        for data, title in NAMES.items()
    }
    fill(PAGE, tables)


def table(title: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Rows of a dataset in Markdown."""
    head = ["planted", "check", "flagged", "precision", "expected", "recall"]
    rows = [
        f"| {line['fault']}, {line['planted']} | `{line['check']}` | {line['flagged']} | "
        f"{share_of(line['right'], line['flagged'] if line['planted'] else 0)} | "
        f"{percent(line['expected_precision'])} | {share_of(line['right'], line['planted'])} |"
        for line in lines
    ]
    number = (
        f"{title}, {lines[0]['captions']:,} captions:\n\n" if lines else f"{title}: no records.\n"
    )
    rule = "|---|---|---:|---:|---:|---:|"
    return number + "\n".join([f"| {' | '.join(head)} |", rule, *rows]) if lines else number


if __name__ == "__main__":
    main()
