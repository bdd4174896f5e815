"""Entities (objects that captions name), and the prompts that list them, as in ViECap.

An entity is a one-word noun in its dictionary form; all words for people are one entity.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from captioning.types import Parse

PACKAGED = Path(__file__).parent / "weights" / "entities.txt"
# Names of the packaged lists: COCO's classes, and nouns of COCO's captions.
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
# ViECap's prompt templates; an entity's embedding is the mean over the templates.
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
    """Read one-word entity names from a file, one per line.

    Skipped: names of several words, synonyms after a comma (as in Visual Genome's lists), and lines
    that begin with ``#``. Words for people become `PERSON`.

    Args:
        path: path of the file; None: the packaged list.

    Returns:
        The distinct names in the file's order.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds no name.
    """
    path = PACKAGED if path is None else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; give a list of names, one per line")
    lines = _text(path).splitlines()
    first_names = [line.split(",")[0].strip().lower() for line in lines if not line.startswith("#")]
    words = [name for name in first_names if len(name.split()) == 1]
    names = tuple(dict.fromkeys(PERSON if word in PEOPLE else word for word in words))
    if not names:
        raise ValueError(f"{path} holds no one-word name; write one name per line")
    return names


def read_photo_names(path: str | Path) -> tuple[str, ...]:
    """Read the names that photos are compared with, unchanged, as ViECap's authors do.

    Names of several words are kept, and each word for people is a separate name.

    Args:
        path: ``"coco"`` (COCO's 80 classes), ``"own"`` (the packaged nouns of `read_names`), a
            text file with one name per line and ``#`` comments, or a ``.json`` file with a list of
            names, or with names as keys, such as VinVL's
            ``vgcocooiobjects_v1_class2ind.json``.

    Returns:
        The distinct names in lower case, in the file's order.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another format, or no name.
    """
    if path == OWN:
        return read_names()
    path = COCO_CLASSES if path == COCO else Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist. VinVL's list of entity names is among the annotations that "
            "ViECap's authors published (vgcocooiobjects_v1_class2ind.json): put it there, or "
            "choose another list: entities.photo_names=FILE in captioning evaluate, "
            f"model.photo_names=FILE in training; {COCO}: COCO's 80 classes; {OWN}: nouns of "
            "COCO's captions"
        )
    names = dict.fromkeys(" ".join(str(name).lower().split()) for name in _entries(path))
    names.pop("", None)
    if not names:
        raise ValueError(f"{path} holds no name; write one name per line")
    return tuple(names)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); save the file as UTF-8") from error


def _entries(path: Path) -> list[object]:
    text = _text(path)
    if path.suffix != ".json":
        return [line for line in text.splitlines() if not line.startswith("#")]
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); download it again") from error
    if not isinstance(content, list | dict):
        raise ValueError(
            f"{path} must hold a list of names, or names as keys: got {type(content).__name__}"
        )
    return list(content)


def find_entities(parse: Parse, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the distinct entities of a caption in order of first mention.

    Args:
        parse: parse of the caption.
        names: allowed entities; None: all nouns.
    """
    nouns = [token.lemma for token in parse if token.tag in NOUN_TAGS]
    entities = dict.fromkeys(PERSON if noun in PEOPLE else noun for noun in nouns)
    return tuple(name for name in entities if names is None or name in names)


def hard_prompt(entities: Sequence[str]) -> str:
    """Return the prompt for a caption, such as ``There are dog, ball in image``."""
    return f"There are {', '.join(entities) or NO_ENTITY} in image."


def as_sentence(caption: str) -> str:
    """Write a caption as a sentence: capital first, one full stop at the end.

    Captions in capitals become lower case first. A space before the full stop is removed.
    """
    text = " ".join(caption.split())
    text = text.lower() if text.isupper() else text
    text = text.removesuffix(".").rstrip()
    return f"{text[:1].upper()}{text[1:]}."
