"""Write prompts for a language model: instruction, examples from the corpus, sentence template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from augmentation.toca.template_sampling import SentenceTemplate
from augmentation.toca.templates import (
    END,
    GAP,
    deconstruct,
    fill_structure,
    sentence_template,
)
from augmentation.writing.prompt import Prompt
from captioning.config.ranges import NonNegativeInt
from captioning.text.entities import as_sentence
from captioning.text.tagger import Tagged

Style = Literal["gaps", "words"]
STYLES = get_args(Style)
INSTRUCTIONS = {
    "gaps": (
        f"Fill the gaps {GAP} of each template with any number of words, or none, so that it "
        "becomes one sentence that describes a photo. Keep all words that are given."
    ),
    "words": "Write one sentence that describes a photo and has all the given words.",
}
QUESTION, ANSWER = {"gaps": "Template", "words": "Words"}, "Sentence"
# Captions that make good examples: of usual length, with several lexical words.
MIN_LEXICAL_WORDS, MIN_TOKENS, MAX_TOKENS = 3, 7, 16


class PromptWriter:
    """Writes prompts with random examples: captions of a corpus with their templates.

    Args:
        style: ``"gaps"``, as in the paper, or ``"words"``: the template's words alone, in order.
        num_examples: number of examples in each prompt.
        instruct: False: no instruction, for a model that was taught the task.

    Raises:
        ValueError: ``style`` is unknown, or ``num_examples`` is negative.
    """

    def __init__(
        self, *, style: Style = "gaps", num_examples: NonNegativeInt = 5, instruct: bool = True
    ) -> None:
        if style not in STYLES:
            raise ValueError(f"style must be one of {STYLES}: got {style!r}")
        if num_examples < 0:
            raise ValueError(f"num_examples must not be negative: got {num_examples}")
        self.style, self.num_examples = style, num_examples
        self._instruction = INSTRUCTIONS[style] if instruct else ""
        self._pool: list[tuple[str, str]] = []

    def learn(self, captions: Sequence[str], tagged: Sequence[Tagged]) -> None:
        """Take examples from captions; a few captions are enough."""
        for caption, tags in zip(captions, tagged, strict=True):
            parts = deconstruct(tags)
            fits = MIN_TOKENS <= len(tags) <= MAX_TOKENS and caption.isascii()
            if fits and len(parts.words) >= MIN_LEXICAL_WORDS:
                tokens = list(fill_structure(parts.structure, [word for word, _ in parts.words]))
                self._pool.append((self._question(sentence_template(tokens)), as_sentence(caption)))

    def prompts(
        self, templates: Sequence[SentenceTemplate], generator: np.random.Generator
    ) -> list[Prompt]:
        """Write one prompt for each sentence template; all share the same newly drawn examples."""
        number = min(self.num_examples, len(self._pool))
        rows = generator.choice(len(self._pool), number, replace=False) if number else []
        examples = tuple(self._pool[n] for n in rows)
        return [
            Prompt(
                instruction=self._instruction,
                examples=examples,
                question=self._question(template.text),
                names=(QUESTION[self.style], ANSWER),
                required_tokens=template.tokens,
            )
            for template in templates
        ]

    def _question(self, template: str) -> str:
        if self.style == "gaps":
            return template
        tokens = template.replace(GAP, " ").split()
        return ", ".join(token for token in tokens if token not in (",", END))
