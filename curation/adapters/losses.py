"""Compute the loss of every caption in a batch from logits and labels of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.text.tokenizers.token_spans import Span

IGNORED = -100  # label of tokens that are not learnt, as in transformers
_MAX_ELEMENTS = 1 << 26  # logits in 32 bits at once, where no gradient keeps them anyway


def per_sample_losses(
    logits: Tensor, labels: Tensor, *, shift: bool = True, ignore_index: int = IGNORED
) -> Tensor:
    """Mean negative log-likelihood per token of each caption, without a device synchronisation.

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
        ValueError: the shapes of logits and labels do not match.

    Examples:
        >>> import torch
        >>> from captioning import per_sample_losses
        >>> labels = torch.tensor([[0, 1, 2], [0, 3, -100]])
        >>> per_sample_losses(torch.zeros(2, 3, 4), labels)  # log 4: four words, all as likely
        tensor([1.3863, 1.3863])
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
    """Mean negative log-likelihood per token of each sentence, without a device synchronisation.

    For ``curation.add(rows, losses, sentence_loss=...)``, see docs/guides/long_captions.md.

    Args:
        logits, labels, shift, ignore_index: see `per_sample_losses`.
        sentences: ``(B, T) int64`` number of each label's sentence from 0, -1 for none, see
            `captioning.text.sentence_spans.sentence_numbers`.
        num_sentences: S; sentences from the S-th on are left out.

    Returns:
        ``(B, S) float32`` in nats, detached; NaN where a caption has fewer sentences.

    Raises:
        ValueError: the shapes of the arguments do not match.
    """
    if sentences.shape != labels.shape:
        raise ValueError(
            f"sentences must have the shape of labels {tuple(labels.shape)}: got "
            f"{tuple(sentences.shape)}"
        )
    nll = plain_token_losses(logits, labels, shift=shift, ignore_index=ignore_index)
    numbers = sentences.where(labels != ignore_index, -1)[:, int(shift) :]
    return sentence_means(nll, numbers, num_sentences)


def plain_token_losses(
    logits: Tensor, labels: Tensor, *, shift: bool = True, ignore_index: int = IGNORED
) -> Tensor:
    """Detached loss of each label in nats, ``(B, T - shift)``; 0 for ignored labels.

    Args:
        logits, labels, shift, ignore_index: see `per_sample_losses`.
    """
    logits, labels = _aligned(logits.detach(), labels, shift)
    return _token_losses(logits, labels, ignore_index)


def sentence_means(nll: Tensor, numbers: Tensor, num_sentences: int) -> Tensor:
    """Mean loss of the tokens of each sentence, ``(B, S) float32``; NaN for missing sentences.

    Args:
        nll: ``(B, T)`` losses of tokens in nats.
        numbers: ``(B, T) int64`` of the tokens' sentences, -1 for none.
        num_sentences: S.
    """
    places = torch.arange(num_sentences, device=numbers.device)
    is_own = (numbers[..., None] == places).to(nll)
    return (nll[..., None] * is_own).sum(1) / is_own.sum(1)


def label_spans(labels: Tensor, captions: Sequence[str], tokenizer: Any) -> list[list[Span]]:
    """Return the character span of each label token in its caption.

    The first and last token of a caption may differ in the labels, as they may join the text around
    the caption.

    Args:
        labels: ``(B, T) int64`` in host memory, before words are masked in them.
        captions: B texts.
        tokenizer: a fast one of transformers, by which the labels were made.

    Returns:
        T spans ``(start, stop)`` for each caption, without spaces at their ends; empty ones for
        labels of prompts, special tokens and padding.

    Raises:
        ValueError: a tokenizer that gives no offsets, or labels without a caption's tokens, such as
            those that were cut at a length.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} gives no character offsets, which assign tokens to "
            "sentences: load a fast tokenizer (AutoTokenizer, or tokenizer=processor.tokenizer)"
        )
    return [
        _spans_in(row, caption, tokenizer)
        for row, caption in zip(labels.tolist(), captions, strict=True)
    ]


def _spans_in(row: Sequence[int], caption: str, tokenizer: Any) -> list[Span]:
    for before in ("", " "):  # a word has another token after a space
        encoded = tokenizer(before + caption, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        first = _place(row, ids)
        if ids and first is not None:
            spans = [(max(0, a - len(before)), b - len(before)) for a, b in offsets]
            after = [_EMPTY] * (len(row) - first - len(ids))
            return [*[_EMPTY] * first, *(_stripped(span, caption) for span in spans), *after]
    told = shorten(caption, 60, placeholder="...")
    raise ValueError(
        f"the labels lack tokens of {told!r}, so losses cannot be assigned to sentences: raise "
        "max_length, which truncates captions, label complete unchanged captions, and give the "
        "tokenizer that makes the labels"
    )


def _place(row: Sequence[int], ids: Sequence[int]) -> int | None:
    """Return the start of the tokens' last match; in long runs both end tokens may differ."""
    cut = 1 if len(ids) > 3 else 0
    inner = list(ids[cut : len(ids) - cut])
    for first in range(len(row) - len(ids), -1, -1):
        run = row[first : first + len(ids)]
        if run[cut : len(ids) - cut] == inner and IGNORED not in run:
            return first
    return None


_EMPTY: Span = (0, 0)


def _stripped(span: Span, caption: str) -> Span:
    text = caption[span[0] : span[1]]
    start, stop = span[1] - len(text.lstrip()), span[0] + len(text.rstrip())
    return (start, stop) if start < stop else _EMPTY


def _aligned(logits: Tensor, labels: Tensor, shift: bool) -> tuple[Tensor, Tensor]:
    """Return the logits that predict the labels, and these labels."""
    fits = logits.dim() == 3 and labels.dim() == 2 and len(logits) == len(labels)
    if not fits or logits.shape[1] < labels.shape[1] or labels.shape[1] < 1 + shift:
        raise ValueError(
            "logits must be (B, S, V) and labels (B, T) with S >= T: got "
            f"{tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    logits = logits[:, -labels.shape[1] :]
    return (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)


def _token_losses(logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """Negative log-likelihood of each label, ``(B, T)``; 0 for ignored labels."""
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
