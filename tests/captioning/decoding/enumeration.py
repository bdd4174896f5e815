"""All captions that a toy model can say under the rules of a search, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from tests.captioning.decoding.toy import BOS, EOS, PAD, TableStepper

Shares = Callable[[dict[int, float]], dict[int, float]]

# Rules for a vocabulary of 7 (words 3 to 6) and captions of at most 4 tokens.
rules = st.fixed_dictionaries(
    {
        "min_length": st.integers(0, 4),
        "forbidden_ids": st.sampled_from([(), (3,), (4, 6)]),
        "end_ids": st.sampled_from([(), (5,)]),
        "no_repeat_ngram_size": st.integers(0, 3),
    }
)


@dataclass(frozen=True)
class Caption:
    """Tokens, their summed log-probability, the chance of being drawn, and whether it ends."""

    tokens: tuple[int, ...]
    total: float
    chance: float
    finished: bool


def allowed(
    tokens: tuple[int, ...],
    token: int,
    *,
    min_length: int = 0,
    forbidden_ids: tuple[int, ...] = (),
    end_ids: tuple[int, ...] = (),
    no_repeat_ngram_size: int = 0,
) -> bool:
    """Whether ``token`` may follow ``tokens``."""
    if token in (BOS, PAD, *forbidden_ids):
        return False
    if token in (EOS, *end_ids) and len(tokens) + 1 < min_length:
        return False
    size, longer = no_repeat_ngram_size, (*tokens, token)
    grams = [longer[start : start + size] for start in range(len(longer) - size + 1)]
    return not size or len(grams) < 2 or grams[-1] not in grams[:-1]


def every_caption(
    stepper: TableStepper, image: int, *, max_length: int, shares: Shares = dict, **rules: object
) -> Iterator[Caption]:
    """All finished and cut-off captions of an image.

    ``shares`` gives the chance of each next token from the log-probabilities of the allowed ones.
    """

    def walk(code: int, before: Caption) -> Iterator[Caption]:
        values = stepper.table[image, code].tolist()
        possible = {
            token: value
            for token, value in enumerate(values)
            if value > -torch.inf and allowed(before.tokens, token, **rules)
        }
        chances = shares(possible)
        for token, value in possible.items():
            finished = token in (EOS, *rules.get("end_ids", ()))
            chance = before.chance * chances[token]
            after = Caption((*before.tokens, token), before.total + value, chance, finished)
            if finished or len(after.tokens) == max_length:
                yield after
            else:
                yield from walk(stepper.next_code(code, token), after)

    return walk(stepper.next_code(0, BOS), Caption((), 0.0, 1.0, False))
