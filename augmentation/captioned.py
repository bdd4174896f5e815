"""What a trained captioner says of pasted pictures: ``captioning augment captioned``.

Sections 4.5.1 and 4.5.2 of the CutSwap thesis (Hahn, 2022) show examples: a detector and captioners
that never saw such pictures find their way in them. Here is such a page (``sheet.png``) and its
numbers (``captioned.md``): captions of the pictures and of the photos they were made of, scored
against the captions before and after, and what they name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from augmentation.regions.annotations import records
from augmentation.regions.cutswap.objects import build_labels
from augmentation.regions.found_again import found_again, shares
from augmentation.regions.proposal import draw_key
from augmentation.regions.sheet import pair_sheet, with_regions
from captioning.data.roster import Roster, build_roster
from captioning.evaluation.predict import predict_run
from captioning.files import write_atomically, write_json, write_lines, write_text
from captioning.metrics.coco import MetricResult, evaluate_captions
from captioning.results.run_folder import versions
from captioning.results.table_formats import markdown_lines
from captioning.text.plurals import pluralise
from captioning.text.word_forms import form_patterns, mentioned_classes
from captioning.types import Region
from captioning.vision.photos import load_rgb

BEFORE, AFTER = "captions before", "captions after"
PHOTOS, PICTURES = "photos", "pictures"

Best = Mapping[str, Mapping[str, str]]  # captions of photos and of pictures, by the pair's name


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run says of photos, or of pictures.

    Attributes:
        captions: by image id, the best first.
        roster: the images.
        decoding: settings of the search.
    """

    captions: Mapping[str, Sequence[str]]
    roster: Roster
    decoding: Mapping[str, Any]

    def regions(self, image_id: str) -> tuple[Region, ...]:
        """Boxes of an image."""
        return self.roster.samples[self.roster.rows_by_image[image_id][0]].regions

    def path(self, image_id: str) -> Path:
        """File of an image."""
        return self.roster.samples[self.roster.rows_by_image[image_id][0]].image_path


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A picture and the photo that it was made of.

    Attributes:
        name: of the picture.
        image_id: of the photo.
        before: captions of the photo that were changed.
        after: captions of the picture.
        places: boxes that were pasted over.
        old: name of the object that was there; empty where the set does not say.
        new: name of the one that is there now.
    """

    name: str
    image_id: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    places: tuple[tuple[float, float, float, float], ...]
    old: str
    new: str


def describe_set(config: DictConfig) -> dict[str, Any]:
    """Caption a made set's pictures and their photos, and compare; see the module.

    Returns:
        What ``captioned.json`` holds.

    Raises:
        ValueError: no finished set, photos that the data set lacks, or one of the two detections.
        OSError: files that cannot be read or written.
    """
    config = config.copy()
    OmegaConf.resolve(config)
    if bool(config.detections) != bool(config.made_detections):
        raise ValueError("detections and made_detections must be given both, or neither")
    root = Path(config.made.root)
    pairs = read_pairs(root, number=config.num_pictures, seed=config.seed)
    photos = _seen(config, config.data, config.split, {pair.image_id for pair in pairs})
    pictures = _seen(config, config.made, "test", {pair.name for pair in pairs})
    metrics = {"metrics": list(config.metrics.test), "tokenizer": config.metrics.tokenizer}
    best = best_captions(pairs, photos.captions, pictures.captions)
    results = compare_captions(pairs, best, **metrics)
    same = sum(best[PHOTOS][pair.name] == best[PICTURES][pair.name] for pair in pairs)
    comparison = {
        "pictures": len(pairs),
        "photos": len(photos.captions),
        "same caption": same / len(pairs),
        "scores": {key: result.corpus for key, result in results.items()},
        "named": named(pairs, best),
        "found": _found(pairs, photos, pictures) if config.detections else None,
        "settings": {key: result.settings for key, result in results.items()},
        "decoding": photos.decoding,
        "evaluated": OmegaConf.to_container(config),
        "versions": versions(),
    }
    out = Path(config.out or Path(config.run) / "evaluation" / f"captioned-{root.name}")
    _write(out, config, pairs, photos, pictures, comparison)
    return comparison


def read_pairs(folder: Path, *, number: int | None, seed: int) -> list[Pair]:
    """Pictures of a made set, all of them or as many as asked for, in a random order.

    Raises:
        ValueError: the folder holds no finished set of pictures, or fewer than one is asked for.
    """
    if number is not None and number < 1:
        raise ValueError(f"num_pictures must be at least 1, or null for all: got {number}")
    path = folder / "provenance.jsonl"
    if not path.is_file():
        raise ValueError(
            f"{folder}: no provenance.jsonl; give made.root=FOLDER that captioning augment has "
            "written to its end"
        )
    pairs = [_pair(record) for record in records(path)]
    return sorted(pairs, key=lambda pair: draw_key(seed, "captioned", pair.name))[:number]


def _pair(record: Mapping[str, Any]) -> Pair:
    swap = record["notes"].get("swap", {})
    return Pair(
        name=record["name"],
        image_id=record["target"]["image_id"],
        before=tuple(record["before"]),
        after=tuple(record["captions"]),
        places=tuple(tuple(move["target_box"]) for move in record["pastes"]),
        old=swap.get("old_object", ""),
        new=swap.get("new_object", record["pastes"][0]["label"]),
    )


def images_of(*, roster: Roster, image_ids: Collection[str]) -> Roster:
    """A roster cut to some of its images; for configs.

    Raises:
        ValueError: it lacks some.
    """
    kept = set(image_ids)
    if missing := sorted(kept - roster.rows_by_image.keys()):
        raise ValueError(
            f"{roster.name} lacks {len(missing)} of the images asked for, such as {missing[0]}: "
            "give the data= and the split= that the set was made of"
        )
    samples = [sample for sample in roster.samples if sample.image_id in kept]
    return build_roster(roster.name, samples, roster.dropped)


def _seen(config: DictConfig, data: DictConfig, split: str, image_ids: set[str]) -> Seen:
    if data.get(split) is None:
        raise ValueError(f"data.{split} is not set for {data.name}: choose another split=")
    some = {
        "_target_": "augmentation.captioned.images_of",
        "roster": data[split],
        "image_ids": sorted(image_ids),
    }
    detections = config.made_detections if data is config.made else config.detections
    predictions, roster, decoding = predict_run(
        Path(config.run),
        OmegaConf.create({"name": data.name, "test": some}),
        search=config.get("search"),
        detections=list(detections),
    )
    captions = {group[0].image_id: [p.caption for p in group] for group in predictions}
    return Seen(captions=captions, roster=roster, decoding=decoding)


def best_captions(
    pairs: Sequence[Pair],
    photos: Mapping[str, Sequence[str]],
    pictures: Mapping[str, Sequence[str]],
) -> Best:
    """The first caption of each pair's photo and picture.

    Args:
        pairs: of photos and pictures.
        photos, pictures: their captions, the best first.
    """
    return {
        PHOTOS: {pair.name: photos[pair.image_id][0] for pair in pairs},
        PICTURES: {pair.name: pictures[pair.name][0] for pair in pairs},
    }


def compare_captions(pairs: Sequence[Pair], best: Best, **metrics: Any) -> dict[str, MetricResult]:
    """Scores of photos' and pictures' captions against the captions before and after.

    Args:
        pairs: each counts once.
        best: captions of all of them, from `best_captions`.
        **metrics: options of `evaluate_captions`.

    Returns:
        By ``"photos, captions before"`` and the like.
    """
    references = {
        BEFORE: {pair.name: pair.before for pair in pairs},
        AFTER: {pair.name: pair.after for pair in pairs},
    }
    return {
        f"{what}, {against}": evaluate_captions(captions, texts, **metrics)
        for what, captions in best.items()
        for against, texts in references.items()
    }


def named(pairs: Sequence[Pair], best: Best) -> dict[str, Any]:
    """Shares of captions that name the object before and after, where it is another.

    Returns:
        ``number``, how many those are; for photos and pictures, shares by ``old`` and ``new``,
        None where there are no such pictures.
    """
    changed = [pair for pair in pairs if pair.old and pair.old != pair.new]
    naming: dict[str, Any] = {"number": len(changed)}
    for what, captions in best.items():
        old = sum(_names(captions[pair.name], pair.old) for pair in changed)
        new = sum(_names(captions[pair.name], pair.new) for pair in changed)
        counts = {"old": old, "new": new}
        naming[what] = {key: n / len(changed) if changed else None for key, n in counts.items()}
    return naming


def _names(caption: str, name: str) -> bool:
    return bool(mentioned_classes(caption, form_patterns({name: (name, pluralise(name))})))


def _found(pairs: Sequence[Pair], photos: Seen, pictures: Seen) -> dict[str, Any]:
    """What the detector found in photos and pictures: counts, and shares of them."""
    labels, counts = build_labels(), Counter[str]()
    for pair in pairs:
        old, new = (labels.get(name, frozenset()) | {name} for name in (pair.old, pair.new))
        before, after = photos.regions(pair.image_id), pictures.regions(pair.name)
        counts.update(found_again(before, after, pair.places, old=old, new=new))
    return {"counts": dict(counts), "shares": shares(counts)}


def _write(
    out: Path,
    config: DictConfig,
    pairs: Sequence[Pair],
    photos: Seen,
    pictures: Seen,
    comparison: Mapping[str, Any],
) -> None:
    write_json(out / "captioned.json", comparison)
    write_text(out / "captioned.md", "\n".join(tables(comparison)) + "\n")
    lines = (json.dumps(pair, ensure_ascii=False) for pair in _lines(pairs, photos, pictures))
    write_lines(out / "captions.jsonl", lines)
    shown, most = [], min(config.most_captions, max(map(len, photos.captions.values())))
    for pair in pairs[: config.shown]:
        images = [load_rgb(photos.path(pair.image_id)), load_rgb(pictures.path(pair.name))]
        if config.detections:
            regions = photos.regions(pair.image_id), pictures.regions(pair.name)
            images = [with_regions(*both) for both in zip(images, regions, strict=True)]
        text = _text(pair, photos, pictures, most)
        shown.append((images[0], images[1], pair.places, text))
    # two of each caption of people's
    write_atomically(out / "sheet.png", pair_sheet(shown, num_lines=2 * (2 + most)).save)


def _lines(pairs: Sequence[Pair], photos: Seen, pictures: Seen) -> Iterable[dict[str, Any]]:
    for pair in pairs:
        yield {
            "picture": pair.name,
            "photo": pair.image_id,
            "before": pair.before,
            "after": pair.after,
            "captions of the photo": photos.captions[pair.image_id],
            "captions of the picture": pictures.captions[pair.name],
        }


def _text(pair: Pair, photos: Seen, pictures: Seen, most: int) -> str:
    """The captions of a pair on the sheet: first people's, then the captioner's."""
    own = photos.captions[pair.image_id], pictures.captions[pair.name]
    parts = []
    for what, people, machine in zip(
        ("BEFORE", "AFTER"), (pair.before, pair.after), own, strict=True
    ):
        parts += [f"{what}: {people[0]}", *(f"> {caption}" for caption in machine[:most])]
    return "\n".join(parts)


def tables(comparison: Mapping[str, Any]) -> list[str]:
    """The numbers of ``captioned.json`` in Markdown."""
    scores, objects = comparison["scores"], comparison["named"]
    names = list(next(iter(scores.values())))
    rows = [[*key.split(", "), *(_cell(of.get(n)) for n in names)] for key, of in scores.items()]
    lines = [
        f"{comparison['pictures']} pictures of {comparison['photos']} photos; "
        f"{comparison['same caption']:.1%} of the pictures are called what their photo is called.",
        "",
        *markdown_lines(["captions of", "scored against", *names], rows),
        "",
        f"Captions that name the object, of {objects['number']} pictures with another one:",
        "",
    ]
    rows = [[what, *map(_cell, objects[what].values())] for what in (PHOTOS, PICTURES)]
    lines += markdown_lines(["captions of", "name the old one", "name the new one"], rows)
    if comparison["found"] is not None:
        rows = [[name, _cell(share)] for name, share in comparison["found"]["shares"].items()]
        lines += ["", *markdown_lines(["of the detector", "share"], rows)]
    return lines


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
