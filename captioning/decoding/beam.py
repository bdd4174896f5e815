"""Beam search over any stepper, batched over images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from captioning.decoding.candidates import best_tokens
from captioning.decoding.rules import Normalisation, Rules
from captioning.decoding.state import DEAD, Pool, SearchResult, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@dataclass(frozen=True, slots=True, kw_only=True)
class Beams:
    """Unfinished hypotheses of the A images still searched, W each, best first.

    Attributes:
        images: ``(A,) int64`` places in the pool, rising.
        tokens: ``(A, W, T) int64``, padded.
        scores: ``(A, W) float32`` summed log-probabilities, ``-inf`` in free places.
    """

    images: Tensor
    tokens: Tensor
    scores: Tensor

    @classmethod
    def start(cls, pool: Pool, images: Tensor) -> Beams:
        """One empty hypothesis for each of ``images (A,) int64``."""
        tokens = pool.tokens.new_full((len(images), 1, pool.tokens.shape[2]), pool.pad_id)
        scores = torch.zeros(len(images), 1, device=images.device)
        return cls(images=images, tokens=tokens, scores=scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamRules:
    """What a beam search was asked for; the arguments of `beam_search` say what each is."""

    rules: Rules
    beam_size: int
    per_node_beam: int | None
    normalisation: Normalisation
    exact: bool

    @classmethod
    def build(
        cls,
        *,
        beam_size: int,
        per_node_beam: int | None,
        normalisation: str,
        length_penalty: float,
        exact: bool,
        **rules: Any,
    ) -> BeamRules:
        """The rules of one search; ``rules`` are those of `Rules.build`.

        Raises:
            ValueError: an argument out of its range.
        """
        for name, value in {"beam_size": beam_size, "per_node_beam": per_node_beam}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1: got {value}")
        return cls(
            rules=Rules.build(**rules),
            beam_size=beam_size,
            per_node_beam=per_node_beam,
            normalisation=Normalisation(kind=normalisation, length_penalty=length_penalty),
            exact=exact,
        )

    def ranked(self, log_probs: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Best continuations of each row: K, and one more for each that may be an end."""
        most = self.beam_size + len(self.rules.ends)
        limit = self.per_node_beam if length > 1 else None
        return best_tokens(
            log_probs, count=min(limit or most, most), forbidden=self.rules.forbidden(length)
        )

    def hopes(self, scores: Tensor, length: int) -> Tensor:
        """What ``(A,)`` unfinished sums of ``length`` tokens may come to, at best."""
        # The sum can only fall, and the divisor of the greatest length flatters it most.
        return self.normalised(scores, self.rules.max_length if self.exact else length)

    def normalised(self, scores: Tensor, length: int) -> Tensor:
        """Scores as hypotheses are compared when they end with ``length`` tokens."""
        return self.normalisation.scores(scores, length)


@torch.no_grad()
def beam_search(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    *,
    num_images: int,
    beam_size: int,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    normalisation: str = "power",
    per_node_beam: int | None = None,
    forbidden_ids: Sequence[int] = (),
    end_ids: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    num_best: int = 1,
    exact: bool = True,
    device: torch.device | str = "cpu",
) -> SearchResult:
    """Find the most probable captions of several images at once.

    At each step all continuations of an image's hypotheses are ranked by summed log-probability;
    equal ones by the place of their parent, then by their own log-probability, then by token id.
    Those among the best K that end go to the image's pool; the best K that do not end go on.
    An image leaves the batch when nothing unfinished could enter its pool any more: as
    log-probabilities only lower a sum, that is certain, and the result is the one of a search
    that always makes all steps. Hypotheses cut off at ``max_length`` are used only where the pool
    has free slots.

    Scores are the sum of log-probabilities, divided as ``normalisation`` says. A penalty of 0 is
    the plain sum (nocaps UpDown); with ``"power"`` 1 is the mean a token (ViECap), .6 to .7 common
    in between, as with ``"gnmt"``. A penalty above 0 makes long hypotheses worth waiting for, so
    the search ends later; with 0, beam 1 is greedy search.

    Args:
        stepper: the model; it never learns that it is searched.
        state: its memory of ``num_images`` hypotheses, one an image.
        num_images: I.
        beam_size: K.
        bos_id: first token read, never produced.
        eos_id: ends a hypothesis.
        pad_id: never produced; may equal ``eos_id``.
        max_length: most tokens of a hypothesis, the end token counted; also the number of steps.
        min_length: fewest tokens of a finished hypothesis, the end token counted.
        length_penalty: exponent of the normalisation, at least 0.
        normalisation: ``"none"``, ``"power"`` or ``"gnmt"``: see `Normalisation`.
        per_node_beam: at most this many continuations of one hypothesis after the first step
            (nocaps uses 2 with beam 5); None for no limit.
        forbidden_ids: further tokens never produced, such as the unknown word.
        end_ids: further tokens that end a hypothesis and stay in it, such as a full stop.
        no_repeat_ngram: n; no n tokens in a row occur twice in a hypothesis; 0 for no such rule.
        num_best: M, hypotheses returned an image.
        exact: False drops an image as soon as no unfinished hypothesis is better for its present
            length than the pool's worst: with a length penalty that is much earlier, and now and
            then misses a better caption (the rule of transformers). No difference without one.
        device: where the state lives.

    Returns:
        The M best hypotheses of each image.

    Raises:
        ValueError: an argument out of its range, or NaN log-probabilities.
    """
    asked = BeamRules.build(
        beam_size=beam_size,
        per_node_beam=per_node_beam,
        normalisation=normalisation,
        length_penalty=length_penalty,
        exact=exact,
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        max_length=max_length,
        min_length=min_length,
        forbidden_ids=forbidden_ids,
        end_ids=end_ids,
        no_repeat_ngram=no_repeat_ngram,
        device=device,
    )
    check_num_best(num_best, beam_size)
    pool = Pool(
        num_images=num_images,
        num_best=num_best,
        max_length=max_length,
        pad_id=pad_id,
        device=device,
    )
    beams = Beams.start(pool, torch.arange(num_images, device=device))
    last = torch.full((num_images,), bos_id, dtype=torch.long, device=device)
    for length in range(1, max_length + 1):
        log_probs, state = stepper.step(last, state)
        beams, rows = _advance(beams, pool, asked, log_probs, length)
        if not len(beams.images):
            break
        if length < max_length:
            state = state.select(rows)
            last = beams.tokens[:, :, length - 1].reshape(-1)
    pool.fill(beams.images, beams.tokens, asked.normalised(beams.scores, max_length), max_length)
    return pool.result()


def _advance(
    beams: Beams, pool: Pool, asked: BeamRules, log_probs: Tensor, length: int
) -> tuple[Beams, Tensor]:
    """One step: ended hypotheses into the pool, the K best others into the next beams.

    Returns:
        The beams of the images that go on, and ``(A' * K,)`` the row of each hypothesis' parent.
    """
    found = extend(beams, pool, asked, log_probs, length)
    kept = (~found.hopeless).nonzero().squeeze(1)
    rows = kept[:, None] * beams.scores.shape[1] + found.parents[kept]
    return found.beams(beams, kept, length), rows.reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The K best continuations of each image's beams that do not end, best first.

    Attributes:
        parents: ``(A, K) int64`` places of what they continue.
        tokens: ``(A, K) int64``.
        scores: ``(A, K) float32`` summed log-probabilities, ``-inf`` where there are fewer than K.
        hopeless: ``(A,) bool``, whether none of an image's can enter the pool any more.
    """

    parents: Tensor
    tokens: Tensor
    scores: Tensor
    hopeless: Tensor

    def beams(self, before: Beams, kept: Tensor, length: int) -> Beams:
        """The beams of ``kept (A',) int64`` of the images, one token longer than ``before``."""
        tokens = take_rows(before.tokens[kept], self.parents[kept])
        tokens[:, :, length - 1] = self.tokens[kept]
        return Beams(images=before.images[kept], tokens=tokens, scores=self.scores[kept])


def extend(
    beams: Beams,
    pool: Pool,
    asked: BeamRules,
    log_probs: Tensor,
    length: int,
    handicap: Tensor | None = None,
) -> Extension:
    """Rank the continuations of each image's beams; those that end are offered to the pool.

    Args:
        beams: W hypotheses of each of A images.
        pool: takes what ends among the best K.
        asked: rules of the search.
        log_probs: ``(A * W, V) float32`` in nats.
        length: of the continuations.
        handicap: ``(A, V) float32`` that tokens lose in the ranking, but not in their scores.
    """
    rules, most = asked.rules, asked.beam_size
    history = beams.tokens[:, :, : length - 1].flatten(0, 1)
    log_probs = rules.without_repeats(log_probs, history)
    totals, parents, tokens = _candidates(beams.scores, log_probs, asked, length, handicap)
    ended = rules.ended(tokens)
    finished = take_rows(beams.tokens, parents[:, :most])
    finished[:, :, length - 1] = tokens[:, :most]
    scores = asked.normalised(totals.masked_fill(~ended, DEAD)[:, :most], length)
    pool.add(beams.images, finished, scores, length)

    totals = totals.masked_fill(ended, DEAD)
    order = totals.isneginf().to(torch.int8).sort(dim=1, stable=True).indices[:, :most]
    scores = totals.gather(1, order)
    return Extension(
        parents=parents.gather(1, order),
        tokens=tokens.gather(1, order),
        scores=scores,
        hopeless=pool.worst(beams.images) >= asked.hopes(scores.amax(1), length),
    )


def _candidates(
    scores: Tensor, log_probs: Tensor, asked: BeamRules, length: int, handicap: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed log-probability, parent and token ``(A, C)`` of the best continuations, best first."""
    num_images, width = scores.shape
    per_image = log_probs.reshape(num_images, width, log_probs.shape[1])
    ranked = log_probs if handicap is None else (per_image - handicap[:, None]).flatten(0, 1)
    values, tokens = asked.ranked(ranked, length)
    per_row = values.shape[1]
    totals = (scores.reshape(-1, 1) + values).view(num_images, width * per_row)
    totals, places = totals.sort(dim=1, descending=True, stable=True)
    # Of each parent at most E candidates end, so K that do not are among the first K + E K.
    most = asked.beam_size * (1 + len(asked.rules.ends))
    totals, places = totals[:, :most], places[:, :most]
    parents = places // per_row
    tokens = tokens.reshape(num_images, width * per_row).gather(1, places)
    if handicap is not None:
        plain = per_image.flatten(1).gather(1, parents * per_image.shape[2] + tokens)
        plain = scores.gather(1, parents) + plain
        totals = plain.masked_fill(totals.isneginf(), DEAD)
    return totals, parents, tokens


def check_num_best(num_best: int, beam_size: int) -> None:
    """Refuse a number of wanted hypotheses that a beam cannot give.

    Raises:
        ValueError: ``num_best`` is not in [1, ``beam_size``].
    """
    if num_best < 1:
        raise ValueError(f"num_best must be at least 1: got {num_best}")
    if num_best > beam_size:
        raise ValueError(f"num_best must be at most beam_size: got {num_best} > {beam_size}")
