"""Words for objects, in the singular and in the plural.

COS-CVAE (Mahajan and Roth, 2020, section 3.1) splits a caption into its objects and the context
around them. Objects are words and pairs of words of a list, compared by their lemma.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from captioning.text.lemmas import Lemmatizer, load_lemmas

NONE, SINGULAR, PLURAL = range(3)
# Words that replace an object in a context as text.
PLACEHOLDERS = {SINGULAR: "something", PLURAL: "things"}

# COCO's 80 classes, each with the words for it in captions.
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

# Plurals without a plural ending.
UNMARKED_PLURALS = ("people", "cattle", "police")
Labels = Mapping[str, frozenset[str]]
"""Names of a class, by each of them."""
LEMMAS = Path(__file__).parent / "weights" / "captions_parser" / "lemmas.json"


class ObjectWords:
    """Finds the words of a caption that name objects, and whether they name one or several.

    Args:
        names: words and pairs of words, in the singular or as listed; longer names are skipped.
        lemmatizer: gives the singular of a plural.

    Raises:
        ValueError: no name of one or two words.
    """

    def __init__(self, *, names: Iterable[str], lemmatizer: Lemmatizer) -> None:
        self._lemmatizer = lemmatizer
        split_names = [tuple(name.lower().split()) for name in names]
        self.words = frozenset(name[0] for name in split_names if len(name) == 1)
        self.pairs = frozenset(name for name in split_names if len(name) == 2)
        if not self.words and not self.pairs:
            raise ValueError("object names must have one or two words: got none")

    def number(self, word: str) -> int:
        """`SINGULAR` or `PLURAL` for a word that names an object, `NONE` for any other."""
        return self._number(word, word in self.words, self.lemma(word) in self.words)

    def number_of_pair(self, first: str, second: str) -> int:
        """The same for two successive words."""
        as_is, in_singular = (first, second), (first, self.lemma(second))
        return self._number(second, as_is in self.pairs, in_singular in self.pairs)

    def numbers(self, words: Sequence[str]) -> list[int]:
        """The number of each word of a caption; both words of a pair have the pair's.

        A pair wins over single words ("hot dog" is not a dog). Where two pairs overlap, the shared
        word has the number of the earlier pair.
        """
        numbers = [self.number(word) for word in words]
        for place in range(len(words) - 2, -1, -1):
            number = self.number_of_pair(*words[place : place + 2])
            if number != NONE:
                numbers[place : place + 2] = [number, number]
        return numbers

    def spans(self, words: Sequence[str]) -> list[tuple[int, int, int]]:
        """Start, end and number of each object of a caption, in order."""
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
        """The caption as text with a placeholder for each object, for sentence encoders."""
        parts, done = [], 0
        for start, end, number in self.spans(words):
            parts += [*words[done:start], PLACEHOLDERS[number]]
            done = end
        return " ".join([*parts, *words[done:]])

    def lemma(self, word: str) -> str:
        """The singular of a plural; any other word unchanged."""
        return self._lemmatizer(word, "NNS")

    def _number(self, word: str, is_listed: bool, singular_is_listed: bool) -> int:
        if not is_listed and not singular_is_listed:
            return NONE
        # Lists hold plurals too ("giraffes", "jeans").
        return PLURAL if word in UNMARKED_PLURALS or self.lemma(word) != word else SINGULAR


@cache
def build_object_words(source: str = "coco") -> ObjectWords:
    """Object words of a list.

    Args:
        source: ``"coco"``, or a file with a class a line, its names separated by commas, as Visual
            Genome's ``objects_vocab.txt``.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no name of one or two words in it.
    """
    lines: Iterable[str] = COCO_OBJECTS
    if source != "coco":
        if not Path(source).is_file():
            raise FileNotFoundError(
                f"objects={source}: no such file; give coco, or a file with one class a line, such "
                f"as "
                "Visual Genome's objects_vocab.txt"
            )
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    names = [name.strip() for line in lines for name in line.split(",")]
    return ObjectWords(names=names, lemmatizer=load_lemmas(LEMMAS))


def build_labels(source: str = "coco") -> Labels:
    """Which box labels show an object, by the object's name, besides its own name.

    Args:
        source: as in `build_object_words`; the names of one class mean the same boxes: a man has a
            box labelled person.

    Raises:
        FileNotFoundError: no such file.
    """
    lines: Iterable[str] = COCO_OBJECTS
    if source != "coco":
        if not Path(source).is_file():
            raise FileNotFoundError(
                f"labels={source}: no such file; give coco or a list of classes"
            )
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    groups: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        names = [name.strip().lower() for name in line.split(",") if name.strip()]
        for name in names:
            groups[name].update(names)
    return {name: frozenset(labels) for name, labels in groups.items()}
