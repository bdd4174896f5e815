"""A captioner that asks a model served over HTTP for captions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.config.ranges import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from captioning.served.client import Reply, ServedModel, split_place
from captioning.served.photo_answers import LONGEST_SIDE, PhotoAnswers, PhotoQuestion, summary

if TYPE_CHECKING:
    from captioning.decoding.search import AbstractSearch

REQUEST = "Describe the image in one sentence."
# Settings of a search that requests carry, or that it does not read.
_SAID = ("num_captions", "temperature", "seed", "beam_size")
_FEWEST = 2  # tokens by configs/search/base.yaml: no answer is shorter
_PHOTOS_AT_ONCE = 256
log = logging.getLogger(__name__)


class ServedCaptioner:
    """Captioner that asks a model served over HTTP; a `CaptionWriter`.

    Captions that are truncated, empty, refused by the model or filtered by the server are dropped
    and counted. The server may ignore temperature and seed.

    Args:
        name: address and model, ``http://HOST:PORT/v1#NAME``.
        prompt: the prompt for each photo; empty: `REQUEST`.
        search: ``GreedySearch`` sends temperature 0; ``Sampling`` sends its temperature, ``top_p``
            and seed, with one request for each caption. Servers offer no beam search.
        max_tokens: maximum tokens of a caption; a truncated caption is requested once more with a
            higher limit.
        longest_side: longest side of the photos that are sent, in pixels.
        language: expected language of the captions, such as ``"en"``; ``"any"``: not checked;
            empty: the prompt's language, if clear. Captions in another language stop the run early.
        cache_folder: folder where each answer is saved on arrival; None: memory only.
        num_parallel, timeout, retries, wait, key_variable, extra_body: see `ServedModel`.

    Raises:
        ValueError: an invalid address, or a search that servers do not offer.
    """

    def __init__(
        self,
        *,
        name: str,
        search: AbstractSearch | None = None,
        prompt: str = "",
        max_tokens: PositiveInt = 256,
        longest_side: PositiveInt = LONGEST_SIDE,
        language: str = "",
        cache_folder: str | Path | None = None,
        num_parallel: PositiveInt = 8,
        timeout: PositiveFloat = 600.0,
        retries: NonNegativeInt = 5,
        wait: NonNegativeFloat = 1.0,
        key_variable: str = "OPENAI_API_KEY",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        address, self._model = split_place(name)
        self._prompt = prompt or REQUEST
        sampling, self._num_captions, seed = _sampling(search)
        self.answers = PhotoAnswers(
            model=ServedModel(
                address=address,
                model=self._model,
                **sampling,
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
            seed=seed,
            language=language,
            are_captions=True,
        )
        self.batch_size = _PHOTOS_AT_ONCE

    @property
    def name(self) -> str:
        """The model's name on the server."""
        return self._model

    @property
    def identity(self) -> str:
        """Model, prompt and sampling settings, for cache keys; the served weights are unknown."""
        return f"served {self._prompt!r} {self._num_captions} {self.answers.settings}"

    def prepare_photos(self, photos: Sequence[Path], *, keys: Sequence[str]) -> None:
        """Do nothing: each photo is opened when it is sent."""

    def write_captions(
        self,
        photos: Sequence[Path],
        *,
        keys: Sequence[str],
        beginnings: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Write captions of each photo; see `CaptionWriter`.

        Raises:
            ConnectionError, ValueError: see `PhotoAnswers.as_they_come`; ValueError also for
                ``beginnings``, because chat servers do not continue a given text.
        """
        if beginnings is not None:
            raise ValueError(
                f"{self._model}: served models cannot continue a given caption; use a local model "
                "with caption_source@...=image_text"
            )
        written = [
            [reply.text for reply in replies if not reply.problem]
            for replies in self.in_order(photos)
        ]
        if without := summary(self.answers.counts)["without"]:
            log.warning("%s: dropped answers without a usable caption: %s", self._model, without)
        return written

    def in_order(self, photos: Sequence[str | Path]) -> Iterator[list[Reply]]:
        """Yield the replies about each photo in the order of the photos, as soon as they arrive.

        Raises:
            ConnectionError, ValueError: see `PhotoAnswers.as_they_come`.
        """
        number = self._num_captions
        questions = [
            PhotoQuestion(photo=photo, text=self._prompt, draw=draw)
            for photo in photos
            for draw in range(number)
        ]
        waiting: dict[int, Reply] = {}
        next_photo = 0
        for place, reply in self.answers.as_they_come(questions):
            waiting[place] = reply
            while all(next_photo * number + draw in waiting for draw in range(number)):
                yield [waiting.pop(next_photo * number + draw) for draw in range(number)]
                next_photo += 1

    def card(self) -> dict[str, Any]:
        """Return model, prompt, sampling and counts of unusable answers for a card; no API key."""
        model = self.answers.model
        return {
            "model": model.model,
            "address": model.address,
            "prompt": self._prompt,
            "sampling": model.sampling,
            "max_tokens": model.max_tokens,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **summary(self.answers.counts),
        }

    def release(self) -> None:
        """Do nothing: a served model holds no local memory."""


def _sampling(search: AbstractSearch | None) -> tuple[dict[str, Any], int, int | None]:
    """Return sampling fields (temperature, ``top_p``), captions per photo, and the seed.

    Raises:
        ValueError: the search has a setting that requests cannot carry.
    """
    if search is None:
        return {"temperature": 0.0}, 1, None
    # Here, as they import torch, which a command that has no search does without.
    from captioning.decoding.greedy import GreedySearch
    from captioning.decoding.sampling import Sampling
    from captioning.decoding.settings import SearchSettings

    settings, plain = search.settings, SearchSettings()
    given = {name: getattr(settings, name) for name in vars(plain) if name not in _SAID}
    if settings.min_length == _FEWEST:
        del given["min_length"]
    # lists of configs are empty as tuples are
    changed = [
        name
        for name, value in given.items()
        if value != getattr(plain, name) and (value or getattr(plain, name))
    ]
    if isinstance(search, Sampling) and not changed and search.top_k is None:
        sampling = {"temperature": settings.temperature, "top_p": search.top_p}
        return sampling, settings.num_captions, settings.seed
    if isinstance(search, GreedySearch) and not changed:
        return {"temperature": 0.0}, 1, None
    wrong = changed or (["top_k"] if isinstance(search, Sampling) else [])
    what = f"settings {', '.join(wrong)} of the search" if wrong else type(search).__name__
    raise ValueError(
        f"the server does not support {what}; choose search=greedy, or search=sampling with "
        "temperature, top_p, num_captions and seed; set max_tokens and extra_body on the model"
    )
