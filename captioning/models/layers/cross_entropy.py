"""Next-token losses of many tokens at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.layers.caption_places import CaptionPlaces
from captioning.models.layers.weighted_mean import weighted_mean
from captioning.types import Batch, CaptionLosses


def token_losses(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Losses of single tokens.

    Args:
        logits: ``(M, V)``; the losses have their precision, and at least ``float32``.
        targets: ``(M,) int64``.
        smoothing: share of the target that is spread evenly over all V tokens (Szegedy et al.,
            2016, equation 7); as torch's own.

    Returns:
        ``(M,)`` what is trained on, and ``(M,)`` detached negative log-likelihoods in nats.
    """
    # Half precision is too coarse for losses that captions are compared by.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_probs = functional.log_softmax(logits, dim=-1)
    nll = -log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    if not smoothing:
        return nll, nll.detach()
    return (1 - smoothing) * nll - smoothing * log_probs.mean(1), nll.detach()


def caption_losses(
    logits: Tensor, batch: Batch, places: CaptionPlaces, smoothing: float = 0.0
) -> CaptionLosses:
    """A batch's losses: the weighted mean over tokens, and each caption's own mean.

    Args:
        logits: ``(M, V)`` at the places before each of the captions' M tokens, the begin token
            left out, caption by caption.
        batch: the captions.
        places: of these tokens.
        smoothing: see `token_losses`.
    """
    tokens, _ = batch.caption_tokens()
    loss, nll = token_losses(logits, places.pack(tokens[:, 1:]), smoothing)
    weights = None if batch.weights is None else batch.weights[places.captions]
    sums = nll.new_zeros(len(batch)).index_add_(0, places.captions, nll)
    return CaptionLosses(total=weighted_mean(loss, weights), per_sample=sums / places.lengths)
