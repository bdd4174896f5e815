"""Handle captions longer than a tokenizer's limit: raise an error, or cut and log them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from captioning.data.roster import Roster
from captioning.data.token_table import TokenTable
from captioning.interfaces import AbstractTokenizer
from captioning.runtime.files import write_json
from captioning.text.sentence_spans import LongCaptions, fitting_sentences

FILE_NAME = "long_captions.json"
_NUM_NAMED = 3

log = logging.getLogger(__name__)


def chosen(setting: LongCaptions | None, tokenizer: AbstractTokenizer) -> LongCaptions:
    """Return the mode for long captions; None: by sentence, if a processor tokenizes.

    Other tokenizers cut as the papers' code does, within a sentence.
    """
    if setting is not None:
        return setting
    return "sentence" if tokenizer.of_processor else "cut"


@dataclass(frozen=True, kw_only=True)
class CutCaptions:
    """Captions of a roster that are truncated in training.

    Attributes:
        mode: treatment of long captions.
        limit: the tokenizer's settings, such as ``"tokenizer.max_tokens=64"``.
        number: number of the roster's captions.
        kept: characters that are left, by ``sample_id``; the mode ``"cut"`` cuts tokens, not
            characters, so all characters are counted here.
    """

    mode: LongCaptions
    limit: str
    number: int
    kept: Mapping[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write ``long_captions.json``, unless no caption was cut."""
        if not self.kept:
            return
        record = {"long_captions": self.mode, "limit": self.limit, "captions": self.number}
        write_json(folder / FILE_NAME, {**record, "cut": len(self.kept), "kept": dict(self.kept)})


def fit_tokens(
    roster: Roster, tokenizer: AbstractTokenizer, tokens: TokenTable, mode: LongCaptions
) -> tuple[TokenTable, CutCaptions]:
    """Return the tokens of captions, cut as the mode says, and the record of cut captions.

    Args:
        roster: training roster.
        tokenizer: the run's tokenizer.
        tokens: tokens of the roster's captions, as the tokenizer cuts them.
        mode: treatment of captions that it cuts.

    Returns:
        The same table where no caption is cut, or mode is ``"cut"``.

    Raises:
        ValueError: all captions would be cut; some would, and the mode is ``"refuse"``; or not even
            the first sentence of some fits, and it is ``"sentence"``.
    """
    captions = [sample.caption for sample in roster.samples]
    over = {
        row: n for row, text in enumerate(captions) if (n := tokenizer.left_out(text, tokens[row]))
    }
    limit = _limit(tokenizer)
    found = CutCaptions(mode=mode, limit=limit, number=len(roster))
    if not over:
        return tokens, found
    said = f"{len(over):,} of {len(roster):,} captions of {roster.name}"
    remedy = f"raise {limit.replace(' and ', ' or ')} by {max(over.values())} for the longest"
    if len(over) == len(roster) or mode == "refuse":
        which = (
            f"all {len(roster):,} captions of {roster.name}" if len(over) == len(roster) else said
        )
        other = "" if len(over) == len(roster) else ", or cut them: loader.long_captions=sentence"
        raise ValueError(f"{limit} cuts {which}, such as {_named(roster, over)}: {remedy}{other}")
    if mode == "cut":
        log.warning(
            f"{said} are longer than {limit} and end there, within a sentence, such as "
            f"{_named(roster, over)}: {remedy}, or set loader.long_captions=sentence or refuse"
        )
        kept = {roster.samples[row].sample_id: len(captions[row]) for row in over}
        return tokens, CutCaptions(mode=mode, limit=limit, number=len(roster), kept=kept)
    texts = {row: fitting_sentences(captions[row], tokenizer) for row in over}
    if unfit := {row: over[row] for row, text in texts.items() if not text}:
        raise ValueError(
            f"{limit} ends within the first sentence of {len(unfit):,} of {len(roster):,} captions "
            f"of {roster.name}, such as {_named(roster, unfit)}: {remedy}, or set "
            "loader.long_captions=cut, which ends them there"
        )
    log.warning(
        f"{said} are longer than {limit} and end with the last sentence that fits, such as "
        f"{_named(roster, over)}: {remedy}; {FILE_NAME} in the run folder lists them"
    )
    fitted = TokenTable.encode((texts.get(n, text) for n, text in enumerate(captions)), tokenizer)
    kept = {roster.samples[row].sample_id: len(text) for row, text in texts.items()}
    return fitted, CutCaptions(mode=mode, limit=limit, number=len(roster), kept=kept)


def warn_of_short_search(roster: Roster, tokens: TokenTable, max_length: int) -> None:
    """Log a warning if a search cannot write captions as long as most training captions.

    Args:
        roster: training roster.
        tokens: tokens of its captions, begin and end counted.
        max_length: most tokens of a caption that the search writes, the end counted.
    """
    lengths = sorted(len(tokens[row]) - 1 for row in range(len(roster)))
    middle = lengths[len(lengths) // 2]
    if middle > 2 * max_length:
        log.warning(
            f"search.max_length={max_length} ends captions early: half of {roster.name} have "
            f"{middle} tokens or more, the longest {lengths[-1]}; set search.max_length="
            f"{lengths[-1]} to write and score captions of that length"
        )


def _limit(tokenizer: AbstractTokenizer) -> str:
    names = [name for name in ("max_words", "max_tokens") if hasattr(tokenizer, name)]
    return " and ".join(f"tokenizer.{name}={getattr(tokenizer, name)}" for name in names)


def _named(roster: Roster, over: Mapping[int, int]) -> str:
    rows = list(over)[:_NUM_NAMED]
    return ", ".join(f"{roster.samples[row].sample_id!r} ({over[row]} too long)" for row in rows)
