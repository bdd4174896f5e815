"""How a processor that does not fit its network is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def refuse_misfit(name: str, processor: Any, network: Any) -> Iterator[None]:
    """Turns what a trial raises into one line that names processor and network.

    Raises:
        ValueError: the trial failed.
    """
    try:
        yield
    except (ValueError, RuntimeError, IndexError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{name}: its processor ({type(processor).__name__}) does not fit its network "
            f"({type(network).__name__}): {reason}; copy the model's own processor beside its "
            "weights"
        ) from error
