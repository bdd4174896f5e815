"""Prompts for training a generator, made of captions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ImageOps
from tokenizers import pre_tokenizers, trainers
from torch import Tensor
from transformers import CLIPTokenizer, PreTrainedTokenizerBase

from captioning.config.ranges import AbstractSettings, Fraction
from captioning.data.roster import Roster
from captioning.vision.photos import load_rgb


def photo_paths(roster: Roster) -> list[Path]:
    """Photos of a roster, each once, in its order."""
    return [roster.samples[rows[0]].image_path for rows in roster.rows_by_image.values()]


def load_pictures(paths: Sequence[Path], *, size: int) -> Tensor:
    """Photos, scaled and cropped to squares around their middle.

    Returns:
        ``(B, 3, size, size) float32`` in [-1, 1].

    Raises:
        FileNotFoundError, ValueError: see `load_rgb`.
    """
    return as_pictures([load_square(path, size=size) for path in paths])


def load_square(path: Path, *, size: int) -> np.ndarray:
    """A photo of `load_pictures`: ``(size, size, 3) uint8``."""
    return np.asarray(ImageOps.fit(load_rgb(path), (size, size)))


def as_pictures(squares: Sequence[np.ndarray]) -> Tensor:
    """What `load_pictures` makes of photos that `load_square` has read."""
    return torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float() / 127.5 - 1


END_OF_WORD = "</w>"


def captions_by_photo(roster: Roster) -> list[list[str]]:
    """The captions of each photo, in the roster's order."""
    return [[roster.samples[row].caption for row in rows] for rows in roster.rows_by_image.values()]


def train_tokenizer(captions: Iterable[str], *, size: int, max_length: int) -> CLIPTokenizer:
    """A tokenizer like CLIP's with byte pairs learnt from captions.

    Args:
        captions: any texts; all single bytes become tokens, too.
        size: tokens at most, with those of single bytes (512) and the two special ones.
        max_length: tokens of a prompt, with start and end.

    Raises:
        ValueError: ``size`` leaves no room for pairs.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(letter + END_OF_WORD for letter in letters)]
    if size <= len(words) + 2:
        raise ValueError(f"a vocabulary needs more than {len(words) + 2} tokens: got {size}")
    learner = CLIPTokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(letters) - 2, end_of_word_suffix=END_OF_WORD, show_progress=False,
        initial_alphabet=letters,
    )  # fmt: skip
    learner.train_from_iterator(captions, trainer)
    merges = _merges(learner)
    words += dict.fromkeys(first + second for first, second in merges)
    words = [*dict.fromkeys(words), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate(words)}
    parts: dict[str, Any] = {"vocab": vocabulary, "merges": merges}
    return CLIPTokenizer(**parts, model_max_length=max_length)


def _merges(tokenizer: Any) -> list[tuple[str, str]]:
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(first, second) for first, second in merges]


@dataclass(frozen=True, kw_only=True)
class PromptSettings(AbstractSettings):
    """``prompts`` of what trains generators; see `PromptSampler`."""

    single: Fraction
    empty: Fraction
    cut: bool = False


class PromptSampler:
    """Draws a prompt for each photo of a batch.

    A prompt is one caption, or as many complete ones as the tokenizer has room for, in random
    order. A share of the prompts is empty, as classifier-free guidance needs (Ho and Salimans,
    2022).

    Args:
        captions: of each photo, at least one.
        tokenizer: with a start and an end token.
        single: share of prompts of one caption only, in [0, 1].
        empty: share of empty prompts, in [0, 1].
        cut: all captions are taken, and the prompt ends where there is no more room.
    """

    def __init__(
        self,
        *,
        captions: Sequence[Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        single: float,
        empty: float,
        cut: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.cut = cut
        self.single = single
        self.empty = empty
        flat = [caption for photo_captions in captions for caption in photo_captions]
        tokenized = iter(tokenizer(flat, add_special_tokens=False, verbose=False)["input_ids"])
        self.ids: list[list[list[int]]] = [[next(tokenized) for _ in photo] for photo in captions]

    def draw(self, photos: Sequence[int], generator: torch.Generator) -> Tensor:
        """Prompts of photos, padded to the tokenizer's length: ``(B, L) int64``."""
        chances = torch.rand(len(photos), 2, generator=generator).tolist()
        return torch.tensor(
            [
                self._padded(self._prompt_ids(photo, chance, generator))
                for photo, chance in zip(photos, chances, strict=True)
            ]
        )

    def _prompt_ids(self, photo: int, chance: list[float], generator: torch.Generator) -> list[int]:
        if chance[0] < self.empty:
            return []
        captions = self.ids[photo]
        order = torch.randperm(len(captions), generator=generator).tolist()
        number = 1 if chance[1] < self.single else len(captions)
        drawn = [captions[index] for index in order[:number]]
        if self.cut:
            return [token for caption in drawn for token in caption][: self.room]
        return join_captions(drawn, self.room)

    @property
    def room(self) -> int:
        """Tokens that a prompt may have, without the special ones."""
        return self.tokenizer.model_max_length - 2

    def _padded(self, ids: list[int]) -> list[int]:
        tokenizer = self.tokenizer
        prompt = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
        return prompt + [tokenizer.pad_token_id] * (tokenizer.model_max_length - len(prompt))


def join_captions(captions: Sequence[list[int]], room: int) -> list[int]:
    """Tokens of complete captions in sequence, as far as there is room.

    A first caption that is too long by itself is cut.
    """
    prompt = list(captions[0][:room])
    for caption in captions[1:]:
        if len(prompt) + len(caption) <= room:
            prompt += caption
    return prompt


def sampler(
    roster: Roster, tokenizer: PreTrainedTokenizerBase, settings: PromptSettings
) -> PromptSampler:
    """Prompts for the photos of a roster, in its order."""
    shares = {"single": settings.single, "empty": settings.empty, "cut": settings.cut}
    return PromptSampler(captions=captions_by_photo(roster), tokenizer=tokenizer, **shares)
