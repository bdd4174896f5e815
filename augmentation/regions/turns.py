"""Proposals of several pairs of objects: counted, and in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from augmentation.regions.proposal import Proposal
from augmentation.regions.sources import SourcePool


def counted(
    proposals: Iterator[Proposal], report: dict[str, Any], label: str, pool: SourcePool
) -> Iterator[Proposal]:
    """Pass the proposals of a pair through and count them in the report of their class."""
    for proposal in proposals:
        report["candidates"][label] += 1
        report["photos used"] = int((pool.uses > 0).sum())
        report["most uses of a photo"] = int(pool.uses.max(initial=0))
        yield proposal


def in_turns(pairs: Sequence[Iterator[Proposal]]) -> Iterator[Proposal]:
    """The first of each pair, then the second of each: the first few are of all classes."""
    remaining = list(pairs)
    while remaining:
        for pair in tuple(remaining):
            proposal = next(pair, None)
            if proposal is None:
                remaining.remove(pair)
            else:
                yield proposal
