"""Questions and answers for teaching a language model: some words of a caption, and the caption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from augmentation.toca.joined_words import join_word_parts
from augmentation.toca.prompts import PromptWriter
from augmentation.toca.sampling import SentenceTemplate, as_template, with_some_words
from augmentation.toca.templates import deconstruct
from augmentation.writing.causal_writer import LINE_END, padded_left
from captioning.text.causal import leading_ids
from captioning.text.entities import as_sentence
from captioning.text.tagger import Tagged

NUM_NEAR_BATCHES = 8  # a batch is drawn of so many batches of captions of about its length
NUM_LONGEST = 100  # captions of most letters, among which the longest in tokens is found
IGNORED = -100  # label of the question's tokens


class Lessons:
    """Captions with questions about them; each draw makes new questions.

    Args:
        captions: pairs of a caption and its own sentence template.
        prompts: the style of the questions, without examples.
        tokenizer: of the language model.
        full_template_share: share of the questions that hold the complete template; the others hold
            some of its lexical words, see `with_some_words`.
    """

    def __init__(
        self,
        captions: Sequence[tuple[str, SentenceTemplate]],
        *,
        prompts: PromptWriter,
        tokenizer: Any,
        full_template_share: float,
    ) -> None:
        self._captions = sorted(captions, key=lambda pair: len(pair[0]))
        self._prompts, self._tokenizer, self._full_template_share = (
            prompts,
            tokenizer,
            full_template_share,
        )
        self._leading = leading_ids(tokenizer)

    def __len__(self) -> int:
        return len(self._captions)

    def longest(self) -> int:
        """Tokens of the longest question and answer, among the captions of most letters."""
        draws, longest = np.random.default_rng(0), 0
        for caption, template in self._captions[-NUM_LONGEST:]:
            longest = max(longest, sum(map(len, self._pair(caption, template, draws))))
        return longest

    def draw(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Questions with their answers; the captions of a draw are of about the same length.

        Returns:
            ``(B, T) int64`` tokens, padded on the left, their mask, and the labels to be learned:
            the answers' tokens, `IGNORED` elsewhere.
        """
        draws = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        start = draws.integers(len(self._captions))
        near = draws.choice(NUM_NEAR_BATCHES * number, number, replace=False)
        rows = [self._row(int(start + n) % len(self._captions), draws) for n in near]
        tokens, mask = padded_left([prompt + answer for prompt, answer in rows])
        labels, _ = padded_left([[IGNORED] * len(prompt) + answer for prompt, answer in rows])
        return tokens, mask, labels.masked_fill(mask == 0, IGNORED)

    def _row(self, place: int, draws: np.random.Generator) -> tuple[list[int], list[int]]:
        """Tokens of a question and of its answer."""
        caption, template = self._captions[place]
        if draws.random() >= self._full_template_share:
            template = with_some_words(template, len(template.words), draws)
        return self._pair(caption, template, draws)

    def _pair(
        self, caption: str, template: SentenceTemplate, draws: np.random.Generator
    ) -> tuple[list[int], list[int]]:
        (prompt,) = self._prompts.prompts([template], draws)
        # tokenised in parts, as a writer does
        opening = [*self._leading, *self._ids(prompt.opening())]
        prompt_ids = [*opening, *self._ids(prompt.ending())]
        return prompt_ids, self._ids(f" {caption}{LINE_END}")

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]


def with_templates(
    captions: Sequence[str], tagged: Iterable[Tagged]
) -> Iterator[tuple[str, SentenceTemplate]]:
    """Captions as sentences with their own templates; captions without one are left out."""
    for caption, tags in zip(captions, tagged, strict=True):
        parts = deconstruct(join_word_parts(caption, tags))
        if parts.problem:
            continue
        slots = iter(parts.words)
        tokens = [
            next(slots) if part.startswith("[") else (part, "")
            for part in parts.structure.split(" ")
        ]
        yield as_sentence(caption), as_template(parts.structure, tokens)
