"""A judge that asks a model served over HTTP how well captions fit their photos."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from captioning.config.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from captioning.served.client import Reply, ServedModel, split_place
from captioning.served.photo_answers import LONGEST_SIDE, PhotoAnswers, PhotoQuestion

Scale = Literal["graded", "yes_no"]
MARK = "{caption}"
QUESTIONS: Mapping[Scale, str] = {
    "graded": 'How well does the caption "{caption}" describe the image? Answer with one whole '
    "number from 0 (it describes another image) to 100 (all of it is right), and nothing else.",
    "yes_no": 'Does the caption "{caption}" describe the image? Answer yes or no.',
}
UNREAD = "no score could be read"
_NUMBER = re.compile(
    r"(?:(?:score|rating)\s*[:=]\s*)?(\d{1,3})(?:\s*(?:/|out of)\s*100|\s*%)?\.?", re.I
)
_WORD = re.compile(r"(yes|no)[.!]?", re.I)
log = logging.getLogger(__name__)


class ServedJudge:
    """Served model that scores how well captions fit photos; a `PairScorer`.

    Servers give no reliable probabilities, so the answer itself is the score: a number from 0 to
    100, divided by 100; or 1 for yes and 0 for no. Any other answer gives NaN, is counted, and
    means neither a good nor a bad caption.

    Args:
        name: address and model, ``http://HOST:PORT/v1#NAME``.
        scale: ``"graded"`` or ``"yes_no"``.
        question: question with ``{caption}`` as placeholder; empty: the default of the scale.
        max_tokens: maximum tokens of an answer; a truncated answer is requested once more with a
            higher limit.
        longest_side: longest side of the photos that are sent, in pixels.
        cache_folder: folder where each answer is saved on arrival; None: memory only.
        num_parallel, timeout, retries, wait, key_variable, extra_body: see `ServedModel`.

    Raises:
        ValueError: an invalid address, or a question without ``{caption}``.
    """

    leaves_out = True  # pairs, see `captioning.vision.pair_scores.PairScores`

    def __init__(
        self,
        *,
        name: str,
        scale: Scale = "graded",
        question: str = "",
        max_tokens: PositiveInt = 16,
        longest_side: PositiveInt = LONGEST_SIDE,
        cache_folder: str | Path | None = None,
        num_parallel: PositiveInt = 8,
        timeout: PositiveFloat = 600.0,
        retries: NonNegativeInt = 5,
        wait: NonNegativeFloat = 1.0,
        key_variable: str = "OPENAI_API_KEY",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if scale not in QUESTIONS:
            raise ValueError(f"scale must be one of {sorted(QUESTIONS)}, got {scale!r}")
        if question and MARK not in question:
            raise ValueError(f"question must hold the placeholder {MARK}, got {question!r}")
        address, self._model = split_place(name)
        self._scale: Scale = scale
        self._question = question or QUESTIONS[scale]
        self.answers = PhotoAnswers(
            model=ServedModel(
                address=address,
                model=self._model,
                temperature=0.0,
                max_tokens=max_tokens,
                num_parallel=num_parallel,
                timeout=timeout,
                retries=retries,
                wait=wait,
                key_variable=key_variable,
                extra_body=extra_body,
            ),
            cache_folder=cache_folder,
            longest_side=longest_side,
        )
        self.num_unread = 0

    @property
    def is_probability(self) -> bool:
        """Whether scores are probabilities: yes/no scores (1 and 0) are, grades are not."""
        return self._scale == "yes_no"

    @property
    def name(self) -> str:
        """Name of the judge for tables; see `PairScorer`."""
        return f"{'answer yes' if self.is_probability else 'grade'} ({self._model})"

    @property
    def identity(self) -> str:
        """Scale, question and sampling settings of the judge; the served weights are unknown."""
        return f"served {self._scale} {self._question!r} {self.answers.settings}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Return scores in [0, 1], NaN where the answer holds no score; see `PairScorer`.

        Raises:
            ConnectionError, ValueError: see `PhotoAnswers.as_they_come`.
        """
        questions = [
            PhotoQuestion(photo=photos[place], text=self._question.replace(MARK, caption))
            for caption, place in zip(captions, photo_of, strict=True)
        ]
        replies = self.answers.ask(questions)
        scores = [None if r.problem else read_score(r.text, self._scale) for r in replies]
        if unread := scores.count(None):
            self.num_unread += unread
            shown = next(
                reply.problem or reply.text[:80]
                for reply, score in zip(replies, scores, strict=True)
                if score is None
            )
            log.warning("%s: %d of %d: %s (%s)", self.name, unread, len(scores), UNREAD, shown)
        return torch.tensor([torch.nan if score is None else score for score in scores])

    def question(self, photo: Path, caption: str) -> PhotoQuestion:
        """Build the question about a photo and its caption."""
        return PhotoQuestion(photo=photo, text=self._question.replace(MARK, caption))

    def read(self, reply: Reply) -> tuple[float | None, str]:
        """Return an answer's score in [0, 1]; or None and the reason why there is none."""
        score = None if reply.problem else read_score(reply.text, self._scale)
        return score, "" if score is not None else reply.problem or f"{UNREAD}: {reply.text[:80]!r}"

    def release(self) -> None:
        """Do nothing: a served model holds no local memory."""


def read_score(text: str, scale: Scale) -> float | None:
    """Parse an answer that holds only a score; return the score in [0, 1], otherwise None."""
    text = " ".join(text.split())
    if scale == "yes_no":
        word = _WORD.fullmatch(text)
        return None if word is None else float(word[1].lower() == "yes")
    number = _NUMBER.fullmatch(text)
    return None if number is None or int(number[1]) > 100 else int(number[1]) / 100
