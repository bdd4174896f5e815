"""The words by which CIC-BART is asked for a caption."""

from __future__ import annotations

from captioning.interfaces import AbstractTokenizer
from captioning.lengths import length_level
from captioning.text.control_tokens import CONTROL_TOKENS, NUM_PLACES, level_id, place_id
from captioning.types import Control


class ControlText:
    """``caption region: VERBS <cap_len_level_2> 12 <vis_extra_id_1> <vis_extra_id_2> ...``.

    Args:
        tokenizer: its last tokens are those of `captioning.text.control_tokens`.
        prompt: what the text begins with.

    Raises:
        ValueError: the tokenizer lacks those tokens, or has them elsewhere.
    """

    def __init__(self, tokenizer: AbstractTokenizer, *, prompt: str) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt
        first = len(tokenizer) - len(CONTROL_TOKENS)
        for number, token in enumerate(CONTROL_TOKENS, start=first):
            if (found := tokenizer.token_id(token)) != number:
                where = "lacks it" if found is None else f"has it as {found}"
                raise ValueError(
                    f"the token {token} must be number {number} of the vocabulary, and the "
                    f"tokenizer {where}: choose tokenizer=bart or tokenizer=words_control"
                )
        self._begun: dict[str, list[int]] = {}

    def ids(self, control: Control) -> list[int]:
        """Tokens of a control.

        Raises:
            ValueError: more regions than there are places.
        """
        size, regions = len(self.tokenizer), control.regions or ()
        if len(regions) >= NUM_PLACES:
            raise ValueError(
                f"a control has at most {NUM_PLACES - 1} regions: got {len(regions)}; leave out "
                "the least important ones"
            )
        places = [place_id(size, place) for place in range(1, len(regions) + 1)]
        return [*self._words(control), *self._length(control), *places, self.tokenizer.eos_id]

    def _words(self, control: Control) -> list[int]:
        """The beginning up to the last verb."""
        text = " ".join([self.prompt, *control.verbs])
        if text not in self._begun:
            ids = self.tokenizer.encode(text)[:-1]
            # BART's decoder begins with its end token, which its encoder does not read.
            same = self.tokenizer.bos_id == self.tokenizer.eos_id
            self._begun[text] = ids[1:] if same else ids
        return self._begun[text]

    def _length(self, control: Control) -> list[int]:
        level = control.level or length_level(control.num_words or 0)
        if not level:
            return []
        ids = [level_id(len(self.tokenizer), level)]
        if control.num_words is not None:
            number = self.tokenizer.spellings(str(control.num_words))
            ids += number[0] if number else [self.tokenizer.unk_id]
        return ids
