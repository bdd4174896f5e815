"""Which tokens a search may produce, and where a caption ends."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.decoding.candidates import banned_ids
from captioning.decoding.settings import SearchRequest, SearchSettings
from captioning.decoding.state import DEAD
from captioning.interfaces import AbstractStepper, StateT


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which tokens may follow a hypothesis, and which end it; made by `Rules.build`.

    Attributes:
        max_length: most tokens of a hypothesis, its end token included.
        min_length: fewest tokens of a finished one, its end token included.
        must_end: whether the last of ``max_length`` tokens must be of ``closing``.
        no_repeat_ngram_size: n; no n tokens in a row occur twice in a hypothesis. 0 for no such
            rule.
        repetition_penalty: see `SearchSettings`.
        read: ``(P,) int64`` begin token and prompt, which are read before every hypothesis.
        ends: ``(E,) int64`` ids that end a hypothesis and stay in its tokens, ``eos_id`` first.
        closing: ``(E',) int64``, those of them that are not words.
        banned: ``(F,) int64`` distinct ids never produced.
        banned_early: ``(F + E,) int64``, the same and the ends.
    """

    max_length: int
    min_length: int
    must_end: bool
    no_repeat_ngram_size: int
    repetition_penalty: float
    read: Tensor
    ends: Tensor
    closing: Tensor
    banned: Tensor
    banned_early: Tensor

    @classmethod
    def build(cls, settings: SearchSettings, request: SearchRequest) -> Rules:
        """The rules of one call of a search; its words must be token ids already.

        Raises:
            ValueError: an end that is never produced, or a forbidden ``eos_id``.
        """
        special = [] if settings.special_tokens else [request.pad_id, request.bos_id]
        special = [token for token in special if token not in request.ends]
        banned = banned_ids(special, request.eos_id, settings.forbidden_ids)
        ends = list(dict.fromkeys([*request.ends, *settings.end_ids]))
        if conflicting := sorted({*ends} & {*banned}):
            raise ValueError(
                f"end_ids must not hold padding, begin or forbidden ids: got {conflicting}; "
                "take them out of one of the two"
            )
        tensors = {"ends": ends, "banned": banned, "banned_early": [*banned, *ends]}
        tensors["closing"] = list(request.ends)
        tensors["read"] = [request.bos_id, *request.prompt_ids]
        return cls(
            max_length=settings.max_length,
            min_length=settings.min_length,
            must_end=settings.must_end,
            no_repeat_ngram_size=settings.no_repeat_ngram_size,
            repetition_penalty=settings.repetition_penalty,
            **{
                name: torch.tensor(ids, device=request.device).long()
                for name, ids in tensors.items()
            },
        )

    def forbidden(self, length: int) -> Tensor:
        """``(F',) int64`` ids that may not be the ``length``-th token of any hypothesis."""
        return self.banned if length >= self.min_length else self.banned_early

    def ended(self, tokens: Tensor) -> Tensor:
        """Which of the tokens end their hypothesis: ``bool`` of the same shape."""
        return (tokens[..., None] == self.ends).any(-1)

    def with_one_end(self, log_probs: Tensor) -> Tensor:
        """``(G, V)`` with the likeliest end in the place of the first, and no other end.

        For searches in which a caption ends in one way.
        """
        if len(self.ends) == 1:
            return log_probs
        best = log_probs[:, self.ends].amax(1, keepdim=True)
        return log_probs.index_fill(1, self.ends, DEAD).index_copy(1, self.ends[:1], best)

    def next_log_probs(
        self,
        stepper: AbstractStepper[StateT],
        tokens: Tensor,
        state: StateT,
        history: Tensor,
    ) -> tuple[Tensor, StateT]:
        """The next tokens of hypotheses that are extended independently: greedily or at random.

        Returns:
            ``(G, V) float32`` log-probabilities after all rules but `forbidden`, and the memory.
        """
        if self.repetition_penalty == 1:
            log_probs, state = stepper.step(tokens, state)
        else:
            logits, state = stepper.next_logits(tokens, state)
            log_probs = self.penalised(logits.float(), history).log_softmax(-1)
        log_probs = self.without_repeats(log_probs, history)
        return self.closed(log_probs, history.shape[1] + 1), state

    def adjusted(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """After all rules but `forbidden`, for hypotheses that are compared by their sums."""
        log_probs = self.without_repeats(self.penalised(log_probs, history), history)
        return self.closed(log_probs, history.shape[1] + 1)

    def closed(self, log_probs: Tensor, length: int) -> Tensor:
        """``(G, V)`` with only the end allowed if the last token must be one."""
        if not self.must_end or length < self.max_length:
            return log_probs
        closed = torch.full_like(log_probs, DEAD)
        return closed.index_copy(1, self.closing, log_probs[:, self.closing])

    def penalised(self, scores: Tensor, history: Tensor) -> Tensor:
        """Scores ``(G, V)`` after the penalty on tokens of prompts and ``history (G, t)``."""
        penalty = self.repetition_penalty
        if penalty == 1:
            return scores
        held = torch.cat([self.read.expand(len(history), -1), history], dim=1)
        values = scores.gather(1, held)
        values = torch.where(values < 0, values * penalty, values / penalty)
        return scores.scatter(1, held, values)

    def without_repeats(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """``-inf`` for the tokens that would complete an n-gram that a hypothesis already holds.

        The begin token is in no n-gram. An unfinished hypothesis holds no end token, so the rule
        never forbids an end.

        Args:
            log_probs: ``(G, V) float32`` in nats; not changed.
            history: ``(G, t) int64`` tokens of each hypothesis so far.

        Returns:
            ``(G, V) float32``; ``log_probs`` itself where the rule bans nothing yet.
        """
        ngram_size, length = self.no_repeat_ngram_size, history.shape[1]
        if not ngram_size or length < ngram_size:
            return log_probs
        num_grams = length - ngram_size + 1
        repeated = torch.ones_like(history[:, :num_grams], dtype=torch.bool)
        for place in range(ngram_size - 1):
            newest = history[:, num_grams + place, None]
            repeated &= history[:, place : place + num_grams] == newest
        # Added, not written: a token may complete one n-gram that matches and one that does not.
        handicap = torch.zeros_like(repeated, dtype=log_probs.dtype).masked_fill(repeated, DEAD)
        return log_probs.scatter_add(1, history[:, ngram_size - 1 :], handicap)
