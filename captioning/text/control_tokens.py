"""Tokens of control signals, as in CIC-BART (based on VL-BART).

They are the last ones of the vocabulary: 95 ``<extra_id>``, 5 ``<cap_len_level>`` and 100
``<vis_extra_id>``, numbers falling. So a token's id follows by counting from the end, and weights
of VL-BART, which has 100 ``<extra_id>`` and no levels, keep their places.
"""

from __future__ import annotations

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
