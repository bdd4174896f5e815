"""From a resolved config to a trained, tested run folder."""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint, RichProgressBar
from pytorch_lightning.loggers import WandbLogger

from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.steps.noise import write_truth
from captioning.files import write_json
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner
from captioning.results.run_folder import RunFolder
from captioning.text.tokenizers.subwords import restored
from captioning.training.adapt import adapt
from captioning.training.averaging import WarmWeightAveraging
from captioning.training.callbacks import CaptionEvaluation, FiniteLoss, Speed, StepSeed
from captioning.training.checkpoint_io import WholeCheckpointIO
from captioning.training.inputs import Inputs, has_corpus, load_inputs, read_corpus
from captioning.training.parts import build_part
from captioning.training.preflight import check_run, with_precision

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The built parts of a run."""

    model: AbstractCaptioner
    datamodule: CaptionDataModule
    trainer: pl.Trainer
    evaluation: CaptionEvaluation


def train(config: DictConfig) -> dict[str, float]:
    """Train and test as the config says; everything is left in ``config.run_dir``.

    Returns:
        The test scores by name.

    Raises:
        ValueError: the folder holds a run of another config, or the config makes no sense.
    """
    config = with_precision(config)
    check_run(config)
    folder = RunFolder(Path(config.run_dir))
    checkpoint = folder.open(config)
    if checkpoint is None and folder.finished():
        log.info(f"{folder.path} is finished; resume=never trains it anew")
        return folder.scores("test")
    if config.threads:
        torch.set_num_threads(config.threads)
    _quieten(config, folder.path)
    pl.seed_everything(config.seed, workers=True, verbose=False)
    experiment = build(config, folder.path)
    if checkpoint is not None:
        log.info(f"going on from {checkpoint}")
    try:
        _fit(experiment, checkpoint, folder)
        return _test(experiment, folder.tested_checkpoint(config.monitor))
    finally:
        _finish_loggers(experiment.trainer)


def _test(experiment: Experiment, checkpoint: Path) -> dict[str, float]:
    """Scores of the test split, if there is one."""
    if experiment.datamodule.test is None:
        return {}
    # Not by trainer.test(ckpt_path=...): that would load the weights before averaging.
    experiment.model.load_state_dict(load_checkpoint(checkpoint)["state_dict"])
    experiment.trainer.test(experiment.model, experiment.datamodule, verbose=False)
    return dict(experiment.evaluation.result.corpus)


def _finish_loggers(trainer: pl.Trainer) -> None:
    """Close wandb's run: the next run of a sweep in this process would go on in it."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()


def _quieten(config: DictConfig, folder: Path) -> None:
    """Keep what says nothing of the run off the terminal, and wandb's files in the run folder."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # Lightning 2.6 asks torch's pytree about its leaves in a way that newer torch deprecates.
    warnings.filterwarnings("ignore", ".*treespec, LeafSpec.*", FutureWarning)
    # Cached features are read in milliseconds: loader processes would only cost time.
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    if "wandb" in config.logger:
        os.environ.setdefault("WANDB_DATA_DIR", str(folder.resolve()))


def _fit(experiment: Experiment, checkpoint: Path | None, folder: RunFolder) -> None:
    """Train; say how to go on if somebody stops it."""
    trainer = experiment.trainer
    try:
        with warnings.catch_warnings():
            # Of a resumed run, and of one that branches, that is as it should be.
            warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
            warnings.filterwarnings("ignore", ".*callbacks used to create .*ModelCheckpoint")
            warnings.filterwarnings("ignore", "The dirpath has changed from")
            trainer.fit(
                experiment.model, experiment.datamodule, ckpt_path=checkpoint, weights_only=True
            )
    except SystemExit as stopped:
        if not trainer.interrupted:
            raise
        last = folder.last_checkpoint or "the start, as no epoch had ended"
        raise KeyboardInterrupt(f"stopped; resume=auto goes on from {last}") from stopped


def build(config: DictConfig, folder: Path) -> Experiment:
    """Read the data, build the model, and join them to a trainer."""
    inputs = load_inputs(config)
    if inputs.truth:
        write_truth(inputs.truth, folder / "noise_truth.json")
    _write_dropped(inputs, folder)
    start = None if not config.get("start_from") else finished_weights(Path(config.start_from))
    if start is None:
        tokenizer = build_part(config.tokenizer)(_captions(config, inputs))
    else:
        tokenizer = restored(start["captioner"]["tokenizer"])
    datamodule = build_datamodule(config, inputs, tokenizer)
    horizon = config.num_epochs * datamodule.updates_per_epoch
    model = build_model(config, tokenizer, inputs, horizon)
    if start is not None:
        begin_with(model, start, name=config.start_from)
    further = config.get("extra_metrics") or {}
    evaluation = CaptionEvaluation(
        folder=folder,
        metrics=config.metrics.test,
        val_metrics=config.metrics.val,
        tokenizer=config.metrics.tokenizer,
        extra={name: build_part(part) for name, part in further.items()},
        decoding={"search": OmegaConf.to_container(config.search, resolve=True), "rerank": None},
    )
    trainer = build_part(
        config.trainer,
        max_epochs=config.num_epochs,
        callbacks=[
            evaluation,
            *_callbacks(config, folder, inputs.truth),
            *_checkpoints(config, folder),
        ],
        logger=[build_part(entry) for entry in config.logger.values()] or False,
        default_root_dir=folder,
        plugins=[WholeCheckpointIO()],
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        enable_model_summary=False,
    )
    return Experiment(model=model, datamodule=datamodule, trainer=trainer, evaluation=evaluation)


def _captions(config: DictConfig, inputs: Inputs) -> Iterator[str]:
    """What a vocabulary is made of: the captions to train on, and those of ``vocabulary``."""
    yield from (sample.caption for sample in inputs.train.samples)
    if has_corpus(config, "vocabulary"):
        yield from (sample.caption for sample in read_corpus(config, "vocabulary").samples)


def _write_dropped(inputs: Inputs, folder: Path) -> None:
    """``dropped.json``: all that the rosters leave out, and by which rule.

    Where classes are held out, ``held_out_left.json`` says what is left of their words.
    """
    rosters = [roster for roster in (inputs.train, inputs.val, inputs.test) if roster is not None]
    dropped = {r.name: [asdict(item) for item in r.dropped] for r in rosters}
    write_json(folder / "dropped.json", dropped)
    if inputs.held_out_left is not None:
        write_json(folder / "held_out_left.json", inputs.held_out_left)


def _callbacks(config: DictConfig, folder: Path, truth: dict[str, str]) -> list[pl.Callback]:
    callbacks = [StepSeed(seed=config.seed), FiniteLoss(), Speed(folder=folder)]
    callbacks.append(RichProgressBar())
    if config.ema_decay is not None:
        callbacks.append(WarmWeightAveraging(decay=config.ema_decay))
    if config.curation.get("callback"):
        settings = {"run_folder": folder, "seed": config.seed, "truth": truth or None}
        callbacks.append(build_part(config.curation.callback, **settings))
    return callbacks


def _checkpoints(config: DictConfig, folder: Path) -> list[ModelCheckpoint]:
    """``best.ckpt`` when the monitored score rises, then ``last.ckpt``, which knows of it.

    One callback with ``save_last`` would not do: it writes the last checkpoint only when there is a
    new best one.
    """
    settings = {
        "dirpath": folder / "checkpoints",
        # After curation has edited the epoch's samples: a checkpoint holds epoch k and its edits.
        "save_on_train_epoch_end": True,
        "enable_version_counter": False,
    }
    last = ModelCheckpoint(filename="last", save_top_k=1, **settings)
    callbacks = [last]
    if config.monitor != "last":
        best = ModelCheckpoint(filename="best", monitor=config.monitor, mode="max", **settings)
        callbacks.insert(0, best)
    if config.keep_every_epoch:
        every = {"filename": "epoch{epoch}", "auto_insert_metric_name": False, "save_top_k": -1}
        # Lightning tells checkpoint callbacks apart by what they monitor.
        callbacks.append(ModelCheckpoint(monitor="epoch", **every, **settings))
    return callbacks


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's content, on the processor; nothing but plain values and tensors is loaded.

    Raises:
        ValueError: the file is no checkpoint, or holds objects that could run code.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is not a checkpoint of this framework: {error}") from error


def finished_weights(run: Path) -> dict[str, Any]:
    """The checkpoint that a run is tested with, to start another one from.

    Raises:
        FileNotFoundError: no run folder, or one without checkpoint.
    """
    folder = RunFolder(run)
    return load_checkpoint(folder.tested_checkpoint(folder.config().monitor))


def begin_with(model: AbstractCaptioner, start: dict[str, Any], *, name: str) -> None:
    """Give a new model a finished run's weights.

    Args:
        model: with the tokenizer of that run.
        start: see `finished_weights`.
        name: of the run, for errors.

    Raises:
        ValueError: the run's model is another one, or of other sizes.
    """
    try:
        model.on_load_checkpoint(start)
        model.load_state_dict(start["state_dict"])
    except (ValueError, RuntimeError) as error:
        what = "; ".join(str(error).split("\n\t")[:2])  # of many weights the first
        raise ValueError(
            f"start_from={name}: {what}; choose the model= and features= of that run"
        ) from error


def build_datamodule(
    config: DictConfig, inputs: Inputs, tokenizer: AbstractTokenizer
) -> CaptionDataModule:
    """The loaders of a run."""
    return CaptionDataModule(
        train=inputs.train,
        val=inputs.val,
        test=inputs.test,
        tokenizer=tokenizer,
        features=inputs.features,
        seed=config.seed,
        train_transform=inputs.train_transform,
        eval_transform=inputs.eval_transform,
        extend_features=inputs.extend_features,
        controls=build_part(config.control) if config.get("control") else None,
        texts=inputs.texts,
        contexts=build_part(config.model.contexts) if config.model.get("contexts") else None,
        lenders=inputs.lenders,
        **config.loader,
    )


def build_model(
    config: DictConfig, tokenizer: AbstractTokenizer, inputs: Inputs, horizon: int
) -> AbstractCaptioner:
    """The captioner, with its parts bound."""
    parts: dict[str, Any] = {}
    if config.model.get("word_vectors"):
        parts["word_vectors"] = build_part(config.model.word_vectors, words=tokenizer.words)
    if inputs.backbone is not None:
        parts["backbone"] = inputs.backbone
    model = build_part(
        config.model.module,
        tokenizer=tokenizer,
        feature_size=inputs.feature_size,
        search=build_part(config.search),
        optimizer=build_part(config.optimizer),
        schedule=build_part(config.schedule),
        horizon=horizon,
        **parts,
    )
    adapt(model, config.model)
    return model
