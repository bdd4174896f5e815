"""Curate one epoch, from losses to a new view of the dataset, independent of Lightning."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioning.data.roster import CurationView
from captioning.served.photo_answers import answers_counted, summary
from captioning.text.sentence_spans import sentence_spans
from curation.base import SENTENCE_LOSS, Context
from curation.journal.journal import FILE_NAME, Header, append_lines, decode, encode, write_journal
from curation.loop.keep import KeepList
from curation.loop.ledger import LossLedger
from curation.loop.planted_faults import count_mends, detect, faulty_kinds
from curation.loop.policy import Decision, Policy
from curation.loop.replaced_images import PictureFolder
from curation.score.loss import SUMMED

SERVED = "served"  # key of served models' answers in a record


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of the decision at an epoch's end.

    Attributes:
        context: the data of the decision; ``context.view`` is the view before it.
        decision: the decision.
        view: the view after.
        record: counts and, where the truth is known, detection scores; plain values.
    """

    context: Context
    decision: Decision
    view: CurationView
    record: dict[str, Any]


class Curator:
    """Holds a run's loss ledger, journal lines and records, and makes its decisions.

    Args:
        policy: decides.
        view: the samples at the run's start.
        seed: the run's seed.
        truth: kind of the planted fault by ``sample_id``, where it is known.
        signals: names of measurements beside the losses.
        keep: samples that no policy may edit.
        pictures: takes the pictures of edits in; None leaves them where their source put them.

    Raises:
        ValueError: the policy reads a signal that is not measured.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        view: CurationView,
        seed: int = 0,
        truth: Mapping[str, str] | None = None,
        signals: Sequence[str] = (),
        keep: KeepList | None = None,
        pictures: PictureFolder | None = None,
    ) -> None:
        self.policy = policy
        self.view = view
        self.seed = seed
        self.truth = dict(truth or {})
        self.keep = keep
        self.pictures = pictures
        _require_signals(policy, signals)
        self.ledger = LossLedger(num_samples=len(view.roster))
        self.signals = {name: _ledger(name, view) for name in signals}
        self.records: list[dict[str, Any]] = []
        self._lines = [encode(edit) for edit in view.journal]

    def _ledgers(self) -> list[LossLedger]:
        return [self.ledger, *self.signals.values()]

    @property
    def header(self) -> Header:
        """First line of this run's journal."""
        roster = self.view.roster
        return Header(roster=roster.name, fingerprint=roster.fingerprint, seed=self.seed)

    @property
    def lines(self) -> tuple[str, ...]:
        """Edits of the journal as JSON lines, without the header."""
        return tuple(self._lines)

    def end_epoch(self, epoch: int) -> Outcome:
        """Finish the ledger's epoch, decide, and apply the edits to the view.

        Every process has the same outcome, because the ledger is first summed over all processes.

        Raises:
            ValueError: a loss is not finite, or the edits would leave no sample.
        """
        samples = self.view.roster.samples
        for ledger in self._ledgers():
            ledger.reduce()
            ledger.close_epoch(epoch=epoch, name_of=lambda row: samples[row].sample_id)
        return self._decide(epoch, len(self.ledger.epochs))

    def begin(self) -> Outcome | None:
        """Decide before training if the schedule asks for a decision then."""
        return self._decide(-1, 0) if self.policy.schedule.due(-1) else None

    def rehearse(self, epoch: int) -> None:
        """Let the policy decide once on random losses, and discard the decision."""
        generator = np.random.default_rng(self.seed)
        ledgers = {"losses": self.ledger, **self.signals}
        drawn = {
            name: torch.from_numpy(generator.random((1, *ledger.shape))).float()
            for name, ledger in ledgers.items()
        }
        self.policy.rehearse(self._context(epoch, drawn.pop("losses"), drawn))

    def expect(self, epoch: int) -> None:
        """Let the policy work ahead with the current epoch's losses so far.

        A sample that was not seen yet counts with its loss of the epoch before. Costs one copy of
        the sums from the device.
        """
        history = _so_far(self.ledger)
        signals = {name: _so_far(ledger) for name, ledger in self.signals.items()}
        context = self._context(epoch, history, signals)
        self.policy.expect(replace(context, is_over=False))

    def _context(self, epoch: int, history: Tensor, signals: Mapping[str, Tensor]) -> Context:
        unknown = torch.full((len(self.view.roster),), torch.nan)
        return Context(
            view=self.view,
            losses=history[-1] if len(history) else unknown,
            history=history,
            epoch=epoch,
            seed=self.seed,
            signals=signals,
            keep=frozenset(self.keep.sample_ids) if self.keep is not None else frozenset(),
        )

    def _decide(self, epoch: int, num_closed: int) -> Outcome:
        """Decide on the measurements of the first ``num_closed`` epochs, and apply the edits."""
        signals = {name: ledger.history()[:num_closed] for name, ledger in self.signals.items()}
        context = self._context(epoch, self.ledger.history()[:num_closed], signals)
        # generated images leave much garbage, which must be collected
        pause = nullcontext() if self.policy.amend.changes_images else _collection_paused()
        with pause, answers_counted() as counted:
            decision = self.policy.deliberate(context)
            if self.pictures is not None:
                adopted = tuple(self.pictures.adopt(edit) for edit in decision.edits)
                decision = replace(decision, edits=adopted)
            self.view = self.view.apply(decision.edits)
        record = _record(context, decision, self.view)
        if counted:
            record[SERVED] = {name: summary(counts) for name, counts in counted.items()}
        if self.truth:
            record["detection"] = detect(
                context=context,
                decision=decision,
                scores=self.policy.select.scores(context),
                kinds=faulty_kinds(context.view, self.truth),
            ) | count_mends(context.view, self.view, self.truth)
        self.records.append(record)
        self._lines += [encode(edit) for edit in decision.edits]
        return Outcome(context=context, decision=decision, view=self.view, record=record)

    def to(self, device: torch.device | str) -> None:
        """Move the current epoch's sums to the device that computes the losses."""
        for ledger in self._ledgers():
            ledger.to(device)

    def clear_running(self) -> None:
        """Discard the measurements of the current epoch."""
        for ledger in self._ledgers():
            ledger.clear_running()

    def start_files(self, folder: Path) -> None:
        """Overwrite the journal file with this run's journal."""
        write_journal(folder / FILE_NAME, self.header, self._lines)

    def append_file(self, folder: Path, num_edits: int) -> None:
        """Append the last ``num_edits`` edits to the journal file."""
        append_lines(folder / FILE_NAME, self._lines[len(self._lines) - num_edits :])

    def state_dict(self, *, gathered: bool = False) -> dict[str, Any]:
        """Return the complete state for a checkpoint, as plain values and tensors.

        Args:
            gathered: see `LossLedger.state_dict`.
        """
        signals = self.signals.items()
        return {
            "header": self.header.line(),
            "policy": self.policy.name,
            "fingerprint": self.header.fingerprint,
            "roster": self.header.roster,
            "journal": list(self._lines),
            "ledger": self.ledger.state_dict(gathered=gathered),
            "signals": {name: ledger.state_dict(gathered=gathered) for name, ledger in signals},
            "records": list(self.records),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore view, journal, ledger and records from a checkpoint.

        If the checkpoint is of another policy that changed nothing, such as ``track``, this policy
        decides the checkpoint's last epoch again: the run continues as if trained with this policy.

        Raises:
            ValueError: the checkpoint belongs to other annotations, or to another policy that
                changed samples, or this policy would have acted before its last epoch.
        """
        saved = Header(roster=state["roster"], fingerprint=state["fingerprint"])
        saved.check(self.view.roster, "checkpoint")
        edits = [
            decode(line, f"checkpoint, edit {number}")
            for number, line in enumerate(state["journal"], start=1)
        ]
        self.view = replace(self.view, journal=()).apply(edits)
        self.ledger.load_state_dict(dict(state["ledger"]))
        for name, ledger in self.signals.items():
            if name not in state.get("signals", {}):
                raise ValueError(
                    f"the checkpoint's run did not measure {name!r}: start from a run with "
                    "the same curation/probe and the same loss of curation/score"
                )
            ledger.load_state_dict(dict(state["signals"][name]))
        self.records = list(state["records"])
        self._lines = list(state["journal"])
        if state["policy"] != self.policy.name:
            self._branch(state["policy"])

    def _branch(self, other_policy: str) -> None:
        if self._lines:
            raise ValueError(
                f"the checkpoint holds {len(self._lines)} edits by policy {other_policy!r}: "
                f"{self.policy.name!r} can only branch from a run that changed nothing "
                "(curation=track)"
            )
        self.records = []
        if self.policy.schedule.due(-1):
            raise ValueError(
                f"policy {self.policy.name!r} acts before training, but the checkpoint was trained "
                "without it: train it without branch_from"
            )
        for number, epoch in enumerate(self.ledger.epochs, start=1):
            if self._lines:
                raise ValueError(
                    f"policy {self.policy.name!r} acts at the end of epoch {epoch - 1}, but the "
                    "checkpoint was trained on after it: branch from the checkpoint of that epoch, "
                    f"or set curation.schedule.from_epoch={self.ledger.epochs[-1]}"
                )
            self._decide(epoch, number)


def _ledger(name: str, view: CurationView) -> LossLedger:
    """Create the ledger of a signal; a sentence ledger has room for the longest caption."""
    samples = view.roster.samples
    if name != SENTENCE_LOSS:
        return LossLedger(num_samples=len(samples))
    most = max(len(sentence_spans(sample.caption)) for sample in samples)
    return LossLedger(num_samples=len(samples), num_parts=max(1, most))


def _so_far(ledger: LossLedger) -> Tensor:
    """Losses ``(E + 1, N)`` with the current epoch; unseen samples keep their last loss."""
    history, running = ledger.history(), ledger.mean().cpu()
    if len(history):
        running = torch.where(running.isnan(), history[-1], running)
    return torch.cat([history, running[None]])


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Context manager: pauses garbage collection while many acyclic records are created.

    A collection walks the whole roster, which wastes a second at 500,000 samples.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _require_signals(policy: Policy, signals: Sequence[str]) -> None:
    missing = sorted(set(policy.signals) - set(signals))
    if missing:
        raise ValueError(
            f"policy {policy.name!r} reads {missing[0]!r}, which is not measured: name it in "
            f"Curation.open(signals={tuple(missing)}) and give it to curation.add"
        )


def _record(context: Context, decision: Decision, after: CurationView) -> dict[str, Any]:
    actions = [edit.action for edit in decision.edits]
    seen = context.losses[~torch.isnan(context.losses)].double()
    record = {
        "epoch": context.epoch,
        "num_live_before": len(context.live),
        "num_live_after": len(after.samples()),
        "num_seen": len(seen),
        "num_selected": len(decision.selected),
        "num_removed": actions.count("remove"),
        "num_caption_replaced": actions.count("replace_caption"),
        "num_image_replaced": actions.count("replace_image"),
        "num_down_weighted": actions.count("down_weight"),
        "num_masked": actions.count("mask_words"),
        "num_put_into_bucket": actions.count("set_bucket"),
        "num_kept": len(decision.unchanged),
        "notes": dict(sorted(Counter(decision.notes).items())),
        **_spread("loss", seen),
    }
    sums = context.signals.get(SUMMED)
    if sums is not None and len(sums):
        record |= _spread(SUMMED, sums[-1][~torch.isnan(sums[-1])].double())
    return record


def _spread(name: str, values: Tensor) -> dict[str, float | None]:
    """Mean and sample standard deviation; None for too few values."""
    return {
        f"{name}_mean": float(values.mean()) if len(values) else None,
        f"{name}_std": float(values.std()) if len(values) > 1 else None,
    }
