"""Generated pictures in place of photos (data curation paper, section 3.3)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.image_replacement.ahead import AheadWorker
from augmentation.image_replacement.cache import PictureCache
from augmentation.image_replacement.generator import AbstractGenerator, Job, Producer
from augmentation.image_replacement.prompts import Prompt, Prompter, SingleCaption
from captioning.config.ranges import PositiveInt
from captioning.data.roster import Roster
from captioning.runtime.sharing import distribute, rank_and_size

# Pictures of a process after which all processes wait for each other: minutes of a GPU's work.
AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A request for a generator; ``job`` is None where there is no prompt."""

    prompt: Prompt
    job: Job | None


class GeneratedImages(AbstractImageSource):
    """Makes a picture for each caption, or takes it from the cache.

    The picture's seed depends on the run's seed, the sample and the number of its earlier pictures,
    so two runs share their pictures, and a repeated sample gets another one. With several processes
    each makes its share, in a common cache.

    Args:
        generator: the model.
        cache: keeps the pictures.
        prompts: makes prompts of captions; by default of the sample's own caption alone.
        ahead: a separate process makes the likely next pictures while training goes on. It
            changes nothing but the time; the model is on its GPU while that process has work.
        ahead_threads: of torch in that process.
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
        """Plain values: the model's identity and every setting that pixels depend on."""
        return dict(self._generator.recipe())

    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """Pictures from the cache; missing ones are made first.

        Raises:
            OSError: the cache cannot be written; pictures made before are still in it.
            RuntimeError: another process could not make its share.
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
                f"a picture that was made is not in {self._cache.folder}: all processes of a run "
                "must see the same folder; set CAPTIONING_CACHE to one that they share"
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
        """Whether there is a worker that has not failed."""
        return self._worker is not None and not self._worker.failed

    def expect(self, requests: Sequence[ImageRequest], *, seed: int) -> None:
        """Let the worker begin; with several processes each expects its own share."""
        if self._worker is None:
            return
        rank, size = rank_and_size()
        jobs = [order.job for order in self._orders(requests, seed) if order.job is not None]
        # by seed, not by place: each process sees another list
        self._worker.order([job for job in jobs if job.seed % size == rank])

    def release(self) -> None:
        """Free the model, if this process has loaded it; it takes seconds to load again."""
        self._producer.release()

    def close(self) -> None:
        """End the worker and free the model."""
        if self._worker is not None:
            self._worker.close()
        self._generator.release()


def picture_seed(seed: int, sample_id: str, number: int) -> int:
    """Seed of a sample's picture, in [0, 2^63).

    Args:
        seed: of the run.
        sample_id: the sample.
        number: of its earlier pictures.
    """
    digest = hashlib.sha256(f"{seed}\n{sample_id}\n{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
