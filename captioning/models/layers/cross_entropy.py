"""Next-token losses of many tokens at once."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


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
