"""Compute a job in this process, one group of items after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig

from captioning.config.build import build_part
from captioning.spread.base import AbstractSpread, Job, units


def chosen_spread(part: DictConfig | None) -> AbstractSpread:
    """Distribution that a config names; this process for None."""
    return Local() if part is None else build_part(part)


class Local(AbstractSpread):
    """Compute a job in this process, without files of its own."""

    def shard_size(self, *, unit: int, save_every: int) -> int:
        """Number of items in a shard: one unit, as results are stored at once."""
        return unit

    def results(self, job: Job) -> Iterator[list[Any]]:
        """See `AbstractSpread`; errors of the work are raised unchanged."""
        worker = job.build()
        if job.check is not None:
            job.check(worker.identity)
        for items in units(job.items, job.unit):
            yield worker(items)
