"""Diverse beam search: groups of beams, each kept from saying what the ones before it say."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.decoding.beam import BeamRules, Beams, check_num_best, extend
from captioning.decoding.rules import Rules
from captioning.decoding.state import DEAD, Pool, SearchResult, take_rows
from captioning.interfaces import AbstractDecoderState, AbstractStepper


@torch.no_grad()
def diverse_beam_search(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    *,
    num_images: int,
    beam_size: int,
    num_groups: int,
    diversity: float,
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
    """Find probable captions that differ (Vijayakumar et al., 2018, algorithm 1; Hamming).

    At each step the groups take their turns; each is a `beam_search` of K / groups hypotheses, in
    whose ranking a token loses ``diversity`` nats for every hypothesis of an earlier group that
    has just gone on with it. As in the algorithm the loss counts in this step's ranking alone:
    the sums that are carried on, compared between steps and returned are the model's own
    (transformers and fairseq carry the losses along). Ends are never penalised: that would make
    captions longer, not different.

    An image leaves the batch when no group of it could find anything better any more. What several
    groups found counts once, so fewer than M hypotheses may remain. One group is `beam_search`.

    Args:
        stepper: the model.
        state: its memory of ``num_images`` hypotheses, one an image.
        num_images: I.
        beam_size: K, hypotheses of all groups together; a multiple of ``num_groups``.
        num_groups: number of groups.
        diversity: the paper's lambda in nats, at least 0; .2 to .8 in the paper.
        bos_id: first token read, never produced.
        eos_id: ends a hypothesis.
        pad_id: never produced; may equal ``eos_id``.
        max_length: most tokens of a hypothesis, the end token counted.
        min_length: fewest tokens of a finished hypothesis, the end token counted.
        length_penalty: exponent of the normalisation, at least 0.
        normalisation: ``"none"``, ``"power"`` or ``"gnmt"``: see `Normalisation`.
        per_node_beam: at most this many continuations of one hypothesis after the first step.
        forbidden_ids: further tokens never produced.
        end_ids: further tokens that end a hypothesis and stay in it, such as a full stop.
        no_repeat_ngram: n; no n tokens in a row occur twice in a hypothesis; 0 for no such rule.
        num_best: M, hypotheses returned an image; each group offers its best K / groups or M,
            whichever is less.
        exact: as in `beam_search`, for all groups of an image together.
        device: where the state lives.

    Returns:
        The M best hypotheses over all groups of each image.

    Raises:
        ValueError: an argument out of its range, or NaN log-probabilities.
    """
    _check(beam_size, num_groups, diversity)
    asked = BeamRules.build(
        beam_size=beam_size // num_groups,
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
    # A place of the pool is a group of an image: image * num_groups + group.
    pool = Pool(
        num_images=num_images * num_groups,
        num_best=min(num_best, asked.beam_size),
        max_length=max_length,
        pad_id=pad_id,
        device=device,
    )
    places = torch.arange(num_images * num_groups, device=device).view(num_images, num_groups)
    groups = [Beams.start(pool, column) for column in places.unbind(1)]
    last = torch.full((num_images,), bos_id, dtype=torch.long, device=device)
    for length in range(1, max_length + 1):
        log_probs, state = stepper.step(last, state)
        groups, rows = _advance(groups, pool, asked, log_probs, length, diversity)
        if not len(rows):
            break
        if length < max_length:
            state = state.select(rows)
            last = torch.stack([group.tokens[:, :, length - 1] for group in groups], 1).view(-1)
    _fill(groups, pool, asked)
    return _best_of_groups(pool, asked.rules, num_groups, num_best)


def _advance(
    groups: list[Beams],
    pool: Pool,
    asked: BeamRules,
    log_probs: Tensor,
    length: int,
    diversity: float,
) -> tuple[list[Beams], Tensor]:
    """One step of all groups, in turn.

    Returns:
        The groups' beams of the images that go on, and the row ``(A' * K,)`` of each parent.
    """
    num_images, width = groups[0].scores.shape
    # At the first step all groups read the one row of their image.
    block = 1 if length == 1 else len(groups) * width
    per_image = log_probs.reshape(num_images, block, log_probs.shape[1])
    handicap = torch.zeros_like(per_image[:, 0])
    found, parents = [], []
    for number, group in enumerate(groups):
        first = number * width % block
        own = per_image[:, first : first + width].flatten(0, 1)
        step = extend(group, pool, asked, own, length, handicap if number else None)
        lost = (step.scores > DEAD) * torch.tensor(diversity, device=own.device)
        handicap = handicap.scatter_add(1, step.tokens, lost.to(handicap.dtype))
        found.append(step)
        parents.append(first + step.parents)
    kept = (~torch.stack([step.hopeless for step in found]).all(0)).nonzero().squeeze(1)
    rows = kept[:, None] * block + torch.cat(parents, dim=1)[kept]
    after = [step.beams(group, kept, length) for step, group in zip(found, groups, strict=True)]
    return after, rows.reshape(-1)


def _fill(groups: list[Beams], pool: Pool, asked: BeamRules) -> None:
    """Offer the groups' cut-off hypotheses, by falling sum, for the free places of their pools."""
    length = asked.rules.max_length
    for group in groups:
        scores, order = group.scores.sort(dim=1, descending=True, stable=True)
        tokens = take_rows(group.tokens, order)
        pool.fill(group.images, tokens, asked.normalised(scores, length), length)


def _best_of_groups(pool: Pool, rules: Rules, num_groups: int, num_best: int) -> SearchResult:
    """The M best of all groups of each image, each once, finished ones before cut-off ones."""
    num_places, slots, width = pool.tokens.shape
    shape = (num_places // num_groups, num_groups * slots)
    tokens, scores = pool.tokens.view(*shape, width), pool.scores.view(shape)
    lengths = pool.lengths.view(shape)
    same = (tokens[:, :, None] == tokens[:, None]).all(-1) & (
        lengths[:, :, None] == lengths[:, None]
    )
    scores = scores.masked_fill(same.tril(-1).any(2), DEAD)
    last = tokens.gather(2, (lengths - 1).clamp(min=0)[..., None]).squeeze(2)
    unfinished = ~rules.ended(last) | scores.isneginf()
    by_score = scores.argsort(dim=1, descending=True, stable=True)
    by_end = unfinished.gather(1, by_score).to(torch.int8).argsort(dim=1, stable=True)
    order = by_score.gather(1, by_end)[:, :num_best]
    best = Pool(
        num_images=shape[0],
        num_best=num_best,
        max_length=width,
        pad_id=pool.pad_id,
        device=pool.scores.device,
    )
    best.tokens, best.scores = take_rows(tokens, order), scores.gather(1, order)
    best.lengths = lengths.gather(1, order).masked_fill(best.scores.isneginf(), 0)
    return best.result()


def _check(beam_size: int, num_groups: int, diversity: float) -> None:
    if num_groups < 1:
        raise ValueError(f"num_groups must be at least 1: got {num_groups}")
    if beam_size % num_groups:
        raise ValueError(
            f"beam_size must be a multiple of num_groups: got {beam_size} for {num_groups}"
        )
    if not 0 <= diversity < float("inf"):
        raise ValueError(f"diversity must be at least 0 and finite: got {diversity}")
