"""CapFilt: a captioner writes captions, a filter drops bad ones (Li et al., 2022, section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from captioning.types import Edit, Sample
from curation.amend.model_caption import ORIGIN, CaptionSource
from curation.base import AbstractAmender, Amended, Context, Selected
from curation.score.caption_fit import FitScores, waits_for_caption
from curation.select.unmatched import below


class CapFilt(AbstractAmender):
    """Removes selected captions, and fills the samples that wait for a caption.

    A waiting sample gets a caption of the source for its photo, the first sample the first one,
    and weight 1, if the filter calls it a match; otherwise it is removed, with the caption in the
    reason. Filter and captioner of the paper's Table 1 are choices: without ``pairs`` every written
    caption is kept; without waiting samples (``steps=[caption_slots]``) none is written.

    Args:
        source: writes captions.
        pairs: scores of pairs that filter them; None: no filter.
        threshold: captions of a lower score do not match; for BLIP's head 0.5.
    """

    def __init__(
        self, *, source: CaptionSource, pairs: FitScores | None = None, threshold: float = 0.5
    ) -> None:
        self.source, self.pairs, self.threshold = source, pairs, float(threshold)

    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Two edits for each sample that is filled, a removal for every other."""
        waiting = [choice for choice in selected if waits_for_caption(choice.sample)]
        made = self._made(context, [choice.sample for choice in waiting])
        fits = self._fits(waiting, made)
        edits, notes = [], []
        for choice in selected:
            sample_id = choice.sample.sample_id
            if sample_id not in made:
                edits.append(context.edit(choice, "remove"))
                continue
            new, note = self._filled(context, choice, made[sample_id], fits.get(sample_id))
            edits += new
            notes.append(note)
        return Amended(edits=tuple(edits), notes=tuple(notes))

    def _made(self, context: Context, samples: Sequence[Sample]) -> dict[str, str]:
        """The new caption of each waiting sample; empty where the source has none left."""
        if not samples:
            return {}
        photos = list({sample.image_id: sample.image_path for sample in samples}.items())
        written = self.source.captions([path for _, path in photos])
        self.source.release()
        captions = {image: texts for (image, _), texts in zip(photos, written, strict=True)}
        number: Counter[str] = Counter()
        made = {}
        for sample in samples:
            texts, place = captions[sample.image_id], number[sample.image_id]
            made[sample.sample_id] = texts[place] if place < len(texts) else ""
            number[sample.image_id] += 1
        return made

    def _fits(self, waiting: Sequence[Selected], made: dict[str, str]) -> dict[str, float]:
        """Scores of the new captions by sample."""
        samples = [choice.sample for choice in waiting if made[choice.sample.sample_id]]
        if self.pairs is None or not samples:
            return {}
        scores = self.pairs.scores([(s.image_path, made[s.sample_id]) for s in samples])
        self.pairs.release()
        return {s.sample_id: fit for s, fit in zip(samples, scores.tolist(), strict=True)}

    def _filled(
        self, context: Context, choice: Selected, caption: str, fit: float | None
    ) -> tuple[list[Edit], str]:
        if not caption:
            choice = replace(choice, reason="the captioner wrote no further caption")
            return [context.edit(choice, "remove")], "no caption was written"
        if self.pairs is not None and fit is not None and fit < self.threshold:
            reason = f"{below(self.pairs, fit, self.threshold)}: {caption}"
            return [context.edit(replace(choice, reason=reason), "remove")], "made caption dropped"
        if self.pairs is not None and fit is not None:
            choice = replace(choice, reason=f"{self.pairs.name} {fit:.3f}")
        origin = ORIGIN + self.source.name
        edits = [
            context.edit(choice, "replace_caption", value=caption, origin=origin),
            context.edit(choice, "down_weight", value="1", origin=origin),
        ]
        return edits, "made caption accepted"
