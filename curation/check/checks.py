"""The list of checks; to add a check, write a function of the evidence and list it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curation.check import (
    fit_checks,
    generators,
    photo_checks,
    sentence_checks,
    texts,
    word_checks,
)
from curation.check.evidence import Evidence, Floats, Scores
from curation.check.generator_folder import BUCKET


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of captions: its score, its threshold and its effect on the cleaned dataset.

    Attributes:
        name: column of the table, and name of the threshold.
        title: title on pages.
        measures: the meaning of its value, with the unit.
        score: measures it.
        threshold: values from it on are flagged, see ``low_is_bad``.
        low_is_bad: values below the threshold are flagged.
        is_chance: values are chances of a fault, in [0, 1].
        removes: whether the cleaned set leaves out its flagged captions; else it only reports them.
        needs_space: whether it needs embeddings.
    """

    name: str
    title: str
    measures: str
    score: Callable[[Evidence], Scores]
    threshold: float
    low_is_bad: bool = False
    is_chance: bool = False
    removes: bool = True
    needs_space: bool = False

    def flags(self, values: Floats, threshold: float) -> NDArray[np.bool_]:
        """Return which values are flagged, ``(N,)``; NaN is never flagged."""
        return values < threshold if self.low_is_bad else values >= threshold


CHECKS: tuple[Check, ...] = (
    Check(
        name="fit", title="Captions that do not fit their photo",
        measures="chance that the caption is wrong",
        score=fit_checks.caption_fit, threshold=0.5, is_chance=True, needs_space=True,
    ),
    Check(
        name="wrong_photo", title="Photos that none of their captions fit",
        measures="chance that the photo is wrong",
        score=fit_checks.wrong_photo, threshold=0.5, is_chance=True, needs_space=True,
    ),
    Check(
        name="shifted", title="Captions shifted to the next or previous photo",
        measures="evidence of the run, in nats",
        score=fit_checks.shifted, threshold=10, needs_space=True,
    ),
    Check(
        name=word_checks.NAME, title="Captions with a wrong word",
        measures="estimated chance that the word is wrong",
        score=word_checks.wrong_words, threshold=word_checks.THRESHOLD, is_chance=True,
    ),
    Check(
        name=sentence_checks.NAME, title="Long captions with a sentence that does not fit",
        measures="chance that the sentence is wrong", score=sentence_checks.wrong_sentences,
        threshold=sentence_checks.THRESHOLD, is_chance=True, needs_space=True,
        removes=False,  # the rest of the caption may be right
    ),
    Check(
        name="same_caption", title="The same caption on many photos",
        measures="photos with the caption", score=photo_checks.same_caption, threshold=5,
    ),
    Check(
        name="duplicate_photo", title="Copies and near-copies of an earlier photo",
        measures="likeness to that photo, at most 1", score=photo_checks.duplicates, threshold=0.95,
    ),
    Check(
        name="split_copy", title="Copies of a photo in another split",
        measures="likeness to that photo, at most 1",
        score=photo_checks.split_copies, threshold=0.95,
        removes=False,  # duplicate_photo leaves them out
    ),
    Check(
        name="broken_photo", title="Photos that cannot be opened",
        measures="1 for such a photo", score=photo_checks.broken, threshold=1,
    ),
    Check(
        name="blank_photo", title="Blank photos",
        measures="contrast, of 255", score=photo_checks.blank, threshold=4, low_is_bad=True,
    ),
    Check(
        name="tiny_photo", title="Tiny photos",
        measures="smaller side in pixels", score=photo_checks.tiny, threshold=64, low_is_bad=True,
    ),
    Check(
        name="dark_photo", title="Dark photos",
        measures="brightness that 99% of it do not reach, of 1",
        score=photo_checks.looks("dark_photo"), threshold=0.32, low_is_bad=True, removes=False,
    ),
    Check(
        name="light_photo", title="Photos of nearly nothing but white",
        measures="brightness that 95% of it exceed, of 1",
        score=photo_checks.looks("light_photo"), threshold=0.95, removes=False,
    ),
    Check(
        name="blurry_photo", title="Blurry photos",
        measures="what another blur leaves of its sharpest parts, of 1",
        score=photo_checks.looks("blurry_photo"), threshold=0.45, removes=False,
    ),
    Check(
        name="low_information", title="Photos with little information",
        measures="bits of their histogram", score=photo_checks.looks("low_information"),
        threshold=3, low_is_bad=True, removes=False,
    ),
    Check(
        name="odd_aspect", title="Very wide or very high photos",
        measures="shorter side by the longer one", score=photo_checks.aspect,
        threshold=0.35, low_is_bad=True, removes=False,
    ),
    Check(
        name="grey_photo", title="Grey photos",
        measures="largest difference of a pixel's channels, of 255",
        score=photo_checks.looks("grey_photo"), threshold=6, low_is_bad=True, removes=False,
    ),
    Check(
        name="address", title="Web and e-mail addresses",
        measures="addresses in the caption", score=texts.addresses, threshold=1,
    ),
    Check(
        name="file_name", title="Names of files and cameras as captions",
        measures="such names in the caption", score=texts.file_names, threshold=1,
    ),
    Check(
        name="code", title="Code, HTML or probabilities",
        measures="such places in the caption", score=texts.code, threshold=1,
    ),
    Check(
        name="mojibake", title="Text in a wrong encoding",
        measures="such places in the caption", score=texts.mojibake, threshold=1,
    ),
    Check(
        name="refusal", title="Refusals and chatter of a language model",
        measures="such phrases in the caption", score=texts.refusals, threshold=1,
    ),
    Check(
        name="marker", title="Marks of chats and tokenizers",
        measures="such marks in the caption", score=texts.markers, threshold=1,
    ),
    Check(
        name="template", title="Unfilled templates",
        measures="such places in the caption", score=texts.templates, threshold=1,
    ),
    Check(
        name="no_caption", title="Words that stand for no caption",
        measures="1 for such a caption", score=texts.no_captions, threshold=1,
    ),
    Check(
        name="repetition", title="Captions that repeat themselves",
        measures="words said again", score=texts.repetitions, threshold=3,
    ),
    Check(
        name="too_long", title="Captions much longer than the others",
        measures="times the words of the median caption", score=texts.too_long, threshold=3,
    ),
    Check(
        name="too_short", title="Captions of too few words",
        measures="words", score=texts.too_short, threshold=2, low_is_bad=True,
    ),
    Check(
        name="other_language", title="Another language or script than the set's",
        measures="share that speaks for another", score=texts.other_language, threshold=0.6,
    ),
)  # fmt: skip
# Of folders from which image generators are fine-tuned; made only for these.
GENERATOR_CHECKS: tuple[Check, ...] = (
    Check(
        name="trigger_missing", title="Captions without the trigger",
        measures="1 for such a caption", score=generators.trigger_missing, threshold=1,
    ),
    Check(
        name="trigger_misspelt", title="The trigger with a slip, or in other letters",
        measures="1 for such a caption", score=generators.trigger_misspelt, threshold=1,
    ),
    Check(
        name="trigger_not_first", title="Words before the trigger",
        measures="1 for such a caption", score=generators.trigger_not_first,
        threshold=1, removes=False,
    ),
    Check(
        name="class_missing", title="Captions without the class words",
        measures="1 for such a caption", score=generators.class_missing, threshold=1,
    ),
    Check(
        name="mixed_style", title="Tags among sentences, or sentences among tags",
        measures="1 for such a caption", score=generators.mixed_style, threshold=1, removes=False,
    ),
    Check(
        name="long_for_clip", title="Captions of which CLIP reads the beginning alone",
        measures="tokens of CLIP", score=generators.long_for_clip,
        threshold=generators.CLIP_TOKENS + 1, removes=False,
    ),
    Check(
        name="long_for_t5", title="Captions of which T5 reads the beginning alone",
        measures="tokens of T5", score=generators.long_for_t5,
        threshold=generators.T5_TOKENS + 1, removes=False,
    ),
    Check(
        name="small_photo", title="Photos smaller than the training's resolution",
        measures="smaller side in pixels", score=generators.small_photo,
        threshold=BUCKET, low_is_bad=True, removes=False,
    ),
    Check(
        name="repeated_caption", title="The same caption on several photos",
        measures="photos with the caption", score=generators.repeated_caption,
        threshold=2, removes=False,
    ),
    Check(
        name="alike_caption", title="Nearly the same caption on two photos",
        measures="shared words, of the words of either", score=generators.alike_caption,
        threshold=generators.ALIKE, removes=False,
    ),
    Check(
        name="shared_caption", title="Photos with their folder's caption alone",
        measures="1 for such a photo", score=generators.shared_caption, threshold=1, removes=False,
    ),
)  # fmt: skip
ALL_CHECKS = (*CHECKS, *GENERATOR_CHECKS)
THRESHOLDS = {check.name: check.threshold for check in ALL_CHECKS}
TELLING = frozenset(check.name for check in ALL_CHECKS if not check.removes)
