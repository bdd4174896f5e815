"""Built-in rows of words: replacing a word by another word of its row changes the meaning.

A line of a table is a row, and its columns are meanings. ``dog/dogs`` lists the forms of a meaning:
a form competes with the same form of other meanings, so sentences stay grammatical.
``gray=grey`` lists synonyms, which do not compete with each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from captioning.text.row_tables import WORD, RowTable, RowWord, WordRow, table_of

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
NEGATION = "negation"
_NEGATIONS = """
    with without
    a=an no
"""
_HAVING = frozenset(("wearing", "wears", "wear", "with", "has", "have", "having"))


@cache
def closed_rows() -> RowTable:
    """Return the rows of `TOPICS`."""
    return table_of(_TABLES)


@cache
def negation_rows() -> RowTable:
    """Return the topic `NEGATION`: *with* and *without*, and *a* and *no* after words of having.

    Negations are rare in captions, so all of them look doubtful; they are judged only on request.
    """
    table = table_of({NEGATION: _NEGATIONS})
    return replace(table, only_after=dict.fromkeys(("a", "an", "no"), _HAVING))


def word_rows() -> tuple[WordRow, ...]:
    """Return all closed rows with at least two meanings, in the order of the tables."""
    return closed_rows().rows


def same_thing() -> Mapping[str, frozenset[str]]:
    """Return each word's synonyms in every form: ``runs`` has ``running`` and ``races``."""
    return closed_rows().same


def row_words(caption: str) -> Iterator[RowWord]:
    """Yield the words of a caption that belong to a closed row, in order."""
    return closed_rows().words_of(caption)


def word_at(caption: str, start: int) -> str:
    """Return the word that begins at a character position; empty if no word begins there."""
    match = WORD.match(caption, start)
    return "" if match is None else match[0]


def replace_word(caption: str, start: int, word: str, alternative: str) -> str:
    """Replace the word at ``start`` by ``alternative``.

    Capitals and a preceding indefinite article are adapted.

    Raises:
        ValueError: the caption has another word at ``start``.
    """
    end = start + len(word)
    if caption[start:end] != word:
        raise ValueError(f"{caption!r} does not have {word!r} at character {start}")
    if len(word) > 1 and word.isupper():
        alternative = alternative.upper()
    elif word[:1].isupper():
        alternative = alternative.capitalize()
    before, after = caption[:start], caption[end:]
    if alternative.lower() in ("a", "an") and (following := re.match(r"\s+([A-Za-z]+)", after)):
        alternative = alternative[0] + ("n" if begins_with_vowel(following[1]) else "")
    article = re.search(r"(?:(?<=\s)|^)([Aa])n?(\s+)$", before)
    if article is not None:
        ending = "n" if begins_with_vowel(alternative) else ""
        before = before[: article.start()] + article[1] + ending + article[2]
    return before + alternative + after


def begins_with_vowel(word: str) -> bool:
    """Whether a word takes ``an``: "a uniform", but "an umbrella"."""
    word = word.lower()
    return word == "umbrella" or (word[0] in "aeio" and not word.startswith(("one", "eu")))
