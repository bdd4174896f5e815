"""The complete CutSwap method: swap an object in the caption and paste its patch into the photo.

The thesis' chapters 3 and 4 (Hahn, 2022). Each augmented caption has n_p texts with n_i patches
each; `augmentation.regions.reranking.Ranker` keeps the best pairs.

Figures A1 and A2 show pictures with several captions: all captions of the photo that name the
object, with the same new object. Attributes are replaced where a caption has some. Captions that do
not name the object, or name it twice, are left out, and so are those in which another word has its
boxes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from augmentation.cutswap.clusters import Clustering, Clusters, cluster_curves, write_cluster_report
from augmentation.cutswap.descriptions import description_words
from augmentation.cutswap.embeddings import Embed, WordEmbeddings, embed_words
from augmentation.cutswap.objects import (
    MIN_USES,
    ObjectTable,
    build_object_table,
    labels_of,
)
from augmentation.cutswap.patches import SHARED, Areas, Patch, Patches
from augmentation.cutswap.statistics import (
    mention_statistics,
    swap_statistics,
    write_statistics,
)
from augmentation.cutswap.text import CaptionSwap, CaptionSwapper, ObjectKey, SwapRules
from augmentation.regions.annotations import records
from augmentation.regions.boxes import Limits
from augmentation.regions.caption_edits import replace_object
from augmentation.regions.mentions import Mention, find_mentions
from augmentation.regions.paste import Paste
from augmentation.regions.proposal import (
    AbstractRegionMethod,
    Proposal,
    draw_key,
    drawn_generator,
    file_name,
    finished_regions,
)
from augmentation.regions.reranking import (
    KEEP,
    CosineScorer,
    Threshold,
    estimated_threshold,
    known_threshold,
)
from captioning.config.ranges import NonNegativeInt, PositiveInt, Seed
from captioning.data.roster import Roster
from captioning.interfaces import AbstractParser, JointEmbedder
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import COCO_OBJECTS, LEMMAS, ObjectWords, build_object_words
from captioning.types import Box, Parse, Region, Sample
from captioning.vision.photos import load_rgb

NUM_PAIRS = 300
PHOTOS_AT_ONCE = 64  # in memory; encoders' batches are of 64 or of a divisor of it

log = logging.getLogger(__name__)
SWAP_KEYS = (
    "sample_id",
    "old_object",
    "new_object",
    "plural",
    "old_attribute",
    "new_attribute",
)


def threshold_of_data(roster: Roster, *, encoder: JointEmbedder, seed: int) -> Threshold:
    """Estimate the similarity threshold from random photos, each with its first caption.

    An unreadable photo is skipped with a log message, and the next photo is drawn.

    Args:
        roster: photos with captions.
        encoder: the space's encoder.
        seed: seed of the draws.

    Raises:
        ValueError: fewer than two photos can be opened.
    """
    ids = sorted(roster.rows_by_image, key=lambda image_id: draw_key(seed, "pairs", image_id))
    samples = (roster.samples[roster.rows_by_image[image_id][0]] for image_id in ids)
    remaining = islice(_opened(samples), NUM_PAIRS)
    kept, vectors = [], []
    while chunk := list(islice(remaining, PHOTOS_AT_ONCE)):
        kept += [sample for sample, _ in chunk]
        vectors.append(encoder.embed_photos([photo for _, photo in chunk]))
    return estimated_threshold(
        torch.cat(vectors) if vectors else torch.zeros(0, 1),
        [sample.caption for sample in kept],
        [sample.image_id for sample in kept],
        scorer=CosineScorer(encoder=encoder),
        seed=seed,
    )


def _opened(samples: Iterable[Sample]) -> Iterator[tuple[Sample, Image.Image]]:
    for sample in samples:
        try:
            photo = load_rgb(sample.image_path)
        except (FileNotFoundError, ValueError) as error:
            log.warning(f"the estimate of the similarity threshold skips a photo: {error}")
            continue
        yield sample, photo


DESCRIBES_OTHER = "object describes another"
OVERLAID = "object under another that the caption names"
NO_PATCH = "no patch of a new object within the limits"
CHUNK = 128  # photos whose captions are parsed at once
PARSED_AT_ONCE = 2048  # captions


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStatistics:
    """Counts from a dataset's captions and boxes.

    Attributes:
        words: object words.
        patches: boxes that can be cut out.
        table: objects and attributes of the captions.
        embeddings: vectors of the table's names.
        clusters: clusters of these names.
        swapper: swapper of captions.
    """

    words: ObjectWords
    patches: Patches
    table: ObjectTable
    embeddings: WordEmbeddings
    clusters: Clusters
    swapper: CaptionSwapper


class CutSwap(AbstractRegionMethod):
    """Makes pairs of photo and caption with one object swapped in both.

    Args:
        parser: parser of captions.
        embed: embeds object words, for the clusters.
        encoder: encoder of pairs, for the ranking.
        rules: rules of captions; objects without boxes are never swapped.
        clustering: clustering of object words.
        areas: areas of a photo that may be replaced.
        limits: limits on the boxes that may replace each other.
        num_patches: n_i, maximum number of patches for each caption.
        captions_per_photo: maximum number of augmented captions per photo; None: all.
        all_captions: a picture has all captions of its photo that name the object, changed alike
            (`photo_captions`); False: one.
        keep: pairs of an augmented caption that are kept; None: all, without scores.
        similarity: threshold of pairs; None: the known one of the encoder's space; ``"estimate"``:
            estimated from pairs of the data.
        objects: a file with a class a line, such as Visual Genome's; None: COCO's words and the
            labels of the data's boxes.
        min_uses: pairs of object and attribute seen less often are dropped.
        min_mentions: classes seen less often are dropped; None: ``min_uses``.
        match_descriptions: patches must do and wear what the caption says of the object; objects
            that another one wears or holds are not swapped.
        seed: seed of all draws.

    Raises:
        ValueError: ``num_patches`` or ``captions_per_photo`` is below 1.
    """

    def __init__(
        self,
        *,
        parser: AbstractParser,
        embed: Embed,
        encoder: JointEmbedder,
        rules: SwapRules,
        clustering: Clustering,
        areas: Areas,
        limits: Limits,
        seed: Seed,
        num_patches: PositiveInt = 4,
        captions_per_photo: PositiveInt | None = 1,
        all_captions: bool = False,
        keep: PositiveInt | None = KEEP,
        similarity: float | Literal["estimate"] | None = None,
        objects: str | None = None,
        min_uses: NonNegativeInt = MIN_USES,
        min_mentions: NonNegativeInt | None = None,
        match_descriptions: bool = True,
    ) -> None:
        if min(num_patches, captions_per_photo or 1) < 1:
            raise ValueError(
                "num_patches and captions_per_photo must be at least 1: got "
                f"{num_patches} and {captions_per_photo}"
            )
        self.parser, self.encoder, self.seed = parser, encoder, seed
        self.rules, self.clustering = replace(rules, need_boxes=True), clustering
        self.areas, self.limits, self.num_patches = areas, limits, num_patches
        self.captions_per_photo, self.keep, self.similarity = captions_per_photo, keep, similarity
        self.objects, self.min_uses, self.min_mentions = objects, min_uses, min_mentions
        self.embed, self.match_descriptions = embed, match_descriptions
        self.all_captions = all_captions
        self._labels = labels_of(objects)
        self._left_out: Counter[str] = Counter()
        self._statistics: DataStatistics | None = None
        self._threshold: Threshold | None = None

    def threshold(self, roster: Roster) -> Threshold | None:
        """See `AbstractRegionMethod.threshold`."""
        if self.keep is None:
            return None
        space = self.encoder.space
        if self.similarity is None:
            self._threshold = known_threshold(space)
        elif isinstance(self.similarity, str):
            self._threshold = threshold_of_data(roster, encoder=self.encoder, seed=self.seed)
        else:
            self._threshold = Threshold(value=self.similarity, space=space, reason="as set")
        return self._threshold

    def candidates(self, roster: Roster) -> Iterator[tuple[Proposal, ...]]:
        """See `AbstractRegionMethod.candidates`; pairs of one caption compete."""
        self._left_out.clear()
        statistics = self._statistics = self._read(roster)
        order = sorted(roster.rows_by_image, key=lambda key: draw_key(self.seed, key))
        for start in range(0, len(order), CHUNK):
            photos = order[start : start + CHUNK]
            rows = [row for image_id in photos for row in roster.rows_by_image[image_id]]
            captions = ((roster.samples[n].sample_id, roster.samples[n].caption) for n in rows)
            parses = {sample_id: parse for sample_id, _, parse in self._parsed(captions)}
            for image_id in photos:
                samples = [roster.samples[row] for row in roster.rows_by_image[image_id]]
                samples.sort(key=lambda sample: draw_key(self.seed, sample.sample_id))
                read = [self._read_caption(s, parses[s.sample_id], statistics) for s in samples]
                groups = (self._of_caption(n, read, statistics) for n in range(len(read)))
                yield from islice(filter(None, groups), self.captions_per_photo)

    def _read_caption(
        self, sample: Sample, parse: Parse, statistics: DataStatistics
    ) -> ReadCaption:
        mentions = find_mentions(sample.caption, parse, statistics.words, self.rules.mentions)
        return ReadCaption(sample=sample, parse=parse, mentions=mentions)

    def _read(self, roster: Roster) -> DataStatistics:
        """Read the dataset's captions and boxes (section 3.2.1)."""
        words = self._object_words(roster)
        patches = Patches(limits=self.limits, areas=self.areas)
        table = build_object_table(
            roster,
            (parse for *_, parse in self._parsed((s.image_id, s.caption) for s in roster.samples)),
            object_words=words,
            labels=self._labels,
            min_uses=self.min_uses,
            min_mentions=self.min_mentions,
            note=patches.add,
            mention_rules=self.rules.mentions,
        )
        if not table.classes:
            min_count = self.min_mentions or self.min_uses
            raise ValueError(
                f"{roster.name}: no object is named {min_count} times or more in its {len(roster)} "
                "captions: lower method.min_uses or min_mentions, read more photos, or give "
                "method.objects=FILE with the names of its objects"
            )
        embeddings = embed_words(table.names, self.embed)
        clusters = self.clustering.clusters(embeddings, seed=self.seed)
        swapper = CaptionSwapper(
            table=table,
            clusters=clusters,
            embeddings=embeddings,
            object_words=words,
            labels=self._labels,
            rules=self.rules,
            seed=self.seed,
        )
        return DataStatistics(
            words=words,
            patches=patches,
            table=table,
            embeddings=embeddings,
            clusters=clusters,
            swapper=swapper,
        )

    def _object_words(self, roster: Roster) -> ObjectWords:
        if self.objects is not None:
            return build_object_words(self.objects)
        first = (roster.samples[rows[0]] for rows in roster.rows_by_image.values())
        counts = Counter(region.label for sample in first for region in sample.regions)
        names = {name for line in COCO_OBJECTS for name in line.split(",")}
        names |= {label for label, count in counts.items() if count >= self.min_uses}
        return ObjectWords(names=sorted(names), lemmatizer=load_lemmas(LEMMAS))

    def _parsed(self, captions: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, Parse]]:
        """Yield ids and captions with their parses, with few parses in memory."""
        remaining = iter(captions)
        while chunk := list(islice(remaining, PARSED_AT_ONCE)):
            parses = self.parser.parse([caption for _, caption in chunk])
            yield from ((*entry, parse) for entry, parse in zip(chunk, parses, strict=True))

    def _of_caption(
        self, number: int, captions: Sequence[ReadCaption], statistics: DataStatistics
    ) -> tuple[Proposal, ...]:
        """Pairs for the caption ``number`` of a photo; without a pair, the reason is counted.

        Those of a caption differ by swap and patch, and share the photo's other captions.
        """
        sample, parse = captions[number].sample, captions[number].parse
        mentions = captions[number].mentions
        others = [c for n, c in enumerate(captions) if n != number] if self.all_captions else []
        descriptions = {
            mention.head: description_words(parse, mention) if self.match_descriptions else ()
            for mention in mentions
        }

        def obstacle(mention: Mention, numbers: tuple[int, ...]) -> str:
            other_words = [words for head, words in descriptions.items() if head != mention.head]
            if any(parse[mention.head].lemma in words for words in other_words):
                return DESCRIBES_OTHER
            if self._is_shared(captions[number], mention):
                return SHARED
            targets = self.areas.targets(sample, numbers)
            protected = self.areas.protected(sample, parse, numbers, mentions, self._labels)
            overlaid = self.areas.is_overlaid(targets, protected)
            return OVERLAID if overlaid else self.areas.problem(sample, numbers)

        described = described_objects(others)
        result = statistics.swapper.swap(sample, parse, obstacle=obstacle, described=described)
        if result.problem:
            self._left_out[result.problem] += 1
            return ()
        pairs = tuple(self._pairs(captions[number], others, result.swaps, descriptions, statistics))
        if not pairs:
            self._left_out[NO_PATCH] += 1
        return pairs

    def _pairs(
        self,
        caption: ReadCaption,
        others: Sequence[ReadCaption],
        swaps: Sequence[CaptionSwap],
        descriptions: Mapping[int, Collection[str]],
        statistics: DataStatistics,
    ) -> Iterator[Proposal]:
        sample, articles = caption.sample, self.rules.correct_articles
        generator = drawn_generator(self.seed, "patches", sample.sample_id)
        for number, swap in enumerate(swaps):
            targets = self.areas.targets(sample, swap.regions)
            named = [entry for entry in naming(others, swap) if not self._is_shared(*entry)]
            protected = self._protected([caption, *(other for other, _ in named)], swap)
            patches = statistics.patches.choose(
                swap.new_object,
                swap.new_attribute,
                targets,
                plural=swap.plural,
                descriptions=descriptions[swap.head],
                image_id=sample.image_id,
                num=self.num_patches,
                generator=generator,
            )
            texts = list(changed(named, swap, statistics.table, correct_articles=articles))
            for count, patch in enumerate(patches):
                name = f"{number}.{count}"
                yield proposal(name, sample, swap, patch, targets, protected, texts)

    def _is_shared(self, caption: ReadCaption, mention: Mention) -> bool:
        sample, parse = caption.sample, caption.parse
        return self.areas.is_shared(sample, parse, mention, caption.mentions, self._labels)

    def _protected(self, captions: Sequence[ReadCaption], swap: CaptionSwap) -> list[Region]:
        """Regions of other objects in the captions that no patch may cover, without repeats."""
        regions = (
            region
            for c in captions
            for region in self.areas.protected(
                c.sample, c.parse, swap.regions, c.mentions, self._labels
            )
        )
        return list(dict.fromkeys(regions))

    def report(self) -> dict[str, Any]:
        """See `AbstractRegionMethod.report`."""
        statistics = self._statistics
        if statistics is None:
            return {}
        return {
            "object classes": len(statistics.table.classes),
            "words": len(statistics.embeddings.words),
            "clusters": len(statistics.clusters),
            "boxes to cut out": len(statistics.patches),
            "threshold": asdict(self._threshold) if self._threshold else None,
            "captions left out, by reason": dict(sorted(self._left_out.items())),
        }

    def finish(self, folder: Path, roster: Roster) -> None:
        """See `AbstractRegionMethod.finish`: statistics (4.5.3) and clusters (4.4.1)."""
        statistics = self._statistics
        if statistics is None:
            return
        path, by_image = folder / "provenance.jsonl", roster.rows_by_image
        old = ((key, roster.samples[row].caption) for key, rows in by_image.items() for row in rows)
        new = ((record["name"], text) for record in records(path) for text in record["captions"])
        rules = {"object_words": statistics.words, "mention_rules": self.rules.mentions}
        write_statistics(
            folder / "statistics",
            before=mention_statistics(self._parsed(old), **rules),
            after=mention_statistics(self._parsed(new), **rules),
            swaps=swap_statistics(swap_of(record) for record in records(path)),
            similarities=np.fromiter(best_similarities(path), dtype=np.float64),
            threshold=self._threshold.value if self._threshold else None,
            space=self.encoder.space,
        )
        numbers = self.clustering.numbers(len(statistics.embeddings.words))
        curves = cluster_curves(statistics.embeddings, numbers=numbers, seed=self.seed)
        write_cluster_report(
            folder / "clusters",
            embeddings=statistics.embeddings,
            clusters=statistics.clusters,
            curves=curves,
            table=statistics.table,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCaption:
    """A caption of a photo with its object mentions."""

    sample: Sample
    parse: Parse
    mentions: tuple[Mention, ...]


def described_objects(captions: Iterable[ReadCaption]) -> frozenset[ObjectKey]:
    """Objects, by name and number, with an attribute in at least one caption."""
    return frozenset(
        (mention.name, mention.plural)
        for caption in captions
        for mention in caption.mentions
        if mention.attribute
    )


def naming(captions: Iterable[ReadCaption], swap: CaptionSwap) -> list[tuple[ReadCaption, Mention]]:
    """Captions that mention the swapped object once, in its number."""
    wanted = swap.old_object, swap.plural
    return [
        (caption, named[0])
        for caption in captions
        if len(named := [m for m in caption.mentions if (m.name, m.plural) == wanted]) == 1
    ]


def changed(
    others: Iterable[tuple[ReadCaption, Mention]],
    swap: CaptionSwap,
    table: ObjectTable,
    *,
    correct_articles: bool,
) -> Iterator[tuple[str, str]]:
    """Other captions of the photo before and after the swap, including unchanged captions."""
    noun = table.by_key[swap.new_object, swap.plural].noun
    for caption, mention in others:
        edited = replace_object(
            caption.sample.caption,
            caption.parse,
            mention,
            noun=mention.form if swap.new_object == mention.name else noun,
            attribute=swap.new_attribute if mention.attribute else "",
            correct_articles=correct_articles,
        )
        yield caption.sample.caption, edited.caption


def proposal(
    name: str,
    sample: Sample,
    swap: CaptionSwap,
    patch: Patch,
    targets: Sequence[Box],
    protected: Sequence[Region],
    others: Sequence[tuple[str, str]] = (),
) -> Proposal:
    """Pair of a swapped caption and a patch that replaces all target boxes.

    Args:
        name: the pair's name; parts that the sample's name is the first of.
        sample: whose caption was swapped.
        swap: its caption, which pairs are ranked by.
        patch: patch of the new object.
        targets: boxes of the old one.
        protected: areas that stay visible.
        others: captions of the photo that were changed with it, before and after.
    """
    pastes = tuple(
        Paste(source=patch.image_path, source_box=patch.box, target_box=box, label=swap.new_object)
        for box in targets
    )
    return Proposal(
        name=file_name(sample.sample_id, name),
        image_id=sample.image_id,
        image_path=sample.image_path,
        before=(sample.caption, *(before for before, _ in others)),
        pastes=pastes,
        captions=(swap.caption, *(after for _, after in others)),
        regions=finished_regions(sample.regions, pastes, protected),
        protected=tuple(region.box for region in protected),
        notes={
            "swap": {key: getattr(swap, key) for key in SWAP_KEYS},
            "source id": patch.image_id,
        },
    )


def swap_of(record: Mapping[str, Any]) -> CaptionSwap:
    """The swap that an image was made for."""
    return CaptionSwap(caption=record["captions"][0], **record["notes"]["swap"])


def best_similarities(path: Path) -> Iterator[float]:
    """Best similarity of each augmented caption, from the records of rejected pairs."""
    for record in records(path, all_records=True):
        if record.get("best") is not None:
            yield record["best"]
