"""CLAIR and FLEUR: metrics that ask a chat model served over HTTP to score captions.

CLAIR (Chan et al., 2023, https://arxiv.org/abs/2310.12971) shows a caption and references, and asks
how likely both describe the same image: a number from 0 to 100 and a reason, as JSON. FLEUR (Lee et
al., 2024, https://arxiv.org/abs/2406.06004) shows the photo and asks for a number from 0.0 to 1.0,
smoothed by the probabilities of its digits. Prompts, ranges and answer formats follow
the papers, but the wording is this project's, so scores differ slightly from published ones.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from PIL import Image

from captioning.config.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from captioning.metrics.coco import MetricResult
from captioning.metrics.evaluation import AbstractMetric, CaptionedImages, Captions
from captioning.served.client import Question, Reply, ServedModel, TokenChances, split_place
from captioning.served.photo_answers import (
    LONGEST_SIDE,
    MAX_WITHOUT_ANSWER,
    PhotoAnswers,
    PhotoQuestion,
    data_url,
    message,
    summary,
)

Form = Literal["clair", "fleur"]
CLAIR = """Captions of list A were written for one image. Nobody knows which image list B is of.

List A:
{references}

List B:
{caption}

How probable is it that list B is about the image of list A? Give a precise number from 0 to 100.
Answer with a JSON object of two keys: "score", the number, and "reason", a text that says why."""
FLEUR = """Rate a caption of this image by a real number from 0.0 to 1.0.

0.0: nothing that the caption says is in the image.
1.0: the caption says clearly and rightly what the image shows.

Caption: {caption}

Give the number from 0.0 to 1.0, and nothing else:"""
AGAIN: Mapping[Form, str] = {
    "clair": '\nWrite that JSON object alone, such as {"score": 50, "reason": "..."}.',
    "fleur": "\nWrite the number alone, such as 0.5.",
}
UNREAD = "no score could be read"
NOT_SMOOTHED = (
    "the server gives no log-probabilities, so the score is the plain number, not smoothed "
    "over digits as published"
)
_CHANCES = {"logprobs": True, "top_logprobs": 20}
_NUMBER = re.compile(r"(?:(?:score|rating)\s*[:=]\s*)?([01](?:\.\d+)?|\.\d+)\s*\.?", re.I)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judge's verdict on a caption.

    Attributes:
        score: score in [0, 1].
        reason: reason that the judge gave; empty if not requested.
        is_smoothed: whether the score is smoothed over the digits' probabilities.
    """

    score: float
    reason: str = ""
    is_smoothed: bool = False


class JudgedCaptions(AbstractMetric):
    """CLAIR and FLEUR by a served model, see the module; score names include the model.

    If an answer holds no score, the judge is asked once more with a reminder of the
    format. Without a second score the caption counts as missing, not as 0. All answers are
    saved, so the same command requests only missing ones. A blank caption scores 0 unasked.

    Args:
        name: address and model, ``http://HOST:PORT/v1#NAME``.
        forms: ``"clair"`` needs references, ``"fleur"`` photos and a vision-language model.
        max_tokens: maximum tokens of an answer; a truncated answer is requested once more with a
            higher limit.
        longest_side: longest side of the photos that are sent, in pixels.
        cache_folder: folder where each answer is saved on arrival; None: memory only.
        num_parallel, timeout, retries, wait, key_variable, extra_body: see
            `captioning.served.client.ServedModel`.

    Raises:
        ValueError: an invalid address, or an unknown form.
    """

    def __init__(
        self,
        *,
        name: str,
        forms: Sequence[Form] = ("clair", "fleur"),
        max_tokens: PositiveInt = 256,
        longest_side: PositiveInt = LONGEST_SIDE,
        cache_folder: str | Path | None = None,
        num_parallel: PositiveInt = 8,
        timeout: PositiveFloat = 600.0,
        retries: NonNegativeInt = 5,
        wait: NonNegativeFloat = 1.0,
        key_variable: str = "OPENAI_API_KEY",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._forms = tuple(dict.fromkeys(forms))
        if not self._forms or set(self._forms) - set(AGAIN):
            raise ValueError(f"forms must be some of {sorted(AGAIN)}: got {list(forms)}")
        address, self._name = split_place(name)

        def asked(further: Mapping[str, Any]) -> PhotoAnswers:
            model = ServedModel(
                address=address,
                model=self._name,
                temperature=0.0,
                max_tokens=max_tokens,
                num_parallel=num_parallel,
                timeout=timeout,
                retries=retries,
                wait=wait,
                key_variable=key_variable,
                extra_body=dict(extra_body or {}) | dict(further),
            )
            return PhotoAnswers(model=model, cache_folder=cache_folder, longest_side=longest_side)

        self._plain, self._with_chances = asked({}), asked(_CHANCES)
        self._gives_chances: bool | None = None

    def check_ready(self) -> None:
        """Ask the model a few test questions.

        Raises:
            ConnectionError, ValueError: the server is unreachable, refuses all requests, or the
                model must see photos and does not.
        """
        if "fleur" in self._forms:
            answers = self._with_chances if self._looks_for_chances() else self._plain
            try:
                answers.check_once(FLEUR.format(caption="a red disc"))
            except ValueError as error:
                only = "" if self._forms == ("fleur",) else "; without photos: forms=[clair]"
                raise ValueError(f"{error}{only}") from error
            return
        model = self._plain.model
        reply = model.ask_once(Question(messages=message("Write the word yes.", "")))
        if reply.is_failed:
            raise ValueError(f"{model.address}: {self._name} does not answer: {reply.problem}")

    def _looks_for_chances(self) -> bool:
        """Whether the server returns log-probabilities, tested once; some servers refuse."""
        if self._gives_chances is None:
            url = data_url(Image.new("RGB", (224, 224), "red"), b"")
            question = Question(messages=message(FLEUR.format(caption="a red photo"), url))
            reply = self._with_chances.model.ask_once(question)
            self._gives_chances = any(chances for _, chances in reply.tokens)
            if not self._gives_chances:
                log.warning("%s: FLEUR: %s", self._name, NOT_SMOOTHED)
        return self._gives_chances

    def score(self, captions: Captions, images: CaptionedImages) -> MetricResult:
        """Score the first caption of every image; means are over captions with a score."""
        first = {image_id: group[0] for image_id, group in captions.items()}
        corpus: dict[str, float] = {}
        per_image: dict[str, dict[str, float]] = {image_id: {} for image_id in first}
        settings: dict[str, Any] = {"model": self._name, "address": self._plain.model.address}
        missing: dict[str, str] = {}
        for form in self._forms:
            name = f"{form.upper()}({self._name})"
            try:
                verdicts, record = self._judged(form, first, images)
            except (ConnectionError, ValueError) as error:
                missing[name] = str(error)
                continue
            corpus[name] = fmean(verdict.score for verdict in verdicts.values())
            for image_id, verdict in verdicts.items():
                per_image[image_id][name] = verdict.score
            settings[form] = record
        return MetricResult(
            corpus=corpus, per_image=per_image, settings=settings | {"missing": missing}
        )

    def _judged(
        self, form: Form, captions: Mapping[str, str], images: CaptionedImages
    ) -> tuple[dict[str, Verdict], dict[str, Any]]:
        """Return verdicts by image, and the record of the requests.

        Raises:
            ConnectionError, ValueError: the server fails, or no answer (or none of the first
                `MAX_WITHOUT_ANSWER`) holds a score.
        """
        is_smoothing = form == "fleur" and self._looks_for_chances()
        answers = self._with_chances if is_smoothing else self._plain
        asked = {image_id: text for image_id, text in captions.items() if text.strip()}
        questions = _clair(asked, images) if form == "clair" else _fleur(asked, images)
        read = _read_clair if form == "clair" else _read_fleur
        answers.counts.clear()
        ids, found, last = list(asked), dict[str, Verdict](), ""
        # begin with the first images: a model that never gives a score is not asked about all
        for part in (ids[:MAX_WITHOUT_ANSWER], ids[MAX_WITHOUT_ANSWER:]):
            verdicts, unread = self._read(form, part, questions, answers, read)
            found |= verdicts
            last = unread or last
            if part and not found:
                raise ValueError(
                    f"{answers.model.address}: none of {len(part)} answers of {self._name} is "
                    f"usable ({last}); choose a model that follows instructions"
                )
        without = len(asked) - len(found)
        if without:
            log.warning("%s: %d of %d have no score (%s)", form.upper(), without, len(asked), last)
        blank = dict.fromkeys(captions.keys() - asked.keys(), Verdict(score=0.0))
        record = {
            "prompt": CLAIR if form == "clair" else FLEUR,
            "sampling": answers.model.sampling,
            "num_captions": len(captions),
            "num_empty_candidates": len(blank),
            "num_without_score": without,
            "share_without_score": round(without / len(asked), 4) if asked else 0.0,
            **summary(answers.counts),
        }
        if form == "fleur":
            record["num_smoothed"] = sum(verdict.is_smoothed for verdict in found.values())
            record["smoothed"] = "over digits" if is_smoothing else NOT_SMOOTHED
        else:
            record["reasons"] = {i: one.reason for i, one in found.items()}
        return {i: (found | blank)[i] for i in captions if i in found or i in blank}, record

    def _read(
        self,
        form: Form,
        ids: Sequence[str],
        questions: Mapping[str, PhotoQuestion],
        answers: PhotoAnswers,
        read: Callable[[Reply], Verdict | None],
    ) -> tuple[dict[str, Verdict], str]:
        """Return verdicts by image after one retry, and the problem of the last failed answer."""
        found, last, again = dict[str, Verdict](), "", list(ids)
        for is_repeat in (False, True):
            asked = [
                PhotoQuestion(
                    photo=questions[image_id].photo,
                    text=questions[image_id].text + (AGAIN[form] if is_repeat else ""),
                )
                for image_id in again
            ]
            replies = answers.ask(asked) if asked else []
            unread = []
            for image_id, reply in zip(again, replies, strict=True):
                verdict = None if reply.problem else read(reply)
                if verdict is not None:
                    found[image_id] = verdict
                    continue
                last = reply.problem or f"{UNREAD}: {reply.text[:80]!r}"
                if not reply.problem:
                    unread.append(image_id)
            again = unread
        return found, last


def _clair(captions: Mapping[str, str], images: CaptionedImages) -> dict[str, PhotoQuestion]:
    references = images.references()
    questions = {}
    for image_id, caption in captions.items():
        texts = [" ".join(text.split()) for text in references.get(image_id, ()) if text.strip()]
        if not texts:
            raise ValueError(
                f"CLAIR needs references, but image {image_id!r} has none; leave the image out"
            )
        listed = "\n".join(f"- {text}" for text in texts)
        text = CLAIR.format(references=listed, caption=f"- {' '.join(caption.split())}")
        questions[image_id] = PhotoQuestion(photo=None, text=text)
    return questions


def _fleur(captions: Mapping[str, str], images: CaptionedImages) -> dict[str, PhotoQuestion]:
    photos = {sample.image_id: sample.image_path for sample in images.samples}
    return {
        image_id: PhotoQuestion(photo=photos[image_id], text=FLEUR.format(caption=caption.strip()))
        for image_id, caption in captions.items()
    }


def _read_clair(reply: Reply) -> Verdict | None:
    """Parse a JSON object with score and reason that is the whole answer; None otherwise."""
    try:
        found = json.loads(reply.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    score, reason = found.get("score"), found.get("reason")
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    if not 0 <= score <= 100 or not isinstance(reason, str):
        return None
    return Verdict(score=score / 100, reason=reason)


def _read_fleur(reply: Reply) -> Verdict | None:
    """Parse a number from 0.0 to 1.0 that is the whole answer; None otherwise."""
    number = _NUMBER.fullmatch(" ".join(reply.text.split()))
    if number is None or float(number[1]) > 1:
        return None
    smoothed = smoothed_score(number[1], reply.tokens)
    if smoothed is None:
        return Verdict(score=float(number[1]))
    return Verdict(score=smoothed, is_smoothed=True)


def smoothed_score(number: str, tokens: Sequence[TokenChances]) -> float | None:
    """Smooth a FLEUR score: replace its first two decimals by their mean under the model.

    The first decimal is ``sum over digits d of d * p(d) / 10``, the second the same by 100. For
    1.0 the score is ``0.9 * p(0) + p(1)`` at the first token, as in the authors' code. A token
    of several digits, which LLaVA lacks, counts with its value: "85" as .85.

    Args:
        number: number that the model wrote, in [0, 1].
        tokens: tokens of the answer, with log-probabilities of the likeliest tokens in each place.

    Returns:
        Score in [0, 1]; None if the tokens do not hold the number, or it has no decimals.
    """
    whole = "".join(token for token, _ in tokens)
    start = whole.rfind(number)
    if start < 0:
        return None
    if float(number) == 1:
        chances = _digits_at(tokens, start)
        return 0.9 * chances.get("0", 0.0) + chances.get("1", 0.0) if chances else None
    place, stop = start + number.find(".") + 1, start + len(number)
    if place == start:
        return None
    total, num_digits = 0.0, 0
    while place < stop and num_digits < 2:
        chances = _digits_at(tokens, place)
        if not chances:
            return None
        total += sum(p * int(d) / 10 ** (num_digits + len(d)) for d, p in chances.items())
        length = len(_token_at(tokens, place)[0].strip())
        place, num_digits = place + length, num_digits + length
    return min(1.0, total)


def _token_at(tokens: Sequence[TokenChances], place: int) -> TokenChances:
    """Return the token at a character position, ignoring leading blanks; otherwise an empty one."""
    start = 0
    for token, chances in tokens:
        if start + len(token) - len(token.lstrip()) == place:
            return token, chances
        start += len(token)
    return "", {}


def _digits_at(tokens: Sequence[TokenChances], place: int) -> dict[str, float]:
    """Return the probabilities of digits for the token at a character position."""
    found: dict[str, float] = {}
    for token, chance in _token_at(tokens, place)[1].items():
        digits = token.strip()
        if re.fullmatch(r"[0-9]+", digits):
            found[digits] = found.get(digits, 0.0) + math.exp(min(0.0, chance))
    return found
