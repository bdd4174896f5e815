"""The loss of every caption of a batch, from logits and labels as transformers has them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # label of tokens that are not learnt, as in transformers
_MAX_ELEMENTS = 1 << 26  # logits in 32 bits at once, where no gradient keeps them anyway


def per_sample_losses(
    logits: Tensor, labels: Tensor, *, shift: bool = True, ignore_index: int = IGNORED
) -> Tensor:
    """Mean negative log-likelihood a token of every caption; never waits for the device.

    Logits of image tokens before the caption, as GIT has them, are left out.

    Args:
        logits: ``(B, S, V)`` floats, S at least T.
        labels: ``(B, T) int64``; ``ignore_index`` where a token is not learnt.
        shift: whether logits of a place are for the label of the next one.
        ignore_index: see ``labels``.

    Returns:
        ``(B,) float32`` in nats, with gradients where the logits have them; NaN for a caption
        without a label.

    Raises:
        ValueError: shapes that do not fit.
    """
    fits = logits.dim() == 3 and labels.dim() == 2 and len(logits) == len(labels)
    if not fits or logits.shape[1] < labels.shape[1] or labels.shape[1] < 1 + shift:
        raise ValueError(
            "logits must be (B, S, V) and labels (B, T) with S >= T: got "
            f"{tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    logits = logits[:, -labels.shape[1] :]
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    size = len(logits)
    if not (torch.is_grad_enabled() and logits.requires_grad):
        size = max(1, _MAX_ELEMENTS // (logits.shape[1] * logits.shape[2]))
    sums = [
        _token_losses(part, targets, ignore_index).sum(1)
        for part, targets in zip(logits.split(size), labels.split(size), strict=True)
    ]
    return torch.cat(sums) / (labels != ignore_index).sum(1)


def _token_losses(logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """``(B, T)`` negative log-likelihoods, 0 where the label is ignored."""
    flat = functional.cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=ignore_index,
        reduction="none",
    )
    return flat.view_as(labels)
