"""Decide whether a photo's other captions support a doubted word, contradict it, or do neither.

Captions of a photo speak of several things: a red shirt and a blue ball are not a contradiction. So
the other captions must say the other word of the *same thing*: a colour of the same noun, a number
of the same kind of beings, the sex of the one person, the one animal or vehicle. Where this needs a
parser, it makes no claim.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from captioning.text.row_tables import RowTable
from captioning.text.word_rivals import words_alike
from captioning.text.word_rows import closed_rows
from curation.base import WordDoubt

_TOKEN = re.compile(r"[A-Za-z]+|[^\sA-Za-z]")
_REACH = 4  # tokens before or after a noun that may hold its colour or number


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _of_topics(*topics: str) -> frozenset[str]:
    rows = [row for row in closed_rows().rows if row.topic in topics]
    return frozenset(word for row in rows for words in row.meanings for word in words)


def _of_row_with(word: str) -> frozenset[str]:
    things = closed_rows().things
    row = next(row for row in things[0] if things[1][word] in row)
    return frozenset(other for other, thing in things[1].items() if thing in row)


PEOPLE = _words("""
    man men woman women guy guys lady ladies boy boys girl girls child children kid kids person
    people toddler toddlers baby babies adult adults teenager teenagers teen teens player players
    male males female females friend friends youth youths infant infants gentleman gentlemen
    individual individuals couple couples student students adolescent adolescents swimmer swimmers
    runner runners biker bikers skier skiers hiker hikers rider riders climber climbers dancer
    dancers worker workers mother father parent parents brother sister
""")
SEX_OF: dict[str, str] = dict.fromkeys(
    _words("""
        man men guy guys boy boys male males gentleman gentlemen father dad husband son brother
        brothers groom he him his himself
    """),
    "male",
) | dict.fromkeys(
    _words("""
        woman women lady ladies girl girls female females mother mom wife daughter sister sisters
        bride ballerina she her hers herself
    """),
    "female",
)
_SEVERAL = _words("""
    two three four five six seven eight nine ten several many some few group crowd couple pair
    both others another other team bunch people men women boys girls guys ladies children kids
    males females friends brothers sisters players they their them
""")
_COLOURS, _NUMBERS = _of_topics("color"), _of_topics("number")
_ANIMALS = _of_row_with("dog") | _words("animal animals")
_VAGUE = _words("""
    several many some few group crowd couple pair bunch lots one other others another
""")
_STOP = _words("""
    in on with at near by of to and or from over under through into onto is are was were has have
    that who which while as behind beside for the a an his her its their wearing
""")
_KINDS = dict.fromkeys(PEOPLE, "people") | dict.fromkeys(
    _words("dog dogs puppy puppies pup pups lab labs"), "dogs"
)
_JOINING = _words("and , - or & /")
_UNTELLING = _words("and or one ones thing color colored colour coloured")
JOINTS = _words("- ' / \u2019")
# What may stand before a noun that is no second part of a compound, and after one that is no first.
_BEFORE = (
    _words("""
        a an the one his her their its this that these those some several many few and or with of
        on in by at to from near behind riding is are another young old older elderly little small
        large big tall short long thin fat blond blonde happy cute wet muddy dirty furry fluffy
        shaggy spotted striped smiling lone single shirtless asian african american indian middle
        aged bald bearded
    """)
    | _COLOURS
    | _NUMBERS
)
_AFTER = _words("""
    in on at by near of to with and or from over under through into onto across along around past
    behind beside above below against between for while as that who which is are was were has have
    up down off out inside outside about wearing jumps runs walks stands sits plays rides looks
    jump run walk stand sit play ride look holds hold carries carry climbs climb swims swim smiles
    smile poses pose leaps leap catches catch kicks kick throws throw hits hit pulls pull pushes
    chases chase dances dance sleeps sleep lies lie lays lay bends wears wear does do falls fall
    performs perform race races fly flies takes take gets get makes swings sleds surfs skis
""")
_NOUNS_IN_ING = _words("""
    building clothing ring king wing string painting railing ceiling wedding swing sling thing
    boxing wrestling racing surfing skating skiing snowboarding skateboarding fishing hiking
    climbing dancing cycling bowling
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Support for a word in the photo's other captions.

    Attributes:
        agree: captions that say the other word of the same thing.
        against: captions that say this word, or one that may be true beside it, or that leave open
            which thing is meant.
    """

    agree: int = 0
    against: int = 0

    @property
    def is_firm(self) -> bool:
        """Return whether at least two captions say the other word and no caption says this word."""
        return self.agree >= 2 and not self.against


NOTHING = Support()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A doubtful word among the lower-case tokens of its caption."""

    word: str
    new: str
    at: int
    own: list[str]
    others: list[list[str]]
    table: RowTable

    @property
    def wanted(self) -> frozenset[str]:
        """All words with the meaning of the other word."""
        return self.table.same.get(self.new, frozenset([self.new]))

    @property
    def near(self) -> frozenset[str]:
        """All words that may be true together with this word."""
        return words_alike(self.table, self.word)


def support_of(doubt: WordDoubt, caption: str, others: Sequence[str]) -> Support:
    """Count the other captions that support or contradict a doubtful word.

    Args:
        doubt: about the word.
        caption: the caption that holds it.
        others: the photo's other captions.
    """
    place = _Place(
        word=doubt.word.lower(),
        new=doubt.alternative.lower(),
        at=len(tokens_of(caption[: doubt.start])),
        own=tokens_of(caption),
        others=[tokens_of(text) for text in others],
        table=closed_rows(),
    )
    judges = {"color": _of_color, "number": _of_number, "people": _of_sex, "object": _of_name}
    judge = judges.get(doubt.topic)
    return NOTHING if judge is None else judge(place)


def tokens_of(text: str) -> list[str]:
    """Split a text into lower-case words and punctuation marks."""
    return [token.lower() for token in _TOKEN.findall(text)]


def _nouns(tokens: Sequence[str], place: int) -> list[str]:
    """Words after a colour or number, up to the possible end of the noun phrase."""
    nouns = []
    for token in tokens[place + 1 : place + 1 + _REACH]:
        if not token.isalpha() or token in _STOP:
            break
        nouns.append(token)
    return nouns


def _of_color(place: _Place) -> Support:
    own, at = place.own, place.at
    nouns = _nouns(own, at)
    beside = {*own[at + 1 : at + 2], *own[max(at - 1, 0) : at]}
    if not nouns or nouns[0] in _COLOURS | _UNTELLING or beside & _JOINING:
        return NOTHING
    forms = (nouns[0], f"{nouns[0]}s")
    if sum(token in forms for token in own) != 1:
        return NOTHING
    agree = against = 0
    for other in place.others:
        places = [number for number, token in enumerate(other) if token in forms]
        said = {color for number in places for color in _colours_before(other, number)}
        if said and said <= place.wanted and len(places) == 1:
            agree += 1
        elif places and (len(places) > 1 or said or place.near & _COLOURS & set(other)):
            against += 1
    return Support(agree=agree, against=against)


def _colours_before(tokens: Sequence[str], place: int) -> set[str]:
    """Colours directly before a noun; "black and white dog" has two."""
    said: set[str] = set()
    for token in reversed(tokens[max(0, place - _REACH) : place]):
        if token in _COLOURS:
            said.add(token)
        elif token not in _JOINING or not said:
            break
    return said


def _kind(tokens: Sequence[str], place: int) -> str:
    """What a number counts: a kind of living being, or the last noun of its phrase."""
    nouns = _nouns(tokens, place)
    known = [_KINDS[noun] for noun in nouns if noun in _KINDS]
    return known[0] if known else (nouns[-1] if nouns else "")


def _of_number(place: _Place) -> Support:
    own, kind = place.own, _kind(place.own, place.at)
    if not kind or sum(token in _NUMBERS for token in own) != 1 or _VAGUE & set(own):
        return NOTHING
    if sum(_KINDS.get(token, token) == kind for token in own) != 1:
        return NOTHING
    agree = against = 0
    for other in place.others:
        counted = {
            token
            for at, token in enumerate(other)
            if token in _NUMBERS and _kind(other, at) == kind
        }
        of_kind = sum(_KINDS.get(token, token) == kind for token in other)
        is_vague = bool(_VAGUE & set(other)) or len(_NUMBERS & set(other)) > 1
        if counted == {place.new} and of_kind == 1 and not is_vague:
            agree += 1
        elif counted or is_vague or place.word in other:
            against += 1
    return Support(agree=agree, against=against)


def _of_sex(place: _Place) -> Support:
    sex, new_sex = SEX_OF.get(place.word), SEX_OF.get(place.new)
    own = place.own
    if sex is None or new_sex is None or sex == new_sex or "or" in own[max(0, place.at - 1) :][:3]:
        return NOTHING
    named = [token for token in own if token in PEOPLE]
    is_told = any(SEX_OF.get(token) == sex for token in named)
    if place.word not in PEOPLE and (is_told or _ANIMALS & set(own)):
        return NOTHING
    if len(named) > 1 or _SEVERAL & set(own) - {place.word}:
        return NOTHING
    if place.word in PEOPLE and not stands_alone(own, place.at):
        return NOTHING
    agree = against = 0
    for other in place.others:
        sexes = {SEX_OF[token] for token in other if token in SEX_OF}
        if sexes == {new_sex} and not _SEVERAL & set(other):
            agree += 1
        elif sexes or _SEVERAL & set(other):
            against += 1
    return Support(agree=agree, against=against)


def _of_name(place: _Place) -> Support:
    if place.wanted & set(place.own) or not stands_alone(place.own, place.at):
        return NOTHING
    against = sum(bool(place.near & set(other)) for other in place.others)
    agree = sum(
        bool(place.wanted & set(other)) and not place.near & set(other) for other in place.others
    )
    return Support(agree=agree, against=against)


def stands_alone(tokens: Sequence[str], place: int) -> bool:
    """Return whether a noun is not part of a compound such as "snow hat" or "race car"."""
    before, after = tokens[max(place - 1, 0) : place], tokens[place + 1 : place + 2]
    begins = not before or not before[0].isalpha() or before[0] in _BEFORE
    if not begins or not after or not after[0].isalpha() or after[0] in _AFTER:
        return begins
    return after[0].endswith("ing") and after[0] not in _NOUNS_IN_ING
