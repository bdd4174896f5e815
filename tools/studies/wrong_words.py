"""Wrong colours, numbers and objects in captions, similar to CHAIR (Rohrbach et al., 2018).

A word of a row (`captioning.text.word_rows`) counts as wrong if no source has it, or a word of the
same meaning, for the photo. Sources are reference captions and, if known, phrases of boxes or facts
of the scene.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from captioning.data.roster import Roster
from captioning.data.steps.plausible_faults import photo_words
from captioning.miniworld.captions import COLOUR_WORDS, NUMBERS
from captioning.miniworld.places import PLACES
from captioning.miniworld.sample import sample_scene
from captioning.text.inflection import pluralise
from captioning.text.word_rows import WORD, row_words, same_thing, word_rows

TOPICS = ("color", "object", "number")
Words = Mapping[str, frozenset[str]]


def sources(data: str, references: Roster, boxes: Roster | None = None) -> dict[str, Words]:
    """Words that each source has for each photo, with all words of the same meanings.

    Args:
        data: name of the dataset.
        references: reference captions of the photos, without faults.
        boxes: the same photos' captions with their phrases and boxes, or None.
    """
    siblings = photo_words(references)
    found: dict[str, Words] = {"siblings": siblings}
    if data == "miniworld":
        facts = {image_id: scene_words(image_id) for image_id in siblings}
        found["siblings or scene"] = {
            image_id: siblings[image_id] | facts[image_id] for image_id in facts
        }
    if boxes is not None:
        by_photo = box_words(boxes)
        photos = {sample.image_id: sample.image_path for sample in references.samples}
        found["boxes"] = {image_id: by_photo[photo] for image_id, photo in photos.items()}
    return found


def scene_words(image_id: str) -> frozenset[str]:
    """Contents of a MiniWorld scene as words: objects, colours, numbers, place."""
    split, seed, index = image_id.rsplit("_", 2)
    scene = sample_scene(seed=int(seed), split=split, index=int(index))
    texts = list(PLACES[scene.place].scenery)
    texts += [noun for _, noun in PLACES[scene.place].ground]
    texts += [label for label, _ in scene.decor]
    for item in scene.objects:
        texts += [*item.kind.names, *map(pluralise, item.kind.names)]
        texts += COLOUR_WORDS.get(item.colour, (item.colour,))
        texts += [NUMBERS[len(item.boxes)]] if len(item.boxes) > 1 else []
    return closed(texts)


def box_words(roster: Roster) -> dict[Path, frozenset[str]]:
    """Words of phrases with boxes, by photo file, as ids depend on the dataset."""
    texts: dict[Path, list[str]] = {sample.image_path: [] for sample in roster.samples}
    for sample in roster.samples:
        texts[sample.image_path] += [phrase.text for phrase in sample.phrases if phrase.regions]
    return {photo: closed(phrases) for photo, phrases in texts.items()}


def closed(texts: Iterable[str]) -> frozenset[str]:
    """Words of texts, with all words of the same meanings."""
    own = frozenset(word.lower() for text in texts for word in WORD.findall(text))
    same = same_thing()
    return own.union(*(same[word] for word in own if word in same))


def wrong_words(captions: Mapping[str, str], known: Words) -> dict[str, list[int]]:
    """Number of wrong words and of all words, by topic.

    ``captions`` has the number of captions with a wrong word of any topic, and of all captions.
    """
    words: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    rows, faulty = word_rows(), 0
    for image_id, caption in captions.items():
        topics = [(rows[word.row].topic, word.word.lower()) for word in row_words(caption)]
        misses = [topic for topic, word in topics if word not in known[image_id]]
        words.update(topic for topic, _ in topics)
        wrong.update(misses)
        faulty += any(topic in TOPICS for topic in misses)
    counts = {topic: [wrong[topic], words[topic]] for topic in TOPICS}
    return counts | {"captions": [faulty, len(captions)]}
