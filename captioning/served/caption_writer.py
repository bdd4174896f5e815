"""A captioner behind an address."""

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
# Of a search, what requests say, or what it does not read.
_SAID = ("num_captions", "temperature", "seed", "beam_size")
_FEWEST = 2  # tokens by configs/search/base.yaml: no answer is shorter
_PHOTOS_AT_ONCE = 256
log = logging.getLogger(__name__)


class ServedCaptioner:
    """A model behind an address that writes captions; a `CaptionWriter`.

    Captions that are cut off, empty, refused by the model or by the server's filter are left out
    and counted. The server may ignore temperature and seed.

    Args:
        name: ``http://HOST:PORT/v1#NAME``.
        prompt: what it is asked; empty: `REQUEST`.
        search: ``GreedySearch``: temperature 0; ``Sampling``: its temperature, ``top_p`` and seed,
            and as many requests a photo as captions. Servers search no beams.
        max_tokens: maximum tokens of a caption; one that is cut is asked for once more with more of
            them.
        longest_side: of photos as they are sent, in pixels.
        language: that captions should be in, such as ``"en"``; ``"any"``: not looked at; empty:
            that of the prompt, where it is clear. Another one ends the run after some answers.
        cache_folder: where answers are kept as they come; None: in memory.
        num_parallel, timeout, retries, wait, key_variable, extra_body: see `ServedModel`.

    Raises:
        ValueError: no such place, or a search that a server does not have.
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
        """The model's name, by which the server knows it."""
        return self._model

    @property
    def identity(self) -> str:
        """Model, prompt and sampling; the weights behind an address are not known."""
        return f"served {self._prompt!r} {self._num_captions} {self.answers.settings}"

    def prepare_photos(self, photos: Sequence[Path], *, keys: Sequence[str]) -> None:
        """Nothing: photos are opened as they are sent."""

    def write_captions(
        self,
        photos: Sequence[Path],
        *,
        keys: Sequence[str],
        beginnings: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Captions of each photo; see `CaptionWriter`.

        Raises:
            ConnectionError, ValueError: see `PhotoAnswers.as_they_come`; or beginnings, which
                servers of chats do not continue.
        """
        if beginnings is not None:
            raise ValueError(
                f"{self._model}: a served model continues no caption; use a local one, by "
                "caption_source@...=image_text"
            )
        written = [
            [reply.text for reply in replies if not reply.problem]
            for replies in self.in_order(photos)
        ]
        if without := summary(self.answers.counts)["without"]:
            log.warning("%s: answers that are no captions: %s", self._model, without)
        return written

    def in_order(self, photos: Sequence[str | Path]) -> Iterator[list[Reply]]:
        """The replies about each photo, in the order of the photos, as soon as they are there.

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
        """What wrote the captions, and how many answers are none; no key."""
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
        """Nothing is held."""


def _sampling(search: AbstractSearch | None) -> tuple[dict[str, Any], int, int | None]:
    """Temperature and ``top_p``, captions a photo, and the seed.

    Raises:
        ValueError: the search has what no request says.
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
        f"a server is not asked for {what}; choose search=greedy, or search=sampling with "
        "temperature, top_p, num_captions and seed, max_tokens, and extra_body for further fields"
    )
