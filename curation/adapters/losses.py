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
    logits, labels = _aligned(logits, labels, shift)
    size = len(logits)
    if not (torch.is_grad_enabled() and logits.requires_grad):
        size = max(1, _MAX_ELEMENTS // (logits.shape[1] * logits.shape[2]))
    sums = [
        _token_losses(part, targets, ignore_index).sum(1)
        for part, targets in zip(logits.split(size), labels.split(size), strict=True)
    ]
    return torch.cat(sums) / (labels != ignore_index).sum(1)


def per_sentence_losses(
    logits: Tensor,
    labels: Tensor,
    sentences: Tensor,
    *,
    num_sentences: int,
    shift: bool = True,
    ignore_index: int = IGNORED,
) -> Tensor:
    """Mean negative log-likelihood a token of each sentence; never waits for the device.

    For ``curation.add(rows, losses, sentence_loss=...)``, see docs/long_captions.md.

    Args:
        logits, labels, shift, ignore_index: see `per_sample_losses`.
        sentences: ``(B, T) int64`` number of each label's sentence from 0, -1 for none, see
            `captioning.text.sentence_spans.sentence_numbers`.
        num_sentences: S; sentences from the S-th on are left out.

    Returns:
        ``(B, S) float32`` in nats, detached; NaN where a caption has fewer sentences.

    Raises:
        ValueError: shapes that do not fit.
    """
    if sentences.shape != labels.shape:
        raise ValueError(
            f"sentences must be of the labels' shape {tuple(labels.shape)}: got "
            f"{tuple(sentences.shape)}"
        )
    logits, labels = _aligned(logits.detach(), labels, shift)
    numbers = sentences[:, 1:] if shift else sentences
    nll = _token_losses(logits, labels, ignore_index)
    numbers = numbers.where(labels != ignore_index, -1)
    places = torch.arange(num_sentences, device=numbers.device)
    is_own = (numbers[..., None] == places).to(nll)
    return (nll[..., None] * is_own).sum(1) / is_own.sum(1)


def _aligned(logits: Tensor, labels: Tensor, shift: bool) -> tuple[Tensor, Tensor]:
    """Logits of the labels' places, and the labels."""
    fits = logits.dim() == 3 and labels.dim() == 2 and len(logits) == len(labels)
    if not fits or logits.shape[1] < labels.shape[1] or labels.shape[1] < 1 + shift:
        raise ValueError(
            "logits must be (B, S, V) and labels (B, T) with S >= T: got "
            f"{tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    logits = logits[:, -labels.shape[1] :]
    return (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)


def _token_losses(logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """``(B, T)`` negative log-likelihoods, 0 where the label is ignored."""
    if torch.is_grad_enabled() and logits.requires_grad:
        flat = functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=ignore_index,
            reduction="none",
        )
        return flat.view_as(labels)
    # without gradients no (B, T, V) log-probabilities are needed: a third less time
    learnt = labels != ignore_index
    targets = labels.masked_fill(~learnt, 0).unsqueeze(2)
    scores = logits.float()
    return (scores.logsumexp(2) - scores.gather(2, targets).squeeze(2)) * learnt
