"""The Lightning callback that connects a Trainer's hooks to curation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from captioning.config.ranges import Seed
from captioning.data.roster import CurationView
from captioning.types import CAPTION_REWARD, REWARD
from captioning.vision.photo_places import photo_exists
from curation.base import SENTENCE_LOSS
from curation.loop.curation_files import CurationFiles
from curation.loop.curator import SERVED, Curator, Outcome
from curation.loop.keep import read_keep
from curation.loop.planted_faults import check_truth, load_truth
from curation.loop.policy import Policy
from curation.loop.probes import AbstractProbe, OnlineProbe, datamodule_of, record_rewards
from curation.loop.replaced_images import PictureFolder
from curation.score.loss import SUMMED

# Number of times per epoch that an amender gets the losses so far, to work ahead.
CHECKS_PER_EPOCH = 4


class CurationCallback(pl.Callback):
    """Lightning callback: records each caption's loss and lets a policy edit the training set.

    Works with any module whose ``training_step`` returns a dict with ``loss``, ``rows`` (B,) and
    ``per_sample`` (B,), for ``curation.score.loss=sum`` also ``per_sample_sum`` (B,), the losses
    summed over a caption's tokens, and for ``curation/score=sentence_loss`` also ``token_nll`` and
    ``token_sentences`` (B, T), see `curation.loop.ledger.TokenLosses`; and any data module that
    keeps a `CurationView` in ``view`` and builds ``train_dataloader()`` from ``view.samples()``.
    The edits are made after the last training step of an epoch and before its validation, so
    whatever checkpoint is written for
    epoch k holds the edits of epoch k.

    Args:
        policy: selects and amends.
        probe: source of the losses; default `OnlineProbe`, which costs no extra pass.
        seed: the run's seed, which with the epoch decides every random draw of curation.
        run_folder: receives ``curation.jsonl`` and ``curation/``; default the trainer's
            ``default_root_dir``.
        truth: kinds of planted faults by ``sample_id`` (mapping or JSON file), to be scored by.
        plot: whether a histogram of the losses is drawn for each epoch.
        keep: file of a keep-list, see `curation.loop.keep`: its samples are never edited.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        probe: AbstractProbe | None = None,
        seed: Seed = 0,
        run_folder: str | Path | None = None,
        truth: Mapping[str, str] | str | Path | None = None,
        plot: bool = True,
        keep: str | Path | None = None,
    ) -> None:
        self.policy = policy
        self.probe = probe if probe is not None else OnlineProbe()
        self.seed = seed
        self.run_folder = run_folder
        self.truth = load_truth(truth)
        self.plot = plot
        self.keep = None if keep is None else read_keep(keep)
        self.curator: Curator | None = None
        self._files = CurationFiles(path=Path())
        self._first_outcome: Outcome | None = None
        self._trainer: pl.Trainer | None = None
        self._closed_epoch = -1
        self._resumed = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check that curation can work, and start from the data module's view.

        Raises:
            ValueError: the data module or its view is missing, or loaders are not rebuilt.
        """
        if stage != "fit":
            self.curator = None
            return
        folder = Path(self.run_folder or trainer.default_root_dir)
        view = replace(_require_view(trainer), image_root=folder)
        datamodule_of(trainer).view = view
        check_truth(self.truth, view.roster)
        _require_new_photos(trainer, self.policy)
        _require_photos(view, self.policy)
        self.policy.amend.start(view)
        if self.keep is not None:
            self.keep.check(view.roster, "curation.keep")
        kinds = (SUMMED, SENTENCE_LOSS, REWARD, CAPTION_REWARD)
        measured = [name for name in kinds if name in self.policy.signals]
        self.curator = Curator(
            policy=self.policy,
            view=view,
            seed=self.seed,
            truth=self.truth,
            signals=tuple(dict.fromkeys((*self.probe.signals, *measured))),
            keep=self.keep,
            pictures=PictureFolder(run_folder=folder),
        )
        ledger, signals = self.curator.ledger, self.curator.signals
        ledger.sums, ledger.sentences = signals.get(SUMMED), signals.get(SENTENCE_LOSS)
        if SENTENCE_LOSS in measured:
            datamodule_of(trainer).marks_sentences = True
        _want_rewards(pl_module, measured)
        self._trainer = trainer
        self._closed_epoch = -1
        self._resumed = False
        self._files = CurationFiles(path=folder)

    @property
    def _active_curator(self) -> Curator:
        if self.curator is None:
            raise ValueError("curation was called before setup('fit'): train with a Trainer")
        return self.curator

    def state_dict(self) -> dict[str, Any]:
        """Return the curator's state as plain values and tensors; equal in all processes."""
        return self.curator.state_dict(gathered=True) if self.curator is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the view; Lightning calls this before it asks for the training loader."""
        if self.curator is None or self._trainer is None:
            return
        self.curator.load_state_dict(state_dict)
        self._resumed = True
        if not self._trainer.is_global_zero:
            # the checkpoint holds the sums of all processes; loading them twice would double them
            self.curator.clear_running()
        datamodule_of(self._trainer).view = self.curator.view

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let a policy act before training, unless the run is resumed."""
        self.policy.amend.attach(trainer, pl_module)
        self._first_outcome = None if self._resumed else self._active_curator.begin()
        if self._first_outcome is not None:
            datamodule_of(trainer).view = self._first_outcome.view

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After Lightning's sanity check, rehearse the policy once if it will act later."""
        ends = range(max(1, trainer.max_epochs or 1))
        due = next((epoch for epoch in ends if self.policy.schedule.due(epoch)), None)
        if due is not None and not self._resumed:
            self._active_curator.rehearse(due)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Move the ledger to the device, and make the files match the run's state."""
        curator = self._active_curator
        curator.to(pl_module.device)
        self._closed_epoch = max((-1, *curator.ledger.epochs))
        if trainer.is_global_zero:
            self._files.start(curator, resumed=self._resumed)
            if self._first_outcome is not None:
                self._files.write_records(curator)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Record the losses of a step; make the decision after the epoch's last step."""
        self.probe.observe(self._active_curator.ledger, outputs)
        record_rewards(self._active_curator.signals, outputs)
        if trainer.is_last_batch:
            self._close(trainer, pl_module)
        elif self.policy.amend.works_ahead and _is_progress_check(
            batch_idx, trainer.num_training_batches
        ):
            self._active_curator.expect(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Make the decision here if training stopped before the epoch's last batch."""
        if self._closed_epoch < trainer.current_epoch:
            self._close(trainer, pl_module)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the report, also for a run that was stopped after its last epoch."""
        if trainer.is_global_zero:
            self._files.finish(self._active_curator)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Release the resources of the amender."""
        self.policy.amend.close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Release the resources after an error, for which Lightning does not call `teardown`."""
        self.policy.amend.close()

    def _close(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        curator = self._active_curator
        self.probe.finish(curator.ledger, curator.signals, trainer, pl_module)
        outcome = curator.end_epoch(trainer.current_epoch)
        self._closed_epoch = trainer.current_epoch
        datamodule_of(trainer).view = outcome.view
        pl_module.log_dict(_logged(outcome), on_step=False, on_epoch=True, batch_size=1)
        if trainer.is_global_zero:
            self._files.write(curator, outcome, plot=self.plot)


def _want_rewards(module: pl.LightningModule, signals: Sequence[str]) -> None:
    """Make the training objective record the rewards that a policy reads."""
    wanted = [name for name in (REWARD, CAPTION_REWARD) if name in signals]
    objective: Any = getattr(module, "objective", None)
    if wanted and not hasattr(objective, "judges_captions"):
        raise ValueError(
            "curation/score=reward needs the rewards of captions that the model draws: train "
            "with objective=self_critical or objective=grpo, or choose another score"
        )
    if CAPTION_REWARD in wanted:
        objective.judges_captions = True


def _require_view(trainer: pl.Trainer) -> CurationView:
    reload_every = getattr(trainer, "reload_dataloaders_every_n_epochs", 0)
    if reload_every != 1:
        raise ValueError(
            "curation needs Trainer(reload_dataloaders_every_n_epochs=1): got "
            f"{reload_every}, with which removed samples would continue "
            "to be trained on"
        )
    datamodule = datamodule_of(trainer)
    if datamodule is None:
        raise ValueError(
            "curation needs a data module: call trainer.fit(module, datamodule=...) with one that "
            "builds train_dataloader() from its `view`"
        )
    view = getattr(datamodule, "view", None)
    if not isinstance(view, CurationView):
        raise ValueError(
            f"{type(datamodule).__name__}.view must be a CurationView after setup('fit'): "
            f"got {type(view).__name__}"
        )
    return view


def _require_new_photos(trainer: pl.Trainer, policy: Policy) -> None:
    """Raise an error before training if replacing an image would fail."""
    refusal = getattr(datamodule_of(trainer), "refuses_photos", "")
    if refusal and policy.amend.changes_images:
        raise ValueError(f"policy {policy.name!r} replaces images, but {refusal}")


def _require_photos(view: CurationView, policy: Policy) -> None:
    """Raise an error before training if opening the first photo would fail."""
    path = view.roster.samples[0].image_path
    if policy.select.opens_photos and not photo_exists(path):
        raise FileNotFoundError(
            f"policy {policy.name!r} reads photos, but {path} does not exist (imported features "
            f"need no photos): add the photos, or choose a score that needs none "
            f"(curation/score=loss)"
        )


def _is_progress_check(batch_idx: int, num_batches: int | float) -> bool:
    """Return whether to use the losses so far: after the first step, then at even distances."""
    if num_batches == float("inf"):
        return batch_idx == 0
    return batch_idx % max(1, int(num_batches) // CHECKS_PER_EPOCH) == 0


def _logged(outcome: Outcome) -> dict[str, float]:
    record = outcome.record
    left_out = ("epoch", "detection", "notes", SERVED)
    values = {f"curation/{key}": value for key, value in record.items() if key not in left_out}
    detection = dict(record.get("detection", {}))
    for kind, scores in detection.pop("by_kind", {}).items():
        detection |= {f"{kind}/{key}": value for key, value in scores.items()}
    values |= {f"curation/detection/{key}": value for key, value in detection.items()}
    return {key: float(value) for key, value in values.items() if value is not None}
