"""Write the files of curation into the run folder."""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from captioning.results import figures
from captioning.runtime.files import remove_unfinished, write_atomically, write_json
from curation.base import LEFT_ALONE, as_numpy
from curation.journal.journal import FILE_NAME
from curation.loop.curator import Curator, Outcome
from curation.loop.keep import FILE_NAME as KEEP_NAME
from curation.loop.keep import write_keep
from curation.record import RunRecord
from curation.review.edit_report import FILE_NAME as REPORT_NAME
from curation.review.edit_report import write_report
from curation.score.loss import SUMMED

log = logging.getLogger(__name__)

SUFFIXES = (".npz", ".json", ".jsonl", ".png", ".html", ".safetensors")  # of curation's files
NUM_BARS = 60  # bins of an epoch's histogram
NUM_PICTURES = 100  # photos of the report at the end of a run, which take a second


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationFiles:
    """Writes ``curation.jsonl`` and the files under ``curation/`` in a run folder.

    Attributes:
        path: the run folder.
    """

    path: Path

    @property
    def details(self) -> Path:
        """Folder for plots, records and the report."""
        return self.path / "curation"

    def start(self, curator: Curator, *, resumed: bool) -> None:
        """Write the journal from the state of the run.

        The checkpoint is the truth: later edits in the file will be decided again. A fresh run in a
        used folder puts the old journal aside instead of losing it. Unfinished files of a killed
        run are removed.
        """
        for suffix in SUFFIXES:
            remove_unfinished(self.details, suffix)
        journal = self.path / FILE_NAME
        if not resumed and _holds_edits(journal):
            self._set_aside(journal)
        curator.start_files(self.path)
        if curator.keep is not None:
            write_keep(curator.keep, self.details / KEEP_NAME)

    def write(self, curator: Curator, outcome: Outcome, *, plot: bool) -> None:
        """Write the results of an epoch's end: journal, counts, losses and histogram."""
        curator.append_file(self.path, len(outcome.decision.edits))
        self.write_records(curator)
        self.write_losses(curator)
        _warn_of_left_alone(curator.policy.name, outcome)
        if plot:
            picture = self.details / f"epoch_{outcome.context.epoch:03d}.png"
            write_atomically(picture, lambda part: _draw_histogram(outcome, part))

    def write_losses(self, curator: Curator) -> None:
        """Write the losses and signals of all finished epochs."""
        sample_ids = [sample.sample_id for sample in curator.view.roster.samples]
        curator.ledger.save(self.details / "losses.npz", sample_ids=sample_ids)
        for name, ledger in curator.signals.items():
            ledger.save(self.details / f"{name}.npz", sample_ids=sample_ids)

    def write_records(self, curator: Curator) -> None:
        """Write the counts and detection scores of all decisions so far."""
        write_json(self.details / "epochs.json", curator.records)
        if curator.truth:
            detections = [
                {"epoch": record["epoch"], **record["detection"]} for record in curator.records
            ]
            write_json(self.details / "detection.json", detections)

    def finish(self, curator: Curator) -> None:
        """Write the report; ``captioning report`` can rewrite it with more photos."""
        record = RunRecord(
            policy=curator.policy.name,
            seed=curator.seed,
            view=curator.view,
            records=curator.records,
            epochs=curator.ledger.epochs,
            history=curator.ledger.history().numpy(),
            truth=curator.truth,
            keep=curator.keep,
        )
        write_report(record, self.details / REPORT_NAME, num_pictures=NUM_PICTURES)
        _warn_of_nothing(curator)

    def _set_aside(self, journal: Path) -> None:
        number = 1
        while (aside := self.path / f"curation.old-{number}.jsonl").exists():
            number += 1
        os.replace(journal, aside)


def _draw_histogram(outcome: Outcome, path: Path) -> None:
    """Draw a PNG histogram of the live samples' losses, with selected samples hatched.

    It is Figure 2 of the data curation paper.
    """
    sums = outcome.context.signals.get(SUMMED)
    by_token = sums is None
    losses = as_numpy(outcome.context.losses if sums is None else sums[-1])
    live = losses[outcome.context.live_rows]
    live = live[~np.isnan(live)]
    selected = losses[[candidate.sample.row for candidate in outcome.decision.selected]]
    selected = selected[~np.isnan(selected)]
    with figures.figure_style():
        figure, (axes,) = figures.new_figure(height=2.2)
        edges = np.histogram_bin_edges(live, NUM_BARS) if len(live) else np.array([0.0, 1.0])
        counts, chosen = (np.histogram(values, edges)[0] for values in (live, selected))
        labels = (f"{len(live):,} captions", f"{len(selected):,} selected")
        figures.draw_histogram(axes, edges, counts, chosen, labels=labels)
        if len(live) > 1:
            mean, high = live.mean(), live.mean() + 2 * live.std(ddof=1)
            for place, label, style in ((mean, "mean", "-"), (high, "mean + 2 SD", "--")):
                text = f"{label}, {place:.3g}"
                axes.axvline(place, color=figures.INK, linewidth=0.8, linestyle=style, label=text)
        axes.set(
            xlabel=f"loss of the caption ({'nats a token' if by_token else 'nats'})",
            ylabel="captions",
            title=f"epoch {outcome.context.epoch}",
        )
        axes.legend(loc="upper right")
        figure.savefig(path, dpi=150)


def _warn_of_left_alone(policy: str, outcome: Outcome) -> None:
    """Log how many selected samples the amender left unchanged, and its reasons."""
    decision = outcome.decision
    reasons = Counter(
        note.removeprefix(LEFT_ALONE) for note in decision.notes if note.startswith(LEFT_ALONE)
    )
    if not reasons:
        return
    told = "; ".join(f"{reason} ({number})" for reason, number in reasons.most_common(3))
    result = "" if decision.edits else ", so nothing was changed"
    # Unedited samples without doubtful words or better captions are expected.
    is_fault = not decision.edits or any("wrote nothing" in reason for reason in reasons)
    log.log(
        logging.WARNING if is_fault else logging.INFO,
        f"policy {policy!r}, epoch {outcome.context.epoch}: {reasons.total()} of "
        f"{len(decision.selected)} selected samples were left alone{result}: {told}",
    )


def _warn_of_nothing(curator: Curator) -> None:
    """Log a warning if the policy made no edit although an edit was due."""
    policy, ended = curator.policy, curator.ledger.epochs
    due = [epoch for epoch in ended if policy.schedule.due(epoch)]
    selected = sum(record["num_selected"] for record in curator.records)
    if policy.edits and due and not selected:
        log.warning(
            f"policy {policy.name!r} has selected no caption in {len(ended)} epochs, although it "
            f"was due at the end of {len(due)} of them: nothing was changed"
        )


def _holds_edits(journal: Path) -> bool:
    return journal.is_file() and journal.read_bytes().count(b"\n") > 1
