"""Curation in any training loop: add losses, end the epoch, get the next epoch's samples."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioning.config.ranges import Seed
from captioning.data.roster import CurationView, Roster
from captioning.runtime.file_lock import held, lock_of
from captioning.runtime.files import write_json
from captioning.types import Sample
from curation.adapters.curation_state import FILE_NAME, read_state, state_before, write_state
from curation.adapters.process_group import check_agreement, is_writer, summed, wait_for_all
from curation.adapters.rosters import make_roster
from curation.base import SENTENCE_LOSS, Amender
from curation.journal.journal import FILE_NAME as JOURNAL_NAME
from curation.loop.curation_files import CurationFiles
from curation.loop.curator import Curator, Outcome
from curation.loop.keep import read_keep
from curation.loop.planted_faults import check_truth, load_truth
from curation.loop.policy import Policy
from curation.loop.replaced_images import PictureFolder
from curation.manifest import FILE_NAME as MANIFEST_NAME
from curation.manifest import TRUTH_NAME, Manifest, read_manifest, settings_of, write_manifest


@dataclass(frozen=True, kw_only=True)
class LoopFolder:
    """Files of a curated run; only one process of the run may write the files.

    Attributes:
        path: the folder.
        plot: whether a histogram of the losses is drawn for each epoch.
    """

    path: Path
    plot: bool = True
    _held: ExitStack = field(default_factory=ExitStack, repr=False)

    def lock(self) -> None:
        """Lock the folder against other processes until `unlock`, or until this process ends.

        Raises:
            ValueError: another process writes to the folder; the message names it.
        """
        lock, subject = lock_of(self.path), str(self.path)
        self._held.enter_context(held(lock, subject=subject, warn=warnings.warn, by_process=True))

    def unlock(self) -> None:
        """Release the lock so that other processes may write to the folder."""
        self._held.close()

    @property
    def _files(self) -> CurationFiles:
        return CurationFiles(path=self.path)

    @property
    def _state_path(self) -> Path:
        return self._files.details / FILE_NAME

    def saved_state(self, curator: Curator, first_epoch: int | None) -> dict[str, Any] | None:
        """Return the state from which a run resumes, or None to start from the beginning.

        Args:
            curator: the curator of the run that is to begin.
            first_epoch: events in this epoch and later are left out; None keeps all.

        Raises:
            ValueError: the folder holds another run, or one that did not come as far.
        """
        if (self.path / "config.yaml").is_file():
            raise ValueError(
                f"{self.path} is a run of `captioning train`: choose another folder for your own "
                "loop"
            )
        if (self.path / MANIFEST_NAME).is_file():
            saved, manifest = read_manifest(self.path), manifest_of(curator)
            manifest.check(saved, self.path, restart=first_epoch == 0)
        if first_epoch == 0:
            return None
        state = read_state(self._state_path) if self._state_path.is_file() else None
        closed = _num_closed(state)
        if first_epoch is not None and not 0 <= first_epoch <= closed:
            raise ValueError(
                f"first_epoch={first_epoch} does not match {self.path}, which holds {closed} "
                f"epochs: set first_epoch from 0 to {closed}, or name the folder of the run to "
                "resume"
            )
        return state and state_before(state, closed if first_epoch is None else first_epoch)

    def set_aside(self) -> None:
        """Rename the files of an older run with finished epochs, so that no result is lost.

        A new run calls it before its first decision, as decisions write into the same folder.
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
        """Make the files in the folder match the run's state.

        Args:
            curator: the run's curator.
            outcome: the outcome of a decision before training.
            resumed: whether the run resumes; otherwise `set_aside` has been called.
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
        """Write the results of a finished epoch.

        The state is written last, because it decides which epoch a run resumes from.
        """
        self._files.write(curator, outcome, plot=self.plot)
        write_state(self._state_path, curator.state_dict())

    def finish(self, curator: Curator) -> None:
        """Write the report of the run."""
        self._files.finish(curator)


def manifest_of(curator: Curator) -> Manifest:
    """Return the settings and the data fingerprint that identify a run."""
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


log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class EpochSamples:
    """The current epoch's samples, which datasets follow; updated in place at an epoch's end.

    This class is separate from `Curation`, so that loader workers receive nothing else.

    Attributes:
        roster: the samples before curation.
        samples: the samples of the current epoch.
        epoch: number of the current epoch.
        seed: the run's seed.
    """

    roster: Roster
    samples: tuple[Sample, ...]
    epoch: int
    seed: int


class Curation:
    """Losses, policy and files of a run that trains in your own loop.

    Call `open` to begin or resume a run. With several processes (`torch.distributed`) each process
    opens the run and adds its own losses; all decide the same, and the first process writes.

    Args:
        curator: curator of the run.
        folder: files of the run.

    Attributes:
        first_epoch: the epoch at which the loop starts: 0, or the one after the last closed epoch.
        current: samples of the current epoch, which datasets follow.

    Examples:
        >>> import torch
        >>> from captioning import Curation, Policy
        >>> from curation.amend.remove import Remove
        >>> from curation.select.top import Top
        >>> samples = [(f"{number}.jpg", f"photo {number}") for number in range(10)]
        >>> policy = Policy(select=Top(ratio=0.25), amend=Remove(), name="remove")
        >>> curation = Curation.open("curated", samples=samples, policy=policy)
        >>> for epoch in range(curation.first_epoch, 2):
        ...     for sample in curation.samples():  # your loader's batches
        ...         losses = torch.tensor([float(sample.row)])  # your model's losses
        ...         curation.add(torch.tensor([sample.row]), losses)
        ...     outcome = curation.end_epoch()
        >>> curation.finish()
        >>> [sample.row for sample in curation.samples()]
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, *, curator: Curator, folder: LoopFolder) -> None:
        self.folder = folder.path
        self._files = folder
        self._curator = curator
        self._outside: Tensor | None = None
        self._weights: Tensor | None = None
        self._mean_weight: float | None = None
        self.current = EpochSamples(
            roster=curator.view.roster, samples=curator.view.samples(), epoch=0, seed=curator.seed
        )
        self._changed()
        self.first_epoch = self.epoch

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        samples: Any,
        policy: Policy | str,
        seed: Seed = 0,
        first_epoch: int | None = None,
        signals: tuple[str, ...] = (),
        masks: bool = False,
        truth: Mapping[str, str] | str | Path | None = None,
        keep: str | Path | None = None,
        plot: bool = True,
    ) -> Curation:
        """Begin a run, or resume the one in ``folder``.

        Args:
            folder: receives ``curation.jsonl`` and ``curation/``, with the report.
            samples: the training samples, see `curation.adapters.rosters.make_roster`.
            policy: selects and amends samples; a text names a packaged policy, see
                `curation.adapters.presets.preset`.
            seed: seed that, with the epoch, decides every random draw of curation.
            first_epoch: the first epoch of the loop. None: the one after the last that ``folder``
                holds. A smaller number, such as your own checkpoint's, discards the later epochs. 0
                starts from scratch and puts an older run aside.
            signals: names of further measurements that `add` gets, such as ``("visual_gain",)``.
            masks: whether the loop leaves masked words and sentences out of its loss, as labels of
                `curation.adapters.curated_dataset.with_rows` with a tokenizer do. Policies that
                mask are refused without it.
            truth: kinds of planted faults by ``sample_id``, or a JSON file of them, to score by.
            keep: file of a keep-list: its samples are never edited.
            plot: whether a histogram of the losses is drawn for each epoch.

        Raises:
            ValueError: the folder holds another run, or none that came as far as ``first_epoch``,
                or another process writes there;
                a policy that needs this project's own captioners; samples that cannot be read.
            FileNotFoundError: a file or a folder that is not there.
        """
        policy = _built(policy, masks=masks)
        _check_signals(policy, signals)
        roster = make_roster(samples)
        folder = Path(folder)
        faults = load_truth(truth) or roster.planted
        check_truth(faults, roster)
        keep_list = None if keep is None else read_keep(keep)
        if keep_list is not None:
            keep_list.check(roster, str(keep))
        curator = Curator(
            policy=policy,
            view=CurationView(roster=roster, image_root=folder),
            seed=seed,
            truth=faults,
            signals=signals,
            keep=keep_list,
            pictures=PictureFolder(run_folder=folder),
        )
        policy.amend.start(curator.view)
        files = LoopFolder(path=folder, plot=plot)
        if is_writer():
            files.lock()
        state = files.saved_state(curator, first_epoch)
        if state is not None:
            curator.load_state_dict(state)
        wait_for_all()  # nobody reads what the first process is about to change
        if is_writer() and state is None:
            files.set_aside()
        wait_for_all()  # what is decided before training puts its pictures into the folder
        outcome = curator.begin() if state is None else None
        if is_writer():
            files.start(curator, outcome, resumed=state is not None)
        return cls(curator=curator, folder=files)

    @property
    def view(self) -> CurationView:
        """The samples as they are now, with all edits."""
        return self._curator.view

    @property
    def roster(self) -> Roster:
        """The samples before curation."""
        return self.view.roster

    def samples(self) -> tuple[Sample, ...]:
        """The samples of the epoch under way; pass ``row`` to `add`."""
        return self.view.samples()

    @property
    def seed(self) -> int:
        """Of the run."""
        return self._curator.seed

    @property
    def epoch(self) -> int:
        """The epoch under way, from 0: the next one that `end_epoch` closes."""
        return max(self._curator.ledger.epochs, default=-1) + 1

    def add(self, rows: Tensor, losses: Tensor, **signals: Tensor) -> None:
        """Record the losses of a batch; never waits for the device.

        Args:
            rows: ``(B,) int64`` rows of the samples (`Sample.row`).
            losses: ``(B,)`` loss of each, in nats a token; gradients are left out.
            **signals: ``(B,)`` further measurements, of the names that `open` got;
                ``sentence_loss`` is ``(B, S)``, see
                `curation.adapters.losses.per_sentence_losses`.

        Raises:
            ValueError: shapes that differ, rows outside the roster (on a GPU: at the epoch's end),
                or an unknown signal.
        """
        curator = self._curator
        rows, values = _as_batch(rows, {"losses": losses, **signals}, len(self.roster))
        unknown = signals.keys() ^ curator.signals.keys()
        if unknown:
            raise ValueError(
                f"signals must be the ones given to Curation.open, {list(curator.signals)}: got "
                f"{list(signals)}"
            )
        device = values["losses"].device
        if curator.ledger.device != device:
            curator.to(device)
        if rows.device.type != "cpu":
            rows = self._without_outside(rows)
        curator.ledger.add(rows, values["losses"])
        for name in signals:
            curator.signals[name].add(rows, values[name])

    def _without_outside(self, rows: Tensor) -> Tensor:
        """Return the existing rows; count other rows on the device, to raise at the epoch's end."""
        known = rows.clamp(0, len(self.roster) - 1)
        outside = (known != rows).sum()
        self._outside = outside if self._outside is None else self._outside + outside
        return known

    def weights(self, rows: Tensor) -> Tensor:
        """``(B,) float32`` weight of each sample's loss, in [0, 1]; all 1 unless down-weighted.

        Args:
            rows: ``(B,) int64``.
        """
        if self._weights is None or self._weights.device != rows.device:
            weights = torch.ones(len(self.roster))
            lowered = {s.row: s.weight for s in self.samples() if s.weight != 1}
            weights[list(lowered)] = torch.tensor(list(lowered.values()))
            self._weights = weights.to(rows.device)
        return self._weights[rows]

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the further measurements that `add` gets."""
        return tuple(self._curator.signals)

    @property
    def needs_sentences(self) -> bool:
        """Whether losses by sentence are wanted, or parts of captions masked."""
        return bool(self.num_sentences) or self._curator.policy.amend.masks_words

    @property
    def num_sentences(self) -> int:
        """K, the most sentences of a caption whose losses `add` keeps; 0 unless it wants them."""
        ledger = self._curator.signals.get(SENTENCE_LOSS)
        return 0 if ledger is None else ledger.shape[-1]

    @property
    def mean_weight(self) -> float:
        """Mean weight of the epoch's samples; 1 unless some are down-weighted."""
        if self._mean_weight is None:
            samples = self.samples()
            self._mean_weight = sum(sample.weight for sample in samples) / len(samples)
        return self._mean_weight

    def expect(self) -> None:
        """Let a policy that makes pictures work ahead with the losses so far in this epoch.

        Costs a copy from the device; a few times an epoch is enough.
        """
        self._curator.expect(self.epoch)

    def end_epoch(self) -> Outcome:
        """Close the epoch: decide, change the samples, and write journal and losses.

        Every process must call it; all return the same outcome.

        Returns:
            The decision with its reasons and the new view.

        Raises:
            ValueError: no loss was added, one is not finite, rows outside the roster, or edits that
                would leave no sample.
            RuntimeError: processes decided differently.
        """
        curator, epoch = self._curator, self.epoch
        self._check_recorded(epoch)
        outcome = curator.end_epoch(epoch)
        check_agreement(curator.lines, curator.ledger.device, epoch)
        self._changed()
        if is_writer():
            self._files.write(curator, outcome)
        return outcome

    def _check_recorded(self, epoch: int) -> None:
        counts = self._curator.ledger.num_recorded()
        outside = torch.zeros_like(counts) if self._outside is None else self._outside
        self._outside = None
        num_recorded, num_outside = summed(torch.stack([counts, outside.to(counts)])).tolist()
        if num_outside:
            raise ValueError(
                f"epoch {epoch}: {int(num_outside)} rows lie outside the roster of "
                f"{len(self.roster)} samples: add the rows of curation.samples() (Sample.row)"
            )
        if not num_recorded:
            raise ValueError(
                f"epoch {epoch}: no loss was added: call curation.add(rows, losses) in every step "
                "before curation.end_epoch()"
            )

    def finish(self) -> None:
        """Write the report, and release the policy's resources."""
        curator = self._curator
        if not curator.ledger.epochs and curator.ledger.num_recorded() > 0:
            log.warning(
                "losses were added, but no epoch was ended, so curation decided nothing: call "
                "curation.end_epoch() after each epoch"
            )
        if is_writer():
            self._files.finish(curator)
        self.close()

    def close(self) -> None:
        """Release the folder and the policy's resources, as after an error, and in `finish`."""
        self._curator.policy.amend.close()
        self._files.unlock()

    def state_dict(self, *, gathered: bool = False) -> dict[str, Any]:
        """The state for a checkpoint of yours: plain values and tensors.

        Args:
            gathered: sum the losses of the epoch under way over all processes, which must all call
                it; otherwise they are this process's own.
        """
        return self._curator.state_dict(gathered=gathered)

    def load_state_dict(self, state: Mapping[str, Any], *, mid_epoch: bool = False) -> None:
        """Resume from a checkpoint, and overwrite the files of the run folder with its state.

        Args:
            state: the result of `state_dict`.
            mid_epoch: whether the loop resumes amid the epoch; otherwise it repeats the epoch, and
                its losses so far are forgotten.

        Raises:
            ValueError: the state is of other samples, or of another policy that edited some.
        """
        self._curator.load_state_dict(state)
        if not mid_epoch or not is_writer():
            self._curator.clear_running()
        self._changed()
        self.first_epoch = self.epoch
        if is_writer():
            self._files.start(self._curator, None, resumed=True)

    def _changed(self) -> None:
        """Drop values that were computed from the samples before the edits."""
        self._weights = self._mean_weight = None
        self.current.samples, self.current.epoch = self.view.samples(), self.epoch


def _check_signals(policy: Policy, signals: Sequence[str]) -> None:
    """Raise ValueError if the policy needs sentence losses that the loop does not add."""
    if SENTENCE_LOSS in policy.signals and SENTENCE_LOSS not in signals:
        raise ValueError(
            f"policy {policy.name!r} needs sentence losses: open with "
            f"signals=({SENTENCE_LOSS!r},), and add the losses (docs/guides/long_captions.md)"
        )


def _built(policy: Policy | str, *, masks: bool) -> Policy:
    """Return the policy itself, or build the packaged policy with that name.

    Raises:
        ValueError: the policy needs this framework's captioner, or masks words.
    """
    if isinstance(policy, str):
        from curation.adapters.presets import preset

        policy = preset(policy)
    if type(policy.amend).attach is not Amender.attach:
        raise ValueError(
            f"policy {policy.name!r} works only with this framework's captioner: use `captioning "
            "train`"
        )
    if policy.amend.masks_words and not masks:
        raise ValueError(
            f"policy {policy.name!r} masks words in the loss, which another loop does not see: use "
            "it with `captioning train`, remove or down-weight whole captions, or leave them out "
            "of the labels by with_rows(collate, curation=..., tokenizer=...) and open with "
            "masks=True"
        )
    return policy


def _as_batch(
    rows: Any, values: Mapping[str, Any], num_samples: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return rows and measurements as tensors; check rows in CPU memory against the roster."""
    rows = torch.as_tensor(rows)
    if rows.dim() != 1 or rows.is_floating_point() or rows.dtype == torch.bool:
        raise ValueError(
            f"rows must be (B,) whole numbers: got {tuple(rows.shape)} of {rows.dtype}"
        )
    tensors = {name: torch.as_tensor(value).detach() for name, value in values.items()}
    for name, tensor in tensors.items():
        by_sentence = name == SENTENCE_LOSS and tensor.dim() == 2 and len(tensor) == len(rows)
        if tensor.shape != rows.shape and not by_sentence:
            raise ValueError(
                f"{name} must have one value for each row {tuple(rows.shape)}: got "
                f"{tuple(tensor.shape)}; a mean over the batch has no losses of samples"
            )
    if rows.device.type == "cpu" and rows.numel():
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= num_samples:
            raise ValueError(
                f"row {low if low < 0 else high} is outside the roster of {num_samples} samples: "
                "give the row numbers of curation.samples() (Sample.row)"
            )
    return rows, tensors
