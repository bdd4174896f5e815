"""Split a caption into its objects and its context, using token ids only."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from captioning.interfaces import AbstractTokenizer
from captioning.text.object_words import NONE, PLURAL, SINGULAR, ObjectWords

NUM_PLACEHOLDERS = 2  # for an object in the singular, and in the plural


class ObjectSplit:
    """Tables over the vocabulary that mark which tokens name objects.

    Captions need no tags or parses, so edited captions work, too. All is computed on the
    CPU, where the numbers of objects must be known.

    Attributes:
        placeholders: ids that replace a singular and a plural object, after the
            vocabulary's ids.
        size: vocabulary size with the two placeholders.
    """

    def __init__(self, *, tokenizer: AbstractTokenizer, words: ObjectWords) -> None:
        """Look up the object words in the vocabulary.

        Args:
            tokenizer: word tokenizer; subword tokens are not words.
            words: words that name objects.

        Raises:
            ValueError: the vocabulary has no object word.
        """
        special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}
        texts = ["" if i in special else tokenizer.decode([i]) for i in range(len(tokenizer))]
        numbers = torch.tensor([words.number(text) for text in texts])
        pairs = _pairs(texts, words)
        if not numbers.any() and not pairs:
            raise ValueError(
                "no word of the vocabulary names an object: set another list with "
                "model.module.objects, or use a word tokenizer"
            )
        self.placeholders = {SINGULAR: len(texts), PLURAL: len(texts) + 1}
        self.size = len(texts) + NUM_PLACEHOLDERS
        # Not in checkpoints: derived from the vocabulary, which is saved.
        self.single = numbers
        self.codes = torch.tensor(list(pairs), dtype=torch.long)
        self.numbers_of_pairs = torch.tensor(list(pairs.values()), dtype=torch.long)

    def numbers(self, tokens: Tensor) -> Tensor:
        """Return `NONE`, `SINGULAR` or `PLURAL` of each token, as `ObjectWords.numbers` does.

        Args:
            tokens: ``(B, T) int64``.

        Returns:
            ``(B, T) int64``.
        """
        single = self.single[tokens]
        if not len(self.codes) or tokens.shape[1] < 2:
            return single
        codes = tokens[:, :-1] * len(self.single) + tokens[:, 1:]
        places = torch.searchsorted(self.codes, codes).clamp(max=len(self.codes) - 1)
        is_pair = self.codes[places] == codes
        pairs = torch.where(is_pair, self.numbers_of_pairs[places], NONE)
        ends, begins = functional.pad(pairs, (1, 0)), functional.pad(pairs, (0, 1))
        return torch.where(ends != NONE, ends, torch.where(begins != NONE, begins, single))

    def context(self, tokens: Tensor, numbers: Tensor) -> Tensor:
        """Replace object tokens by placeholders: ``(B, T) int64``, in [0, size)."""
        for number, placeholder in self.placeholders.items():
            tokens = tokens.masked_fill(numbers == number, placeholder)
        return tokens

    def objects(self, tokens: Tensor, numbers: Tensor, max_objects: int) -> tuple[Tensor, Tensor]:
        """Return the first objects of each caption.

        Args:
            tokens: ``(B, T) int64``.
            numbers: ``(B, T) int64`` numbers of the tokens, see `numbers`.
            max_objects: maximum number O of tokens to return.

        Returns:
            ``(B, O) int64`` tokens in order, padded with 0, and their counts ``(B,) int64``.
        """
        places = (numbers == NONE).to(torch.int8).sort(dim=1, stable=True).indices[:, :max_objects]
        count = (numbers != NONE).sum(1).clamp(max=max_objects)
        is_padding = torch.arange(places.shape[1], device=tokens.device) >= count[:, None]
        objects = tokens.gather(1, places).masked_fill(is_padding, 0)
        return functional.pad(objects, (0, max_objects - objects.shape[1])), count


def _pairs(texts: list[str], words: ObjectWords) -> dict[int, int]:
    """Return the numbers of token pairs by the pairs' codes, ascending."""
    ids = {text: number for number, text in enumerate(texts) if text}
    forms: dict[str, list[str]] = {}
    for text in ids:
        for form in {text, words.lemma(text)}:
            forms.setdefault(form, []).append(text)
    pairs = {
        ids[first] * len(texts) + ids[form]: words.number_of_pair(first, form)
        for first, second in words.pairs
        if first in ids
        for form in forms.get(second, ())
    }
    return dict(sorted(pairs.items()))
