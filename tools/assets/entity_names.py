"""List the entities that captions name: ``python -m tools.assets entity-names --help``.

``captioning/text/weights/entities.txt`` was created with the defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from captioning.data.readers.coco import read_coco
from captioning.interfaces import AbstractParser
from captioning.runtime.files import write_text
from captioning.text.entities import PACKAGED, find_entities
from captioning.text.parser import build_caption_parser

# Nouns of captions that name no visible object, and words that the tagger takes for nouns.
_NO_OBJECTS = """
architecture army attire bathing electronic ingredient league material opponent self skiis
surfing transportation trio utility world
action afternoon air amount angle area arrangement assortment autumn back background balance
batting bend bit black blind block boarding boogie bottom break brown bunch bundle business
caption case celebration center character circle clearing close closeup cluster collection color
competition conference construction content control conversation cooking corner country course
crossing cut cutting dark day daytime decor den design dinner direction display distance double
downtown dozen drinking drive driving dusk edge end entertainment evening event exit face fall
fashion figure fishing flight flip float flock focus foliage foreground formation front fun
gathering gold good green grocery group half hang head heard hit hold holding home image indoor
inside item jump junk key kick kind label landing landscape language layer left length level lid
life lighting limit link look lot love lunch mall match meeting metal meter mid midair middle
midst mode model money motion mouth move music name navy neon night nose note number object one
order outdoor outside pack pair para part pass patch pattern pay performance photo photograph pick
picture piece pile pink place plain play playing point portion pose posing position practice
presentation process produce product progress project prop range red rest resting ride riding roll
round row run scene season seating section selection series serve set setting shade shape shopping
short shot side sight silver size slope someone something sort space speed sport spot spread
square stage stance stand standing standup step stir stop storage story stretch style sub summer
swim swimming team text thing time tip tone top toss trick trip turn type unit up use variety view
wait wake walk walking war warning watch watching wave way weather wedge while winter word work
yellow youth
"""
NO_OBJECTS = frozenset(_NO_OBJECTS.split())


def count_entities(captions: Iterable[str], parser: AbstractParser) -> Counter[str]:
    """Number of captions that name each entity."""
    parses = parser.parse(list(captions))
    return Counter(entity for parse in parses for entity in find_entities(parse))


def frequent_names(counts: Counter[str], min_count: int) -> list[str]:
    """Names of things by falling count, ties in alphabetical order."""
    names = [
        name
        for name, count in counts.items()
        if count >= min_count and name not in NO_OBJECTS and name.isalpha() and len(name) > 1
    ]
    return sorted(names, key=lambda name: (-counts[name], name))


def write_names(
    *,
    annotations: str,
    every: int,
    min_count: int,
    cache: str | None = None,
    out: Path | None = None,
) -> tuple[int, Path]:
    """Count the entities of captions, and write the list of frequent entities.

    Args:
        annotations: COCO captions, see `captioning.data.readers.coco.read_coco`.
        every: step from one caption that is read to the next.
        min_count: minimum number of captions that name an entity.
        cache: folder of cached parses; None: no cache.
        out: output file; None: the packaged list.

    Returns:
        Number of names, and the file.
    """
    out = out or PACKAGED
    roster = read_coco(name="captions", annotations=annotations, image_folder=None)
    captions = [sample.caption for sample in roster.samples[::every]]
    counts = count_entities(captions, build_caption_parser(cache_folder=cache))
    names = frequent_names(counts, min_count)
    head = (
        f"# Nouns in {min_count} or more of {len(captions)} captions of {annotations}, "
        "the most frequent first.\n# COCO's captions: CC BY 4.0, cocodataset.org\n"
    )
    write_text(out, head + "\n".join(names) + "\n")
    return len(names), out
