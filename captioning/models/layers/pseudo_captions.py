"""Contexts of other photos, filled with a photo's own objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from captioning.models.layers.on_device import on_device


@dataclass(frozen=True, slots=True, kw_only=True)
class PseudoCaptions:
    """Further training captions for B' of B captions.

    Attributes:
        captions: ``(B',) int64`` positions in the batch; others have no context, or a slot in the
            singular or plural that their photo has no word for.
        contexts: ``(B', T) int64`` tokens with placeholders, begin and end, padded.
        words: ``(B', T) int64`` the same with objects in place of the placeholders.
        lengths: ``(B',) int64`` of both.
    """

    captions: Tensor
    contexts: Tensor
    words: Tensor
    lengths: Tensor

    def on(self, device: torch.device) -> PseudoCaptions:
        """The same on a device."""
        tensors = (self.captions, self.contexts, self.words, self.lengths)
        captions, contexts, words, lengths = (on_device(tensor, device) for tensor in tensors)
        return PseudoCaptions(captions=captions, contexts=contexts, words=words, lengths=lengths)


def fill_contexts(
    extras: dict[str, Tensor], keys: Sequence[tuple[int, ...]], size: int
) -> PseudoCaptions:
    """Choose a context for each caption, and fill it.

    Slots in the singular (or plural) are filled with the photo's words in the singular (or plural)
    in turn, from a random one on.

    Args:
        extras: of a batch on the host, where contexts are filled and counted, see
            `captioning.data.batches.nearest_contexts.EpochContexts.tensors`.
        keys: of the captions; the choice depends on a caption's own key alone.
        size: V; the ids of the placeholders are V for the singular and V + 1 for the plural.
    """
    tokens, lengths = extras["context_tokens"], extras["context_lengths"]
    chances = np.stack([np.random.default_rng(key).integers(1 << 31, size=2) for key in keys])
    chosen, first_word = torch.from_numpy(chances).to(tokens.device).unbind(1)
    num_contexts = (lengths > 0).sum(1)
    chosen = chosen % num_contexts.clamp(min=1)
    captions = torch.arange(len(tokens), device=tokens.device)
    contexts, lengths = tokens[captions, chosen], lengths[captions, chosen]
    words, filled = contexts, num_contexts > 0
    for number, objects in enumerate(extras["object_words"].unbind(1)):
        slots = contexts == size + number
        num_words = (objects >= 0).sum(1)
        positions = (first_word[:, None] + slots.cumsum(1)) % num_words.clamp(min=1)[:, None]
        words = torch.where(slots, objects.gather(1, positions), words)
        filled = filled & ((num_words > 0) | ~slots.any(1))
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
    """The same contexts, with the label of the most attended region in each slot.

    Only regions whose label has a word in the slot's number (singular or plural) count; if there is
    none, the photo's word stays.

    Args:
        pseudo: B' filled contexts of T tokens.
        attention: ``(B', T - 1, R)`` at the prediction of each token but the first.
        labels: ``(B', 2, R') int64`` tokens of the regions' labels in the singular and in the
            plural, negative where there is none; regions beyond R' have none.
        size: see `fill_contexts`.
    """
    words, slots = pseudo.words.clone(), pseudo.contexts[:, 1:]
    attention = attention[:, :, : labels.shape[2]]
    for number, label_words in enumerate(labels[:, :, : attention.shape[2]].unbind(1)):
        has_word = (label_words >= 0)[:, None]
        best = attention.masked_fill(~has_word, -1).argmax(2)
        filled = (slots == size + number) & has_word.any(2)
        words[:, 1:] = torch.where(filled, label_words.gather(1, best), words[:, 1:])
    return replace(pseudo, words=words)
