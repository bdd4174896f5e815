"""Tokens of control signals, as in CIC-BART (based on VL-BART).

They are the last ones of the vocabulary: 95 ``<extra_id>``, 5 ``<cap_len_level>`` and 100
``<vis_extra_id>``, numbers falling. So a token's id follows by counting from the end, and weights
of VL-BART, which has 100 ``<extra_id>`` and no levels, keep their places.
"""

from __future__ import annotations

from captioning.interfaces import AbstractTokenizer

# Begin tokens of buckets: what a captioner reads first says how far the caption is to be trusted.
#
# Captions of bucket 0, the most trusted, begin with the usual begin token. So a captioner that was
# trained on buckets writes as in the best one without being told.
NAMES = ("<bucket{}>", "[unused{}]")
"""Names of the tokens: words of our vocabularies, and places that BERT's leaves free."""


def begin_token(tokenizer: AbstractTokenizer, bucket: int) -> int:
    """Id of the token that captions of a bucket begin with.

    Raises:
        ValueError: the vocabulary has no token for it.
    """
    if bucket == 0:
        return tokenizer.bos_id
    ids = (tokenizer.token_id(name.format(bucket)) for name in NAMES)
    found = next((token for token in ids if token is not None), None)
    if found is None or tokenizer.encode("a")[0] != tokenizer.bos_id:
        raise ValueError(
            f"{type(tokenizer).__name__} has no begin token for bucket {bucket}, which "
            "curation=condition needs: choose tokenizer=words with model=updown or cos_cvae, or "
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
    """Id of a length level in 1 .. 5, in a vocabulary of ``size`` tokens."""
    return size - NUM_PLACES - level


def place_id(size: int, place: int) -> int:
    """Id of the region at a place in 0 .. 99 of the input, in a vocabulary of ``size`` tokens."""
    return size - 1 - place
