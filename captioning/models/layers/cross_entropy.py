"""Next-token cross-entropy of captions and batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from captioning.models.layers.packing import CaptionPlaces
from captioning.models.layers.weighted_mean import mean_of, product
from captioning.types import Batch, CaptionLosses

CHUNK = 128 * 2**20
"""Maximum bytes of float32 logits in memory, if a head is called in chunks."""


def token_losses(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return training losses and negative log-likelihoods of single tokens.

    Args:
        logits: ``(M, V)``; losses have the same precision, at least ``float32``.
        targets: ``(M,) int64``.
        smoothing: share of the target spread evenly over all V tokens (Szegedy et al.,
            2016, equation 7), as in torch.

    Returns:
        ``(M,)`` training losses, and ``(M,)`` negative log-likelihoods in nats, both with gradient.
    """
    # Half precision is too coarse for comparing the losses of captions.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_probs = functional.log_softmax(logits, dim=-1)
    nll = -log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    if not smoothing:
        return nll, nll
    return (1 - smoothing) * nll - smoothing * log_probs.mean(1), nll


def caption_losses(
    logits: Tensor, batch: Batch, places: CaptionPlaces, smoothing: float = 0.0
) -> CaptionLosses:
    """Return a batch's weighted mean over tokens, and each caption's own mean.

    Args:
        logits: ``(M, V)`` before each of the captions' M tokens except begin tokens,
            caption by caption.
        batch: the captions.
        places: positions of the M tokens.
        smoothing: see `token_losses`.
    """
    tokens, _ = batch.caption_tokens()
    of_tokens = token_losses(logits, places.pack(tokens[:, 1:]), smoothing)
    return _added_up(*of_tokens, batch, places, smoothing)


def head_losses(
    head: Any, states: Tensor, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute `token_losses` from a network's last layer and that layer's input.

    Logits of many tokens are computed in chunks, and recomputed in the backward pass, so that at
    most about `CHUNK` bytes of logits are in memory.

    Args:
        head: last layer, which returns logits ``(M, V)`` and has ``weight (V, H)``.
        states: ``(M, H)`` input of the head.
        targets: ``(M,) int64``.
        smoothing: see `token_losses`.
    """
    of_chunk = partial(_of_chunk, head, smoothing=smoothing)
    size = max(1, CHUNK // (4 * len(head.weight)))
    if len(states) <= size:
        return of_chunk(states, targets)
    chunks = zip(states.split(size), targets.split(size), strict=True)
    losses = [checkpoint(of_chunk, *chunk, use_reentrant=False) for chunk in chunks]
    loss, nll = (torch.cat(parts) for parts in zip(*losses, strict=True))
    return loss, nll


def _of_chunk(
    head: Any, states: Tensor, targets: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    return token_losses(head(states), targets, smoothing)


def head_caption_losses(
    head: Any, states: Tensor, batch: Batch, smoothing: float = 0.0
) -> CaptionLosses:
    """Compute `padded_caption_losses` from a network's last layer and that layer's input.

    Logits are computed only for the captions' tokens, see `head_losses`.

    Args:
        head: see `head_losses`.
        states: ``(B, T - 1, H)`` before each of the batch's T tokens except the first.
        batch: the captions.
        smoothing: see `token_losses`.
    """
    tokens, _ = batch.caption_tokens()
    places = CaptionPlaces.of(batch)
    targets = places.pack(tokens[:, 1:])
    of_tokens = head_losses(head, places.pack(states), targets, smoothing)
    return _added_up(*of_tokens, batch, places, smoothing)


def _added_up(
    loss: Tensor, nll: Tensor, batch: Batch, places: CaptionPlaces, smoothing: float
) -> CaptionLosses:
    """Aggregate token losses ``(M,)`` to losses of captions and of the batch."""
    tokens, _ = batch.caption_tokens()
    of_captions = None if batch.weights is None else batch.weights[places.captions]
    of_tokens = None if batch.token_weights is None else places.pack(batch.token_weights[:, 1:])
    none = nll.new_zeros(len(batch))
    summed = none.index_add(0, places.captions, nll)
    smoothed = none.index_add(0, places.captions, loss.detach()) if smoothing else summed.detach()
    mean = mean_of(loss, product(of_captions, of_tokens))
    is_asked = batch.token_sentences is not None
    return CaptionLosses(
        total=mean.value,
        per_sample=summed.detach() / places.lengths,
        nll=summed,
        smoothed=smoothed,
        token_nll=places.unpack(nll, tokens[:, 1:]) if is_asked else None,
        means=(mean,),
    )


def padded_caption_losses(logits: Tensor, batch: Batch, smoothing: float = 0.0) -> CaptionLosses:
    """Compute `caption_losses` from logits that include padding positions.

    Args:
        logits: ``(B, T - 1, V)`` before each of the batch's T tokens except the first.
        batch: the captions.
        smoothing: see `token_losses`.
    """
    tokens, exist = batch.caption_tokens()
    shape, mask = tokens[:, 1:].shape, exist[:, 1:]
    loss, nll = token_losses(logits.flatten(0, 1), tokens[:, 1:].flatten(), smoothing)
    weights = mask.to(nll.dtype)
    summed = (nll.view(shape) * weights).sum(1)
    is_asked = batch.token_sentences is not None
    token_nll = nll.view(shape) * weights if is_asked else None
    smoothed = (loss.detach().view(shape) * weights).sum(1) if smoothing else summed.detach()
    per_sample = summed.detach() / weights.sum(1)
    if batch.weights is not None:
        weights = weights * batch.weights.to(weights)[:, None]
    if batch.token_weights is not None:
        weights = weights * batch.token_weights[:, 1:].to(weights)
    mean = mean_of(loss, weights.flatten())
    return CaptionLosses(
        total=mean.value,
        per_sample=per_sample,
        nll=summed,
        smoothed=smoothed,
        token_nll=token_nll,
        means=(mean,),
    )
