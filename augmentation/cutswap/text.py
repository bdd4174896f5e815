"""CutSwap's text augmentation: replace the object that a caption mentions by another object.

Section 3.2.2 of the thesis (Hahn, 2022). One object of a caption is chosen at random; its class
gives way to a random class of the closest cluster, the same class included, and its attributes to a
random attribute that the new class occurs with; something must have changed. Plurals are swapped
with plurals. An object without attribute gets none (Figure A1 there).

Four checks are this framework's own, each can be turned off: the new class must be used in the
same grammar (`Mention.frames`), must play the same part elsewhere (`Mention.slot`), must not be in
the caption already, and must agree with "his" and "her".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from augmentation.cutswap.clusters import Clusters
from augmentation.cutswap.embeddings import WordEmbeddings
from augmentation.cutswap.objects import ObjectClass, ObjectTable, boxes_of
from augmentation.regions.caption_edits import ChangedSpan, replace_object
from augmentation.regions.closed_classes import (
    FEMININE,
    FEMININE_PRONOUNS,
    MASCULINE,
    MASCULINE_PRONOUNS,
    NOT_OBJECTS,
)
from augmentation.regions.mentions import Mention, MentionRules, find_mentions
from augmentation.regions.proposal import drawn_generator
from captioning.config.ranges import PositiveInt
from captioning.text.object_words import Labels, ObjectWords
from captioning.types import Parse, Sample

NUM_CAPTIONS = 32

# Why a sample has no swap.
NO_WORDS = "no words"
NO_OBJECT = "no object"
NO_BOX = "no box of the object"
NO_VECTOR = "object in no cluster"
SINGLE_CLASS = "cluster of one"
NO_ATTRIBUTE = "no attribute"
NO_NUMBER = "no class in that number"
NO_FRAME = "no class in that grammar"


ObjectKey = tuple[str, bool]  # name of a class, whether plural


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRules:
    """Settings of `CaptionSwapper`; defaults are the thesis' values and additional checks.

    Attributes:
        num_captions: n_p, maximum number of different captions for each sample.
        one_object: all captions of a sample change the same object; else each draws its own.
        insert_attributes: an object without attribute gets one too.
        match_grammar: new classes must be used in the old one's grammar.
        match_slots: new classes must play the old one's part in other captions.
        match_pronouns: new objects must agree with "his" and "her" in the caption.
        allow_repeats: the new class may be in the caption already.
        draw_by: ``"uniform"`` over the cluster's classes, as the thesis draws, or ``"count"``: by
            their mentions, so that common classes stay common and rare ones rare.
        correct_articles: *a* and *an* go by the sound of the new words; the thesis leaves them.
        mentions: finds objects and attributes among the words.
        need_boxes: only objects with a box in the photo are swapped.

    Raises:
        ValueError: ``num_captions`` below 1, or an unknown ``draw_by``.
    """

    num_captions: PositiveInt = NUM_CAPTIONS
    one_object: bool = True
    insert_attributes: bool = False
    match_grammar: bool = True
    match_slots: bool = True
    match_pronouns: bool = True
    allow_repeats: bool = False
    draw_by: Literal["uniform", "count"] = "uniform"
    correct_articles: bool = True
    mentions: MentionRules = field(default_factory=MentionRules)
    need_boxes: bool = False

    def __post_init__(self) -> None:
        if self.draw_by not in ("uniform", "count"):
            raise ValueError(f"draw_by must be uniform or count: got {self.draw_by!r}")
        if self.num_captions < 1:
            raise ValueError(f"num_captions must be at least 1: got {self.num_captions}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionSwap:
    """A caption with one object swapped.

    Attributes:
        sample_id: sample id of the sample whose caption it was.
        caption: the new caption.
        old_object: class of the replaced object, in the singular.
        new_object: class of the new object; may be the same.
        plural: number of both.
        old_attribute: attributes of the replaced object, ``""`` for none.
        new_attribute: attribute of the new object, ``""`` for none.
        spans: the changed characters of the caption.
        regions: positions in ``Sample.regions`` of the old object's boxes.
        head: position of the old object's last word in the parse (`Mention.head`).
    """

    sample_id: str
    caption: str
    old_object: str
    new_object: str
    plural: bool
    old_attribute: str
    new_attribute: str
    spans: tuple[ChangedSpan, ...] = ()
    regions: tuple[int, ...] = ()
    head: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapResult:
    """All captions of a sample with one object swapped, or the reasons for none.

    Attributes:
        swaps: different captions, in the random order they were drawn in.
        problem: why there is none; empty where there is one.
    """

    swaps: tuple[CaptionSwap, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    mention: Mention
    new: ObjectClass
    attribute: str
    log_chance: float


class CaptionSwapper:
    """Draws captions with a swapped object, independently for each sample.

    Args:
        table: mentions in the dataset's captions.
        clusters: clusters of the table's names.
        embeddings: embeddings of these names, from which the clusters were made.
        object_words: the classes.
        labels: box labels that show an object; None: labels of its own name.
        rules: settings.
        seed: seed of the draws, with each ``sample_id``.
    """

    def __init__(
        self,
        *,
        table: ObjectTable,
        clusters: Clusters,
        embeddings: WordEmbeddings,
        object_words: ObjectWords,
        labels: Labels | None = None,
        rules: SwapRules | None = None,
        seed: int = 0,
    ) -> None:
        self.rules = SwapRules() if rules is None else rules
        self.seed = seed
        self._object_words = object_words
        self._labels: Labels = {} if labels is None else labels
        nearest = clusters.nearest(embeddings.vectors).tolist()
        self._cluster_of = dict(zip(embeddings.words, nearest, strict=True))
        listed = NOT_OBJECTS if self.rules.mentions.closed_classes else frozenset()
        self._classes = _classes_by_cluster(table, clusters, not_objects=listed)

    def swap(
        self,
        sample: Sample,
        parse: Parse,
        *,
        obstacle: Callable[[Mention, tuple[int, ...]], str] | None = None,
        described: Collection[ObjectKey] = (),
    ) -> SwapResult:
        """Return captions of a sample with one object swapped.

        Args:
            sample: sample with its caption and, if boxes are requested, regions or phrases.
            parse: the caption's parse.
            obstacle: why an object cannot be swapped, with boxes at such positions of
                ``sample.regions``; ``""`` if it can.
            described: objects that other captions of the photo give attributes, by name and number;
                the new object gets an attribute too, which this caption may omit.

        Raises:
            ValueError: the parse is of another caption.
        """
        if not parse:
            return SwapResult(swaps=(), problem=NO_WORDS)
        mentions = find_mentions(sample.caption, parse, self._object_words, self.rules.mentions)
        if not mentions:
            return SwapResult(swaps=(), problem=NO_OBJECT)
        generator = drawn_generator(self.seed, sample.sample_id)
        order = [mentions[i] for i in generator.permutation(len(mentions))]
        groups, problems = [], []
        for mention in order:
            regions = boxes_of(sample, mention, parse, self._labels)
            if self.rules.need_boxes and not regions:
                problems.append(NO_BOX)
                continue
            if obstacle is not None and (problem := obstacle(mention, regions)):
                problems.append(problem)
                continue
            wants = (mention.name, mention.plural) in described
            candidates, problem = self._candidates(sample, mention, mentions, described=wants)
            problems.append(problem)
            if candidates:
                groups.append((mention, regions, candidates))
            if candidates and self.rules.one_object:
                break
        if not groups:
            return SwapResult(swaps=(), problem=problems[0])
        drawn_candidates = _draw(
            [candidate for *_, candidates in groups for candidate in candidates], generator
        )
        regions_of = {mention.head: regions for mention, regions, _ in groups}
        return SwapResult(swaps=tuple(self._edit(sample, parse, drawn_candidates, regions_of)))

    def _candidates(
        self, sample: Sample, mention: Mention, mentions: Sequence[Mention], *, described: bool
    ) -> tuple[list[_Candidate], str]:
        """Replacement objects for an object, or the reason why it has none."""
        cluster = self._cluster_of.get(mention.name)
        if cluster is None:
            return [], NO_VECTOR
        in_cluster = self._classes[cluster]
        classes = [entry for entry in in_cluster if entry.plural == mention.plural]
        if not classes:
            return [], NO_NUMBER
        fitting = list(self._fitting(sample, mention, mentions, classes))
        if not fitting:
            return [], NO_FRAME
        wants_attribute = bool(mention.attribute) or self.rules.insert_attributes or described
        if wants_attribute:
            fitting = [entry for entry in fitting if entry.attributes]
        by_count = self.rules.draw_by == "count"
        weights = np.array([entry.count if by_count else 1 for entry in fitting], dtype=np.float64)
        candidates = [
            _Candidate(
                mention=mention,
                new=entry,
                attribute=attribute,
                log_chance=float(np.log(weight / max(1, len(entry.attributes)))),
            )
            for entry, weight in zip(fitting, weights / weights.sum(), strict=True)
            for attribute in (entry.attributes if wants_attribute else ("",))
            if (entry.name, attribute) != (mention.name, mention.attribute)
        ]
        if candidates:
            return candidates, ""
        return [], NO_ATTRIBUTE if wants_attribute else SINGLE_CLASS if len(
            classes
        ) == 1 else NO_FRAME

    def _fitting(
        self,
        sample: Sample,
        mention: Mention,
        mentions: Sequence[Mention],
        classes: Iterable[ObjectClass],
    ) -> Iterator[ObjectClass]:
        other_names = {entry.name for entry in mentions if entry is not mention}
        pronouns = set(re.findall(r"[a-z]+", sample.caption.lower())) & (
            MASCULINE_PRONOUNS | FEMININE_PRONOUNS
        )
        for entry in classes:
            is_same = entry.name == mention.name
            repeats = not self.rules.allow_repeats and entry.name in other_names
            unfit = self.rules.match_grammar and not entry.fits_frames(mention.frames)
            unfit = unfit or (self.rules.match_slots and not _fills_slot(entry, mention))
            clashes = self.rules.match_pronouns and _pronoun_clash(
                mention.name, entry.name, pronouns
            )
            if is_same or not (repeats or unfit or clashes):
                yield entry

    def _edit(
        self,
        sample: Sample,
        parse: Parse,
        candidates: Iterable[_Candidate],
        regions_of: Mapping[int, tuple[int, ...]],
    ) -> Iterator[CaptionSwap]:
        seen: set[tuple[str, str]] = set()
        for candidate in candidates:
            shown = bool(candidate.mention.attribute) or self.rules.insert_attributes
            edited = replace_object(
                sample.caption,
                parse,
                candidate.mention,
                noun=candidate.mention.form
                if candidate.new.name == candidate.mention.name
                else candidate.new.noun,
                attribute=candidate.attribute if shown else "",
                correct_articles=self.rules.correct_articles,
            )
            key = edited.caption, candidate.attribute if not shown else ""
            if key in seen or not edited.spans:
                continue
            seen.add(key)
            yield CaptionSwap(
                sample_id=sample.sample_id,
                caption=edited.caption,
                old_object=candidate.mention.name,
                new_object=candidate.new.name,
                plural=candidate.new.plural,
                old_attribute=candidate.mention.attribute,
                new_attribute=candidate.attribute,
                spans=edited.spans,
                regions=regions_of[candidate.mention.head],
                head=candidate.mention.head,
            )
            if len(seen) == self.rules.num_captions:
                return


def count_problems(results: Iterable[SwapResult]) -> dict[str, int]:
    """Count the samples without a swap by reason, and the samples with swaps (``"swapped"``)."""
    counts = Counter(result.problem or "swapped" for result in results)
    return dict(sorted(counts.items()))


def _classes_by_cluster(
    table: ObjectTable, clusters: Clusters, *, not_objects: Collection[str]
) -> tuple[tuple[ObjectClass, ...], ...]:
    by_name: dict[str, list[ObjectClass]] = {}
    for entry in table.classes:
        if entry.name not in not_objects:
            by_name.setdefault(entry.name, []).append(entry)
    return tuple(
        tuple(entry for word in words for entry in by_name.get(word, ()))
        for words in clusters.members
    )


def _fills_slot(new: ObjectClass, mention: Mention) -> bool:
    """Return whether captions use a class in a mention's slot; False for unknown slots."""
    return bool(mention.slot) and new.fills_slot(mention.slot)


def _pronoun_clash(old: str, new: str, pronouns: set[str]) -> bool:
    """Return whether "his" or "her" in a caption would lose its referent."""
    if pronouns & FEMININE_PRONOUNS and new in MASCULINE and old not in MASCULINE:
        return True
    return bool(pronouns & MASCULINE_PRONOUNS) and new in FEMININE and old not in FEMININE


def _draw(candidates: Sequence[_Candidate], generator: np.random.Generator) -> list[_Candidate]:
    """Weighted random order of all candidates, as in sampling without replacement.

    With Gumbel noise on log-chances (Vieira, 2014) no draw has to be made twice.
    """
    noise = generator.gumbel(size=len(candidates))
    keys = np.array([candidate.log_chance for candidate in candidates]) + noise
    return [candidates[i] for i in np.argsort(-keys, kind="stable")]
