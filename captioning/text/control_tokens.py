"""Ids of control tokens (length, region, trust bucket), as in CIC-BART (based on VL-BART).

They end the vocabulary: 95 ``<extra_id>``, 5 ``<cap_len_level>`` and 100
``<vis_extra_id>``, in descending order. Ids are thus counted from the end, and VL-BART's weights
(100 ``<extra_id>``, no levels) keep their positions.
"""

from __future__ import annotations

from captioning.interfaces import AbstractTokenizer

# Begin tokens of trust buckets: the first token tells how reliable a caption is.
#
# Captions of bucket 0, the most trusted, begin with the usual begin token. A captioner
# trained with buckets therefore generates captions of the best bucket by default.
NAMES = ("<bucket{}>", "[unused{}]")
"""Names of the tokens: words in this project's vocabularies, unused tokens in BERT's."""


def begin_token(tokenizer: AbstractTokenizer, bucket: int) -> int:
    """Return the id of the begin token for captions of a trust bucket.

    Raises:
        ValueError: the vocabulary has no such token.
    """
    if bucket == 0:
        return tokenizer.bos_id
    ids = (tokenizer.token_id(name.format(bucket)) for name in NAMES)
    found = next((token for token in ids if token is not None), None)
    if found is None or tokenizer.encode("a")[0] != tokenizer.bos_id:
        raise ValueError(
            f"{type(tokenizer).__name__} has no begin token for bucket {bucket}, as "
            "curation=condition requires: choose tokenizer=words with model=updown or cos_cvae, or "
            "model=blip"
        )
    return found


NUM_LEVELS, NUM_PLACES = 5, 100
NUM_SPANS = 100 - NUM_LEVELS
CONTROL_TOKENS = (
    *(f"<extra_id_{number}>" for number in reversed(range(NUM_SPANS))),
    *(f"<cap_len_level_{level}>" for level in range(NUM_LEVELS, 0, -1)),
    *(f"<vis_extra_id_{place}>" for place in reversed(range(NUM_PLACES))),
)


def level_id(size: int, level: int) -> int:
    """Return the id of a length level in 1 .. 5 for a vocabulary of ``size`` tokens."""
    return size - NUM_PLACES - level


def place_id(size: int, place: int) -> int:
    """Return the id of region number ``place`` (0 .. 99) for a vocabulary of ``size`` tokens."""
    return size - 1 - place
