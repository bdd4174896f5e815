"""Entities: the objects that captions name, and the prompts that list them (ViECap).

An entity is a noun of one word in its dictionary form; all words for people are one entity.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from captioning.types import Parse

PACKAGED = Path(__file__).parent / "weights" / "entities.txt"
PERSON = "person"
_PEOPLE = """
adult baby boy bride child couple crowd dad daughter family father female friend gentleman girl
groom guy human husband individual infant kid lad lady male man mom mother parent people person
player son teenager toddler wife woman youth
"""
PEOPLE = frozenset(_PEOPLE.split())
NOUN_TAGS = ("NN", "NNS")
# Templates of ViECap; the mean over them is a name's embedding.
TEMPLATES = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
NO_ENTITY = "something"


def read_names(path: str | Path | None = None) -> tuple[str, ...]:
    """Names of entities from a file, one a line; names of several words are left out.

    Further names of the same object after a comma, as in Visual Genome's lists, are not read. A
    line that begins with ``#`` is a comment. Words for people are read as `PERSON`.

    Args:
        path: of the file; None for the list in this package.

    Returns:
        The names in the file's order, each once.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no name is in it.
    """
    path = PACKAGED if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a list of names, one a line")
    lines = path.read_text(encoding="utf-8").splitlines()
    first_names = [line.split(",")[0].strip().lower() for line in lines if not line.startswith("#")]
    words = [name for name in first_names if len(name.split()) == 1]
    names = tuple(dict.fromkeys(PERSON if word in PEOPLE else word for word in words))
    if not names:
        raise ValueError(f"{path}: no name of a single word is in it; write one a line")
    return names


def find_entities(parse: Parse, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Entities of a caption in the order in which it names them, each once.

    Args:
        parse: of the caption.
        names: the possible entities; None for all nouns.
    """
    nouns = [token.lemma for token in parse if token.tag in NOUN_TAGS]
    entities = dict.fromkeys(PERSON if noun in PEOPLE else noun for noun in nouns)
    return tuple(name for name in entities if names is None or name in names)


def hard_prompt(entities: Sequence[str]) -> str:
    """The text before a caption, such as ``There are dog, ball in image``."""
    return f"There are {', '.join(entities) or NO_ENTITY} in image."


def as_sentence(caption: str) -> str:
    """The caption with a capital at its beginning and a full stop at its end, once.

    Captions in capitals alone become lower case first. A space before the full stop is removed.
    """
    text = " ".join(caption.split())
    text = text.lower() if text.isupper() else text
    text = text.removesuffix(".").rstrip()
    return f"{text[:1].upper()}{text[1:]}."
