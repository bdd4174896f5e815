"""Next-token losses of many tokens at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from captioning.models.layers.weighted_mean import weighted_mean
from captioning.types import CaptionLosses


def token_losses(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Losses of single tokens.

    Args:
        logits: ``(M, V)``, in the precision that the losses are to have.
        targets: ``(M,) int64``.
        smoothing: share of the target that is spread evenly over all V tokens (Szegedy et al.,
            2016, equation 7); as torch's own.

    Returns:
        ``(M,)`` what is trained on, and ``(M,)`` detached negative log-likelihoods in nats.
    """
    log_probs = functional.log_softmax(logits, dim=-1)
    nll = -log_probs.gather(1, targets.unsqueeze(1)).squeeze(1)
    if not smoothing:
        return nll, nll.detach()
    return (1 - smoothing) * nll - smoothing * log_probs.mean(1), nll.detach()


def caption_losses(
    logits: Tensor, targets: Tensor, mask: Tensor, weights: Tensor | None, smoothing: float = 0.0
) -> CaptionLosses:
    """Losses of captions whose tokens were predicted all at once.

    Args:
        logits: ``(M, V)`` at the places where ``mask`` holds, caption by caption.
        targets: ``(B, T) int64`` tokens to predict.
        mask: ``(B, T) bool``, M places.
        weights: ``(B,)`` of the captions, or None.
        smoothing: see `token_losses`.

    Returns:
        ``total`` is a mean over tokens, each with its caption's weight.
    """
    loss, nll = token_losses(logits, targets[mask], smoothing)
    lengths = mask.sum(1)
    captions = torch.arange(len(mask), device=mask.device).repeat_interleave(lengths)
    of_tokens = None if weights is None else weights[captions]
    per_sample = nll.new_zeros(len(mask)).index_add_(0, captions, nll) / lengths
    return CaptionLosses(total=weighted_mean(loss, of_tokens), per_sample=per_sample)
