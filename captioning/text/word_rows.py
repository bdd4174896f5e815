"""Closed rows of words: within a row one word can stand for another, and then says something else.

A line of a table is a row, its columns are meanings. ``dog/dogs`` has the forms of a meaning: a
form competes with the same form of other meanings, so that a sentence stays grammatical.
``gray=grey`` has two words of one meaning: they are no alternatives to each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

_TABLES: dict[str, str] = {
    "color": """
        red blue green yellow orange purple pink brown=tan black white gray=grey
    """,
    "number": """
        two three four five six seven eight nine ten
    """,
    "object": """
        dog/dogs=puppy/puppies cat/cats=kitten/kittens horse/horses=pony/ponies cow/cows \
            sheep/sheep bird/birds elephant/elephants giraffe/giraffes zebra/zebras bear/bears \
            monkey/monkeys duck/ducks goat/goats pig/pigs lion/lions
        car/cars bus/buses truck/trucks motorcycle/motorcycles=motorbike/motorbikes train/trains \
            boat/boats airplane/airplanes=plane/planes tractor/tractors helicopter/helicopters \
            bicycle/bicycles=bike/bikes skateboard/skateboards surfboard/surfboards \
            scooter/scooters snowboard/snowboards sled/sleds kayak/kayaks=canoe/canoes \
            wagon/wagons
        shirt/shirts jacket/jackets coat/coats sweater/sweaters dress/dresses vest/vests \
            pants/pants=jeans/jeans shorts/shorts skirt/skirts suit/suits uniform/uniforms
        hat/hats helmet/helmets cap/caps scarf/scarves glasses/glasses sunglasses/sunglasses \
            headband/headbands
        ball/balls frisbee/frisbees kite/kites balloon/balloons umbrella/umbrellas stick/sticks \
            rope/ropes
        football basketball baseball soccer tennis hockey volleyball rugby golf
        pizza/pizzas sandwich/sandwiches cake/cakes banana/bananas apple/apples \
            hamburger/hamburgers carrot/carrots
        table/tables chair/chairs couch/couches=sofa/sofas bed/beds bench/benches desk/desks
        beach/beaches street/streets=road/roads field/fields mountain/mountains forest/forests \
            kitchen/kitchens bathroom/bathrooms office/offices park/parks pool/pools lake/lakes \
            ocean/oceans river/rivers sidewalk/sidewalks yard/yards restaurant/restaurants
        grass snow sand dirt mud water ice
        tree/trees rock/rocks bush/bushes fence/fences bridge/bridges tower/towers wall/walls \
            pole/poles building/buildings
        guitar/guitars piano/pianos drum/drums violin/violins trumpet/trumpets
        cup/cups bottle/bottles plate/plates bowl/bowls knife/knives fork/forks spoon/spoons
        phone/phones laptop/laptops camera/cameras television/televisions keyboard/keyboards \
            clock/clocks
        mouth/mouths head/heads hand/hands back/backs shoulder/shoulders neck/necks
    """,
    "action": """
        running/runs/run=racing/races/race walking/walks/walk \
            jumping/jumps/jump=leaping/leaps/leap standing/stands/stand sitting/sits/sit \
            playing/plays/play riding/rides/ride \
            swimming/swims/swim climbing/climbs/climb \
            laying/lays/lay=lying/lies/lie dancing/dances/dance sleeping/sleeps/sleep \
            skating/skates/skate skiing/skis/ski surfing/surfs/surf \
            sliding/slides/slide swinging/swings/swing fighting/fights/fight
        holding/holds/hold carrying/carries/carry throwing/throws/throw catching/catches/catch \
            kicking/kicks/kick hitting/hits/hit pulling/pulls/pull pushing/pushes/push \
            chasing/chases/chase eating/eats/eat drinking/drinks/drink reading/reads/read \
            watching/watches/watch=looking/looks/look biting/bites/bite chewing/chews/chew
        smiling/smiles/smile laughing/laughs/laugh talking/talks/talk singing/sings/sing \
            crying/cries/cry kissing/kisses/kiss hugging/hugs/hug
    """,
    "relation": """
        left right
        on under=beneath=below over=above behind near=beside=by
        up down
        inside outside=outdoors
        into onto across along through around past
    """,
    "people": """
        man/men=guy/guys woman/women=lady/ladies boy/boys girl/girls
        young old=older=elderly
        his her
        he she
        male female
    """,
}
TOPICS = tuple(_TABLES)
WORD = re.compile(r"[A-Za-z]+")
"""What counts as a word of a caption here."""


@dataclass(frozen=True, kw_only=True)
class WordRow:
    """Words that compete for a place.

    Attributes:
        name: topic and number, such as ``"object3.1"``.
        topic: one of `TOPICS`.
        meanings: words of one meaning each; the first is written for it.
    """

    name: str
    topic: str
    meanings: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWord:
    """A word of a row in a caption.

    Attributes:
        start: index of its first character.
        word: as written.
        row: number in `word_rows`.
        meaning: number in the row.
    """

    start: int
    word: str
    row: int
    meaning: int


@cache
def word_rows() -> tuple[WordRow, ...]:
    """All rows of two meanings or more, in the order of the tables."""
    rows = []
    for topic, table in _TABLES.items():
        for number, line in enumerate(table.strip().splitlines()):
            columns = [[m.split("/") for m in column.split("=")] for column in line.split()]
            for form in range(max(len(words) for column in columns for words in column)):
                meanings = [
                    tuple(words[form] for words in column if form < len(words))
                    for column in columns
                ]
                name = f"{topic}{number}.{form}"
                row = WordRow(name=name, topic=topic, meanings=tuple(filter(None, meanings)))
                rows.append(row)
    return tuple(row for row in rows if len(row.meanings) > 1)


@cache
def _places() -> Mapping[str, tuple[int, int]]:
    """Row and meaning by word; a word of several rows belongs to the first."""
    places: dict[str, tuple[int, int]] = {}
    for number, row in enumerate(word_rows()):
        for meaning, words in enumerate(row.meanings):
            for word in words:
                places.setdefault(word, (number, meaning))
    return places


@cache
def same_thing() -> Mapping[str, frozenset[str]]:
    """By word all words of its meaning, in every form: ``runs`` has ``running`` and ``races``."""
    things: dict[str, frozenset[str]] = {}
    for column in " ".join(_TABLES.values()).split():
        words = frozenset(re.split("[/=]", column))
        things |= {word: things.get(word, frozenset()) | words for word in words}
    return things


@cache
def thing_numbers() -> tuple[tuple[tuple[int, ...], ...], Mapping[str, int]]:
    """A number for each thing that rows name, in whatever form.

    Returns:
        It by row and meaning, and by word.
    """
    groups = {words: number for number, words in enumerate(dict.fromkeys(same_thing().values()))}
    by_word = {word: groups[words] for word, words in same_thing().items()}
    by_row = tuple(tuple(by_word[words[0]] for words in row.meanings) for row in word_rows())
    return by_row, by_word


def row_words(caption: str) -> Iterator[RowWord]:
    """The words of a caption that belong to a row, in order."""
    places = _places()
    for match in WORD.finditer(caption):
        place = places.get(match[0].lower())
        if place is not None:
            row, meaning = place
            yield RowWord(start=match.start(), word=match[0], row=row, meaning=meaning)


def word_at(caption: str, start: int) -> str:
    """The word that begins at a character; empty where none does."""
    match = WORD.match(caption, start)
    return "" if match is None else match[0]


def replace_word(caption: str, start: int, word: str, alternative: str) -> str:
    """The caption with ``alternative`` for the word at ``start``.

    Its capital and an indefinite article before it agree.

    Raises:
        ValueError: the caption has another word there.
    """
    end = start + len(word)
    if caption[start:end] != word:
        raise ValueError(f"no {word!r} at character {start} of {caption!r}")
    if word[:1].isupper():
        alternative = alternative.capitalize()
    before = caption[:start]
    article = re.search(r"(?:(?<=\s)|^)([Aa])n?(\s+)$", before)
    if article is not None:
        ending = "n" if begins_with_vowel(alternative) else ""
        before = before[: article.start()] + article[1] + ending + article[2]
    return before + alternative + caption[end:]


def begins_with_vowel(word: str) -> bool:
    """Whether ``an`` stands before it: "a uniform", but "an umbrella"."""
    word = word.lower()
    return word == "umbrella" or (word[0] in "aeio" and not word.startswith(("one", "eu")))
