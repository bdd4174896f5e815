"""Generate images from prompts in batches, and handle the failures of a generator."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from augmentation.image_replacement.cache import PictureCache

log = logging.getLogger(__name__)

# Grey levels of 255 between the darkest and the brightest value of a picture that is not blank.
MIN_CONTRAST = 4
# A picture of 1,024 pixels is compressed in a quarter of a second, meanwhile the GPU would wait.
STORING_THREADS = 4
MOST_WAITING = 64  # pictures; 200 MB of those


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An image to generate, with its prompt and seed.

    Attributes:
        prompt: description of the picture.
        seed: seed of its noise, at least 0; the same prompt with another seed is another picture.
    """

    prompt: str
    seed: int


class AbstractGenerator(ABC):
    """A text-to-image model with all its settings.

    It is built without loading weights, so that it can be sent to another process, and a run whose
    pictures are all cached never loads them.

    Attributes:
        batch_size: pictures at once.
    """

    batch_size: int

    @property
    @abstractmethod
    def name(self) -> str:
        """Readable name of the model, which differs for other weights."""

    @abstractmethod
    def recipe(self) -> Mapping[str, Any]:
        """Identity of the model and all settings that affect its pixels, as plain values."""

    @abstractmethod
    def generate(self, jobs: Sequence[Job]) -> list[np.ndarray | None]:
        """Generate an image for each job: ``(H, W, 3)`` in [0, 1], or None if withheld as unsafe.

        An image depends only on its own job, not on other jobs of the batch. Any error here
        counts as a failure of the batch, which is then tried in halves.
        """

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of all images."""

    def start(self) -> None:
        """Check settings and files before they are needed; raise errors for wrong ones."""
        return None

    def load(self) -> None:
        """Load the model; called before `generate`, possibly several times."""
        return None

    def release(self) -> None:
        """Free the model."""
        return None

    @property
    def max_tokens(self) -> int | None:
        """Number of tokens of the longest prompt that is not truncated; None without a limit."""
        return None

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a prompt, including begin and end tokens."""
        return len(text.split())


class Producer:
    """Generates images, and stores them in threads while the next batch is generated.

    Batches are always filled up to the same size, because the arithmetic of a batch of another size
    may round otherwise: a picture is then independent of its batch. If memory runs out, the batch
    size is halved permanently.

    Args:
        generator: generates the images.
        cache: stores the images.
    """

    def __init__(self, *, generator: AbstractGenerator, cache: PictureCache) -> None:
        self.generator, self.cache = generator, cache
        self._batch_size = generator.batch_size
        self._has_loaded = False

    def produce(self, jobs: Sequence[Job]) -> dict[Job, str]:
        """Generate the images that the cache lacks.

        Returns:
            Problems by job; a job without an entry is in the cache.

        Raises:
            OSError: the cache cannot be written.
        """
        missing = [job for job in dict.fromkeys(jobs) if self.find(job) is None]
        if not missing:
            return {}
        self._has_loaded = True
        self.generator.load()
        problems: dict[Job, str] = {}
        waiting: deque[Future[Path]] = deque()
        with ThreadPoolExecutor(STORING_THREADS) as pool:  # its end waits for them, in an error too
            for job, result in self._results(missing):
                if isinstance(result, str):
                    problems[job] = result
                else:
                    waiting.append(pool.submit(self.cache.store, self._recipe(job), result))
                    _wait(waiting, MOST_WAITING)
            _wait(waiting, 0)
        if problems:
            log.warning(_summary(problems, len(missing)))
        return problems

    def _results(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, np.ndarray | str]]:
        """Yield pixels ``(H, W, 3) uint8`` or the problem for each job, in batches."""
        for start in range(0, len(jobs), self.generator.batch_size):
            yield from self._attempt(jobs[start : start + self.generator.batch_size])

    def release(self) -> None:
        """Free the model if it was loaded."""
        if self._has_loaded:
            self.generator.release()
            self._has_loaded = False

    def find(self, job: Job) -> Path | None:
        """Path of a job's image in the cache, or None if it is missing or damaged."""
        return self.cache.find(self._recipe(job))

    def _recipe(self, job: Job) -> dict[str, Any]:
        return {"prompt": job.prompt, "seed": job.seed, "generator": dict(self.generator.recipe())}

    def _attempt(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, np.ndarray | str]]:
        """Pixels ``(H, W, 3) uint8`` or the problem for each job."""
        remaining = list(jobs)
        while remaining:
            size = self._batch_size
            batch, remaining = remaining[:size], remaining[size:]
            pictures = self._try_generate(batch + batch[-1:] * (size - len(batch)))
            if not isinstance(pictures, _Failure):
                yield from (
                    (job, self._check_picture(picture))
                    for job, picture in zip(batch, pictures, strict=False)
                )
            elif size == 1:
                yield batch[0], pictures.problem
            else:
                yield from self._in_halves(batch, pictures)

    def _try_generate(self, jobs: Sequence[Job]) -> list[np.ndarray | None] | _Failure:
        try:
            return self.generator.generate(jobs)
        except Exception as error:  # noqa: BLE001 - whatever it raises, training continues
            # its text alone: an exception keeps references to the tensors that fill the memory
            return _failure(error)

    def _in_halves(
        self, jobs: Sequence[Job], failure: _Failure
    ) -> Iterator[tuple[Job, np.ndarray | str]]:
        """Try again with batches of half the size."""
        previous_size = self._batch_size
        self._batch_size = previous_size // 2
        if failure.no_memory:
            log.warning(f"GPU out of memory: batch_size {previous_size} is halved")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        yield from self._attempt(jobs)
        if not failure.no_memory:
            self._batch_size = previous_size

    def _check_picture(self, picture: np.ndarray | None) -> np.ndarray | str:
        """Return the pixels ``(H, W, 3) uint8``, or their problem."""
        width, height = self.generator.size()
        if picture is None:
            return "withheld by the safety checker"
        if picture.shape != (height, width, 3):
            return f"wrong size: {picture.shape} instead of {(height, width, 3)}"
        if not np.isfinite(picture).all():
            return "values that are not numbers"
        pixels = (np.clip(picture, 0, 1) * 255).round().astype(np.uint8)
        if int(pixels.max()) - int(pixels.min()) < MIN_CONTRAST:
            return "blank picture"
        return pixels


def _wait(waiting: deque[Future[Path]], most: int) -> None:
    """Wait until at most ``most`` images are still being stored; raise errors of storing."""
    while waiting and (len(waiting) > most or waiting[0].done()):
        waiting.popleft().result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """Reason why a batch of images failed."""

    problem: str
    no_memory: bool


def _failure(error: Exception) -> _Failure:
    if is_out_of_memory(error):
        return _Failure(problem="out of memory", no_memory=True)
    problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return _Failure(problem=problem[:120], no_memory=False)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means that memory ran out, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "t allocate mem" in text)


def _summary(problems: Mapping[Job, str], total: int) -> str:
    counts: dict[str, int] = {}
    for problem in problems.values():
        counts[problem] = counts.get(problem, 0) + 1
    causes = ", ".join(f"{count} x {problem}" for problem, count in sorted(counts.items()))
    return f"{len(problems)} of {total} images failed ({causes}); their samples stay unchanged"
