"""What a search's settings say in words, and what it finds, said in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from captioning.decoding.state import SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper, AbstractTokenizer
from captioning.types import Prediction

Search = Callable[..., SearchResult]


def bind_search(search: Search, tokenizer: AbstractTokenizer) -> Search:
    """The search with the tokenizer's special tokens, and with ids in place of words.

    Settings that the search was made with, as by ``functools.partial`` or a config, may hold
    ``forbidden_words`` and ``end_words``: they become ``forbidden_ids`` and ``end_ids``, beside
    those given as such. A forbidden word that the vocabulary lacks is never said anyway. The
    unknown word is always forbidden.

    Raises:
        ValueError: an end that the vocabulary lacks, or a word of several tokens.
    """
    function, settings = search, {}
    if isinstance(search, partial):
        function, settings = partial(search.func, *search.args), dict(search.keywords)
    forbidden = _ids("forbidden_words", settings.pop("forbidden_words", ()), tokenizer)
    ends = _ids("end_words", settings.pop("end_words", ()), tokenizer, needed=True)
    # Some tokenizers end captions with the token that stands for unknown words.
    unknown = () if tokenizer.unk_id == tokenizer.eos_id else (tokenizer.unk_id,)
    settings["forbidden_ids"] = (*settings.get("forbidden_ids", ()), *forbidden, *unknown)
    if ends:
        settings["end_ids"] = (*settings.get("end_ids", ()), *ends)
    special = {name: getattr(tokenizer, name) for name in ("bos_id", "eos_id", "pad_id")}
    return partial(function, **{**special, **settings})


def _ids(
    name: str, words: Sequence[str], tokenizer: AbstractTokenizer, needed: bool = False
) -> list[int]:
    if isinstance(words, str):
        raise ValueError(f"{name} must be a list of words: got {words!r}; write [{words}]")
    ids = []
    for word in words:
        spellings = tokenizer.spellings(word)
        if needed and not spellings:
            raise ValueError(
                f"{name} must be in the vocabulary: got {word!r}; the words tokenizer has no "
                "punctuation marks"
            )
        if longer := [spelling for spelling in spellings if len(spelling) > 1]:
            raise ValueError(
                f"{name} must be of one token each: got {word!r}, whose tokens are {longer[0]}; "
                "leave it out, or give the ids of single tokens"
            )
        ids += [token for (token,) in spellings]
    return ids


def find_captions(
    search: Search,
    state: AbstractDecoderState,
    *,
    stepper: AbstractStepper,
    tokenizer: AbstractTokenizer,
    image_ids: Sequence[str],
    forbidden_ids: Sequence[int] = (),
    **options: Any,
) -> list[list[Prediction]]:
    """All captions that a search finds for each image, in its order.

    A search that draws at random gets the image ids as keys, so that what is drawn for an image
    does not depend on the batch that it is in.

    Args:
        search: made by `bind_search`.
        state: the stepper's memory before the first token.
        stepper: the model.
        tokenizer: makes text of tokens.
        image_ids: I ids.
        forbidden_ids: tokens that are not produced, beside those that the search forbids.
        **options: more arguments for the search, such as ``machines``.

    Returns:
        One or more predictions an image; where nothing at all could be said, an empty caption of
        score ``-inf``.
    """
    if "keys" in inspect.signature(search).parameters:
        options = {"keys": image_ids, **options}
    if forbidden_ids:
        bound = search.keywords.get("forbidden_ids", ())
        options["forbidden_ids"] = (*bound, *forbidden_ids)
    found = search(stepper, state, num_images=len(image_ids), **options)
    fulfilled = getattr(found, "fulfilled", None)
    none = torch.zeros_like(found.lengths).tolist()
    rows = zip(
        image_ids,
        found.tokens.tolist(),
        found.scores.tolist(),
        none if fulfilled is None else fulfilled.tolist(),
        strict=True,
    )
    return [
        [
            Prediction(
                image_id=image_id,
                caption=tokenizer.decode(tokens),
                score=score,
                satisfied=None if fulfilled is None else met,
            )
            for number, (tokens, score, met) in enumerate(zip(*of_image, strict=True))
            if number == 0 or score > -torch.inf
        ]
        for image_id, *of_image in rows
    ]
