"""The folder of a run of somebody else's loop: what is begun there, gone on with, or refused."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioning.runtime.file_lock import held, lock_of
from captioning.runtime.files import write_json
from curation.adapters.state import FILE_NAME, read_state, state_before, write_state
from curation.journal.journal import FILE_NAME as JOURNAL_NAME
from curation.loop.curation_files import CurationFiles
from curation.loop.curator import Curator, Outcome
from curation.manifest import FILE_NAME as MANIFEST_NAME
from curation.manifest import TRUTH_NAME, Manifest, read_manifest, settings_of, write_manifest


@dataclass(frozen=True, kw_only=True)
class LoopFolder:
    """Files of a run; only one process of it may write them.

    Attributes:
        path: the folder.
        plot: whether a histogram of the losses is drawn for each epoch.
    """

    path: Path
    plot: bool = True
    _held: ExitStack = field(default_factory=ExitStack, repr=False)

    def lock(self) -> None:
        """Keep other processes out until `unlock`, or until this process ends.

        Raises:
            ValueError: another process, which is named, writes there.
        """
        lock, subject = lock_of(self.path), str(self.path)
        self._held.enter_context(held(lock, subject=subject, warn=warnings.warn, by_process=True))

    def unlock(self) -> None:
        """Let others in."""
        self._held.close()

    @property
    def _files(self) -> CurationFiles:
        return CurationFiles(path=self.path)

    @property
    def _state_path(self) -> Path:
        return self._files.details / FILE_NAME

    def saved_state(self, curator: Curator, first_epoch: int | None) -> dict[str, Any] | None:
        """The state that a run goes on from, or None to begin anew.

        Args:
            curator: of the run that is to begin.
            first_epoch: what happened in it and later is left out; None for all that is there.

        Raises:
            ValueError: the folder holds another run, or one that did not come as far.
        """
        if (self.path / "config.yaml").is_file():
            raise ValueError(
                f"{self.path} is a run of `captioning train`: choose another folder for this loop"
            )
        if (self.path / MANIFEST_NAME).is_file():
            saved, manifest = read_manifest(self.path), manifest_of(curator)
            manifest.check(saved, self.path, anew=first_epoch == 0)
        if first_epoch == 0:
            return None
        state = read_state(self._state_path) if self._state_path.is_file() else None
        closed = _num_closed(state)
        if first_epoch is not None and not 0 <= first_epoch <= closed:
            raise ValueError(
                f"first_epoch={first_epoch}, but {self.path} holds {closed} epochs: begin with 0 "
                f"to {closed}, or name the folder of the run that you go on with"
            )
        return state and state_before(state, closed if first_epoch is None else first_epoch)

    def set_aside(self) -> None:
        """Rename the files of an older run that got anywhere; nothing that was computed is lost.

        A new run calls it before it decides anything, as what it decides puts pictures into the
        same folder.
        """
        truth = self.path / TRUTH_NAME
        state = read_state(self._state_path) if self._state_path.is_file() else None
        if state is None or not (_num_closed(state) or state["journal"]):
            if (self.path / MANIFEST_NAME).is_file():
                truth.unlink(missing_ok=True)  # that run's; the new one may know no truth
            return
        number = 1
        while (aside := self.path / f"curation.old-{number}").exists():
            number += 1
        os.replace(self._files.details, aside)
        for path in (self.path / JOURNAL_NAME, truth):
            if path.is_file():
                os.replace(path, aside / path.name)

    def start(self, curator: Curator, outcome: Outcome | None, *, resumed: bool) -> None:
        """Make the files say what the run knows.

        Args:
            curator: of the run.
            outcome: of a decision before training.
            resumed: whether it goes on; otherwise `set_aside` has been called.
        """
        self._files.start(curator, resumed=resumed)
        write_manifest(self.path, manifest_of(curator), curator.view.roster)
        if curator.truth:
            write_json(self.path / TRUTH_NAME, curator.truth)
        if outcome is not None or resumed:
            self._files.write_records(curator)
        if resumed:
            self._files.write_losses(curator)
        write_state(self._state_path, curator.state_dict())

    def write(self, curator: Curator, outcome: Outcome) -> None:
        """Write the results of an epoch's end; the state comes last, as it is what counts."""
        self._files.write(curator, outcome, plot=self.plot)
        write_state(self._state_path, curator.state_dict())

    def finish(self, curator: Curator) -> None:
        """Write the report."""
        self._files.finish(curator)


def manifest_of(curator: Curator) -> Manifest:
    """What tells a run from others."""
    return Manifest(
        roster=curator.view.roster.name,
        fingerprint=curator.view.roster.fingerprint,
        policy=curator.policy.name,
        settings=settings_of(curator.policy),
        seed=curator.seed,
        signals=tuple(curator.signals),
    )


def _num_closed(state: dict[str, Any] | None) -> int:
    return 0 if state is None else max(state["ledger"]["epochs"], default=-1) + 1
