"""A captioner's search as arguments of ``generate`` of transformers, for its card."""

from __future__ import annotations

from typing import Any

from captioning.decoding.beam import BeamSearch
from captioning.decoding.generate import GenerateSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.rules import Rules
from captioning.decoding.search import AbstractSearch
from captioning.decoding.words import request_of
from captioning.models.base import AbstractCaptioner


def generate_arguments(model: AbstractCaptioner[Any]) -> dict[str, Any] | None:
    """What ``generate`` has to be called with to search as the captioner does.

    Without them it searches by the defaults of transformers, and may produce tokens that the
    captioner never does, such as that of unknown words. With a beam, captions that are cut off at
    ``max_new_tokens`` compete there with those that end, and here they do not.

    Returns:
        The arguments; None where transformers has no such search.
    """
    search = model.search.counting_captions(1 + len(model.prompt_ids))
    settings = search.settings
    if not _has_counterpart(search):
        return None
    rules = Rules.build(settings, request_of(model, model.tokenizer, ["photo"]))
    arguments: dict[str, Any] = {
        "max_new_tokens": settings.max_length,
        "num_beams": settings.beam_size,
        "do_sample": False,
    }
    if settings.min_length > 1:  # theirs is the length before the end token, ours counts it
        arguments["min_new_tokens"] = settings.min_length - 1
    if settings.beam_size > 1:
        arguments["length_penalty"] = settings.length_penalty
        arguments["early_stopping"] = "never" if settings.exact else False
    if settings.end_ids:
        arguments["eos_token_id"] = rules.ends.tolist()
    if banned := sorted(rules.banned.tolist()):
        arguments["suppress_tokens"] = banned
    return arguments


def _has_counterpart(search: AbstractSearch) -> bool:
    """Whether ``generate`` of transformers finds the same captions with the right arguments."""
    settings = search.settings
    if isinstance(search, GenerateSearch) and search.sample:
        return False
    if not isinstance(search, GreedySearch | BeamSearch | GenerateSearch):
        return False
    is_plain = settings.repetition_penalty == 1 and not settings.no_repeat_ngram_size
    same_scores = settings.normalisation == "power" or not settings.length_penalty
    if isinstance(search, BeamSearch) and settings.beam_size == 1 and settings.length_penalty:
        return False  # longer captions may still win, which greedy search does not wait for
    return (
        is_plain
        and same_scores
        and not settings.must_end
        and not settings.special_tokens
        and settings.per_node_beam is None
        and settings.num_captions == 1
    )
