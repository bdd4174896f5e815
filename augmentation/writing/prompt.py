"""A prompt: a question to a language model, with an instruction and examples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt with an instruction, examples and a question.

    Attributes:
        instruction: the task; empty for a model that was taught it.
        examples: pairs of question and answer.
        question: the sentence template, in the prompt's style.
        names: names of question and answer in running text.
        required_tokens: tokens that the answer must hold, in order, see `SentenceTemplate`.
    """

    instruction: str
    examples: tuple[tuple[str, str], ...]
    question: str
    names: tuple[str, str]
    required_tokens: tuple[tuple[str, str], ...] = ()

    def opening(self) -> str:
        """Text before the question, equal for prompts with the same examples."""
        question, answer = self.names
        example_texts = [
            f"{question}: {example_question}\n{answer}: {example_answer}"
            for example_question, example_answer in self.examples
        ]
        return "\n\n".join([*filter(None, [self.instruction]), *example_texts, f"{question}:"])

    def ending(self) -> str:
        """Text after `opening`; the model answers with a sentence and a line break."""
        return f" {self.question}\n{self.names[1]}:"

    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages, alternating between user and assistant.

        The instruction begins the first one: models without a separate turn (``system``), such as
        Mistral's, drop or refuse it.
        """
        turns = []
        for question, answer in (*self.examples, (self.question, "")):
            turns.append({"role": "user", "content": question})
            turns.append({"role": "assistant", "content": answer})
        if self.instruction:
            instruction = f"{self.instruction} Answer with it alone."
            turns[0]["content"] = f"{instruction}\n\n{turns[0]['content']}"
        return turns[:-1]
