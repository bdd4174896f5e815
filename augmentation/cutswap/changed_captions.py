"""All captions of a photo changed together, and the proposal of a picture with them.

Figures A1 and A2 of the CutSwap thesis (Hahn, 2022) show pictures with several captions: all those
of the photo that name the object, with the same new object. Attributes are replaced where a caption
has some. Captions that do not name the object, or name it twice, are left out, and so are those in
which another word has its boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from augmentation.cutswap.objects import ObjectTable
from augmentation.cutswap.patches import Patch
from augmentation.cutswap.text import CaptionSwap, ObjectKey
from augmentation.regions.annotations import records
from augmentation.regions.caption_edits import replace_object
from augmentation.regions.mentions import Mention
from augmentation.regions.paste import Paste
from augmentation.regions.proposal import Proposal, file_name, finished_regions
from captioning.types import Box, Parse, Region, Sample

SWAP_KEYS = (
    "sample_id",
    "old_object",
    "new_object",
    "plural",
    "old_attribute",
    "new_attribute",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCaption:
    """A caption of a photo with what it mentions."""

    sample: Sample
    parse: Parse
    mentions: tuple[Mention, ...]


def described_objects(captions: Iterable[ReadCaption]) -> frozenset[ObjectKey]:
    """Objects, by name and number, that some caption gives an attribute."""
    return frozenset(
        (mention.name, mention.plural)
        for caption in captions
        for mention in caption.mentions
        if mention.attribute
    )


def naming(captions: Iterable[ReadCaption], swap: CaptionSwap) -> list[tuple[ReadCaption, Mention]]:
    """The captions that name the swapped object once, in its number."""
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
    """Other captions of the photo, before and after the swap; those that stay as they are, too."""
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
    """The pair of a swapped caption with a patch, which takes the place of all targets.

    Args:
        name: of the pair; parts that the sample's name is the first of.
        sample: whose caption was swapped.
        swap: its caption, which pairs are ranked by.
        patch: of the new object.
        targets: boxes of the old one.
        protected: what stays visible.
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
    """The swap that a picture was made for."""
    return CaptionSwap(caption=record["captions"][0], **record["notes"]["swap"])


def best_similarities(path: Path) -> Iterator[float]:
    """The best similarity of each augmented caption, from the records of refused pairs."""
    for record in records(path, all_records=True):
        if record.get("best") is not None:
            yield record["best"]
