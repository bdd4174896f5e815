"""Captions of models that draw latents first: the best caption of each draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.decoding.beam import beam_search
from captioning.decoding.state import DEAD, SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractLatentState, AbstractStepper


@torch.no_grad()
def search_latents(
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    *,
    num_images: int,
    pad_id: int,
    num_draws: int = 20,
    temperature: float = 1.0,
    beam_size: int = 2,
    seed: int = 0,
    keys: Sequence[int | str] | None = None,
    at_once: int = 20,
    distinct: bool = False,
    **beam: Any,
) -> SearchResult:
    """Draw latents several times an image, and find the most probable caption of each draw.

    What is drawn for an image depends on ``seed`` and its key alone, and the first draws do not
    depend on how many are asked for.

    Args:
        stepper: the model.
        state: its memory of ``num_images`` hypotheses, one an image.
        num_images: I.
        pad_id: never produced.
        num_draws: M, draws an image; captions of some may be equal.
        temperature: of the latents: 1 as the model was trained, 0 for their means.
        beam_size: of the search of each draw; 2 in COS-CVAE.
        seed: at least 0.
        keys: one for each image, whole numbers of at least 0 or texts; None for the positions.
        at_once: draws of an image that are searched together; fewer take less memory.
        distinct: take of each draw the best caption of its beam that no draw before it gave, if
            there is one, so that few draws are spent on what was said already.
        **beam: further arguments of `captioning.decoding.beam.beam_search`.

    Returns:
        M captions an image in the order in which their latents were drawn, ``-inf`` where a draw
        has none. Scores are those of beam search: the log-probability given the latents.

    Raises:
        ValueError: a number out of its range, or a model without latents.
    """
    for name, value in {"num_draws": num_draws, "at_once": at_once}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1: got {value}")
    if not isinstance(state, AbstractLatentState):
        raise ValueError(
            f"search=latents needs a model with latents, such as cos_cvae: got "
            f"{type(state).__name__}; sample words with search=sampling instead"
        )
    keys = range(num_images) if keys is None else keys
    found: list[SearchResult] = []
    taken: list[set[tuple[int, ...]]] = [set() for _ in range(num_images)]
    for first in range(0, num_draws, at_once):
        draws = range(first, min(first + at_once, num_draws))
        drawn = state.drawn(keys=keys, draws=draws, temperature=temperature, seed=seed)
        blocks = num_images * len(draws)
        options = {"num_images": blocks, "pad_id": pad_id, "beam_size": beam_size, **beam}
        options["num_best"] = beam_size if distinct else 1
        result = beam_search(stepper, drawn, **options)
        chosen = torch.zeros(blocks, dtype=torch.int64, device=result.tokens.device)
        if distinct:
            chosen = _first_new(result, taken).to(chosen)
        found.append(_by_image(result, chosen, num_images))
    longest = max(result.tokens.shape[2] for result in found)
    tokens = [
        functional.pad(result.tokens, (0, longest - result.tokens.shape[2]), value=pad_id)
        for result in found
    ]
    scores = torch.cat([result.scores for result in found], 1)
    # A draw whose search failed says nothing; the others keep their order.
    order = (scores == DEAD).to(torch.int8).sort(dim=1, stable=True).indices
    tokens = torch.cat(tokens, 1)
    return SearchResult(
        tokens=tokens.gather(1, order[..., None].expand_as(tokens)),
        scores=scores.gather(1, order),
        lengths=torch.cat([result.lengths for result in found], 1).gather(1, order),
    )


def _first_new(result: SearchResult, taken: Sequence[set[tuple[int, ...]]]) -> Tensor:
    """Of each block the best hypothesis that its image has not ``taken`` yet, else the best.

    What is chosen is added to ``taken``, which has a set an image.
    """
    tokens, lengths = result.tokens.tolist(), result.lengths.tolist()
    alive = (result.scores != DEAD).tolist()
    draws, chosen = len(tokens) // len(taken), []
    for block in range(len(tokens)):
        said = [
            tuple(words[:length])
            for words, length, lives in zip(
                tokens[block], lengths[block], alive[block], strict=True
            )
            if lives
        ]
        before = taken[block // draws]
        chosen.append(next((n for n, one in enumerate(said) if one not in before), 0))
        before.update(said[chosen[-1] : chosen[-1] + 1])
    return torch.tensor(chosen)


def _by_image(result: SearchResult, chosen: Tensor, num_images: int) -> SearchResult:
    """The chosen hypotheses ``(blocks,)`` of an image's draws, side by side."""
    rows = torch.arange(len(chosen), device=chosen.device)
    return SearchResult(
        tokens=result.tokens[rows, chosen].unflatten(0, (num_images, -1)),
        scores=result.scores[rows, chosen].unflatten(0, (num_images, -1)),
        lengths=result.lengths[rows, chosen].unflatten(0, (num_images, -1)),
    )
