"""A question to a language model, with what stands before it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A question with what stands before it.

    Attributes:
        instruction: what to do; empty for a model that was taught to do it.
        examples: pairs of question and answer.
        question: the sentence template, in the prompt's style.
        names: of question and answer in running text.
        given: tokens that the answer is to hold, in order, see `SentenceTemplate`.
    """

    instruction: str
    examples: tuple[tuple[str, str], ...]
    question: str
    names: tuple[str, str]
    given: tuple[tuple[str, str], ...] = ()

    def opening(self) -> str:
        """The running text before the question: the same for prompts of the same examples."""
        question, reply = self.names
        shown = [f"{question}: {left}\n{reply}: {right}" for left, right in self.examples]
        return "\n\n".join([*filter(None, [self.instruction]), *shown, f"{question}:"])

    def ending(self) -> str:
        """The running text that follows `opening`; a sentence and a line's end are to come."""
        return f" {self.question}\n{self.names[1]}:"

    def messages(self) -> list[dict[str, str]]:
        """The same as turns of a talk, user and assistant in turn.

        The instruction begins the first one: a turn of its own (``system``) is dropped or refused
        by models that know none, such as Mistral's.
        """
        turns = []
        for question, answer in (*self.examples, (self.question, "")):
            turns.append({"role": "user", "content": question})
            turns.append({"role": "assistant", "content": answer})
        if self.instruction:
            instruction = f"{self.instruction} Answer with it alone."
            turns[0]["content"] = f"{instruction}\n\n{turns[0]['content']}"
        return turns[:-1]
