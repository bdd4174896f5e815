"""Convert constraints in words to finite-state machines over tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from captioning.decoding.machine import Machine, build_machine

Words = tuple[str, ...]

Encode = Callable[[str], list[list[int]]]
"""Function that returns all token sequences of a word or phrase, without special tokens; empty
if the vocabulary lacks the word. Example: `AbstractTokenizer.spellings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConstraints:
    """A machine with the word constraints that it enforces.

    Attributes:
        machine: machine of the accepted constraints.
        accepted: alternatives of each constraint, without words missing in the vocabulary.
        dropped: constraints without an alternative in the vocabulary.
    """

    machine: Machine
    accepted: tuple[Words, ...]
    dropped: tuple[Words, ...]


def constrain(
    constraints: Sequence[Sequence[str]],
    encode: Encode,
    *,
    required: int = 2,
    continues: Collection[int] = frozenset(),
    begin_id: int | None = None,
    missing: Literal["drop", "error"] = "drop",
) -> TokenConstraints:
    """Build the machine for constraints in words.

    Args:
        constraints: sets of alternative words or phrases, such as ``("dog", "dogs")``.
        encode: function from words to tokens, such as ``tokenizer.spellings``.
        required: number of constraints to meet, at most the number of accepted ones.
        continues: tokens that continue the previous word, such as ``tokenizer.continuing()``;
            only complete words then meet a constraint.
        begin_id: token before each caption (``tokenizer.begin_id``), placed before spellings that
            are valid only at the start of a caption.
        missing: action if no alternative of a constraint is in the vocabulary: ``"drop"`` removes
            the constraint, lowers ``required`` if needed and lists it in the result; ``"error"``
            raises. A missing alternative beside known ones is always removed.

    Raises:
        ValueError: a missing constraint with ``"error"``, or invalid settings (`build_machine`).
    """
    if missing not in ("drop", "error"):
        raise ValueError(f"missing must be drop or error: got {missing!r}")
    phrases, accepted, dropped = [], [], []
    for words in constraints:
        spellings = {word: sequences for word in words if (sequences := encode(word))}
        if spellings:
            accepted.append(tuple(spellings))
            begin = () if begin_id is None else (begin_id,)
            phrases.append(
                [
                    (*begin, *ids) if ids[0] in continues else tuple(ids)
                    for sequences in spellings.values()
                    for ids in sequences
                ]
            )
        else:
            dropped.append(tuple(words))
    if dropped and missing == "error":
        raise ValueError(
            f"constraints without a word in the vocabulary: {dropped}; add one of their words to "
            "the vocabulary before training, or set missing to drop"
        )
    machine = build_machine(phrases, required=required, continues=continues)
    return TokenConstraints(machine=machine, accepted=tuple(accepted), dropped=tuple(dropped))
