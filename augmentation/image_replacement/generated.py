"""Replace photos by images generated from prompts (data curation paper, section 3.3)."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import queue
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generator import AbstractGenerator, Job, Producer
from captioning.config.ranges import PositiveInt
from captioning.data.roster import Roster
from captioning.interfaces import TextEmbedder
from captioning.runtime.sharing import distribute, end_with_parent, rank_and_size

log = logging.getLogger(__name__)

# Seconds between checks whether the other process is alive.
PATIENCE = 1.0
# Added to the worker's niceness: on a busy processor training comes first.
NICENESS = 10
# Of the paper, chosen there for photographs instead of paintings.
STYLER = "national geographic, high quality photography, Canon EOS R3, Flickr"
OVERLONG = ("drop", "shorten", "cut", "refuse")
OTHERS_FIRST = "others_first"


class AbstractPromptForm(ABC):
    """Selects the captions that form a prompt.

    Attributes:
        takes_all: whether it has captions beside the sample's own one.
    """

    takes_all = False

    @abstractmethod
    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """Captions for the prompt, at least one, the most important first."""


class SingleCaption(AbstractPromptForm):
    """Uses only the sample's own caption."""

    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """Return only the sample's own caption."""
        return (request.sample.caption,)


class Representative(AbstractPromptForm):
    """Uses the image's caption nearest to the mean embedding of all its captions.

    Among equally near captions the sample's own comes first, then the order of the annotations.

    Args:
        sentences: the encoder.
    """

    def __init__(self, *, sentences: TextEmbedder) -> None:
        self._sentences = sentences

    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """Return only the representative caption."""
        vectors = self._sentences.embed_texts(request.captions)
        # unit vectors: the nearest by cosine is the nearest by distance
        return (request.captions[int((vectors @ vectors.mean(0)).argmax())],)


class Concatenation(AbstractPromptForm):
    """Uses all captions of the image, starting with the sample's own caption."""

    takes_all = True

    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """Return all captions of the image, the sample's own first."""
        return request.captions


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text prompt; by default the model reads it without truncation.

    Attributes:
        text: the prompt; empty if there is a problem.
        problem: why there is none.
        notes: the shortening, once for each caption left out, or the cut.
    """

    text: str
    problem: str = ""
    notes: tuple[str, ...] = ()


class Prompter:
    """Joins captions and a style text to a prompt that the model can read in full.

    A model of 77 tokens would cut a longer prompt silently, beginning with the styler at its end.
    Here prompts are shortened by rule, and the shortening is counted.

    Args:
        form: selection of captions.
        styler: words at the end for a style, such as `STYLER`; None for none.
        overlong: ``"drop"`` leaves captions out from the end, then shortens the last one at
            a word; ``"shorten"`` shortens the captions at a word; ``"refuse"`` leaves the sample
            alone. The styler is never shortened. ``"cut"`` leaves the prompt to the model, which
            reads its beginning, as the paper's pictures must have been made.
        order: ``"others_first"`` puts the sample's own caption behind the image's other ones, where
            overlong prompts lose it first: the paper draws "based on the other sentences that
            describe the image". None: the form's order.

    Raises:
        ValueError: ``overlong`` or ``order`` is unknown, or ``order`` needs several captions.
    """

    def __init__(
        self,
        *,
        form: AbstractPromptForm,
        styler: str | None = None,
        overlong: Literal["drop", "shorten", "cut", "refuse"] = "drop",
        order: Literal["others_first"] | None = None,
    ) -> None:
        if overlong not in OVERLONG:
            raise ValueError(f"overlong must be one of {OVERLONG}: got {overlong!r}")
        if order not in (None, OTHERS_FIRST):
            raise ValueError(f"order must be {OTHERS_FIRST} or null: got {order!r}")
        if order and not form.takes_all:
            raise ValueError(
                f"order={order}: {type(form).__name__} makes prompts of one caption only; choose "
                "curation/prompt=concatenation or concatenation_styler, or order=null"
            )
        self._form, self.overlong, self._order = form, overlong, order
        self.styler = " ".join((styler or "").split())

    def prompt(
        self, request: ImageRequest, *, count: Callable[[str], int], limit: int | None
    ) -> Prompt:
        """Build the prompt for a request.

        Args:
            request: the sample and its image's captions.
            count: tokens of a text, as the model reads it.
            limit: maximum number of tokens that it reads; None: no limit.
        """
        captions = [" ".join(caption.split()) for caption in self._form.captions(request)]
        captions = [caption for caption in captions if caption]
        if self._order == OTHERS_FIRST:
            own = " ".join(request.sample.caption.split())
            captions.sort(key=own.__eq__)  # stable: the others keep their order
        if not captions:
            return Prompt(text="", problem="empty prompt")

        def fits(text: str) -> bool:
            return limit is None or count(text) <= limit

        selected = list(captions)
        if self.overlong == "cut":
            text = self._join(selected)
            return Prompt(text=text, notes=() if fits(text) else ("prompt cut by the model",))
        while self.overlong == "drop" and len(selected) > 1 and not fits(self._join(selected)):
            selected.pop()
        notes = ("caption left out of the prompt",) * (len(captions) - len(selected))
        if fits(self._join(selected)):
            return Prompt(text=self._join(selected), notes=notes)
        if self.overlong == "refuse":
            return Prompt(text="", problem="prompt too long")
        shortened = self._shorten(selected, fits)
        if not shortened:
            return Prompt(text="", problem="prompt too long to be shortened at a word")
        return Prompt(text=shortened, notes=(*notes, "prompt shortened"))

    def _join(self, captions: Sequence[str]) -> str:
        """Join captions as sentences and append the style text; keep a single caption as it is."""
        if len(captions) == 1 and not self.styler:
            return captions[0]
        text = ". ".join(caption.rstrip(" .") for caption in captions)
        return f"{text}, {self.styler}" if self.styler else f"{text}."

    def _shorten(self, captions: Sequence[str], fits: Callable[[str], bool]) -> str:
        """Keep as many words as fit with the style text; empty if no word fits."""
        words = ". ".join(caption.rstrip(" .") for caption in captions).split()
        low, high = 0, len(words)
        while low < high:  # the most words that fit lie in [low, high]
            middle = (low + high + 1) // 2
            if fits(self._join([" ".join(words[:middle])])):
                low = middle
            else:
                high = middle - 1
        return self._join([" ".join(words[:low])]) if low else ""


class AheadWorker:
    """Worker process that fills the cache with images that are likely to be requested.

    It only adds complete pictures to the cache, so it changes only the duration of an epoch's end.
    If it dies, that is reported and pictures are made in place from then on.

    Args:
        generator: sent to the process before it has loaded weights.
        cache: the same for both.
        num_threads: number of threads of torch in the process.
    """

    def __init__(
        self, *, generator: AbstractGenerator, cache: PictureCache, num_threads: int = 1
    ) -> None:
        self._generator, self._cache, self._num_threads = generator, cache, num_threads
        self._process: Any = None
        self._orders: Any = None
        self._answers: Any = None
        self._num_pauses, self._ready = 0, False
        self.failed = False

    def order(self, jobs: Sequence[Job]) -> None:
        """Replace the worker's list of jobs, which are done in order; returns immediately."""
        if not self._alive():
            if self.failed:
                return
            self.begin()
        self._orders.put((0, tuple(jobs)))

    def pause(self) -> None:
        """Stop the worker after its current batch; returns when the worker is idle or has died.

        A worker that is still importing its packages makes nothing, and is not waited for.
        """
        if self._process is None:
            return
        self._num_pauses += 1
        self._orders.put((self._num_pauses, ()))
        while self._alive():
            try:
                answer = self._answers.get(timeout=PATIENCE if self._ready else 0.01)
            except queue.Empty:
                if not self._ready:
                    return
                continue
            self._ready = True
            if answer == self._num_pauses:
                return

    def close(self) -> None:
        """Stop the process; repeated calls are safe."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.is_alive():
            self._orders.put(None)
            process.join(10 * PATIENCE)
        if process.is_alive():
            process.terminate()
            process.join()
        for channel in (self._orders, self._answers):
            channel.close()
            channel.cancel_join_thread()

    def begin(self) -> None:
        """Start the process, which takes seconds; does nothing if the process runs."""
        if self._process is not None:
            return
        self._ready = False
        context = multiprocessing.get_context("spawn")
        self._orders, self._answers = context.Queue(), context.Queue()
        self._process = context.Process(
            target=_work,
            args=(
                self._generator,
                self._cache,
                self._orders,
                self._answers,
                self._num_threads,
            ),
            name="pictures made ahead",
            daemon=True,
        )
        self._process.start()

    def _alive(self) -> bool:
        """Return whether the worker is alive; log its death once."""
        if self._process is None:
            return False
        if self._process.is_alive():
            return True
        log.warning(
            "the process that generates images ahead ended with exit code "
            f"{self._process.exitcode}; the training process now generates the images"
        )
        self.failed = True
        self.close()
        return False


def _work(
    generator: AbstractGenerator,
    cache: PictureCache,
    orders: Any,
    answers: Any,
    num_threads: int,
) -> None:
    """Worker loop: take the newest list of jobs, and generate its images batch by batch."""
    # Ctrl-C reaches the whole group of processes; the trainer's close() ends this one in order
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()  # also amid a picture, which may take minutes
    os.nice(NICENESS)
    torch.set_num_threads(num_threads)
    producer = Producer(generator=generator, cache=cache)
    remaining: list[Job] = []
    answers.put(0)
    while True:
        newest = _newest(orders, wait=not remaining)
        if newest is None:
            return
        if newest is not _NOTHING:
            number, jobs = newest
            remaining = list(jobs)
            if number:
                producer.release()  # who asks for a pause may load the model
                answers.put(number)
        elif not remaining:
            producer.release()  # training has the memory until there is work
        batch = []
        while remaining and len(batch) < generator.batch_size:
            job = remaining.pop(0)
            if producer.find(job) is None:
                batch.append(job)
        producer.produce(batch)


_NOTHING: Any = ("nothing new",)


def _newest(orders: Any, *, wait: bool) -> Any:
    """Newest list that was sent; `_NOTHING` without a new list, None to stop."""
    newest = _NOTHING
    try:
        newest = orders.get(timeout=PATIENCE if wait else 0)
        while newest is not None:
            newest = orders.get_nowait()
    except queue.Empty:
        return newest
    return None


# Pictures of a process after which all processes wait for each other: minutes of a GPU's work.
AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A request for a generator; ``job`` is None if no prompt exists."""

    prompt: Prompt
    job: Job | None


class GeneratedImages(AbstractImageSource):
    """Generates an image for each caption, or takes the image from the cache.

    The picture's seed depends on the run's seed, the sample and the number of its earlier pictures,
    so two runs share their pictures, and a repeated sample gets another one. With several processes
    each makes its share, in a common cache.

    Args:
        generator: the model.
        cache: keeps the pictures.
        prompts: makes prompts of captions; by default of the sample's own caption alone.
        ahead: a separate process makes the likely next pictures during training. It changes only
            the time; the model is on its GPU while that process has work.
        ahead_threads: threads of torch in that process.
    """

    def __init__(
        self,
        *,
        generator: AbstractGenerator,
        cache: PictureCache,
        prompts: Prompter | None = None,
        ahead: bool = False,
        ahead_threads: PositiveInt = 1,
    ) -> None:
        self._generator, self._cache = generator, cache
        self._prompts = prompts if prompts is not None else Prompter(form=SingleCaption())
        self._producer = Producer(generator=generator, cache=cache)
        self._worker = None
        if ahead:
            self._worker = AheadWorker(generator=generator, cache=cache, num_threads=ahead_threads)

    def start(self, roster: Roster) -> None:
        """Check the model's files and that the cache can be written; start the worker."""
        self.ready()
        if self._worker is not None:
            self._worker.begin()

    def ready(self) -> None:
        """Check the model's files, choose its device, and check that the cache can be written."""
        self._generator.start()
        self._cache.start()

    def recipe(self) -> dict[str, Any]:
        """Identity of the model and all settings that affect pixels, as plain values."""
        return dict(self._generator.recipe())

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """Return images from the cache; generate missing images first.

        Raises:
            OSError: the cache cannot be written; earlier images remain in the cache.
            RuntimeError: another process could not generate its images.
        """
        orders = self._orders(requests, seed)
        if self._worker is not None:
            self._worker.pause()
        jobs = list(dict.fromkeys(order.job for order in orders if order.job is not None))
        problems = distribute(jobs, self._producer.produce, at_once=AT_ONCE)
        return [self._answer(order, problems) for order in orders]

    def _answer(self, order: _Order, problems: dict[Job, str]) -> Picture:
        if order.job is None:
            return Picture(path=None, problem=order.prompt.problem, notes=order.prompt.notes)
        path = self._producer.find(order.job)
        if path is None and order.job not in problems:
            raise OSError(
                f"a generated image is missing from {self._cache.folder}: all processes of a run "
                "must share one cache folder; set CAPTIONING_CACHE to a shared folder"
            )
        if path is None:
            return Picture(path=None, problem=problems[order.job], notes=order.prompt.notes)
        origin = f"generated:{self._generator.name} seed {order.job.seed}: {order.job.prompt}"
        return Picture(path=path, origin=origin, notes=order.prompt.notes)

    def _orders(self, requests: Sequence[ImageRequest], seed: int) -> list[_Order]:
        orders = []
        for request in requests:
            prompt = self._prompts.prompt(
                request, count=self._generator.count_tokens, limit=self._generator.max_tokens
            )
            number = picture_seed(seed, request.sample.sample_id, len(request.photos))
            job = None if prompt.problem else Job(prompt=prompt.text, seed=number)
            orders.append(_Order(prompt=prompt, job=job))
        return orders

    @property
    def works_ahead(self) -> bool:
        """Whether a worker exists that has not failed."""
        return self._worker is not None and not self._worker.failed

    def expect(self, requests: Sequence[ImageRequest], *, seed: int) -> None:
        """Let the worker start; with several processes, each one expects its own share."""
        if self._worker is None:
            return
        rank, size = rank_and_size()
        jobs = [order.job for order in self._orders(requests, seed) if order.job is not None]
        # by seed, not by place: each process sees another list
        self._worker.order([job for job in jobs if job.seed % size == rank])

    def release(self) -> None:
        """Free the model if this process loaded it; loading it again takes seconds."""
        self._producer.release()

    def close(self) -> None:
        """Stop the worker and free the model."""
        if self._worker is not None:
            self._worker.close()
        self._generator.release()


def picture_seed(seed: int, sample_id: str, number: int) -> int:
    """Seed of a sample's image, in [0, 2^63).

    Args:
        seed: the run's seed.
        sample_id: the sample.
        number: number of its earlier pictures.
    """
    digest = hashlib.sha256(f"{seed}\n{sample_id}\n{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
