"""Words by which captions mention a class: its name, plurals and synonyms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Forms = Mapping[str, Sequence[str]]

# The eight classes held out of COCO (Hendricks et al., 2016) with their word forms.
HELD_OUT_FORMS: dict[str, tuple[str, ...]] = {
    "bottle": ("bottle", "bottles"),
    "bus": ("bus", "buses", "busses"),
    "couch": ("couch", "couches", "sofa", "sofas"),
    "microwave": ("microwave", "microwaves"),
    "pizza": ("pizza", "pizzas"),
    "racket": ("racket", "rackets", "racquet", "racquets", "tennis racket"),  # COCO's label
    "suitcase": ("suitcase", "suitcases", "luggage", "luggages"),
    "zebra": ("zebra", "zebras"),
}
_SINGULAR = "child foot goose half knife leaf loaf mouse person scarf shelf tooth wolf"
_PLURAL = "children feet geese halves knives leaves loaves mice people scarves shelves teeth wolves"
_IRREGULAR = dict(zip(_SINGULAR.split(), _PLURAL.split(), strict=True))


def word_forms(
    classes: Iterable[str], overrides: Forms | None = None
) -> dict[str, tuple[str, ...]]:
    """Word forms of each class: its ``overrides``, else its name and plurals of its last word.

    Plurals are made by rule: some are no words ("pianoes") and never match. Synonyms must be
    listed in ``overrides``.

    Raises:
        ValueError: forms of a class that is not among ``classes``.
    """
    names, overrides = list(classes), overrides or {}
    unknown = sorted(overrides.keys() - set(names))
    if unknown:
        raise ValueError(f"forms must be of the classes given: got some for {unknown}")
    return {name: tuple(overrides.get(name, (name, *_plurals(name)))) for name in names}


def _plurals(noun: str) -> list[str]:
    first, gap, last = noun.rpartition(" ")
    after_vowel = last[-2:-1] in "aeiou"
    plurals = [last + ("es" if last.endswith(("s", "x", "z", "ch", "sh")) else "s")]
    if last.endswith("y") and not after_vowel:
        plurals = [last[:-1] + "ies"]
    plurals += [last + "es"] if last.endswith("o") and not after_vowel else []
    plurals += [last[:-3] + "men"] if last.endswith("man") else []
    plurals += [_IRREGULAR[last]] if last in _IRREGULAR else []
    return [first + gap + word for word in plurals]
