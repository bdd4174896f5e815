"""A captioner and a filter by rule, for policies."""

from __future__ import annotations

import torch


class ToyCaptions:
    """Writes captions by the photo's stem."""

    name = "toy"

    def __init__(self, captions: dict[str, list[str]]) -> None:
        self._captions = captions
        self.calls: list[list[str]] = []

    def captions(self, photos, beginnings=None):
        self.calls.append([path.stem for path in photos])
        if beginnings is not None:
            self.calls.append(list(beginnings))
        return [list(self._captions.get(path.stem, [])) for path in photos]

    def release(self):
        self.calls.append(["released"])


class ToyFit:
    """The probability of a match is a number among the caption's words, by default the last."""

    name, is_probability = "match", True

    def __init__(self, word: int = -1) -> None:
        self._word = word

    def scores(self, pairs):
        return torch.tensor([int(text.split()[self._word]) / 10 for _, text in pairs])

    def release(self):
        pass
