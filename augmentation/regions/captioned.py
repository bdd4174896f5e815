"""Caption augmented images with a trained captioner: ``captioning augment captioned``.

Sections 4.5.1 and 4.5.2 of the CutSwap thesis (Hahn, 2022) show by examples that a detector and
captioners cope with such pictures although they never saw any. This command makes such a page
(``sheet.png``) and its numbers (``captioned.md``): captions of the pictures and of the photos they
were made of, scored against the captions before and after, and which objects they name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from augmentation.regions.annotations import records
from augmentation.regions.boxes import area, intersection_area, iou
from augmentation.regions.pair_sheet import pair_sheet, with_regions
from augmentation.regions.proposal import draw_key
from captioning.config.loadable import loadable
from captioning.config.ranges import Device, Name, NonNegativeInt, PositiveInt, Seed
from captioning.config.tasks import plain, recorded
from captioning.data.roster import Roster, build_roster
from captioning.evaluation.predict import predict_run
from captioning.metrics.coco import MetricResult, evaluate_captions
from captioning.results.table_formats import markdown_lines
from captioning.results.versions import versions
from captioning.runtime.files import write_atomically, write_json, write_lines, write_text
from captioning.text.inflection import pluralise
from captioning.text.object_words import build_labels
from captioning.text.word_forms import form_patterns, mentioned_classes
from captioning.training.settings import Data, Metrics, Part, Paths
from captioning.types import Box, Region
from captioning.vision.photos import load_rgb

# Whether pasting disturbs a detector: its boxes in photos before and after.
#
# Section 4.5.1 of the CutSwap thesis (Hahn, 2022) compares boxes and classes of examples by eye:
# the boxes of the context stay, and the patch gets boxes of its own class. Here they are counted.
SAME_OBJECT_IOU = 0.5  # of two boxes of one object, at least
MAX_PASTED_SHARE = 0.5  # of a context box that may be pasted over

# Shares of the comparison, each of counts of `compare_detections`.
SHARES = {
    "context found again": ("context again", "context"),
    "replaced objects found": ("replaced found", "places"),
    "replaced objects named": ("replaced named", "places"),
    "pasted objects found": ("pasted found", "places"),
    "pasted objects named": ("pasted named", "places"),
}


def compare_detections(
    before: Sequence[Region],
    after: Sequence[Region],
    places: Sequence[Box],
    *,
    old: Collection[str],
    new: Collection[str],
) -> Counter[str]:
    """Compare a detector's boxes in a photo with its boxes in the augmented image.

    Args:
        before: boxes in the photo.
        after: boxes in the picture.
        places: boxes that were pasted over.
        old: labels that name the replaced object.
        new: labels that name the pasted object.

    Returns:
        ``context``: boxes of the photo that lie mostly outside the places. ``context again``: those
        of them that the picture has too, with the same label. ``places``: their number. For the
        photo (``replaced``) and the picture (``pasted``): the places with a box (``found``), and
        the places with a box of the object's label (``named``).
    """
    context = [region for region in before if not _is_covered(region.box, places)]
    counts = Counter({"context": len(context), "places": len(places)})
    counts["context again"] = sum(
        _has_box(after, region.box, (region.label,)) for region in context
    )
    for name, regions, labels in (("replaced", before, old), ("pasted", after, new)):
        counts[f"{name} found"] = sum(_has_box(regions, place) for place in places)
        counts[f"{name} named"] = sum(_has_box(regions, place, labels) for place in places)
    return counts


def detection_shares(counts: Mapping[str, int]) -> dict[str, float | None]:
    """Ratios in [0, 1] of summed counts; None for a total of 0."""
    return {
        name: counts[part] / counts[total] if counts[total] else None
        for name, (part, total) in SHARES.items()
    }


def _is_covered(box: Box, places: Sequence[Box]) -> bool:
    return any(intersection_area(box, place) > MAX_PASTED_SHARE * area(box) for place in places)


def _has_box(regions: Sequence[Region], box: Box, labels: Collection[str] | None = None) -> bool:
    return any(
        iou(region.box, box) >= SAME_OBJECT_IOU and (labels is None or region.label in labels)
        for region in regions
    )


BEFORE, AFTER = "captions before", "captions after"
PHOTOS, PICTURES = "photos", "pictures"

BestCaptions = Mapping[
    str, Mapping[str, str]
]  # captions of photos and of pictures, by the pair's name


@dataclass(frozen=True, kw_only=True)
class CaptionedImages:
    """Captions that a run generates for photos or for augmented images.

    Attributes:
        captions: captions by image id, the best first.
        roster: the images.
        decoding: settings of the search.
    """

    captions: Mapping[str, Sequence[str]]
    roster: Roster
    decoding: Mapping[str, Any]

    def regions(self, image_id: str) -> tuple[Region, ...]:
        """Boxes of an image for captioners on regions."""
        return self.roster.samples[self.roster.rows_by_image[image_id][0]].regions

    def path(self, image_id: str) -> Path:
        """Path of an image file."""
        return self.roster.samples[self.roster.rows_by_image[image_id][0]].image_path


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An augmented image and its original photo.

    Attributes:
        name: the picture's.
        image_id: the photo's id.
        before: captions of the photo that were changed.
        after: captions of the picture.
        places: boxes of the photo that were pasted over.
        old: name of the replaced object; empty where the set does not record it.
        new: name of the pasted object.
    """

    name: str
    image_id: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    places: tuple[tuple[float, float, float, float], ...]
    old: str
    new: str


def describe_set(
    *,
    paths: Paths | None = None,
    data: Data,
    augmented: Data,
    search: Part | None = None,
    metrics: Metrics,
    run: Name,
    device: Device = "auto",
    split: Name = "train",
    num_pictures: PositiveInt | None = None,
    seed: Seed = 0,
    num_shown: NonNegativeInt = 12,
    max_captions: PositiveInt = 3,
    detections: Sequence[Name] = (),
    augmented_detections: Sequence[Name] = (),
    out: Name | None = None,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Caption the images of an augmented dataset and their original photos, and compare.

    Args:
        paths: folders, for the record alone.
        data: the dataset that the pictures were made of.
        augmented: the augmented set.
        search: another search than the run's.
        metrics: metrics of the captions.
        run: folder of the run that captions.
        device: the captioner's device.
        split: of ``data``.
        num_pictures: drawn by the seed; None: all.
        seed: the draw's seed.
        num_shown: pictures on the sheet.
        max_captions: captions of a photo on the sheet.
        detections: files of a detector's boxes in the photos.
        augmented_detections: the same for the pictures.
        out: the folder; None: in the run's.
        plugins: packages of the parts, for the record alone.

    Returns:
        What ``captioned.json`` holds.

    Raises:
        ValueError: the folder is unfinished, photos are missing, or only one detection is set.
        OSError: files that cannot be read or written.
    """
    evaluated = recorded(locals(), groups=("search",))
    if bool(detections) != bool(augmented_detections):
        raise ValueError("detections and augmented_detections must be set together")
    root = Path(str(augmented.root))
    pairs = read_pairs(root, number=num_pictures, seed=seed)
    own = None if search is None else OmegaConf.create(plain(search))  # with this config's seed
    how = {"run": Path(run), "search": own, "device": device}
    chosen = {"image_ids": {pair.image_id for pair in pairs}, "detections": detections}
    photos = _caption_images(data, split, **chosen, **how)
    chosen = {"image_ids": {pair.name for pair in pairs}, "detections": augmented_detections}
    pictures = _caption_images(augmented, "test", **chosen, **how)
    best = best_captions(pairs, photos.captions, pictures.captions)
    asked = {"metrics": list(metrics.test), "tokenizer": metrics.tokenizer}
    results = compare_captions(pairs, best, **asked)
    num_same = sum(best[PHOTOS][pair.name] == best[PICTURES][pair.name] for pair in pairs)
    comparison = {
        "pictures": len(pairs),
        "photos": len(photos.captions),
        "same caption": num_same / len(pairs),
        "scores": {key: result.corpus for key, result in results.items()},
        "named": named(pairs, best),
        "found": _compare_detections(pairs, photos, pictures) if detections else None,
        "settings": {key: result.settings for key, result in results.items()},
        "decoding": photos.decoding,
        "evaluated": evaluated,
        "versions": versions(),
    }
    folder = Path(out or Path(run) / "evaluation" / f"captioned-{root.name}")
    shown = {"num_shown": num_shown, "max_captions": max_captions}
    _write(folder, pairs, photos, pictures, comparison, **shown)
    return comparison


def read_pairs(folder: Path, *, number: int | None, seed: int) -> list[Pair]:
    """Read all, or ``number`` random, images of an augmented dataset.

    Raises:
        ValueError: the folder holds no finished set of pictures, or fewer than one is asked for.
    """
    if number is not None and number < 1:
        raise ValueError(f"num_pictures must be at least 1, or null for all: got {number}")
    path = folder / "provenance.jsonl"
    if not path.is_file():
        raise ValueError(
            f"{folder} has no provenance.jsonl; set augmented.root=FOLDER to a folder that "
            "captioning augment has finished"
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


@loadable
def images_of(*, roster: Roster, image_ids: Collection[str]) -> Roster:
    """Return a roster with only some of its images; used in configs.

    Raises:
        ValueError: the roster lacks some of the images.
    """
    selected_ids = set(image_ids)
    if missing := sorted(selected_ids - roster.rows_by_image.keys()):
        raise ValueError(
            f"{roster.name} lacks {len(missing)} of the requested images, such as {missing[0]}: "
            "set data= and split= to the ones used for the augmented dataset"
        )
    samples = [sample for sample in roster.samples if sample.image_id in selected_ids]
    return build_roster(roster.name, samples, roster.dropped)


def _caption_images(
    data: Data,
    split: str,
    *,
    image_ids: set[str],
    detections: Sequence[str],
    run: Path,
    search: Part | None,
    device: str,
) -> CaptionedImages:
    reader = data.splits.get(split)
    if reader is None:
        raise ValueError(f"data.{split} is not set for {data.name}: choose another split=")
    selected_images = {
        "_target_": "augmentation.regions.captioned.images_of",
        "roster": OmegaConf.to_container(reader, resolve=True),
        "image_ids": sorted(image_ids),
    }
    predictions, roster, decoding = predict_run(
        run,
        OmegaConf.create({"name": data.name, "test": selected_images}),
        search=search,
        detections=list(detections),
        device=device,
    )
    captions = {group[0].image_id: [p.caption for p in group] for group in predictions}
    return CaptionedImages(captions=captions, roster=roster, decoding=decoding)


def best_captions(
    pairs: Sequence[Pair],
    photos: Mapping[str, Sequence[str]],
    pictures: Mapping[str, Sequence[str]],
) -> BestCaptions:
    """Best caption for each pair's photo and image.

    Args:
        pairs: pairs of photos and pictures.
        photos, pictures: their captions, the best first.
    """
    return {
        PHOTOS: {pair.name: photos[pair.image_id][0] for pair in pairs},
        PICTURES: {pair.name: pictures[pair.name][0] for pair in pairs},
    }


def compare_captions(
    pairs: Sequence[Pair], best: BestCaptions, **metrics: Any
) -> dict[str, MetricResult]:
    """Score the captions of photos and images against the captions before and after the edit.

    Args:
        pairs: each counts once.
        best: captions of all photos and images, from `best_captions`.
        **metrics: options of `evaluate_captions`.

    Returns:
        By ``"photos, captions before"`` and the like.
    """
    references = {
        BEFORE: {pair.name: pair.before for pair in pairs},
        AFTER: {pair.name: pair.after for pair in pairs},
    }
    return {
        f"{source}, {against}": evaluate_captions(captions, texts, **metrics)
        for source, captions in best.items()
        for against, texts in references.items()
    }


def named(pairs: Sequence[Pair], best: BestCaptions) -> dict[str, Any]:
    """Shares of captions that mention the old object and the new object, if they differ.

    Returns:
        ``number``, the count of such pairs; for photos and pictures, shares by ``old`` and ``new``,
        None if there are no such pictures.
    """
    changed = [pair for pair in pairs if pair.old and pair.old != pair.new]
    shares: dict[str, Any] = {"number": len(changed)}
    for source, captions in best.items():
        old = sum(_names(captions[pair.name], pair.old) for pair in changed)
        new = sum(_names(captions[pair.name], pair.new) for pair in changed)
        counts = {"old": old, "new": new}
        shares[source] = {key: n / len(changed) if changed else None for key, n in counts.items()}
    return shares


def _names(caption: str, name: str) -> bool:
    return bool(mentioned_classes(caption, form_patterns({name: (name, pluralise(name))})))


def _compare_detections(
    pairs: Sequence[Pair], photos: CaptionedImages, pictures: CaptionedImages
) -> dict[str, Any]:
    """Compare the detector's boxes of photos and images: counts and shares."""
    labels_by_object, counts = build_labels(), Counter[str]()
    for pair in pairs:
        old, new = (
            labels_by_object.get(name, frozenset()) | {name} for name in (pair.old, pair.new)
        )
        before, after = photos.regions(pair.image_id), pictures.regions(pair.name)
        counts.update(compare_detections(before, after, pair.places, old=old, new=new))
    return {"counts": dict(counts), "shares": detection_shares(counts)}


def _write(
    out: Path,
    pairs: Sequence[Pair],
    photos: CaptionedImages,
    pictures: CaptionedImages,
    comparison: Mapping[str, Any],
    *,
    num_shown: int,
    max_captions: int,
) -> None:
    write_json(out / "captioned.json", comparison)
    write_text(out / "captioned.md", "\n".join(tables(comparison)) + "\n")
    json_lines = (json.dumps(pair, ensure_ascii=False) for pair in _lines(pairs, photos, pictures))
    write_lines(out / "captions.jsonl", json_lines)
    panels, max_captions = [], min(max_captions, max(map(len, photos.captions.values())))
    for pair in pairs[:num_shown]:
        images = [load_rgb(photos.path(pair.image_id)), load_rgb(pictures.path(pair.name))]
        if comparison["found"] is not None:
            regions = photos.regions(pair.image_id), pictures.regions(pair.name)
            images = [with_regions(*args) for args in zip(images, regions, strict=True)]
        text = _text(pair, photos, pictures, max_captions)
        panels.append((images[0], images[1], pair.places, text))
    # Two lines for each caption: two captions by people, and those of the run.
    write_atomically(out / "sheet.png", pair_sheet(panels, num_lines=2 * (2 + max_captions)).save)


def _lines(
    pairs: Sequence[Pair], photos: CaptionedImages, pictures: CaptionedImages
) -> Iterable[dict[str, Any]]:
    for pair in pairs:
        yield {
            "picture": pair.name,
            "photo": pair.image_id,
            "before": pair.before,
            "after": pair.after,
            "captions of the photo": photos.captions[pair.image_id],
            "captions of the picture": pictures.captions[pair.name],
        }


def _text(pair: Pair, photos: CaptionedImages, pictures: CaptionedImages, max_captions: int) -> str:
    """Captions of a pair on the contact sheet: human captions, then generated captions."""
    captions = photos.captions[pair.image_id], pictures.captions[pair.name]
    parts = []
    for heading, references, generated in zip(
        ("BEFORE", "AFTER"), (pair.before, pair.after), captions, strict=True
    ):
        parts += [
            f"{heading}: {references[0]}",
            *(f"> {caption}" for caption in generated[:max_captions]),
        ]
    return "\n".join(parts)


def tables(comparison: Mapping[str, Any]) -> list[str]:
    """Format the numbers of ``captioned.json`` as Markdown tables."""
    scores, objects = comparison["scores"], comparison["named"]
    names = list(next(iter(scores.values())))
    rows = [
        [*key.split(", "), *(_format_share(values.get(n)) for n in names)]
        for key, values in scores.items()
    ]
    lines = [
        f"{comparison['pictures']} pictures of {comparison['photos']} photos; "
        f"{comparison['same caption']:.1%} of the pictures are called what their photo is called.",
        "",
        *markdown_lines(["captions of", "scored against", *names], rows),
        "",
        f"Captions that name the object, of {objects['number']} pictures with another one:",
        "",
    ]
    rows = [[group, *map(_format_share, objects[group].values())] for group in (PHOTOS, PICTURES)]
    lines += markdown_lines(["captions of", "name the old one", "name the new one"], rows)
    if comparison["found"] is not None:
        rows = [
            [name, _format_share(share)] for name, share in comparison["found"]["shares"].items()
        ]
        lines += ["", *markdown_lines(["of the detector", "share"], rows)]
    return lines


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
