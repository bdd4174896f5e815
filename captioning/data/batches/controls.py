"""What the captions of a data set would have been asked for: controls of their own phrases."""

from __future__ import annotations

from collections.abc import Sequence

from captioning.interfaces import AbstractParser
from captioning.lengths import count_words
from captioning.ranges import PositiveInt
from captioning.types import Control, Sample


class CaptionControls:
    """A control signal for each caption, read off the caption itself (CIC-BART-SSA, section 5.1).

    Regions are those of its grounded phrases, in the caption's order. A caption without any (an
    image without boxes, a replaced caption or picture) is asked to speak of the photo as a whole.

    Args:
        ordered: ask for the regions in the caption's order; else for their set.
        length: ask for the caption's number of words.
        parser: finds the verbs that are asked for; None: no verbs are.
        max_regions: boxes of a photo that have features, the first ones; others are left out.
    """

    def __init__(
        self,
        *,
        ordered: bool = True,
        length: bool = True,
        parser: AbstractParser | None = None,
        max_regions: PositiveInt = 36,
    ) -> None:
        self.ordered, self.length = ordered, length
        self.parser, self.max_regions = parser, max_regions

    def __call__(self, samples: Sequence[Sample]) -> tuple[Control, ...]:
        """The controls of ``samples``, in order."""
        verbs: list[tuple[str, ...]] = [()] * len(samples)
        if self.parser is not None:
            parses = self.parser.parse([sample.caption for sample in samples])
            verbs = [tuple(t.text for t in parse if t.tag.startswith("VB")) for parse in parses]
        return tuple(
            Control(
                regions=self._regions(sample),
                ordered=self.ordered,
                # a caption of signs alone has no words, and no length to ask for
                num_words=(count_words(sample.caption) or None) if self.length else None,
                verbs=found,
            )
            for sample, found in zip(samples, verbs, strict=True)
        )

    def _regions(self, sample: Sample) -> tuple[int, ...]:
        # A replaced picture has no regions, though its caption still has its phrases.
        known = min(len(sample.regions), self.max_regions)
        return tuple(region for region in spoken_of(sample) if region < known)


def spoken_of(sample: Sample) -> tuple[int, ...]:
    """Positions of the regions of a caption's phrases, each once, as they come up."""
    return tuple(dict.fromkeys(region for phrase in sample.phrases for region in phrase.regions))
