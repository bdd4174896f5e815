"""Contexts of other photos, filled with a photo's own objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoCaptions:
    """What B' of B captions are trained with besides.

    Attributes:
        captions: ``(B',) int64`` which of them; the others have no context, or objects of a number
            that their photo has not.
        contexts: ``(B', T) int64`` tokens with placeholders, begin and end, padded.
        words: ``(B', T) int64`` the same with objects in place of the placeholders.
        lengths: ``(B',) int64`` of both.
    """

    captions: Tensor
    contexts: Tensor
    words: Tensor
    lengths: Tensor


def fill_contexts(
    extras: dict[str, Tensor], keys: Sequence[tuple[int, ...]], size: int
) -> PseudoCaptions:
    """Choose a context for each caption, and fill it.

    Slots of a number are filled with the photo's words of that number in turn, from one of them on.

    Args:
        extras: of a batch, see `captioning.data.batches.nearest_contexts.EpochContexts.tensors`.
        keys: of the captions; what is chosen depends on a caption's own key alone.
        size: V; the ids of the placeholders are V for the singular and V + 1 for the plural.
    """
    tokens, lengths = extras["context_tokens"], extras["context_lengths"]
    chances = np.stack([np.random.default_rng(key).integers(1 << 31, size=2) for key in keys])
    chosen, first = torch.from_numpy(chances).to(tokens.device).unbind(1)
    several = (lengths > 0).sum(1)
    chosen = chosen % several.clamp(min=1)
    captions = torch.arange(len(tokens), device=tokens.device)
    contexts, lengths = tokens[captions, chosen], lengths[captions, chosen]
    words, filled = contexts, several > 0
    for number, objects in enumerate(extras["object_words"].unbind(1)):
        slots = contexts == size + number
        known = (objects >= 0).sum(1)
        turns = (first[:, None] + slots.cumsum(1)) % known.clamp(min=1)[:, None]
        words = torch.where(slots, objects.gather(1, turns), words)
        filled = filled & ((known > 0) | ~slots.any(1))
    captions = filled.nonzero().squeeze(1)
    lengths = lengths[captions]
    longest = int(lengths.max()) if len(lengths) else 0
    return PseudoCaptions(
        captions=captions,
        contexts=contexts[captions, :longest],
        words=words[captions, :longest],
        lengths=lengths,
    )


def fill_by_attention(
    pseudo: PseudoCaptions, attention: Tensor, labels: Tensor, size: int
) -> PseudoCaptions:
    """The same contexts, with the label of the region attended most in each slot.

    Among the regions whose label has a word of the slot's number; where there is none, the photo's
    word stays.

    Args:
        pseudo: B' filled contexts of T tokens.
        attention: ``(B', T - 1, R)``, of each token but the first before it is said.
        labels: ``(B', 2, R') int64`` tokens of the regions' labels in the singular and in the
            plural, below 0 where there is none; regions beyond R' have none.
        size: see `fill_contexts`.
    """
    words, slots = pseudo.words.clone(), pseudo.contexts[:, 1:]
    attention = attention[:, :, : labels.shape[2]]
    for number, named in enumerate(labels[:, :, : attention.shape[2]].unbind(1)):
        known = (named >= 0)[:, None]
        best = attention.masked_fill(~known, -1).argmax(2)
        filled = (slots == size + number) & known.any(2)
        words[:, 1:] = torch.where(filled, named.gather(1, best), words[:, 1:])
    return replace(pseudo, words=words)
