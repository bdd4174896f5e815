"""Options where the paper of COS-CVAE and its authors' code differ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor, nn

from captioning.interfaces import AbstractTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentForm:
    """Variant of COS-CVAE; defaults follow this project, other values the authors' code.

    Attributes:
        attention_bias: whether keys and queries of the attention have biases.
        output_bias: whether the output layer has a bias.
        prior_reads_words: whether priors read the previous word, so latents are sampled per word.
        all_object_slots: whether the objects' posterior reads padding for missing objects.
        bounded_variances: whether log-variances are bounded, see `Gaussian.of`.
        drop_to_padding: whether dropped input words become padding; else the unknown word.
        unknown_is_padding: whether unknown words are read as padding, and neither their loss nor
            the divergence at the step that reads them counts.
        plain_start: whether weights are initialised as in torch, with second LSTM biases (see
            `captioning.models.layers.twins`); else forget gates are open, latents nearly standard
            normal, and the output bias has the words' frequencies.
    """

    attention_bias: bool = False
    output_bias: bool = True
    prior_reads_words: bool = False
    all_object_slots: bool = False
    bounded_variances: bool = True
    drop_to_padding: bool = False
    unknown_is_padding: bool = False
    plain_start: bool = False


class InputWords:
    """Input words of the networks, with word dropout and the treatment of unknown words.

    Args:
        form: treatment of unknown and dropped words.
        tokenizer: tokenizer of the words.
        dropout: share of input words dropped in training, in [0, 1).

    Raises:
        ValueError: the share is out of range.
    """

    def __init__(self, form: LatentForm, tokenizer: AbstractTokenizer, *, dropout: float) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"word_dropout must be in [0, 1): got {dropout}")
        self._form, self._tokenizer = form, tokenizer
        # A word is dropped if its normal random number is below this value.
        self._drop_below = NormalDist().inv_cdf(dropout) if dropout else -math.inf

    def read(self, tokens: Tensor) -> Tensor:
        """Return tokens of any shape, with unknown words as padding if the form says so."""
        if not self._form.unknown_is_padding:
            return tokens
        return tokens.masked_fill(tokens == self._tokenizer.unk_id, self._tokenizer.pad_id)

    def counted(self, tokens: Tensor) -> Tensor:
        """Return which tokens count in the loss, ``bool`` of the same shape."""
        if not self._form.unknown_is_padding:
            return torch.ones_like(tokens, dtype=torch.bool)
        return tokens != self._tokenizer.unk_id

    def dropped(self, tokens: Tensor, chances: Tensor) -> Tensor:
        """Return tokens after word dropout; begin tokens (first) are never dropped.

        Args:
            tokens: ``(B, T) int64``.
            chances: ``(B, T)`` standard normal numbers.
        """
        tokenizer = self._tokenizer
        drops = (chances < self._drop_below) & (tokens != tokenizer.bos_id)
        drops[:, 0] = False  # also those of buckets, see `captioning.text.control_tokens`
        to_padding = self._form.drop_to_padding
        return tokens.masked_fill(drops, tokenizer.pad_id if to_padding else tokenizer.unk_id)


def clip_by_part(parts: Iterable[nn.Module], max_norm: float) -> None:
    """Scale each part's gradients separately to a norm of at most ``max_norm``."""
    for part in parts:
        nn.utils.clip_grad_norm_(part.parameters(), max_norm)
