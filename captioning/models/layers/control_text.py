"""Control signals of CIC-BART as text."""

from __future__ import annotations

from captioning.interfaces import AbstractTokenizer
from captioning.text.control_tokens import CONTROL_TOKENS, NUM_PLACES, level_id, place_id
from captioning.text.lengths import length_level
from captioning.types import Control


class ControlText:
    """``caption region: VERBS <cap_len_level_2> 12 <vis_extra_id_1> <vis_extra_id_2> ...``.

    Args:
        tokenizer: its last tokens are those of `captioning.text.control_tokens`.
        prompt: beginning of the text.
        blank_before_verbs: one blank more before the first verb, which is a token of its own in
            BART's vocabulary, as in the authors' code.

    Raises:
        ValueError: the tokenizer lacks those tokens, or has them elsewhere.
    """

    def __init__(
        self, tokenizer: AbstractTokenizer, *, prompt: str, blank_before_verbs: bool = False
    ) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt
        self.blank_before_verbs = blank_before_verbs
        first_id = len(tokenizer) - len(CONTROL_TOKENS)
        for number, token in enumerate(CONTROL_TOKENS, start=first_id):
            if (actual := tokenizer.token_id(token)) != number:
                problem = "lacks it" if actual is None else f"has it as {actual}"
                raise ValueError(
                    f"the token {token} must be number {number} of the vocabulary, and the "
                    f"tokenizer {problem}: choose tokenizer=bart or tokenizer=words_control"
                )
        self._prompt_ids: dict[str, list[int]] = {}

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
        blank = [""] if self.blank_before_verbs and control.verbs else []
        text = " ".join([self.prompt, *blank, *control.verbs])
        if text not in self._prompt_ids:
            ids = self.tokenizer.encode(text)[:-1]
            # BART's decoder begins with its end token, which its encoder does not read.
            begins_with_end = self.tokenizer.bos_id == self.tokenizer.eos_id
            self._prompt_ids[text] = ids[1:] if begins_with_end else ids
        return self._prompt_ids[text]

    def _length(self, control: Control) -> list[int]:
        level = control.level or length_level(control.num_words or 0)
        if not level:
            return []
        ids = [level_id(len(self.tokenizer), level)]
        if control.num_words is not None:
            number = self.tokenizer.spellings(str(control.num_words))
            ids += number[0] if number else [self.tokenizer.unk_id]
        return ids
