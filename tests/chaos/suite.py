"""Scenarios and faults one after the other, with what they share made first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.nursery import Nursery
from tests.chaos.scenarios import PREPARED, SCENARIOS, Scenario
from tests.chaos.trial import PATIENCE, Result, Trial
from tests.matching_folders import save_blip_matching


def prepare(nursery: Nursery, base: Path) -> None:
    """The run that others begin with, and a model that judges captions."""
    base.mkdir(parents=True, exist_ok=True)
    save_blip_matching(base / "itm")
    command = Scenario(name="", command=PREPARED).arguments(base=base, out=base / "out")
    log = base / "first.txt"
    status = nursery.wait(nursery.start(command, log=log, folder=base), PATIENCE)
    if status != 0:
        raise RuntimeError(f"the first run ended with {status}: {log.read_text()[-2000:]}")


def strike(nursery: Nursery, base: Path, *, seed: int, only: str = "") -> Iterator[Result]:
    """All scenarios, each with its share of signals."""
    for scenario in SCENARIOS:
        if only in scenario.name:
            begun = time.monotonic()
            result = Trial(nursery, base, scenario, seed).run(scenario.kills, scenario.terms)
            result.seconds = round(time.monotonic() - begun, 1)
            yield result
