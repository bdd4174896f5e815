"""Make image-caption pairs for objects that no caption names (Bujimalla et al., 2021).

Boxes of a novel object replace boxes of candidates (known objects that a captioner confuses it
with) in photos with captions; the captions are rewritten for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from augmentation.novel_objects.novel_captions import (
    NO_OBJECT,
    OTHER_NAME,
    Name,
    Radius,
    mentions,
    num_named,
    rename_object,
)
from augmentation.novel_objects.novel_class import (
    Choices,
    HeldOut,
    KnownName,
    NovelClass,
    read_words,
    split_held_out,
)
from augmentation.regions.boxes import (
    Limits,
    area,
    aspect,
    relative_change,
    without_containers,
    without_duplicates,
)
from augmentation.regions.paste import Paste
from augmentation.regions.proposal import (
    AbstractRegionMethod,
    Proposal,
    draw_key,
    drawn_generator,
    file_name,
    finished_regions,
)
from captioning.config.ranges import Seed
from captioning.data.roster import Roster
from captioning.interfaces import AbstractParser
from captioning.runtime.files import read_json
from captioning.text.inflection import pluralise
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.text.word_forms import form_patterns, whole_words_of
from captioning.types import Box, Region, Sample

log = logging.getLogger(__name__)


def counted(
    proposals: Iterator[Proposal], report: dict[str, Any], label: str, pool: SourcePool
) -> Iterator[Proposal]:
    """Yield the proposals of a pair, and count them in the report of their class."""
    for proposal in proposals:
        report["candidates"][label] += 1
        report["photos used"] = int((pool.uses > 0).sum())
        report["most uses of a photo"] = int(pool.uses.max(initial=0))
        yield proposal


def in_turns(pairs: Sequence[Iterator[Proposal]]) -> Iterator[Proposal]:
    """Interleave: yield the first item of each sequence, then the second, so classes alternate."""
    remaining = list(pairs)
    while remaining:
        for pair in tuple(remaining):
            proposal = next(pair, None)
            if proposal is None:
                remaining.remove(pair)
            else:
                yield proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Objects that a novel class may replace.

    Attributes:
        labels: labels of boxes of the data.
        without_boxes: candidates without boxes, which the paper omits, too ("stove", "bread").
    """

    labels: tuple[str, ...]
    without_boxes: tuple[str, ...]


def choose_candidates(
    classes: Sequence[NovelClass],
    labels: Collection[str],
    count: Callable[[NovelClass], tuple[str, ...]] | None = None,
) -> dict[str, Candidates]:
    """Candidates by class: from the config, else counted from captions, else likely candidates.

    Args:
        classes: novel classes.
        labels: labels of the boxes of photos with captions.
        count: counts candidates in captions; None: there are none to count in.

    Raises:
        ValueError: a class has no candidates.
    """
    chosen = {}
    for novel in classes:
        names = novel.candidates
        if names is None:
            names = novel.likely if count is None else count(novel)
        if not names and novel.candidates is None and count is None:
            raise ValueError(
                f"{novel.name!r} has no candidates: set candidates or likely, or set "
                "method.predictions=RUN/predictions.json to count the candidates there"
            )
        chosen[novel.name] = Candidates(
            labels=tuple(name for name in names if name in labels),
            without_boxes=tuple(name for name in names if name not in labels),
        )
        if names and not chosen[novel.name].labels:
            log.warning(f"{novel.name!r} gets no images: no box is labelled {', '.join(names)}")
        elif not names and novel.candidates is None:
            log.warning(
                f"{novel.name!r} gets no images: captions of {novel.name!r} mention no known object"
            )
    return chosen


def count_candidates(
    captions: Mapping[str, str],
    photos: Collection[str],
    names: Mapping[str, Iterable[str]],
    *,
    max_candidates: int,
) -> tuple[str, ...]:
    """Count the objects that captions mention for photos of a novel class, most frequent first.

    Every mention counts. Where names overlap, the first and longest counts alone: a "hot dog" is
    not a dog if hot dogs are known objects.

    Args:
        captions: generated ones by image id.
        photos: ids of the photos that show the class.
        names: all words for a known object, by object.
        max_candidates: the paper's m.

    Returns:
        At most ``max_candidates`` objects, the most frequent first, equals by name; may be empty.
    """
    objects: dict[str, list[str]] = {}
    for label, label_names in names.items():
        for name in dict.fromkeys(" ".join(name.lower().split()) for name in label_names):
            objects.setdefault(name, []).append(label)
    if not objects:
        return ()
    longest_first = sorted(objects, key=len, reverse=True)
    pattern = form_patterns({"known objects": longest_first})["known objects"]
    counts: Counter[str] = Counter()
    for image_id in photos:
        for name in pattern.findall(captions.get(image_id, "")):
            counts.update(objects[" ".join(name.lower().split())])
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[:max_candidates])


def read_predictions(path: str | Path) -> dict[str, str]:
    """Read captions by image id from a run's ``predictions.json``; of several, the best.

    Raises:
        FileNotFoundError, ValueError: no such file, or not a list of captions with image ids.
    """
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path} must hold a list of objects with image_id and caption")
    return {str(_value(e, "image_id", path)): str(_caption(e, path)) for e in entries}


def _caption(entry: object, path: str | Path) -> object:
    captions = entry.get("captions") if isinstance(entry, dict) else None
    if isinstance(captions, Sequence) and captions:
        return captions[0]
    return _value(entry, "caption", path)


def _value(entry: object, key: str, path: str | Path) -> object:
    if not isinstance(entry, dict) or key not in entry:
        raise ValueError(f"{path}: every entry needs the key {key!r}: got {str(entry)[:60]}")
    return entry[key]


NO_BOXES = "caption names the candidate, but no box of it can be replaced"
NO_SOURCE = "no box of the novel object is within the limits"
TOO_FEW = "captions speak of more things than can be replaced"
SEVERAL = "several things of the candidate in one photo"
CHUNK = 128  # photos whose captions are parsed at once


class NovelObjects(AbstractRegionMethod):
    """Makes synthetic pairs of photos and captions of novel objects.

    Args:
        classes: settings of `NovelClass` by name; None: the defaults.
        parser: parser of captions.
        limits: limits on the boxes that may replace each other.
        radius: distance from the object within which descriptions are removed.
        choices: further settings.
        seed: seed of all draws.
        words: by class, the word forms in captions that name it and that hold photos out; default:
            the class's own ``words``, else name and plural.
        names: irregular ``plural`` and ``forms`` by label of known objects.
        words_file: list of held-out words instead of the classes' words, such as DCC's.
        predictions: a baseline's captions of novel photos, to count candidates in.
        predictions_roster: the split that these captions describe; None for the roster itself.

    Raises:
        ValueError: ``classes`` is empty.
    """

    def __init__(
        self,
        *,
        classes: Mapping[str, Mapping[str, Any] | None],
        parser: AbstractParser,
        limits: Limits,
        radius: Radius,
        choices: Choices,
        seed: Seed,
        words: Mapping[str, Sequence[str]] | None = None,
        names: Mapping[str, KnownName] | None = None,
        words_file: str | None = None,
        predictions: str | None = None,
        predictions_roster: Roster | None = None,
    ) -> None:
        if not classes:
            raise ValueError(
                "method.classes is empty: name the novel classes, as in "
                "method.classes='{bus: {candidates: [truck]}}', or write "
                "configs/novel_classes/DATA.yaml"
            )
        self.classes = [
            _novel_class(name, settings or {}, tuple((words or {}).get(name, ())))
            for name, settings in classes.items()
        ]
        self.parser, self.limits, self.radius = parser, limits, radius
        self.choices, self.seed = choices, seed
        self.names = names or {}
        self.words_file, self.predictions, self.predictions_roster = (
            words_file,
            predictions,
            predictions_roster,
        )
        self._lemmatizer = load_lemmas(LEMMAS)
        self._left_out: Counter[str] = Counter()
        self._report: dict[str, Any] = {}

    def candidates(self, roster: Roster) -> Iterator[tuple[Proposal, ...]]:
        """See `AbstractRegionMethod.candidates`; proposals do not compete with each other."""
        return ((proposal,) for proposal in self.proposals(roster))

    def proposals(self, roster: Roster) -> Iterator[Proposal]:
        """Yield a proposal for each image to make."""
        self._left_out.clear()
        split = self._split(roster)
        photos = _photos(split.in_domain, self.choices.duplicate_iou)
        candidates = self._candidates(split, photos)
        self._report = {
            "photos": {"in-domain": len(photos), "novel": len(split.novel)},
            "held-out words left in in-domain captions": split.leaks,
            "classes": {},
        }
        pairs = []
        for novel in self.classes:
            pool = self._pool(novel, split)
            labels = candidates[novel.name].labels
            report = {"photos with boxes": len(pool.photos), "candidates": dict.fromkeys(labels, 0)}
            if without_boxes := candidates[novel.name].without_boxes:
                report["candidates without boxes"] = list(without_boxes)
            self._report["classes"][novel.name] = report
            max_pictures = self.choices.num_pictures
            max_proposals = max(max_pictures // max(len(labels), 1), 1)
            for label in labels[:max_pictures]:
                proposals = islice(self._of_pair(novel, label, pool, photos), max_proposals)
                pairs.append(counted(proposals, report, label, pool))
        yield from in_turns(pairs)

    def report(self) -> dict[str, Any]:
        """See `AbstractRegionMethod.report`."""
        return self._report | {"photos left out, by reason": dict(sorted(self._left_out.items()))}

    def _split(self, roster: Roster) -> HeldOut:
        words: Mapping[str, Sequence[str]] = {novel.name: novel.forms for novel in self.classes}
        if self.words_file is not None:
            words = self._listed(read_words(self.words_file, lemmatizer=self._lemmatizer))
        return split_held_out(roster, words, lemmatizer=self._lemmatizer)

    def _listed(self, words: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Words of a list by their class; words without a class become classes of their own."""
        listed: dict[str, list[str]] = {}
        for name, forms in words.items():
            class_name = next(
                (c.name for c in self.classes if set(forms) & {*c.forms, c.name}), name
            )
            listed.setdefault(class_name, []).extend(forms)
        return listed

    def _pool(self, novel: NovelClass, split: HeldOut) -> SourcePool:
        labels = set(novel.labels or (novel.name,))
        photos = []
        for photo in split.novel:
            usable = self._usable(
                without_duplicates(photo.regions, threshold=self.choices.duplicate_iou)
            )
            boxes = tuple(region.box for region in usable if region.label in labels)
            if boxes:
                path, image_id = photo.image_path, photo.image_id
                photos.append(SourcePhoto(image_id=image_id, image_path=path, boxes=boxes))
        return SourcePool(photos=photos, limits=self.limits, seed=self.seed)

    def _usable(self, regions: Sequence[Region]) -> list[Region]:
        regions = without_containers(regions) if self.choices.skip_containers else regions
        return [region for region in regions if not self.limits.box_problem(region.box)]

    def _name(self, label: str) -> Name:
        settings = self.names.get(label) or KnownName()
        plural = settings.get("plural") or pluralise(label)
        return Name(singular=label, plural=plural, forms=tuple(settings.get("forms") or ()))

    def _candidates(
        self, split: HeldOut, photos: Mapping[str, tuple[Sample, ...]]
    ) -> dict[str, Candidates]:
        """Candidates of each class: configured, counted or likely ones."""
        novel_labels = {label for novel in self.classes for label in novel.labels or (novel.name,)}
        labels = {r.label for samples in photos.values() for r in samples[0].regions} - novel_labels
        if self.predictions is None:
            return choose_candidates(self.classes, labels)
        captions = read_predictions(self.predictions)
        novel_photos = (
            split.novel
            if self.predictions_roster is None
            else self._split(self.predictions_roster).novel
        )
        countable = labels.difference(self.choices.not_counted)
        names = {label: self._name(label).names for label in countable}

        def of_class(novel: NovelClass) -> tuple[str, ...]:
            ids = [photo.image_id for photo in novel_photos if novel.name in photo.classes]
            number = self.choices.num_candidates
            return count_candidates(captions, ids, names, max_candidates=number)

        return choose_candidates(self.classes, labels, of_class)

    def _of_pair(
        self,
        novel: NovelClass,
        candidate: str,
        pool: SourcePool,
        photos: Mapping[str, tuple[Sample, ...]],
    ) -> Iterator[Proposal]:
        """Proposals of a novel object for a candidate, in an order drawn by seed and ids."""
        name, samples_by_photo = self._name(candidate), self._naming(candidate, photos)
        order = sorted(
            samples_by_photo,
            key=lambda image_id: draw_key(self.seed, novel.name, candidate, image_id),
        )
        for turn in count(1):
            groups, order = [samples_by_photo[image_id] for image_id in order], []
            for proposal in self._of_photos(novel, name, pool, groups, turn):
                order.append(proposal.image_id)
                yield proposal
            if not order or turn == self.choices.pictures_per_photo:
                return

    def _of_photos(
        self,
        novel: NovelClass,
        old: Name,
        pool: SourcePool,
        groups: Sequence[Sequence[Sample]],
        turn: int,
    ) -> Iterator[Proposal]:
        """One proposal for each suitable photo; successive proposals use different novel photos."""
        for start in range(0, len(groups), CHUNK):
            chunk = groups[start : start + CHUNK]
            texts = [_text(sample) for samples in chunk for sample in samples]
            parses = dict(zip(texts, self.parser.parse(texts), strict=True))
            for samples in chunk:
                proposal = self._of_photo(novel, old, pool, samples, parses)
                if not isinstance(proposal, str):
                    suffix = "" if turn == 1 else f"-turn{turn}"
                    yield replace(proposal, name=proposal.name + suffix)
                elif turn == 1:
                    self._left_out[proposal] += 1

    def _naming(
        self, label: str, photos: Mapping[str, tuple[Sample, ...]]
    ) -> dict[str, list[Sample]]:
        """Captions that mention a known object, grouped by photo, for photos with its box.

        A caption of a "hot dog" names no dog where there are boxes of hot dogs.
        """
        name, samples_by_photo = self._name(label), {}
        labels = {region.label for samples in photos.values() for region in samples[0].regions}
        longer_names = [
            self._name(o) for o in sorted(labels) if f" {label} " in f" {o} " and o != label
        ]
        for image_id, samples in photos.items():
            if all(region.label != label for region in samples[0].regions):
                continue
            words = {sample: whole_words_of(sample.caption) for sample in samples}
            naming_samples = [s for s in samples if any(mentions(words[s], name))]
            plain_samples = [
                s
                for s in naming_samples
                if not any(any(mentions(words[s], o)) for o in longer_names)
            ]
            if plain_samples:
                samples_by_photo[image_id] = plain_samples
            else:
                self._left_out[OTHER_NAME if naming_samples else NO_OBJECT] += 1
        return samples_by_photo

    def _of_photo(
        self,
        novel: NovelClass,
        old: Name,
        pool: SourcePool,
        samples: Sequence[Sample],
        parses: Mapping[str, Any],
    ) -> Proposal | str:
        """Build the proposal for a photo, or return the reason why there is none."""
        regions, target = samples[0].regions, samples[0]
        candidate_regions = [region for region in regions if region.label == old.singular]
        boxes = [r.box for r in self._usable(regions) if r.label == old.singular]
        if not boxes:
            return NO_BOXES
        if len(candidate_regions) > 1 and not self.choices.allow_several:
            return SEVERAL
        edited, problem = self._edited(samples, parses, old, novel.names)
        if not edited:
            return problem
        num_named = {s: self._num_named(s, parses, old) for s in edited}
        min_replaced = max(
            int(self.choices.min_replaced * len(candidate_regions) + 0.999), min(num_named.values())
        )
        if min_replaced > len(boxes):
            return TOO_FEW
        key = f"{novel.name}/{old.singular}/{target.image_id}"
        assignment = pool.choose(boxes, min_targets=min_replaced, key=key)
        if assignment is None:
            return NO_SOURCE
        source, patches = assignment
        pastes = _pastes(novel, source, patches, boxes)
        edited = {s: text for s, text in edited.items() if num_named[s] <= len(pastes)}
        protected = self._protected(regions, old.singular, [s.caption for s in edited])
        return Proposal(
            name=file_name(novel.name, old.singular, target.image_id),
            image_id=target.image_id,
            image_path=target.image_path,
            before=tuple(sample.caption for sample in edited),
            pastes=pastes,
            captions=tuple(edited.values()),
            regions=finished_regions(regions, pastes, protected),
            protected=tuple(region.box for region in protected),
            notes={
                "novel": novel.name,
                "candidate": old.singular,
                "things": len(candidate_regions),
                "source id": source.image_id,
            },
        )

    def _edited(
        self, samples: Sequence[Sample], parses: Mapping[str, Any], old: Name, new: Name
    ) -> tuple[dict[Sample, str], str]:
        """New captions by sample, or no caption and the last reason."""
        edited, problem = {}, ""
        for sample in samples:
            text = _text(sample)
            caption, reason = rename_object(
                text, parses[text], old=old, new=new, radius=self.radius
            )
            if caption:
                edited[sample] = caption
            problem = reason or problem
        return edited, problem

    def _num_named(self, sample: Sample, parses: Mapping[str, Any], name: Name) -> int:
        """Number of objects that must be replaced so that a caption becomes true."""
        if not self.choices.match_counts:
            return 0
        return num_named(parses[_text(sample)], name)

    def _protected(
        self, regions: Sequence[Region], old: str, captions: Sequence[str]
    ) -> list[Region]:
        if not self.choices.keep_mentioned:
            return []
        words = [whole_words_of(caption) for caption in captions]
        labels = {region.label for region in regions} - {old}
        named = {
            label for label in labels if any(any(mentions(w, self._name(label))) for w in words)
        }
        return [region for region in regions if region.label in named]


def _novel_class(name: str, settings: Mapping[str, Any], words: tuple[str, ...]) -> NovelClass:
    """Build a class from its settings; ``words`` are the default for its words."""
    options: dict[str, Any] = {"words": words} | dict(settings)
    return NovelClass(name=name, **options)


def _text(sample: Sample) -> str:
    """Caption text in the parser's form, which is the key of its parse."""
    return " ".join(sample.caption.split())


def _pastes(
    novel: NovelClass, source: SourcePhoto, patches: Sequence[Box | None], boxes: Sequence[Box]
) -> tuple[Paste, ...]:
    """Build a paste for each box that has a patch."""
    label = (novel.labels or (novel.name,))[0]
    return tuple(
        Paste(source=source.image_path, source_box=patch, target_box=box, label=label)
        for patch, box in zip(patches, boxes, strict=True)
        if patch is not None
    )


def _photos(roster: Roster, duplicate_iou: float) -> dict[str, tuple[Sample, ...]]:
    """Group samples by image, without duplicate boxes."""
    photos = {}
    for image_id, rows in roster.rows_by_image.items():
        regions = without_duplicates(roster.samples[rows[0]].regions, threshold=duplicate_iou)
        photos[image_id] = tuple(replace(roster.samples[row], regions=regions) for row in rows)
    return photos


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePhoto:
    """A photo to cut a novel object from.

    Attributes:
        image_id: its roster's id.
        image_path: the file.
        boxes: boxes of the objects that may be pasted, one or more.
    """

    image_id: str
    image_path: Path
    boxes: tuple[Box, ...]


class SourcePool:
    """Photos of one novel object, with a count of uses for each photo.

    Args:
        photos: photos in any order.
        limits: limits on the boxes that may replace each other.
        seed: seed of ties.
    """

    def __init__(self, *, photos: Sequence[SourcePhoto], limits: Limits, seed: int) -> None:
        self.photos = tuple(sorted(photos, key=lambda photo: photo.image_id))
        self.uses = np.zeros(len(self.photos), np.int64)
        self._limits, self._seed = limits, seed
        self._boxes = [box for photo in self.photos for box in photo.boxes]
        counts = [len(photo.boxes) for photo in self.photos]
        self._starts = np.cumsum([0, *counts])[:-1]
        self._chosen: dict[str, list[int]] = {}

    def choose(
        self, targets: Sequence[Box], *, min_targets: int, key: str
    ) -> tuple[SourcePhoto, tuple[Box | None, ...]] | None:
        """Choose a source photo, and one of its boxes for each target.

        The photo can replace at least ``min_targets`` targets, and was not chosen for this key
        before. The least used of these photos come first, then those that can replace most; among
        equals one is drawn by seed and key.

        Args:
            targets: boxes that shall be replaced.
            min_targets: number of targets that must be replaced.
            key: names the replaced objects.

        Returns:
            None if no photo can. Boxes are None where a target finds none within the limits.
        """
        if not self.photos or not targets:
            return None
        allowed = self._limits.allowed(self._boxes, targets)
        num_replaceable = np.logical_or.reduceat(allowed, self._starts, axis=1).sum(axis=0)
        chosen = self._chosen.setdefault(key, [])
        usable = np.setdiff1d(np.flatnonzero(num_replaceable >= max(min_targets, 1)), chosen)
        if not usable.size:
            return None
        draw = drawn_generator(self._seed, key)
        ranks = draw.permutation(len(self.photos))
        best = usable[np.lexsort((ranks[usable], -num_replaceable[usable], self.uses[usable]))[0]]
        self.uses[best] += 1
        chosen.append(int(best))
        photo, start = self.photos[best], self._starts[best]
        allowed_boxes = allowed[:, start : start + len(photo.boxes)]
        return photo, _assign(photo.boxes, targets, allowed_boxes)


def _assign(
    boxes: Sequence[Box], targets: Sequence[Box], allowed: np.ndarray
) -> tuple[Box | None, ...]:
    """For each target, large ones first, the most similar of the least used source boxes."""
    uses = [0] * len(boxes)
    assigned: list[Box | None] = [None] * len(targets)
    for t in sorted(range(len(targets)), key=lambda t: (-area(targets[t]), t)):
        usable = np.flatnonzero(allowed[t]).tolist()
        if usable:
            best = min(usable, key=lambda s: (uses[s], _box_difference(boxes[s], targets[t]), s))
            uses[best] += 1
            assigned[t] = boxes[best]
    return tuple(assigned)


def _box_difference(first: Box, second: Box) -> float:
    return relative_change(area(first), area(second)) + relative_change(
        aspect(first), aspect(second)
    )
