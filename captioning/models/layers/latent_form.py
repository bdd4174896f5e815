"""The choices in which COS-CVAE's paper and its authors' code differ."""

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
    """The form of a COS-CVAE; the defaults are this project's, all others the authors' code.

    Attributes:
        attention_bias: keys and queries of the attention have biases.
        output_bias: the output layer has one.
        prior_reads_words: priors read the word before, and latents are drawn word by word.
        all_object_slots: the posterior of the objects reads padding where objects are missing.
        bounded_variances: log-variances lie in a range, see `Gaussian.of`.
        drop_to_padding: dropped input words become padding; else the unknown word.
        unknown_is_padding: unknown words are read as padding, and neither their loss nor the
            divergence at the step that reads them counts.
        plain_start: weights begin as torch makes them, and LSTMs have its second biases (see
            `captioning.models.layers.twins`); else forget gates are open, latents nearly standard
            normal, and the output has the words' frequencies.
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
    """Captions' words as the networks read them.

    Args:
        form: treatment of unknown and dropped words.
        tokenizer: tokenizer of the words.
        dropout: share of the input words that is dropped in training, in [0, 1).

    Raises:
        ValueError: a share out of its range.
    """

    def __init__(self, form: LatentForm, tokenizer: AbstractTokenizer, *, dropout: float) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"word_dropout must be in [0, 1): got {dropout}")
        self._form, self._tokenizer = form, tokenizer
        # A word is dropped if its normal random number lies below this.
        self._drop_below = NormalDist().inv_cdf(dropout) if dropout else -math.inf

    def read(self, tokens: Tensor) -> Tensor:
        """Tokens of any shape, unknown words perhaps as padding."""
        if not self._form.unknown_is_padding:
            return tokens
        return tokens.masked_fill(tokens == self._tokenizer.unk_id, self._tokenizer.pad_id)

    def counted(self, tokens: Tensor) -> Tensor:
        """Which tokens count in the loss, ``bool`` of their shape."""
        if not self._form.unknown_is_padding:
            return torch.ones_like(tokens, dtype=torch.bool)
        return tokens != self._tokenizer.unk_id

    def dropped(self, tokens: Tensor, chances: Tensor) -> Tensor:
        """Tokens after word dropout; begin tokens, which come first, are never dropped.

        Args:
            tokens: ``(B, T) int64``.
            chances: ``(B, T)`` standard normal.
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
