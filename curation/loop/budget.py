"""Limits on what a policy may touch, so that no image and no rare word vanishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from captioning.config.ranges import NonNegativeInt
from captioning.text.word_forms import words_of
from curation.base import Context, Selected
from curation.score.caption_fit import waits_for_caption


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits that hold at every decision. The default, 0, allows everything.

    The worst samples come first; a sample whose edit would break a limit is spared, and the next
    one is looked at. Only captions that were not selected count towards a limit, whatever happens
    to the selected ones. A sample that waits for a caption has none: it counts towards no limit,
    and none spares it.

    Attributes:
        min_captions_per_image: live captions of each image that stay untouched.
        min_captions_per_word: live captions with each word that stay untouched. A word that fewer
            captions hold protects all of them, also overlong ones: 1 or 2 are sensible, and the
            report names what vanished without it.

    Raises:
        ValueError: a negative number.
    """

    min_captions_per_image: NonNegativeInt = 0
    min_captions_per_word: NonNegativeInt = 0

    def __post_init__(self) -> None:
        for name in ("min_captions_per_image", "min_captions_per_word"):
            if getattr(self, name) < 0:
                raise ValueError(f"budget: {name} must be at least 0: got {getattr(self, name)}")

    def affordable(self, context: Context, selected: Sequence[Selected]) -> list[Selected]:
        """Those of ``selected`` that may be edited, in the same order."""
        if not self.min_captions_per_image and not self.min_captions_per_word:
            return list(selected)
        written = [sample for sample in context.live.values() if not waits_for_caption(sample)]
        images = Counter(sample.image_id for sample in written)
        words: Counter[str] = Counter()
        if self.min_captions_per_word:
            for sample in written:
                words.update(set(words_of(sample.caption)))
        accepted = []
        for candidate in selected:
            if waits_for_caption(candidate.sample):
                accepted.append(candidate)
                continue
            caption_words = (
                set(words_of(candidate.sample.caption)) if self.min_captions_per_word else set()
            )
            if images[candidate.sample.image_id] <= self.min_captions_per_image or any(
                words[word] <= self.min_captions_per_word for word in caption_words
            ):
                continue
            images[candidate.sample.image_id] -= 1
            words.subtract(caption_words)
            accepted.append(candidate)
        return accepted
