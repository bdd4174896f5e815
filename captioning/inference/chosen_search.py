"""The search that a user asks for, made from a captioner's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from captioning.decoding.beam import BeamSearch
from captioning.decoding.machine import Machine
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchSettings, check_integer
from captioning.interfaces import AbstractTokenizer

NUCLEUS = 0.9  # Holtzman et al., 2020


def chosen_search(
    own: AbstractSearch,
    *,
    diverse: bool = False,
    constrained: bool = False,
    min_words: int | None = None,
    max_words: int | None = None,
    **settings: Any,
) -> AbstractSearch:
    """A captioner's search with other settings, or another search with its settings.

    Args:
        own: of the captioner.
        diverse: draw captions at random, from the most probable words that hold .9 of the
            probability.
        constrained: the one that finds captions with given words.
        min_words: fewest words of a caption; tokens of a captioner whose tokens are parts of words.
        max_words: most of them.
        **settings: of `SearchSettings`. A beam of less than ``num_captions`` is widened to it.

    Raises:
        TypeError: no such setting.
        ValueError: a setting out of its range, or two that exclude each other.
    """
    known = [field.name for field in fields(SearchSettings)]
    if unknown := sorted(settings.keys() - {*known}):
        raise TypeError(f"search has no setting {unknown[0]}; there are {', '.join(known)}")
    if diverse and constrained:
        raise ValueError("captions with given words are searched, not drawn: leave out one of both")
    settings |= _lengths(own.settings, min_words, max_words)
    if diverse:
        from captioning.decoding.sampling import Sampling

        return _other(Sampling, own, settings, top_p=NUCLEUS)
    settings |= _wide_beam(own.settings, settings)
    if constrained and not own.takes_machines:
        from captioning.decoding.constrained import ConstrainedBeamSearch

        return _other(ConstrainedBeamSearch, own, settings)
    defaults = SearchSettings()
    changed = {name for name, value in settings.items() if value != getattr(defaults, name)}
    if changed & {*own.unused}:
        return _other(BeamSearch, own, settings)
    return own.changed(**{n: v for n, v in settings.items() if n not in own.unused})


def _lengths(own: SearchSettings, least: int | None, most: int | None) -> dict[str, Any]:
    """Lengths in tokens with the end, where they are given in words."""
    if least is None and most is None:
        return {}
    if least is not None:
        check_integer("min_words", least, minimum=0)
    if most is not None:
        check_integer("max_words", most, minimum=1)
    if least is not None and most is not None and least > most:
        raise ValueError(f"min_words must be at most max_words: got {least} > {most}")
    min_length = own.min_length if least is None else least + 1
    max_length = max(own.max_length, min_length + 1) if most is None else most + 1
    return {
        "min_length": min(min_length, max_length),
        "max_length": max_length,
        "must_end": own.must_end if most is None else True,
        "count_prompt": False,
    }


def _wide_beam(own: SearchSettings, settings: dict[str, Any]) -> dict[str, int]:
    """A beam of at least as many hypotheses as captions are wanted."""
    number = settings.get("num_captions", own.num_captions)
    beam = settings.get("beam_size", own.beam_size)
    if not isinstance(number, int) or not isinstance(beam, int) or beam >= number or beam < 1:
        return {}
    return {"beam_size": number}


def _other(
    search: type[AbstractSearch], own: AbstractSearch, settings: dict[str, Any], **arguments: Any
) -> AbstractSearch:
    """Another search with the settings of ``own`` that it reads, and those given."""
    defaults = SearchSettings()
    unused = {name: getattr(defaults, name) for name in search.unused}
    return search(settings=replace(own.settings, **(unused | settings)), **arguments)


def words_machine(
    wanted: Sequence[str | Sequence[str]], tokenizer: AbstractTokenizer
) -> Machine | None:
    """The machine of words that a caption must hold; None for none.

    Args:
        wanted: each a word or phrase, or several of which one is enough.
        tokenizer: of the captioner.

    Raises:
        ValueError: a word that the captioner does not know, or too many of them.
    """
    if isinstance(wanted, str):
        raise ValueError(f"must_include must be a list of words: got {wanted!r}; write [{wanted}]")
    if not wanted:
        return None
    alternatives = [(words,) if isinstance(words, str) else tuple(words) for words in wanted]
    from captioning.decoding.constraints import constrain

    constraints = constrain(
        alternatives,
        tokenizer.spellings,
        required=len(alternatives),
        continues=tokenizer.continuing(),
        begin_id=tokenizer.begin_id,
    )
    if constraints.dropped:
        words = ", ".join(" or ".join(map(repr, words)) for words in constraints.dropped)
        raise ValueError(f"this captioner does not know the word {words}; choose another one")
    return constraints.machine
