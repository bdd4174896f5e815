"""What every search may be told of the captions it returns: lengths, words, repeats and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.candidates import never
from captioning.decoding.state import DEAD

NORMALISATIONS = ("none", "power", "gnmt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which tokens may follow a hypothesis, and which end it; made by `Rules.build`.

    Attributes:
        max_length: most tokens of a hypothesis, the one that ends it counted.
        min_length: fewest tokens of a finished one, counted alike: no end before.
        no_repeat_ngram: n; no n tokens in a row occur twice in a hypothesis. 0 for no such rule.
        ends: ``(E,) int64`` ids that end a hypothesis and stay in it, ``eos_id`` first.
        banned: ``(F,) int64`` distinct ids never produced.
        banned_early: ``(F + E,) int64``, the same and the ends.
    """

    max_length: int
    min_length: int
    no_repeat_ngram: int
    ends: Tensor
    banned: Tensor
    banned_early: Tensor

    @classmethod
    def build(
        cls,
        *,
        bos_id: int,
        eos_id: int,
        pad_id: int,
        max_length: int,
        min_length: int = 0,
        forbidden_ids: Sequence[int] = (),
        end_ids: Sequence[int] = (),
        no_repeat_ngram: int = 0,
        device: torch.device | str = "cpu",
    ) -> Rules:
        """The rules of one search.

        Args:
            bos_id: begin token, never produced.
            eos_id: ends a hypothesis.
            pad_id: never produced; may equal ``eos_id``.
            max_length: most tokens.
            min_length: fewest tokens of a finished hypothesis.
            forbidden_ids: further tokens never produced.
            end_ids: further tokens that end a hypothesis, such as a full stop.
            no_repeat_ngram: n, or 0.
            device: where the search runs.

        Raises:
            ValueError: a number out of its range, or an end that is never produced.
        """
        remedy = "choose 0 <= min_length <= max_length"
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1: got {max_length}; {remedy}")
        if not 0 <= min_length <= max_length:
            got = f"got {min_length} for {max_length}"
            raise ValueError(f"min_length must be in [0, max_length]: {got}; {remedy}")
        if no_repeat_ngram < 0:
            raise ValueError(f"no_repeat_ngram must be at least 0: got {no_repeat_ngram}")
        banned = never(pad_id, bos_id, eos_id, forbidden_ids)
        ends = list(dict.fromkeys([eos_id, *end_ids]))
        if lost := sorted({*ends} & {*banned}):
            raise ValueError(
                f"end_ids must not hold padding, begin or forbidden ids: got {lost}; "
                "take them out of one of the two"
            )
        tensors = {"ends": ends, "banned": banned, "banned_early": [*banned, *ends]}
        return cls(
            max_length=max_length,
            min_length=min_length,
            no_repeat_ngram=no_repeat_ngram,
            **{name: torch.tensor(ids, device=device).long() for name, ids in tensors.items()},
        )

    def forbidden(self, length: int) -> Tensor:
        """``(F',) int64`` ids that may not be the ``length``-th token of any hypothesis."""
        return self.banned if length >= self.min_length else self.banned_early

    def ended(self, tokens: Tensor) -> Tensor:
        """Which of some tokens end their hypothesis: ``bool`` of the same shape."""
        return (tokens[..., None] == self.ends).any(-1)

    def without_repeats(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """``-inf`` for the tokens that would complete an n-gram that a hypothesis already holds.

        The begin token is in no n-gram. A hypothesis holds no end token while it goes on, so the
        rule never keeps one from ending.

        Args:
            log_probs: ``(G, V) float32`` in nats; left as it is.
            history: ``(G, t) int64`` tokens of each hypothesis so far.

        Returns:
            ``(G, V) float32``; ``log_probs`` itself where the rule bans nothing yet.
        """
        size, seen = self.no_repeat_ngram, history.shape[1]
        if not size or seen < size:
            return log_probs
        num_grams = seen - size + 1
        repeated = torch.ones_like(history[:, :num_grams], dtype=torch.bool)
        for place in range(size - 1):
            newest = history[:, num_grams + place, None]
            repeated &= history[:, place : place + num_grams] == newest
        # Adding, not writing: a token may close one n-gram that matches and another that does not.
        handicap = torch.zeros_like(repeated, dtype=log_probs.dtype).masked_fill(repeated, DEAD)
        return log_probs.scatter_add(1, history[:, size - 1 :], handicap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """How summed log-probabilities of hypotheses of different lengths are compared.

    Attributes:
        kind: what divides the sum of a hypothesis of ``length`` tokens: ``"none"``: nothing;
            ``"power"``: ``length ** length_penalty``; ``"gnmt"``:
            ``((5 + length) / 6) ** length_penalty`` (Wu et al., 2016, equation 14, without its
            coverage penalty).
        length_penalty: exponent, at least 0, so that no divisor falls with the length.
    """

    kind: str = "power"
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in NORMALISATIONS:
            raise ValueError(f"normalisation must be one of {NORMALISATIONS}: got {self.kind!r}")
        if not self.length_penalty >= 0:
            raise ValueError(f"length_penalty must be at least 0: got {self.length_penalty}")
        if self.kind == "none" and self.length_penalty:
            raise ValueError(
                f"length_penalty must be 0 with normalisation none: got {self.length_penalty}; "
                "choose power or gnmt to use it"
            )

    def scores(self, totals: Tensor, length: int) -> Tensor:
        """Sums of log-probabilities as hypotheses of ``length`` tokens are compared."""
        base = (5 + length) / 6 if self.kind == "gnmt" else length
        return totals / base**self.length_penalty
