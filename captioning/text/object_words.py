"""Find words that name objects, in the singular and in the plural.

COS-CVAE (Mahajan and Roth, 2020, section 3.1) splits a caption into its objects and the context
around them. Objects are words and word pairs of a list, compared by their lemma.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from captioning.text.lemmas import Lemmatizer, load_lemmas

NONE, SINGULAR, PLURAL = range(3)
# Placeholders for objects in a context text.
PLACEHOLDERS = {SINGULAR: "something", PLURAL: "things"}

# COCO's 80 classes, each with the words that captions use for it.
COCO_OBJECTS = (
    "person,man,woman,boy,girl,child,kid,baby,toddler,people,guy,lady,player,rider,skier,surfer,"
    "skateboarder,snowboarder,adult,teenager,batter,catcher,pitcher,umpire,crowd",
    "bicycle,bike", "car,suv,taxi,jeep", "motorcycle,motorbike,moped,scooter",
    "airplane,plane,jet,aircraft", "bus", "train,locomotive", "truck,pickup", "boat,ship,canoe",
    "traffic light,stop light,stoplight", "fire hydrant,hydrant", "stop sign", "parking meter",
    "bench", "bird,duck,goose,pigeon,seagull,parrot", "cat,kitten", "dog,puppy", "horse,pony,foal",
    "sheep,lamb", "cow,bull,calf,cattle,ox", "elephant", "bear", "zebra", "giraffe",
    "backpack,knapsack", "umbrella,parasol", "handbag,purse", "tie,necktie", "suitcase,luggage",
    "frisbee,disc", "ski", "snowboard", "ball,sports ball,baseball,basketball,football,soccer ball",
    "kite", "baseball bat,bat", "baseball glove,glove,mitt", "skateboard", "surfboard",
    "tennis racket,racket,racquet", "bottle", "wine glass,wineglass", "cup,mug", "fork", "knife",
    "spoon", "bowl", "banana", "apple", "sandwich,burger,hamburger", "orange", "broccoli", "carrot",
    "hot dog,hotdog", "pizza", "donut,doughnut", "cake,cupcake", "chair,stool", "couch,sofa",
    "potted plant,plant,houseplant", "bed", "table,dining table", "toilet,urinal",
    "television,tv,television set", "laptop,laptop computer", "mouse", "remote,remote control",
    "keyboard", "phone,cell phone,cellphone,telephone", "microwave", "oven,stove", "toaster",
    "sink", "refrigerator,fridge", "book", "clock", "vase", "scissors", "teddy bear,teddy",
    "hair drier,hair dryer", "toothbrush",
)  # fmt: skip

# Plurals without a regular ending.
UNMARKED_PLURALS = ("people", "cattle", "police")
Labels = Mapping[str, frozenset[str]]
"""All names of a class, by each of its names."""
LEMMAS = Path(__file__).parent / "weights" / "captions_parser" / "lemmas.json"


class ObjectWords:
    """Find the words of a caption that name objects, and whether they are singular or plural.

    Args:
        names: words and word pairs, in the singular or as listed; longer names are skipped.
        lemmatizer: lemmatizer that gives singulars.

    Raises:
        ValueError: no name of one or two words.
    """

    def __init__(self, *, names: Iterable[str], lemmatizer: Lemmatizer) -> None:
        self._lemmatizer = lemmatizer
        split_names = [tuple(name.lower().split()) for name in names]
        self.words = frozenset(name[0] for name in split_names if len(name) == 1)
        self.pairs = frozenset(name for name in split_names if len(name) == 2)
        if not self.words and not self.pairs:
            raise ValueError("object names must be one or two words: got no such name")

    def number(self, word: str) -> int:
        """Return `SINGULAR` or `PLURAL` for an object word, `NONE` for other words."""
        return self._number(word, word in self.words, self.lemma(word) in self.words)

    def number_of_pair(self, first: str, second: str) -> int:
        """Return `SINGULAR`, `PLURAL` or `NONE` for two successive words."""
        as_is, in_singular = (first, second), (first, self.lemma(second))
        return self._number(second, as_is in self.pairs, in_singular in self.pairs)

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Return the number of each word of a caption; both words of a pair have the pair's number.

        A pair overrides single words ("hot dog" is not a dog). Where two pairs overlap, the shared
        word belongs to the earlier pair.
        """
        numbers = [self.number(word) for word in words]
        for place in range(len(words) - 2, -1, -1):
            number = self.number_of_pair(*words[place : place + 2])
            if number != NONE:
                numbers[place : place + 2] = [number, number]
        return numbers

    def spans(self, words: Sequence[str]) -> list[tuple[int, int, int]]:
        """Return start, end and number of each object of a caption, in order."""
        spans, place = [], 0
        while place < len(words):
            number = self.number_of_pair(*words[place : place + 2]) if words[place + 1 :] else NONE
            length = 1 if number == NONE else 2
            number = number or self.number(words[place])
            if number != NONE:
                spans.append((place, place + length, number))
            place += length
        return spans

    def context(self, words: Sequence[str]) -> str:
        """Replace each object by a placeholder, as text for sentence encoders."""
        parts, done = [], 0
        for start, end, number in self.spans(words):
            parts += [*words[done:start], PLACEHOLDERS[number]]
            done = end
        return " ".join([*parts, *words[done:]])

    def lemma(self, word: str) -> str:
        """Return the singular of a plural; other words stay unchanged."""
        return self._lemmatizer(word, "NNS")

    def _number(self, word: str, is_listed: bool, singular_is_listed: bool) -> int:
        if not is_listed and not singular_is_listed:
            return NONE
        # Lists may hold plurals ("giraffes", "jeans").
        return PLURAL if word in UNMARKED_PLURALS or self.lemma(word) != word else SINGULAR


@cache
def build_object_words(source: str = "coco") -> ObjectWords:
    """Build the object words of a list.

    Args:
        source: ``"coco"``, or a file with one class per line and its names separated by commas,
            such as Visual Genome's ``objects_vocab.txt``.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds no name of one or two words.
    """
    lines: Iterable[str] = COCO_OBJECTS
    if source != "coco":
        if not Path(source).is_file():
            raise FileNotFoundError(
                f"objects={source} does not exist; give coco, or a file with a class a line, such "
                f"as "
                "Visual Genome's objects_vocab.txt"
            )
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    names = [name.strip() for line in lines for name in line.split(",")]
    return ObjectWords(names=names, lemmatizer=load_lemmas(LEMMAS))


def build_labels(source: str = "coco") -> Labels:
    """Return, for each object name, the other box labels that show the object.

    Args:
        source: see `build_object_words`; all names of a class share their boxes: a man may have
            a box labelled person.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    lines: Iterable[str] = COCO_OBJECTS
    if source != "coco":
        if not Path(source).is_file():
            raise FileNotFoundError(
                f"labels={source} does not exist; give coco or a list of classes"
            )
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    groups: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        names = [name.strip().lower() for name in line.split(",") if name.strip()]
        for name in names:
            groups[name].update(names)
    return {name: frozenset(labels) for name, labels in groups.items()}
