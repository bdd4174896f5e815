"""Entities: the objects that captions name, and the prompts that list them (ViECap).

An entity is a noun of one word in its dictionary form; all words for people are one entity.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from captioning.types import Parse

PACKAGED = Path(__file__).parent / "weights" / "entities.txt"
# Lists of this package, wherever names of photos' entities are given: COCO's classes, own nouns.
COCO, OWN = "coco", "own"
COCO_CLASSES = PACKAGED.with_name("coco_classes.txt")
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
        path: the file's path; None for the list in this package.

    Returns:
        The names in the file's order, each once.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no name is in it.
    """
    path = PACKAGED if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a list of names, one a line")
    lines = _text(path).splitlines()
    first_names = [line.split(",")[0].strip().lower() for line in lines if not line.startswith("#")]
    words = [name for name in first_names if len(name.split()) == 1]
    names = tuple(dict.fromkeys(PERSON if word in PEOPLE else word for word in words))
    if not names:
        raise ValueError(f"{path}: it holds no name of a single word; write one a line")
    return names


def read_photo_names(path: str | Path) -> tuple[str, ...]:
    """Names that photos are compared with, all of them and as they are, as ViECap's authors do.

    Names of several words are names, too, and each word for people is a separate name.

    Args:
        path: ``"coco"`` for COCO's 80 classes, ``"own"`` for the nouns in this package, which
            `read_names` reads; or a file with a name a line, where a line that begins with ``#`` is
            a comment; or a ``.json`` with a list of names, or with names as keys, as VinVL's
            ``vgcocooiobjects_v1_class2ind.json`` has them.

    Returns:
        The names in small letters, in the file's order, each once.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it holds something else, or no name.
    """
    if path == OWN:
        return read_names()
    path = COCO_CLASSES if path == COCO else Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file of entities' names. VinVL's list is among the annotations that "
            "ViECap's authors published (vgcocooiobjects_v1_class2ind.json): put it there, or "
            "choose another list: entities.photo_names=FILE in captioning evaluate, "
            f"model.photo_names=FILE in training; {COCO}: COCO's 80 classes; {OWN}: nouns of "
            "COCO's captions"
        )
    names = dict.fromkeys(" ".join(str(name).lower().split()) for name in _entries(path))
    names.pop("", None)
    if not names:
        raise ValueError(f"{path}: it holds no name; write one a line")
    return tuple(names)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}); save the file as UTF-8") from error


def _entries(path: Path) -> list[object]:
    text = _text(path)
    if path.suffix != ".json":
        return [line for line in text.splitlines() if not line.startswith("#")]
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not valid JSON ({error}); give the list again") from error
    if not isinstance(content, list | dict):
        raise ValueError(
            f"{path}: must hold a list of names, or names as keys: got {type(content).__name__}"
        )
    return list(content)


def find_entities(parse: Parse, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Entities of a caption in the order in which it names them, each once.

    Args:
        parse: the caption's parse.
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
