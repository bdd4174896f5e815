"""Objects and attributes that a dataset's captions mention, and the boxes that show the objects.

The pre-processing of CutSwap (Hahn, 2022, section 3.2.1). Its clusters are made apart, from the
names in the table: `augmentation.cutswap.clusters`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from augmentation.regions.mentions import Mention, MentionRules, clean, find_mentions, offsets
from captioning.data.roster import Roster
from captioning.text.inflection import pluralise
from captioning.text.object_words import Labels, ObjectWords, build_labels
from captioning.types import Parse, Sample

# Of the thesis: an attribute that matters is in all five captions of the one image that shows it.
MIN_USES = 5
# A class fills a slot if it was seen in it at least this often, and in this share of its mentions.
MIN_SLOT_USES = 2
MIN_SLOT_SHARES = {"subject": 0.1}
MIN_SLOT_SHARE = 0.02
# A class is used in some grammar if this share of its mentions is: taggers err, and 0.2% of the
# mentions of a jacket in Flickr8k have a "who".
MIN_FRAME_SHARES = {"counted": 0.05, "bare": 0.05, "of": 0.05, "who": 0.004}
# A thing may be counted, or a mass without article, if that is not far rarer than the other.
OPPOSITE = {"counted": "bare", "bare": "counted"}
MIN_OPPOSITE_RATIO = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectClass:
    """An object class in singular or plural.

    Attributes:
        name: the singular, lower case.
        plural: whether this is the plural; plurals are swapped with plurals alone.
        count: mentions in all captions.
        forms: how it is written, with counts.
        frames: the grammar around it (`Mention.frames`), with counts.
        slots: the parts it plays (`Mention.slot`), with counts.
        rows: roster rows of the captions that mention it, ascending.
        rows_by_attribute: rows that show it with an attribute.
        boxed_images: ids of images with a box of it, sorted.
    """

    name: str
    plural: bool
    count: int
    forms: Mapping[str, int] = field(default_factory=dict)
    frames: Mapping[str, int] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    rows_by_attribute: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    boxed_images: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """Most frequent form of the noun in the captions, in this number."""
        if not self.forms:
            return pluralise(self.name) if self.plural else self.name
        return max(self.forms, key=lambda form: (self.forms[form], form))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Sorted attributes that occur with the class."""
        return tuple(self.rows_by_attribute)

    def fits_frames(self, frames: Iterable[str]) -> bool:
        """Return whether captions often use the class in each frame (`MIN_FRAME_SHARES`)."""
        for frame in frames:
            uses = self.frames.get(frame, 0)
            opposite_uses = self.frames.get(OPPOSITE.get(frame, ""), 0)
            if uses < max(
                1, MIN_FRAME_SHARES[frame] * self.count, MIN_OPPOSITE_RATIO * opposite_uses
            ):
                return False
        return True

    def fills_slot(self, slot: str) -> bool:
        """Return whether captions often use the class in this slot (`MIN_SLOT_SHARE`)."""
        share = MIN_SLOT_SHARES.get(slot, MIN_SLOT_SHARE)
        return self.slots.get(slot, 0) >= max(MIN_SLOT_USES, share * self.count)


@dataclass(frozen=True, kw_only=True)
class ObjectTable:
    """Object classes that a dataset's captions mention.

    Attributes:
        fingerprint: fingerprint of the roster whose rows it speaks of.
        classes: sorted by name, the singular first.
        min_uses: pairs of object and attribute that were seen less often are left out.
        num_captions: captions read.
        dropped_pairs: how many pairs were left out.
        dropped_classes: how many classes were left out, seen less often themselves.
    """

    fingerprint: str
    classes: tuple[ObjectClass, ...]
    min_uses: int = MIN_USES
    num_captions: int = 0
    dropped_pairs: int = 0
    dropped_classes: int = 0

    @cached_property
    def by_key(self) -> dict[tuple[str, bool], ObjectClass]:
        """Object classes by name and number (singular or plural)."""
        return {(entry.name, entry.plural): entry for entry in self.classes}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Sorted singular names: the words to cluster (section 4.4.1)."""
        return tuple(sorted({object_class.name for object_class in self.classes}))


def labels_of(objects: str | None) -> Labels:
    """Labels of COCO's words and, given a file of classes, of that file's words.

    Args:
        objects: a file as of `build_labels`: detectors with its classes call each by the first of
            its names alone, so captions may have another.
    """
    labels = dict(build_labels())
    for name, names in build_labels(objects).items() if objects else ():
        labels[name] = labels.get(name, frozenset()) | names
    return labels


def boxes_of(sample: Sample, mention: Mention, parse: Parse, labels: Labels) -> tuple[int, ...]:
    """Positions in ``sample.regions`` of the boxes that show a mentioned object.

    Boxes of a phrase that holds the object's word (Flickr30k Entities), or else those whose label
    is the object's name (section 3.2.3), or, if there are none, a word for the same class: a man is
    not a woman if box labels distinguish them; otherwise he has a box labelled person.
    """
    words = {mention.name, mention.form}
    same_class = {label for word in words for label in labels.get(word, ())}
    return (
        _grounded(sample, mention, parse)
        or _labelled(sample, words)
        or _labelled(sample, same_class)
    )


def shares_boxes(
    sample: Sample,
    parse: Parse,
    mention: Mention,
    mentions: Iterable[Mention],
    labels: Labels,
    *,
    same_label: bool,
) -> bool:
    """Return whether a mentioned object shares a box with another mention of the caption.

    A man and a woman share all boxes labelled person, a boy and a kid those labelled boy: which box
    shows which is not known.

    Args:
        sample: sample with the caption.
        parse: the caption's parse.
        mention: the object; one with boxes of phrases shares none by labels.
        mentions: all of the caption.
        labels: result of `build_labels`.
        same_label: count mentions of one label, too ("a dog chases another dog"); False: only
            where one of the two has its boxes by a word for the same class.
    """
    if _grounded(sample, mention, parse):
        return False
    own = set(_labelled(sample, {mention.name, mention.form}))
    boxes = own or set(boxes_of(sample, mention, parse, labels))
    for other in mentions:
        if other.head == mention.head:
            continue
        known = _grounded(sample, other, parse) or _labelled(sample, {other.name, other.form})
        by_class = not (own and known)
        others = known or boxes_of(sample, other, parse, labels)
        if (same_label or by_class) and boxes.intersection(others):
            return True
    return False


def _labelled(sample: Sample, labels: Collection[str]) -> tuple[int, ...]:
    return tuple(i for i, region in enumerate(sample.regions) if region.label.lower() in labels)


def _grounded(sample: Sample, mention: Mention, parse: Parse) -> tuple[int, ...]:
    # Phrases count characters of the caption as it is; words are found in single blanks.
    if not sample.phrases or clean(sample.caption) != sample.caption:
        return ()
    start, end = offsets(sample.caption, parse)[mention.head]
    regions = [
        i
        for phrase in sample.phrases
        if phrase.start <= start and end <= phrase.start + len(phrase.text)
        for i in phrase.regions
    ]
    return tuple(sorted(set(regions)))


class _Tally:
    """Counts of one class, collected while captions are read."""

    def __init__(self) -> None:
        self.forms: Counter[str] = Counter()
        self.frames: Counter[str] = Counter()
        self.slots: Counter[str] = Counter()
        self.rows: set[int] = set()
        self.attribute_rows: dict[str, set[int]] = defaultdict(set)
        self.attributes: Counter[str] = Counter()
        self.images: set[str] = set()

    def add(self, mention: Mention, sample: Sample, boxed: bool) -> None:
        self.forms[mention.form] += 1
        self.frames.update(mention.frames)
        if mention.slot:
            self.slots[mention.slot] += 1
        self.rows.add(sample.row)
        self.attributes.update(mention.attributes)
        for attribute in mention.attributes:
            self.attribute_rows[attribute].add(sample.row)
        if boxed:
            self.images.add(sample.image_id)

    def record(self, key: tuple[str, bool], min_uses: int) -> ObjectClass:
        kept_attributes = sorted(a for a, count in self.attributes.items() if count >= min_uses)
        return ObjectClass(
            name=key[0],
            plural=key[1],
            count=sum(self.forms.values()),
            forms=dict(sorted(self.forms.items())),
            frames=dict(sorted(self.frames.items())),
            slots=dict(sorted(self.slots.items())),
            rows=tuple(sorted(self.rows)),
            rows_by_attribute={a: tuple(sorted(self.attribute_rows[a])) for a in kept_attributes},
            boxed_images=tuple(sorted(self.images)),
        )


def build_object_table(
    roster: Roster,
    parses: Iterable[Parse],
    *,
    object_words: ObjectWords,
    labels: Labels | None = None,
    min_uses: int = MIN_USES,
    min_mentions: int | None = None,
    note: Callable[[Sample, Parse, Mention, tuple[int, ...]], None] | None = None,
    mention_rules: MentionRules | None = None,
) -> ObjectTable:
    """Build the object classes from all captions of a roster.

    Args:
        roster: the dataset.
        parses: one a sample, in order.
        object_words: the object classes.
        labels: box labels that show an object, from `build_labels`; None: labels of its own name.
        min_uses: pairs of object and attribute seen less often are dropped.
        min_mentions: classes seen less often are dropped; None: ``min_uses``.
        note: called with a sample, its parse, each mention that has boxes, and their positions in
            ``sample.regions``.
        mention_rules: rules for objects; None: the rules' defaults.

    Raises:
        ValueError: a sample lacks its parse, a parse is wrong, or ``min_uses`` is below 1.
    """
    if min_uses < 1:
        raise ValueError(f"min_uses must be at least 1: got {min_uses}")
    rules = mention_rules or MentionRules()
    tallies: dict[tuple[str, bool], _Tally] = defaultdict(_Tally)
    for sample, parse in zip_longest(roster.samples, parses):
        if sample is None or parse is None:
            raise ValueError(
                f"each sample must have one parse: got more or fewer than {len(roster)} parses"
            )
        for mention in find_mentions(sample.caption, parse, object_words, rules):
            boxes = boxes_of(sample, mention, parse, labels or {}) if sample.regions else ()
            tallies[mention.name, mention.plural].add(mention, sample, bool(boxes))
            if boxes and note is not None:
                note(sample, parse, mention, boxes)
    min_count = min_uses if min_mentions is None else min_mentions
    kept_keys = [key for key in sorted(tallies) if tallies[key].forms.total() >= min_count]
    classes = tuple(tallies[key].record(key, min_uses) for key in kept_keys)
    num_pairs = sum(len(tally.attributes) for tally in tallies.values())
    return ObjectTable(
        fingerprint=roster.fingerprint,
        classes=classes,
        min_uses=min_uses,
        num_captions=len(roster),
        dropped_pairs=num_pairs
        - sum(len(object_class.rows_by_attribute) for object_class in classes),
        dropped_classes=len(tallies) - len(kept_keys),
    )
