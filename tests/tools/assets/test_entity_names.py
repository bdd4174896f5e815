"""Lists of entities from captions."""

from __future__ import annotations

from collections import Counter

from captioning.text.parser import build_caption_parser
from tools.assets.entity_names import count_entities, frequent_names

CAPTIONS = ("A man walks two dogs.", "A view of a dog on a street.", "Three girls see a dog.")


def test_entities_are_counted_once_a_caption() -> None:
    entity_counts = count_entities(CAPTIONS, build_caption_parser())
    assert (entity_counts["dog"], entity_counts["person"], entity_counts["street"]) == (3, 2, 1)


def test_frequent_things_come_first_and_what_is_no_thing_is_left_out() -> None:
    counts = Counter({"dog": 3, "cat": 3, "tree": 9, "view": 50, "t": 40, "st.": 40, "rare": 2})
    assert frequent_names(counts, 3) == ["tree", "cat", "dog"]
