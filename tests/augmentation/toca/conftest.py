"""Small corpora with tags by hand, and a language model that does as it is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from augmentation.writing.prompt import Prompt
from augmentation.writing.writers import AbstractWriter, Answer
from captioning.text.tagger import Tagged

GOLD = Path(__file__).parents[2] / "captioning/text/gold_captions.jsonl"


@pytest.fixture(scope="session")
def gold() -> list[tuple[str, Tagged]]:
    """100 captions of COCO with tags that were checked by hand."""
    lines = map(json.loads, GOLD.read_text(encoding="utf-8").splitlines())
    return [
        (record["caption"], tuple(zip(record["words"], record["tags"], strict=True)))
        for record in lines
    ]


class Filler(AbstractWriter):
    """Says the words of the template; every third answer lacks one. May die in the midst."""

    def __init__(self, *, dies_at: int = -1) -> None:
        self.calls, self.dies_at = 0, dies_at

    def answers(self, prompts: Sequence[Prompt], *, seed: int) -> list[Answer]:
        if self.calls == self.dies_at:
            raise ConnectionError("the model is gone")
        self.calls += 1
        return [
            Answer(text=" ".join(_tokens(prompt)[n % 3 == 2 :]) + f" {'x' * (seed % 7 + 1)}.")
            for n, prompt in enumerate(prompts)
        ]


def _tokens(prompt: Prompt) -> list[str]:
    return [token for token in prompt.question.split() if token.isalpha()]
