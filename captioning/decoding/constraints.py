"""Constraints in words to machines over tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from captioning.decoding.machine import Machine, build_machine

Words = tuple[str, ...]

Encode = Callable[[str], list[list[int]]]
"""All token sequences that stand for a word or phrase inside a caption, without special tokens;
none where the vocabulary lacks it, such as `AbstractTokenizer.spellings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConstraints:
    """A machine, and the constraints in words that it stands for.

    Attributes:
        machine: machine of the accepted constraints.
        accepted: alternatives in words of each constraint, without those that the vocabulary lacks.
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
    """The machine of constraints in words.

    Args:
        constraints: each a set of alternative words or phrases, such as ``("dog", "dogs")``.
        encode: words to tokens, such as ``tokenizer.spellings``.
        required: how many must be met; capped at the number of accepted ones.
        continues: tokens that continue the word before them, such as ``tokenizer.continuing()``: a
            constraint is then met by complete words only.
        begin_id: said before each caption (``tokenizer.begin_id``): comes before a spelling that
            can stand only at a caption's beginning.
        missing: action on a constraint without an alternative in the vocabulary: ``"drop"`` leaves
            it out, which also lowers the number that can be required, and names it in the result;
            ``"error"`` refuses it. A missing alternative beside others is left out.

    Raises:
        ValueError: a missing constraint with ``"error"``; or bad settings (see `build_machine`).
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
            f"constraints must have an alternative in the vocabulary: got {dropped}; add one of "
            "their words to the vocabulary before training, or set missing to drop"
        )
    machine = build_machine(phrases, required=required, continues=continues)
    return TokenConstraints(machine=machine, accepted=tuple(accepted), dropped=tuple(dropped))
