"""Ask a served model questions about photos, and cache the answers on disk."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from captioning.runtime.work_ahead import done_ahead, done_as_they_come
from captioning.served.answer_text import LANGUAGES, NO_CAPTION, is_data, language_of
from captioning.served.client import KEPT, Message, Question, Reply, ServedModel
from captioning.vision.line_store import LineStore, key_of
from captioning.vision.photo_places import open_photo
from captioning.vision.photos import load_rgb

LONGEST_SIDE = 1024  # of what is sent
QUALITY = 90
ENCODERS = 2  # threads that open photos
# A run stops if all of its first so many new answers are unusable.
MAX_WITHOUT_ANSWER = 20
# After each of these numbers of good answers the language is checked.
LANGUAGE_AFTER = (12, 40)
# So many draws equal to the answers at temperature 0 show that the server ignores temperature.
EQUAL_DRAWS = 4
_CHECK_SIDE = 336
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoQuestion:
    """A question about a photo.

    Attributes:
        photo: path of the photo, or the photo itself; None: a question about text only.
        text: text of the question.
        draw: index of the sampled answer, if several are sampled.
    """

    photo: str | Path | Image.Image | None
    text: str
    draw: int = 0


class PhotoAnswers:
    """Ask a served model about photos, and save each answer on arrival.

    Answers are appended to a file under a hash of photo, question, model, sampling and size. Only
    missing and failed answers are requested. Before the first request, a test checks that the
    model sees photos.

    Args:
        model: the served model.
        cache_folder: folder of the saved answers; None: memory only.
        longest_side: longest side in pixels of the photos that are sent; larger ones are shrunk.
        seed: sampling seed; None: not sent.
        shows_progress: print progress on standard error.
        language: expected language of the answers, such as ``"en"``; ``"any"``: not checked;
            empty: the question's language, if clear.
        are_captions: treat JSON without a caption as unusable.

    Attributes:
        counts: number of answers by problem since construction; ``""``: usable answers.
    """

    def __init__(
        self,
        *,
        model: ServedModel,
        cache_folder: str | Path | None = None,
        longest_side: int = LONGEST_SIDE,
        seed: int | None = None,
        shows_progress: bool = True,
        language: str = "any",
        are_captions: bool = False,
    ) -> None:
        self.model, self._longest_side, self._seed = model, longest_side, seed
        self._shows_progress, self._are_captions = shows_progress, are_captions
        self._store = LineStore(None if cache_folder is None else Path(cache_folder))
        self._is_checked, self._lock = False, threading.Lock()
        self._tally, self._language = _Tally(model.address), _Language(model.address, language)
        self._draws = _Draws(model)
        self.counts: Counter[str] = Counter()

    @property
    def settings(self) -> str:
        """All settings that answers depend on, except photo and question, as JSON."""
        one = self.model
        shown = {"model": one.model, "sampling": one.sampling, "max_tokens": one.max_tokens}
        shown |= {"longest_side": self._longest_side, "seed": self._seed}
        return json.dumps(shown, sort_keys=True)

    def check_once(self, text: str) -> None:
        """Check once that the model sees photos; see `check_sight`."""
        if not self._is_checked:
            check_sight(self.model, text)
            self._is_checked = True

    def ask(self, questions: Sequence[PhotoQuestion]) -> list[Reply]:
        """Return one reply per question, in order; see `as_they_come`."""
        replies = dict(self.as_they_come(questions))
        return [replies[number] for number in range(len(questions))]

    def as_they_come(self, questions: Sequence[PhotoQuestion]) -> Iterator[tuple[int, Reply]]:
        """Yield (index of the question, reply) pairs as the replies arrive.

        A photo that cannot be opened is not sent; its reply holds the problem.

        Raises:
            ConnectionError, ValueError: see `ServedModel.replies`; ValueError also if the model
                sees no photos, `MAX_WITHOUT_ANSWER` answers are unusable, or the language is wrong.
            OSError: answers cannot be saved.
        """
        progress = Progress(len(questions), shown=self._shows_progress)
        opened = done_ahead(
            self._opened,
            enumerate(questions),
            threads=ENCODERS,
            most_ahead=2 * self.model.num_parallel,
        )
        answers = done_as_they_come(
            self._answered, self._checked(opened), threads=self.model.num_parallel
        )
        try:
            for item, reply in answers:
                if item.reply is None:
                    self._tally.add(reply)
                    self._draws.add(item, reply)
                self._language.add(item.question.text, reply)
                self._count(reply)
                progress.step(reply, is_new=item.reply is None)
                yield item.number, reply
        finally:
            answers.close()
            self.model.close()
            progress.end()

    def _count(self, reply: Reply) -> None:
        reason = reply.problem.partition(" (")[0]
        self.counts[reason] += 1
        if (counted := _COUNTED.get()) is not None:
            counted.setdefault(self.model.model, Counter())[reason] += 1

    def _keep(self, item: _Opened, reply: Reply) -> None:
        if not reply.is_failed:
            date = datetime.now(UTC).isoformat(timespec="seconds")
            kept = {"text": reply.text, "problem": reply.problem, "date": date}
            self._store.put({item.key: kept | ({"tokens": reply.tokens} if reply.tokens else {})})

    def _opened(self, numbered: tuple[int, PhotoQuestion]) -> _Opened:
        """Open and encode the photo of a question, or return the saved reply."""
        number, question = numbered
        try:
            content = b"" if question.photo is None else _bytes_of(question.photo)
            key = self._key(question, content)
            if (kept := self._kept(key)) is not None:
                return _Opened(number=number, question=question, key=key, reply=kept)
            url = ""
            if question.photo is not None:
                url = data_url(question.photo, content, longest_side=self._longest_side)
        except (OSError, ValueError) as error:
            reply = Reply(problem=str(error), is_failed=True)
            return _Opened(number=number, question=question, reply=reply)
        return _Opened(number=number, question=question, key=key, url=url)

    def _key(self, question: PhotoQuestion, content: bytes) -> str:
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        return key_of(digest, question.text, str(question.draw), self.settings)

    def _kept(self, key: str) -> Reply | None:
        with self._lock:  # the first one reads the file
            kept = self._store.get(key)
        if kept is None:
            return None
        tokens = [(token, chances) for token, chances in kept.get("tokens", ())]
        return Reply(text=kept["text"], problem=kept["problem"], tokens=tokens)

    def is_kept(self, question: PhotoQuestion) -> bool:
        """Whether a question has a saved answer and needs no request; False for missing photos."""
        try:
            content = b"" if question.photo is None else _bytes_of(question.photo)
        except (OSError, ValueError):
            return False
        return self._kept(self._key(question, content)) is not None

    def _checked(self, opened: Iterable[_Opened]) -> Iterator[_Opened]:
        """Pass questions through; check the model's sight before the first question it receives."""
        for item in opened:
            if item.url:
                self.check_once(item.question.text)
            yield item

    def _answered(self, item: _Opened) -> Reply:
        if item.reply is not None:
            return item.reply
        seed = None if self._seed is None else self._seed + item.question.draw
        question = Question(messages=message(item.question.text, item.url), seed=seed)
        reply = self.model.ask(question)
        if self._are_captions and not reply.problem and is_data(reply.text):
            reply = replace(reply, problem=NO_CAPTION)
        with self._lock:
            self._keep(item, reply)  # here, as nobody may be left to take the reply
        return reply


class _Tally:
    """Counter that stops the run if none of the first new answers is usable."""

    def __init__(self, address: str) -> None:
        self._address, self._num, self._num_good = address, 0, 0

    def add(self, reply: Reply) -> None:
        """Count one reply.

        Raises:
            ValueError: `MAX_WITHOUT_ANSWER` replies, none of them usable.
        """
        self._num, self._num_good = self._num + 1, self._num_good + (not reply.problem)
        if self._num >= MAX_WITHOUT_ANSWER and not self._num_good:
            raise ValueError(
                f"{self._address}: none of {self._num} new answers is usable, the last problem: "
                f"{reply.problem}; change the question or the model"
            )


class _Language:
    """Check of the language of the first usable answers.

    Args:
        address: the server's address, for messages.
        expected: the language, see `PhotoAnswers`.
    """

    def __init__(self, address: str, expected: str) -> None:
        self._address, self._expected, self._texts = address, expected, list[str]()

    def add(self, question: str, reply: Reply) -> None:
        """Check the language with one more answer.

        Raises:
            ValueError: the answers are in another language.
        """
        if self._expected == "any" or reply.problem or len(self._texts) >= LANGUAGE_AFTER[-1]:
            return
        self._texts.append(reply.text)
        expected = self._expected or language_of([question], fewest_words=2)
        if len(self._texts) not in LANGUAGE_AFTER or not expected:
            return
        found = language_of(self._texts, beside=expected)
        # languages that are not listed share words with the listed ones
        is_other = found not in ("", expected) and (expected in LANGUAGES or found == "en")
        if is_other:
            raise ValueError(
                f"{self._address}: the first {len(self._texts)} answers are in {found!r} (such as "
                f"{self._texts[-1][:60]!r}), expected {expected!r}; name the language in the "
                f"question, or accept it with language={found} or language=any; {KEPT}"
            )


class _Draws:
    """Check that sampled answers differ from the answers at temperature 0.

    The check sends one more request for each of the first photos, at most `EQUAL_DRAWS`, and ends
    at the first answer that differs.
    """

    def __init__(self, model: ServedModel) -> None:
        self._model, self._num_equal = model, 0
        self._is_over = not model.sampling.get("temperature")
        self._greedy: dict[tuple[str, str], str] = {}

    def add(self, item: _Opened, reply: Reply) -> None:
        """Compare one more sampled answer; log a warning once."""
        if self._is_over or reply.problem:
            return
        asked = (item.question.text, item.url)
        if asked not in self._greedy:
            question = Question(messages=message(*asked), is_greedy=True)
            self._greedy[asked] = self._model.ask_once(question).text
        self._num_equal += 1
        self._is_over = reply.text != self._greedy[asked] or self._num_equal >= EQUAL_DRAWS
        if reply.text == self._greedy[asked] and self._is_over:
            log.warning(
                "%s: the first %d sampled answers equal those of %s at temperature 0: the server "
                "seems to ignore temperature=%s, so captions of a photo may be identical",
                self._model.address,
                self._num_equal,
                self._model.model,
                self._model.sampling["temperature"],
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A question with its photo encoded for the request, or with its saved reply.

    Attributes:
        number: index of the question.
        question: the question about the photo.
        key: cache key of the answer.
        url: data URL of the photo as JPEG; empty if it need not be sent.
        reply: the saved reply, or the error of the photo; None: ask the model.
    """

    number: int
    question: PhotoQuestion
    key: str = ""
    url: str = ""
    reply: Reply | None = None


def message(text: str, url: str) -> list[Message]:
    """Build the chat message: the photo's URL, if there is one, then the text."""
    if not url:
        return [{"role": "user", "content": text}]
    photo = {"type": "image_url", "image_url": {"url": url}}
    return [{"role": "user", "content": [photo, {"type": "text", "text": text}]}]


def data_url(
    photo: str | Path | Image.Image, content: bytes, *, longest_side: int = LONGEST_SIDE
) -> str:
    """Encode a photo as a data URL: upright, RGB, limited in size, JPEG without metadata.

    Args:
        photo: path of the photo (for messages), or the photo itself.
        content: content of the file.
        longest_side: maximum side in pixels.

    Raises:
        ValueError: the content is not a photo.
    """
    opened = photo
    if not isinstance(opened, Image.Image):
        # decoded at a half or less where that is enough
        opened = load_rgb(opened, content=content, smallest_side=longest_side)
    if max(opened.size) > longest_side:
        opened = opened.copy()
        opened.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS, reducing_gap=3)
    jpeg = io.BytesIO()
    Image.frombytes(opened.mode, opened.size, opened.tobytes()).save(jpeg, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"


def _bytes_of(photo: str | Path | Image.Image) -> bytes:
    if isinstance(photo, Image.Image):
        return f"{photo.size}{photo.mode}".encode() + photo.tobytes()
    try:
        with open_photo(photo) as file:
            return file.read()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{photo}: no such photo") from error


def check_sight(model: ServedModel, text: str) -> None:
    """Check that a model sees photos: ask about two different photos and about no photo.

    Raises:
        ValueError: the model answers no question with a photo; or it ignores the photo, that is,
            the photo adds no tokens, or both photos have the same answer.
        ConnectionError: the server cannot be reached.
    """
    urls = [*(data_url(photo, b"") for photo in _unlike_photos()), ""]
    questions = [Question(messages=message(text, url)) for url in urls]
    with ThreadPoolExecutor(min(len(questions), model.num_parallel)) as pool:
        *seen, blind = pool.map(model.ask_once, questions)
    name = f"{model.address}: {model.model}"
    if failed := next((reply for reply in seen if reply.is_failed), None):
        listed = ", ".join(model.listed()[:8])
        raise ValueError(
            f"{name} fails on questions with a photo: {failed.problem}; check the model's name and "
            f"that the model accepts photos (the server lists {listed or 'no models'})"
        )
    if blind.is_failed:  # it wants a photo
        return
    is_counted = bool(seen[0].prompt_tokens and blind.prompt_tokens)
    is_longer = seen[0].prompt_tokens > blind.prompt_tokens
    is_same = seen[0].text == seen[1].text
    if (is_counted and not is_longer) or (not is_counted and is_same):
        how = "a photo adds no tokens" if is_counted else "two different photos get one answer"
        raise ValueError(
            f"{name} does not see photos ({how}); serve a vision-language model together with its "
            "image encoder (llama.cpp: --mmproj)"
        )
    if seen[0].model and not _is_same_model(seen[0].model, model.model):
        log.warning("%s: the server answers with another model: %s", name, seen[0].model)


def _is_same_model(said: str, asked: str) -> bool:
    """Whether the server's model name matches, apart from an appended date or commit."""
    said, asked = said.lower().split("/")[-1], asked.lower().rstrip("/").split("/")[-1]
    return said.startswith(asked) or asked.startswith(said)


def _unlike_photos() -> tuple[Image.Image, Image.Image]:
    size = (_CHECK_SIDE, _CHECK_SIDE)
    disc, stripes = Image.new("RGB", size, "white"), Image.new("RGB", size, "navy")
    ImageDraw.Draw(disc).ellipse((80, 80, 256, 256), fill="red")
    for left in range(0, _CHECK_SIDE, 48):
        ImageDraw.Draw(stripes).rectangle((left, 0, left + 23, _CHECK_SIDE), fill="yellow")
    return disc, stripes


class Progress:
    """Progress of the answers on standard error: one updated line, or regular log lines.

    Args:
        total: number of questions.
        shown: whether to print.
    """

    def __init__(self, total: int, *, shown: bool = True) -> None:
        self._total, self._shown = total, shown
        self._is_terminal = sys.stderr.isatty()
        self._every = 0.3 if self._is_terminal else 15.0
        self._begun = self._last = time.monotonic()
        self._done = self._new = self._failed = self._tokens = 0

    def step(self, reply: Reply, *, is_new: bool) -> None:
        """Count one more answer."""
        self._done, self._new = self._done + 1, self._new + is_new
        self._failed += bool(reply.problem)
        self._tokens += reply.prompt_tokens + reply.completion_tokens
        if time.monotonic() - self._last >= self._every:
            self._print()

    def end(self) -> None:
        """Print the last line, if lines were printed before."""
        if self._last > self._begun:
            self._print()
            if self._shown and self._is_terminal:
                print(file=sys.stderr)

    def _print(self) -> None:
        self._last = time.monotonic()
        rate = self._new / max(1e-9, self._last - self._begun)
        left = (self._total - self._done) / rate if rate else 0.0
        line = (
            f"{self._done:,} of {self._total:,} answers, {rate:.1f} a second, "
            f"{left:,.0f} s left, {self._failed:,} unusable, {self._tokens:,} tokens"
        )
        if self._shown:
            mark = "\r" if self._is_terminal else ""
            print(f"{mark}{line}", end=" " if mark else "\n", file=sys.stderr, flush=True)


# Counts of answers by model and problem, for callers that record them.
_COUNTED: ContextVar[dict[str, Counter[str]] | None] = ContextVar("counted", default=None)


@contextmanager
def answers_counted() -> Iterator[dict[str, Counter[str]]]:
    """Count the answers that this thread receives within the context, by model and problem."""
    counted: dict[str, Counter[str]] = {}
    token = _COUNTED.set(counted)
    try:
        yield counted
    finally:
        _COUNTED.reset(token)


def summary(counts: Mapping[str, int]) -> dict[str, Any]:
    """Summarise answer counts for a card: total, unusable answers by reason, and their share."""
    total = sum(counts.values())
    refused = {reason: number for reason, number in counts.items() if reason}
    share = round(sum(refused.values()) / total, 4) if total else 0.0
    return {"answers": total, "without": refused, "share without": share}
