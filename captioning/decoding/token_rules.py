"""Rules on the tokens that a search may produce, and on the end of a caption."""

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
    """Rules on the next tokens of a hypothesis and on its end; build with `Rules.build`.

    Attributes:
        max_length: maximum tokens of a hypothesis, including the end token.
        min_length: minimum tokens of a finished hypothesis, including the end token.
        must_end: whether the token at ``max_length`` must be in ``closing``.
        no_repeat_ngram_size: n; no n-gram occurs twice in a hypothesis; 0: no
            rule.
        repetition_penalty: see `SearchSettings`.
        read: ``(P,) int64`` begin token and prompt, read before every hypothesis.
        ends: ``(E,) int64`` ids that end a hypothesis and stay in its tokens, ``eos_id`` first.
        closing: ``(E',) int64`` ids of ``ends`` that are not words.
        banned: ``(F,) int64`` distinct ids never produced.
        banned_early: ``(F + E,) int64`` ``banned`` and ``ends``.
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
        """Build the rules of one search call; words must be token ids already.

        Raises:
            ValueError: an end token that is never produced, or a forbidden ``eos_id``.
        """
        special = [] if settings.special_tokens else [request.pad_id, request.bos_id]
        special = [token for token in special if token not in request.ends]
        banned = banned_ids(special, request.eos_id, settings.forbidden_ids)
        ends = list(dict.fromkeys([*request.ends, *settings.end_ids]))
        if conflicting := sorted({*ends} & {*banned}):
            raise ValueError(
                f"end_ids must not hold padding, begin or forbidden ids: got {conflicting}; remove "
                "them from end_ids or forbidden_ids"
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
        """Return ids ``(F',) int64`` that may not be the ``length``-th token of a hypothesis."""
        return self.banned if length >= self.min_length else self.banned_early

    def ended(self, tokens: Tensor) -> Tensor:
        """Whether each token ends its hypothesis: ``bool`` of the same shape."""
        return (tokens[..., None] == self.ends).any(-1)

    def with_one_end(self, log_probs: Tensor) -> Tensor:
        """Move the likeliest end token's value to the first end token, and mask the other ends.

        For searches in which a caption can end in only one way.
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
        """Predict the next tokens of independently extended hypotheses (greedy or sampling).

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
        """Apply all rules but `forbidden`, for hypotheses compared by summed log-probability."""
        log_probs = self.without_repeats(self.penalised(log_probs, history), history)
        return self.closed(log_probs, history.shape[1] + 1)

    def closed(self, log_probs: Tensor, length: int) -> Tensor:
        """Allow only end tokens ``(G, V)`` if the last token must be an end token."""
        if not self.must_end or length < self.max_length:
            return log_probs
        closed = torch.full_like(log_probs, DEAD)
        return closed.index_copy(1, self.closing, log_probs[:, self.closing])

    def penalised(self, scores: Tensor, history: Tensor) -> Tensor:
        """Apply the repetition penalty to scores ``(G, V)`` for prompt and ``history (G, t)``."""
        penalty = self.repetition_penalty
        if penalty == 1:
            return scores
        held = torch.cat([self.read.expand(len(history), -1), history], dim=1)
        values = scores.gather(1, held)
        values = torch.where(values < 0, values * penalty, values / penalty)
        return scores.scatter(1, held, values)

    def without_repeats(self, log_probs: Tensor, history: Tensor) -> Tensor:
        """Set tokens to ``-inf`` that would repeat an n-gram of the hypothesis.

        N-grams exclude the begin token. An unfinished hypothesis holds no end token, so the rule
        never forbids an end.

        Args:
            log_probs: ``(G, V) float32`` in nats; not modified.
            history: ``(G, t) int64`` previous tokens of each hypothesis.

        Returns:
            ``(G, V) float32``; ``log_probs`` itself if no token is banned.
        """
        ngram_size, length = self.no_repeat_ngram_size, history.shape[1]
        if not ngram_size or length < ngram_size:
            return log_probs
        num_grams = length - ngram_size + 1
        repeated = torch.ones_like(history[:, :num_grams], dtype=torch.bool)
        for place in range(ngram_size - 1):
            newest = history[:, num_grams + place, None]
            repeated &= history[:, place : place + num_grams] == newest
        # Added, not assigned: a token may complete both a repeated and a new n-gram.
        handicap = torch.zeros_like(repeated, dtype=log_probs.dtype).masked_fill(repeated, DEAD)
        return log_probs.scatter_add(1, history[:, ngram_size - 1 :], handicap)
