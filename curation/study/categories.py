"""The 25 kinds of error that annotators choose from.

Van Miltenburg and Elliott ("Room for improvement in automatic image description", 2017) name 20
for captions. The data curation paper adapted them to generated pictures: five for what looks
weird, one for text in the picture and one for captions that contradict each other came in,
and "other" became a comment.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A kind of error.

    Attributes:
        key: short name in tables.
        group: heading on the page.
        label: under that heading.
        hint: when it applies.
    """

    key: str
    group: str
    label: str
    hint: str


def _categories(group: str, *rows: tuple[str, str, str]) -> tuple[Category, ...]:
    return tuple(
        Category(key=key, group=group, label=label, hint=hint) for key, label, hint in rows
    )


def _objects(group: str, key: str) -> tuple[Category, ...]:
    return _categories(
        group,
        (f"wrong-{key}", "Wrong", "another thing in its place"),
        (f"similar-{key}", "Similar", "something that only resembles it"),
        (f"missing-{key}", "Missing", "nothing like it is there"),
        (f"extra-{key}", "Extra", "a further one that the captions do not name"),
        (f"weird-{key}", "Weird", "deformed, or could not exist"),
    )


CATEGORIES = (
    *_categories(
        "People",
        ("age", "Age", "a child for an adult, for example"),
        ("gender", "Gender", "a woman for a man, for example"),
        ("clothing-type", "Type of clothing", "a shirt for a jacket, for example"),
        ("clothing-color", "Color of clothing", "red for blue, for example"),
        ("weird-face", "Weird face", "deformed, melted or blank"),
        (
            "weird-body",
            "Weird body parts",
            "too many fingers or limbs, or joints that bend wrongly",
        ),
    ),
    *_objects("Main object", "main-object"),
    *_objects("Other objects", "other-object"),
    *_categories(
        "General",
        ("stance", "Stance", "standing for sitting, for example: what holds still"),
        ("activity", "Activity", "walking for jumping, for example: what moves"),
        ("position", "Position", "in the wrong place within the scene"),
        ("number", "Number", "too many or too few people or things"),
        ("scene", "Scene, event, location", "the surroundings are wrong"),
        ("text", "Text", "letters that make no sense"),
        ("color", "Color", "of anything but clothing"),
        ("unrelated", "Unrelated", "the picture has nothing to do with the captions"),
        ("inconsistent-captions", "Captions disagree", "the captions contradict each other"),
    ),
)
KEYS = tuple(category.key for category in CATEGORIES)
