"""Objects that a caption mentions, with their attributes, for CutSwap to replace.

After the CutSwap thesis (Hahn, 2022), section 3.2.1: an object is a word of a list of object
classes, its attributes are the words that depend on it and are tagged as adjectives. Positions
refer to the parse's words; characters refer to the caption with single blanks, as the parser reads
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from augmentation.regions.closed_classes import (
    AMOUNTS,
    BOUND_ADJECTIVES,
    CONNECTORS,
    COUNT_DETERMINERS,
    MASS_DETERMINERS,
    NOT_ATTRIBUTES,
    NOT_OBJECTS,
    SIZES_AND_AGES,
)
from captioning.text.inflection import UNCHANGED
from captioning.text.object_words import UNMARKED_PLURALS, ObjectWords
from captioning.text.phrases import (
    MAX_STEPS_UP,
    NOUNS,
    OBJECTS,
    PASSIVE_SUBJECTS,
    SUBJECTS,
    children_of,
)
from captioning.types import Parse, Token

PLURAL_TAGS = ("NNS", "NNPS")
ATTRIBUTE_RELATIONS = ("amod", "conj", "nmod")
# Relations of nouns that modify another word: "snow" of "snow covered".
MODIFIER_RELATIONS = ("npadvmod", "advmod", "amod", "nmod", "quantmod", "intj")


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRules:
    """Rules for which words of a caption are objects and attributes.

    Attributes:
        closed_classes: words in `augmentation.regions.closed_classes` are not objects or
            attributes, and the adjective of a class such as "young man" is an attribute; False:
            every adjective that depends on an object ("few", "haired") and every noun of a class is
            one, as in the thesis.
        whole_compounds: words of a compound stay ("car" of "car door"), and nouns that qualify an
            object or its attributes go with them ("park" of "park bench", "very" of "very old");
            False: only the class's own words and the attributes are read and replaced, at any
            position, as in the thesis.
    """

    closed_classes: bool = True
    whole_compounds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """An object mention in a caption.

    Attributes:
        name: its class, the singular in lower case: ``"fire hydrant"``, ``"t-shirt"``.
        form: form as written, in lower case: ``"fire hydrants"``.
        plural: whether the mention is plural.
        head: position of its last word.
        start: position of its first word. Nouns that qualify it ("golf" of "golf ball", where the
            list has no golf balls) belong to it, because they would be wrong for another object.
        block: positions ``(first, last + 1)`` of its attributes with the adverbs and connecting
            words between, or None without any.
        attribute: the words of the block as one text in lower case, ``""`` without any.
        attributes: its adjectives, in lower case.
        frames: the grammar around it: ``"counted"`` (a, an, one, another, each), ``"bare"`` (a
            singular without determiner, as mass nouns have), ``"of"`` (something of something),
            ``"who"`` (a clause about a person).
    """

    name: str
    form: str
    plural: bool
    head: int
    start: int
    block: tuple[int, int] | None
    attribute: str
    attributes: tuple[str, ...]
    frames: tuple[str, ...]
    slot: str = ""


def find_mentions(
    caption: str,
    parse: Parse,
    object_words: ObjectWords,
    rules: MentionRules = MentionRules(),
) -> tuple[Mention, ...]:
    """Find the replaceable objects of a caption, in order.

    Omits words of a compound ("car" of "car door"), parts of hyphenated words that are not a class,
    and words in `NOT_OBJECTS` and `AMOUNTS`.

    Args:
        caption: text of the parse; white space may differ.
        parse: the caption's parse; ``()`` has no objects.
        object_words: the classes.
        rules: rules for further omissions.

    Raises:
        ValueError: the parse is not of this caption.
    """
    sentence = _Sentence(caption, parse, rules)
    words = [unit.text for unit in sentence.units]
    mentions = []
    for first, end, _ in object_words.spans(words):
        units = sentence.units[first:end]
        if rules.closed_classes:
            units = _without_adjective(units, object_words)
        if _is_object(sentence, units):
            mentions.append(_mention(sentence, units, object_words))
    return tuple(mention for mention in mentions if mention is not None)


def offsets(caption: str, parse: Parse) -> tuple[tuple[int, int], ...]:
    """Character spans ``(start, end)`` of the words in the caption with single spaces.

    Raises:
        ValueError: a word of the parse does not follow in the caption.
    """
    text, place, starts = clean(caption), 0, []
    for token in parse:
        start = text.find(token.text, place)
        if start < 0 or text[place:start].strip():
            raise ValueError(
                f"the parse does not match the caption: {token.text!r} does not follow at "
                f"character {place} of {text!r}; parse the caption again"
            )
        place = start + len(token.text)
        starts.append((start, place))
    return tuple(starts)


def clean(caption: str) -> str:
    """Normalise a caption for the parser: single spaces, no lone surrogates."""
    return " ".join(caption.split()).encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """A written word: one token, or several tokens joined by hyphens."""

    start: int
    end: int
    text: str


class _Sentence:
    """A parse with cached lookups of units and children."""

    def __init__(self, caption: str, parse: Parse, rules: MentionRules) -> None:
        self.parse, self.rules = parse, rules
        self.units = tuple(_units(clean(caption), parse, offsets(caption, parse)))
        self.unit_of = {i: unit for unit in self.units for i in range(unit.start, unit.end)}
        self.children = children_of(parse)


def _units(text: str, parse: Parse, spans: Sequence[tuple[int, int]]) -> Iterator[_Unit]:
    start = 0
    for end in range(1, len(parse) + 1):
        touching = end < len(parse) and spans[end][0] == spans[end - 1][1]
        if touching and "-" in (parse[end].text, parse[end - 1].text):
            continue
        written = text[spans[start][0] : spans[end - 1][1]].lower()
        yield _Unit(start=start, end=end, text=written)
        start = end


def _without_adjective(units: Sequence[_Unit], object_words: ObjectWords) -> Sequence[_Unit]:
    """Noun of a class such as "young man" if the noun is a class; "young" is an attribute."""
    plain = len(units) == 2 and units[0].text in SIZES_AND_AGES
    return units[1:] if plain and object_words.number(units[1].text) else units


def _is_object(sentence: _Sentence, units: Sequence[_Unit]) -> bool:
    head = units[-1].end - 1
    token = sentence.parse[head]
    if token.pos not in NOUNS or token.text.isdigit():
        return False
    if sentence.rules.whole_compounds and _is_in_compound(sentence, head):
        return False
    names = {" ".join(unit.text for unit in units), token.lemma}
    if not sentence.rules.closed_classes:
        return True
    return not (names & NOT_OBJECTS or (names & AMOUNTS and _has_of(sentence, head)))


def _is_in_compound(sentence: _Sentence, head: int) -> bool:
    token = sentence.parse[head]
    if (token.dep == "compound" and head < token.head) or token.dep in MODIFIER_RELATIONS:
        return True
    # "a complete dog sled team": a noun before another noun is most often part of its name
    following = sentence.parse[head + 1] if head + 1 < len(sentence.parse) else None
    return following is not None and (following.tag in ("NN", "NNS") or _is_participle(following))


def _is_participle(token: Token) -> bool:
    """Return whether a participle describes the noun after it, as in "snow covered hill"."""
    return token.tag == "VBN" and token.dep == "amod"


def _has_of(sentence: _Sentence, head: int) -> bool:
    following = sentence.parse[head + 1].text.lower() if head + 1 < len(sentence.parse) else ""
    return following == "of" or any(
        sentence.parse[i].text.lower() == "of" for i in sentence.children[head]
    )


def _mention(
    sentence: _Sentence, units: Sequence[_Unit], object_words: ObjectWords
) -> Mention | None:
    head = units[-1].end - 1
    token = sentence.parse[head]
    form = " ".join(unit.text for unit in units)
    plural = token.tag in PLURAL_TAGS or form in UNMARKED_PLURALS or _is_counted(sentence, head)
    start = units[0].start
    if sentence.rules.whole_compounds:
        start = _noun_start(sentence, start, head)
    adjectives = _adjectives(sentence, head, start)
    block = _block(sentence, adjectives, start)
    if adjectives and block is None:
        return None
    texts = tuple(sentence.unit_of[i].text for i in adjectives if _stands_alone(sentence, i))
    return Mention(
        name=_singular(form, object_words) if plural else form,
        form=form,
        plural=plural,
        head=head,
        start=start,
        block=block,
        attribute=_written(sentence, block),
        attributes=tuple(dict.fromkeys(texts)),
        frames=tuple(_frames(sentence, head, start if block is None else block[0], plural)),
        slot=_slot(sentence, head),
    )


def _stands_alone(sentence: _Sentence, position: int) -> bool:
    """Return whether an adjective has a meaning without the words before it, unlike "haired"."""
    if not sentence.rules.closed_classes:
        return True
    modified = any(
        i < sentence.unit_of[position].start and sentence.parse[i].pos in ("ADJ", *NOUNS)
        and sentence.parse[i].dep != "conj"
        for i in sentence.children[position]
    )  # fmt: skip
    return not modified and sentence.unit_of[position].text not in BOUND_ADJECTIVES


def _is_counted(sentence: _Sentence, head: int) -> bool:
    """Return whether a number precedes a word with equal singular and plural: "two sheep"."""
    numbers = [sentence.parse[i] for i in sentence.children[head]]
    is_several = any(n.dep == "nummod" and n.text.lower() not in ("one", "1") for n in numbers)
    return is_several and sentence.parse[head].text.lower() in UNCHANGED


def _singular(form: str, object_words: ObjectWords) -> str:
    before, blank, word = form.rpartition(" ")
    return before + blank + ("person" if word == "people" else object_words.lemma(word))


def _noun_start(sentence: _Sentence, start: int, head: int) -> int:
    """Start of the noun sequence that qualifies an object, including numbers."""
    while start > 0:
        unit = sentence.unit_of[start - 1]
        before = sentence.parse[unit.end - 1]
        # "swimming pool": a gerund says the purpose, as a noun does
        kinds = before.dep == "compound" or (before.dep == "amod" and before.tag == "VBG")
        if not kinds or before.pos not in (*NOUNS, "VERB") or not start <= before.head <= head:
            break
        start = unit.start
    # "a four wheel drive car": the number belongs to the wheels
    number = sentence.parse[start - 1] if start > 0 else None
    if number is not None and number.pos == "NUM" and start <= number.head < head:
        start -= 1
    return start


def _adjectives(sentence: _Sentence, head: int, start: int) -> list[int]:
    """Adjectives before an object that depend on it, and adjectives joined by "and"."""
    any_relation = not sentence.rules.closed_classes
    not_attributes = frozenset() if any_relation else NOT_ATTRIBUTES
    adjectives, pending = set(), [i for i in sentence.children[head] if i < start]
    while pending:
        word = pending.pop()
        token = sentence.parse[word]
        is_related = token.dep in ATTRIBUTE_RELATIONS or (any_relation and token.pos == "ADJ")
        if not is_related or sentence.unit_of[word].end > start:
            continue
        pending += [i for i in sentence.children[word] if sentence.parse[i].dep == "conj"]
        excluded = {token.text.lower(), sentence.unit_of[word].text} & not_attributes
        if token.pos == "ADJ" and not excluded and token.text != "-":
            adjectives.add(sentence.unit_of[word].end - 1)
    return sorted(adjectives)


def _block(sentence: _Sentence, adjectives: Sequence[int], start: int) -> tuple[int, int] | None:
    """Words from the first to the last adjective; None if another word lies between them."""
    if not adjectives:
        return None
    first = sentence.unit_of[adjectives[0]].start
    whole = sentence.rules.whole_compounds
    while whole and first > 0 and _qualifies(sentence, first - 1, adjectives):
        first -= 1
    last = adjectives[-1] + 1
    between = set(range(first, last))
    for i in adjectives:
        between -= set(range(sentence.unit_of[i].start, sentence.unit_of[i].end))
    for i in between:
        token = sentence.parse[i]
        is_allowed = token.text.lower() in CONNECTORS or token.pos in ("ADV", "VERB", "ADJ", *NOUNS)
        listed = sentence.rules.closed_classes and token.text.lower() in NOT_ATTRIBUTES
        if not is_allowed or listed:
            return None
    return (first, last) if last <= start else None


def _qualifies(sentence: _Sentence, position: int, adjectives: Sequence[int]) -> bool:
    """Return whether a word qualifies the attributes, such as "very" in "very old"."""
    token = sentence.parse[position]
    return token.head in adjectives and token.pos in ("ADV", "ADJ", *NOUNS)


def _written(sentence: _Sentence, block: tuple[int, int] | None) -> str:
    if block is None:
        return ""
    units = [unit for unit in sentence.units if block[0] <= unit.start < block[1]]
    return " ".join(unit.text for unit in units).replace(" ,", ",")


def _frames(sentence: _Sentence, head: int, first: int, plural: bool) -> Iterator[str]:
    if not plural:
        yield from _countability(sentence, head, first)
    if _has_of(sentence, head):
        yield "of"
    clauses = [i for i in sentence.children[head] if sentence.parse[i].dep == "relcl"]
    below = {j for i in clauses for j in sentence.children[i]}
    if any(sentence.parse[i].text.lower() in ("who", "whom") for i in below):
        yield "who"


def _countability(sentence: _Sentence, head: int, first: int) -> Iterator[str]:
    """Yield how a singular noun is used: counted, or as a mass noun without a determiner.

    At a caption's beginning a missing article means nothing ("Man rides a horse").
    """
    children = [sentence.parse[i] for i in sentence.children[head]]
    if sentence.parse[head].dep == "conj":
        return  # "a hat and jacket": one article for both
    determiners = {c.text.lower() for c in children if c.dep in ("det", "poss", "nummod", "predet")}
    before = None if first == 0 else sentence.parse[first - 1]
    if before is not None and before.pos in ("DET", "NUM"):
        determiners.add(before.text.lower())
    if determiners & COUNT_DETERMINERS:
        yield "counted"
    elif before is None or before.tag in ("PRP$", "POS", "WP$"):
        return
    elif not determiners - MASS_DETERMINERS:
        yield "bare"


def _slot(sentence: _Sentence, head: int) -> str:
    token = sentence.parse[head]
    for _ in range(MAX_STEPS_UP):
        if token.dep != "conj":
            break
        token = sentence.parse[token.head]
    governor = sentence.parse[token.head]
    # captions without a verb are about their root: "A boy on a scooter"
    if token.dep in ("ROOT", "attr", *SUBJECTS, *PASSIVE_SUBJECTS) and token.pos in NOUNS:
        return "subject"
    if token.dep in OBJECTS:
        return f"object of {governor.lemma}"
    if token.dep == "pobj":
        if governor.text.lower() == "of":
            return f"{sentence.parse[governor.head].lemma} of"
        return "subject" if governor.dep == "agent" else governor.text.lower()
    return "owner" if token.dep == "poss" else ""
