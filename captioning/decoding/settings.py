"""The input of every search: its settings, and the images of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

from captioning.config.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
)
from captioning.decoding.machine import Machine

NormalisationName = Literal["none", "power", "gnmt"]
NORMALISATIONS = get_args(NormalisationName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """How summed log-probabilities of hypotheses of different lengths are compared.

    Attributes:
        kind: divisor of the sum of a hypothesis of ``length`` tokens: ``"none"``: no divisor;
            ``"power"``: ``length ** length_penalty``; ``"gnmt"``: ``((5 + length) / 6) **
            length_penalty`` (Wu et al., 2016, equation 14, without its coverage penalty).
        length_penalty: exponent, at least 0, so that no divisor falls with the length.
    """

    kind: NormalisationName = "power"
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in NORMALISATIONS:
            raise ValueError(f"normalisation must be one of {NORMALISATIONS}: got {self.kind!r}")
        if not self.length_penalty >= 0:
            raise ValueError(f"length_penalty must be at least 0: got {self.length_penalty}")
        if self.kind == "none" and self.length_penalty:
            raise ValueError(
                f"length_penalty must be 0 with normalisation none: got {self.length_penalty}; "
                "choose power or gnmt to use it"
            )

    def scores(self, totals: Tensor, length: int) -> Tensor:
        """Sums of log-probabilities as hypotheses of ``length`` tokens are compared."""
        base = (5 + length) / 6 if self.kind == "gnmt" else length
        return totals / base**self.length_penalty


def check_integer(name: str, value: object, *, minimum: int) -> None:
    """Refuse a setting that is not a whole number of at least ``minimum``.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}: got {value!r}")


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings that searches share; each names in ``unused`` those that it does not read.

    Attributes:
        max_length: most tokens of a caption, the end token counted; at least 1.
        min_length: fewest tokens of a finished caption, the end token counted; in
            [0, ``max_length``].
        must_end: whether the last token of ``max_length`` must be an end. Otherwise a caption that
            has not ended is cut off there, and then holds ``max_length`` tokens of text.
        forbidden_words: words never produced, each of one token in the model's vocabulary.
        forbidden_ids: the same as token ids.
        end_words: further words that end a caption and stay in it, such as a full stop.
        end_ids: the same as token ids.
        no_repeat_ngram_size: n, at least 0; no n tokens in a row occur twice in a caption; 0: no
            rule.
        repetition_penalty: repetition penalty of tokens that the prompt or the caption already
            holds, above 0; 1 is none. The model's logits of them are divided by it where positive
            and multiplied where negative (Keskar et al., 2019, as in transformers). Beam searches
            do so with log-probabilities, greedy search and random draws with the model's logits.
        count_prompt: whether the two lengths count the begin token and the model's prompt, too, as
            those of transformers.
        special_tokens: whether padding, begin token and unknown word may be produced, as in
            transformers; they stay out of the caption's text.
        num_captions: M, captions returned an image, at least 1. Beam searches return the most
            probable ones of a beam, at most ``beam_size``; random searches as many draws.
        beam_size: K, unfinished hypotheses kept an image, at least 1.
        length_penalty: exponent of the normalisation, at least 0. With 0 summed log-probabilities
            are compared; with 1 and ``"power"`` their means a token.
        normalisation: ``"none"``, ``"power"`` or ``"gnmt"``: see `Normalisation`.
        per_node_beam: most continuations of one hypothesis after the first step, at least 1
            (nocaps uses 2 with beam 5); None: no limit.
        exact: False drops an image as soon as no unfinished hypothesis is better at its present
            length than the worst that would be returned (the rule of transformers): much earlier
            with a length penalty, but a better caption is missed now and then.
        temperature: temperature of random draws, at least 0 and finite.
        seed: seed of random draws, at least 0.

    Raises:
        ValueError: a number out of its range; names the setting.
    """

    max_length: PositiveInt = 20
    min_length: NonNegativeInt = 0
    must_end: bool = False
    forbidden_words: Sequence[str] = ()
    forbidden_ids: Sequence[int] = ()
    end_words: Sequence[str] = ()
    end_ids: Sequence[int] = ()
    no_repeat_ngram_size: NonNegativeInt = 0
    repetition_penalty: PositiveFloat = 1.0
    count_prompt: bool = False
    special_tokens: bool = False
    num_captions: PositiveInt = 1
    beam_size: PositiveInt = 1
    length_penalty: NonNegativeFloat = 0.0
    normalisation: NormalisationName = "power"
    per_node_beam: PositiveInt | None = None
    exact: bool = True
    temperature: NonNegativeFloat = 1.0
    seed: Seed = 0

    def __post_init__(self) -> None:
        for name in ("max_length", "num_captions", "beam_size"):
            check_integer(name, getattr(self, name), minimum=1)
        for name in ("min_length", "no_repeat_ngram_size", "seed"):
            check_integer(name, getattr(self, name), minimum=0)
        if self.per_node_beam is not None:
            check_integer("per_node_beam", self.per_node_beam, minimum=1)
        if self.min_length > self.max_length:
            raise ValueError(
                f"min_length must be in [0, max_length]: got {self.min_length} for "
                f"{self.max_length}; choose 0 <= min_length <= max_length"
            )
        if not 0 < self.repetition_penalty < inf:
            raise ValueError(
                f"repetition_penalty must be above 0 and finite: got {self.repetition_penalty}"
            )
        if not 0 <= self.temperature < inf:
            raise ValueError(f"temperature must be at least 0 and finite: got {self.temperature}")
        self.normaliser()
        for name in ("forbidden_words", "end_words"):
            if isinstance(words := getattr(self, name), str):
                raise ValueError(f"{name} must be a list of words: got {words!r}; write [{words}]")

    def normaliser(self) -> Normalisation:
        """How scores of captions of different lengths are compared."""
        return Normalisation(kind=self.normalisation, length_penalty=self.length_penalty)

    def changed(self) -> set[str]:
        """Names of the settings that differ from their defaults."""
        return {
            field.name
            for field in fields(self)
            if getattr(self, field.name) != field.default
            and not (field.default == () and len(getattr(self, field.name)) == 0)
        }


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """The images of one call of a search, and the special tokens of the model.

    Attributes:
        num_images: I, at least 0.
        bos_id: first token read, never produced.
        eos_id: ends a caption.
        pad_id: never produced; may be an end.
        prompt_ids: tokens that the model reads between begin token and caption.
        image_ids: I keys, whole numbers of at least 0 or texts; the random draws of an image
            depend on the seed and its key alone. None: the positions 0 to I - 1.
        machines: I machines, the words that each image's captions must hold; None: no constraints.
        device: device of the model's memory.
        unk_id: the unknown word, for searches that may say it.
        further_ends: tokens that end a caption as ``eos_id`` does.

    Raises:
        ValueError: not one id or machine for each image.
    """

    num_images: int
    bos_id: int
    eos_id: int
    pad_id: int
    prompt_ids: Sequence[int] = ()
    image_ids: Sequence[int | str] | None = None
    machines: Sequence[Machine] | None = None
    device: torch.device | str = "cpu"
    unk_id: int | None = None
    further_ends: Sequence[int] = ()

    def __post_init__(self) -> None:
        for name in ("image_ids", "machines"):
            values = getattr(self, name)
            if values is not None and len(values) != self.num_images:
                raise ValueError(
                    f"{name} must be one for each image: got {len(values)} for {self.num_images}"
                )

    @property
    def ends(self) -> tuple[int, ...]:
        """All tokens that end a caption, ``eos_id`` first."""
        return tuple(dict.fromkeys((self.eos_id, *self.further_ends)))

    @property
    def keys(self) -> Sequence[int | str]:
        """One key for each image, for random draws."""
        return range(self.num_images) if self.image_ids is None else self.image_ids
