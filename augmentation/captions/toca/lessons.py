"""What a language model is taught of a corpus: some words of a caption, and the caption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from augmentation.captions.toca.prompts import PromptWriter
from augmentation.captions.toca.sampling import SentenceTemplate, as_template, with_some_words
from augmentation.captions.toca.templates import deconstruct
from augmentation.captions.toca.whole_words import whole_words
from augmentation.captions.writing.causal_writer import LINE_END, padded_left
from captioning.text.entities import as_sentence
from captioning.text.tagger import Tagged

NEAR = 8  # batches' worth of captions of about the same length, of which a batch is drawn
LOOKED_AT = 100  # captions, for the longest in tokens
IGNORED = -100  # tokens that are given


class Lessons:
    """Captions with the questions that they answer, drawn anew each time.

    Args:
        captions: pairs of a caption and its own sentence template.
        prompts: how it is asked, without examples.
        tokenizer: of the language model.
        whole: share of the questions that give the whole template; the others give some of its
            lexical words, as `with_some_words` does.
    """

    def __init__(
        self,
        captions: Sequence[tuple[str, SentenceTemplate]],
        *,
        prompts: PromptWriter,
        tokenizer: Any,
        whole: float,
    ) -> None:
        self._captions = sorted(captions, key=lambda pair: len(pair[0]))
        self._prompts, self._tokenizer, self._whole = prompts, tokenizer, whole

    def __len__(self) -> int:
        return len(self._captions)

    def longest(self) -> int:
        """Tokens of a question and its answer at most, by the captions of most letters."""
        draws, longest = np.random.default_rng(0), 0
        for caption, template in self._captions[-LOOKED_AT:]:
            longest = max(longest, sum(map(len, self._pair(caption, template, draws))))
        return longest

    def draw(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Questions with their answers, the captions of a draw being of about the same length.

        Returns:
            ``(B, T) int64`` tokens, padded on the left, their mask, and what is to be learned of
            them: the answers' tokens, `IGNORED` elsewhere.
        """
        draws = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        start = draws.integers(len(self._captions))
        near = draws.choice(NEAR * number, number, replace=False)
        rows = [self._row(int(start + n) % len(self._captions), draws) for n in near]
        tokens, mask = padded_left([prompt + answer for prompt, answer in rows])
        labels, _ = padded_left([[IGNORED] * len(prompt) + answer for prompt, answer in rows])
        return tokens, mask, labels.masked_fill(mask == 0, IGNORED)

    def _row(self, place: int, draws: np.random.Generator) -> tuple[list[int], list[int]]:
        """Tokens of a question and of its answer."""
        caption, template = self._captions[place]
        if draws.random() >= self._whole:
            template = with_some_words(template, len(template.words), draws)
        return self._pair(caption, template, draws)

    def _pair(
        self, caption: str, template: SentenceTemplate, draws: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        (prompt,) = self._prompts.prompts([template], draws)
        # in parts, as a writer reads them
        prompt_ids = [*self._ids(prompt.opening()), *self._ids(prompt.ending())]
        return prompt_ids, self._ids(f" {caption}{LINE_END}")

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]


def with_templates(
    captions: Sequence[str], tagged: Iterable[Tagged]
) -> Iterator[tuple[str, SentenceTemplate]]:
    """Captions as sentences with their own templates; those that have none are left out."""
    for caption, tags in zip(captions, tagged, strict=True):
        parts = deconstruct(whole_words(caption, tags))
        if parts.problem:
            continue
        slots = iter(parts.words)
        tokens = [
            next(slots) if part.startswith("[") else (part, "")
            for part in parts.structure.split(" ")
        ]
        yield as_sentence(caption), as_template(parts.structure, tokens)
