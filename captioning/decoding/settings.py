"""Input of every search: its settings, and the request for several images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from numbers import Integral
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
    """Length normalisation of summed log-probabilities.

    Attributes:
        kind: divisor for a hypothesis of ``length`` tokens: ``"none"``: 1;
            ``"power"``: ``length ** length_penalty``; ``"gnmt"``: ``((5 + length) / 6) **
            length_penalty`` (Wu et al., 2016, equation 14, without its coverage penalty).
        length_penalty: exponent, at least 0, so that divisors never fall with the length.
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
        """Normalise summed log-probabilities of hypotheses of ``length`` tokens."""
        base = (5 + length) / 6 if self.kind == "gnmt" else length
        return totals / base**self.length_penalty


def check_integer(name: str, value: object, *, minimum: int) -> None:
    """Raise an error unless a setting is a whole number of at least ``minimum``.

    Raises:
        ValueError: the value is another type or too small.
    """
    if not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}: got {value!r}")


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings shared by all searches; each search lists the settings it ignores in ``unused``.

    Attributes:
        max_length: maximum tokens of a caption, including the end token; at least 1.
        min_length: minimum tokens of a finished caption, including the end token; in
            [0, ``max_length``].
        must_end: whether the token at ``max_length`` must be an end token. Otherwise an unfinished
            caption is cut off there and holds ``max_length`` tokens of text.
        forbidden_words: words that are never produced, each one token of the model's vocabulary.
        forbidden_ids: token ids that are never produced.
        end_words: further words that end a caption and stay in its text, such as a full stop.
        end_ids: token ids that end a caption and stay in its text.
        no_repeat_ngram_size: n, at least 0; no n-gram occurs twice in a caption; 0: no
            rule.
        repetition_penalty: penalty on tokens that the prompt or the caption already holds, above 0;
            1: no penalty. Positive logits of such tokens are divided by the penalty and negative
            logits multiplied (Keskar et al., 2019, as in transformers). Beam searches apply the
            penalty to log-probabilities, greedy search and sampling to logits.
        count_prompt: whether the two lengths include the begin token and the model's prompt, as in
            transformers.
        special_tokens: whether padding, begin token and unknown word may be produced, as in
            transformers; captions' texts omit them.
        num_captions: M, captions returned per image, at least 1. Beam searches return the most
            probable hypotheses, at most ``beam_size``; sampling returns M samples.
        beam_size: K, unfinished hypotheses per image, at least 1.
        length_penalty: exponent of the normalisation, at least 0. At 0, summed log-probabilities
            are compared; at 1 with ``"power"``, means per token.
        normalisation: ``"none"``, ``"power"`` or ``"gnmt"``: see `Normalisation`.
        per_node_beam: maximum continuations of one hypothesis after the first step, at least 1
            (nocaps uses 2 with beam 5); None: no limit.
        exact: False stops an image's search once no unfinished hypothesis beats, at its present
            length, the worst caption to return (the rule of transformers). This is much faster
            with a length penalty, but sometimes misses a better caption.
        temperature: sampling temperature, at least 0 and finite.
        seed: seed of random sampling, at least 0.

    Raises:
        ValueError: a number out of range; the message names the setting.
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
        for name in ("forbidden_words", "end_words", "forbidden_ids", "end_ids"):
            kind, noun = (str, "words") if name.endswith("words") else (Integral, "token ids")
            values = getattr(self, name)
            is_list = isinstance(values, Sequence) and not isinstance(values, str)
            if not is_list or not all(isinstance(value, kind) for value in values):
                hint = f"; write [{values}]" if isinstance(values, kind) else ""
                raise ValueError(f"{name} must be a list of {noun}: got {values!r}{hint}")

    def normaliser(self) -> Normalisation:
        """Length normalisation of these settings."""
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
    """Images of one search call, with the model's special tokens.

    Attributes:
        num_images: number of images I, at least 0.
        bos_id: begin token, read first and never produced.
        eos_id: end token of a caption.
        pad_id: padding token, never produced; may equal an end token.
        prompt_ids: tokens that the model reads between the begin token and the caption.
        image_ids: I keys (non-negative integers or texts); an image's samples depend only on the
            seed and its key. None: the positions 0 to I - 1.
        machines: I machines that enforce words in each image's captions; None: no constraints.
        device: device of the model's memory.
        unk_id: the unknown word, for searches that may produce it.
        further_ends: tokens that end a caption like ``eos_id``.

    Raises:
        ValueError: not one id or machine per image.
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
        """One key per image, for random sampling."""
        return range(self.num_images) if self.image_ids is None else self.image_ids
