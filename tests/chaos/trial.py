"""Strikes a scenario until its share of signals is spent, and compares what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.chaos.compare import damaged, difference, left_over
from tests.chaos.nursery import Nursery
from tests.chaos.scenarios import Scenario

PATIENCE = 900.0  # seconds for a run that is left alone, on a machine with more to do
# A process that is lost before all of a run have met is waited for by torch for half an hour.
SECONDS_OF_A_LAUNCHER = 120.0
STRIKES = 4  # of a run at most; then it is let go on to its end, and is compared
SECONDS_TO_END = 30.0  # for what a struck command has started, where there is a core for each


@dataclass(kw_only=True)
class Result:
    """What a scenario came to."""

    scenario: str
    seed: int
    kills: int = 0
    terms: int = 0
    rounds: int = 0
    missed: int = 0
    seconds: float = 0.0
    seconds_alone: float = 0.0
    events: int = 0
    left_over: int = 0
    launcher: int = 0
    failures: list[str] = field(default_factory=list)


class Trial:
    """A scenario on a machine.

    Args:
        nursery: starts its commands.
        base: folder for all scenarios, with what they share.
        scenario: what is run.
        seed: of the moments.
    """

    def __init__(self, nursery: Nursery, base: Path, scenario: Scenario, seed: int) -> None:
        self.nursery, self.base, self.scenario = nursery, base, scenario
        self.work = base / "work"
        self.out, self.log = self.work / "out", base / "log.txt"
        self.rng = np.random.default_rng((seed, *scenario.name.encode()))
        self.result = Result(scenario=scenario.name, seed=seed)
        self._started = time.monotonic()

    def run(self, kills: int, terms: int) -> Result:
        """Strike so often; the undisturbed run comes first."""
        result = self.result
        self._empty()
        begun = time.monotonic()
        if (status := self._alone()) != 0:
            return self._failed(f"left alone it ended with {status}: {self._words()}")
        result.seconds_alone = round(time.monotonic() - begun, 1)
        counted = self.base / "count.txt"
        result.events = int(counted.read_text()) if counted.is_file() else 1
        reference = self.base / "reference"
        shutil.rmtree(reference, ignore_errors=True)
        self.out.rename(reference)
        signals = [signal.SIGKILL] * kills + [signal.SIGTERM] * terms
        self.rng.shuffle(signals)
        while signals and len(result.failures) < 3:
            self._empty()
            self._round(signals)
            result.rounds += 1
            if differs := difference(reference, self.out):
                self._failed(f"round {result.rounds}: other bits than undisturbed: {differs}")
        return result

    def _round(self, signals: list[Any]) -> None:
        """Strike and restart until it is done; left alone, where it was struck often enough."""
        tries = 0
        while signals and tries < STRIKES:
            number, tries = signal.Signals(signals[-1]), tries + 1
            status = self._struck(number, first=tries == 1)
            if number in (-status, status - 128) or (number == signal.SIGTERM and status != 0):
                signals.pop()
                name = "kills" if number == signal.SIGKILL else "terms"
                setattr(self.result, name, getattr(self.result, name) + 1)
                self._after(number)
            elif status == 0:
                self.result.missed += 1
                return
            else:
                signals.pop()
                self._failed(f"restarted, it ended with {status}: {self._words()}")
                return
        if (status := self._alone()) != 0:
            self._failed(f"restarted, it ended with {status}: {self._words()}")

    def _struck(self, number: signal.Signals, *, first: bool) -> int:
        """One attempt with a signal at a random moment; how it ended."""
        by_count = self.rng.random() < 0.7
        most = max(2, self.result.events if first else self.result.events // 2)
        at = int(self.rng.integers(1, most + 1)) if by_count else 0
        victim = int(self.rng.integers(self.scenario.processes))
        pids = self._start(at=at, number=number, victim=victim)
        if not by_count:
            time.sleep(float(self.rng.uniform(0.05, 1.0)) * max(self.result.seconds_alone, 0.3))
            if self.nursery.status(pids[victim]) is None:
                os.kill(pids[victim], number)
        if self.scenario.processes > 1:
            self._launch(pids)
        statuses = [self._ended(pid) for pid in pids]
        if self.scenario.processes > 1 and any(statuses):
            return statuses[victim] or next(filter(None, statuses))
        return statuses[victim]

    def _launch(self, pids: list[int]) -> None:
        """Do what launchers do: end the other processes of a run, if they do not end themselves."""
        limit = time.monotonic() + PATIENCE
        while all(self.nursery.status(pid) is None for pid in pids) and time.monotonic() < limit:
            time.sleep(0.1)
        if not any(self.nursery.status(pid) for pid in pids):
            return
        for pid in pids:
            if self.nursery.wait(pid, SECONDS_OF_A_LAUNCHER) is None:
                os.kill(pid, signal.SIGKILL)
                self.result.launcher += 1

    def _alone(self) -> int:
        statuses = [self._ended(pid) for pid in self._start(at=0)]
        status = next((status for status in statuses if status), 0)
        if status and self.scenario.again and self.scenario.again in self._words():
            return 0
        return status

    def _start(self, *, at: int, number: int = signal.SIGKILL, victim: int = 0) -> list[int]:
        self.log.unlink(missing_ok=True)
        port, pids = _free_port(), []
        for rank in range(self.scenario.processes):
            own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
            own |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.scenario.processes)}
            pids.append(
                self.nursery.start(
                    self.scenario.arguments(base=self.base, out=self.out),
                    log=self.log,
                    folder=self.work,
                    at=at if rank == victim else 0,
                    signal=int(number),
                    count=str(self.base / ("count.txt" if rank == 0 else f"count{rank}.txt")),
                    environment=own if self.scenario.processes > 1 else {},
                )
            )
        return pids

    def _ended(self, pid: int) -> int:
        status = self.nursery.wait(pid, PATIENCE)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            self._failed(f"hung for {PATIENCE} s: {self._words()}")
            self.nursery.wait(pid, 10)
            status = 1
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        limit = time.monotonic() + SECONDS_TO_END * load
        while (left := self.nursery.left(pid)) and time.monotonic() < limit:
            time.sleep(0.1)
        if left and self.scenario.processes == 1:
            self._failed(f"processes left behind: {Counter(left.values())}")
            for other in left:
                os.kill(other, signal.SIGKILL)
        return status

    def _after(self, number: signal.Signals) -> None:
        """What lies there between two attempts."""
        for problem in damaged(self.out):
            self._failed(f"half-written after {number.name}: {problem}")
        self.result.left_over = max(self.result.left_over, left_over(self.out))

    def _empty(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.out.mkdir(parents=True)

    def _failed(self, words: str) -> Result:
        self.result.failures.append(words)
        self.result.seconds = round(time.monotonic() - self._started, 1)
        return self.result

    def _words(self) -> str:
        lines = (
            self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        )
        return " | ".join(lines[-3:])[-400:]


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
