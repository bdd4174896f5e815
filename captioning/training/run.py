"""Run a training from a resolved config to a trained and tested run folder.

Vocabulary and tokens are cached under ``paths.cache`` for all processes and later runs. File names
encode all inputs, so that no cached file is ever out of date.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.exceptions import (
    MisconfigurationException,  # pyright: ignore[reportPrivateImportUsage]
)
from rich.console import Console
from rich.table import Table

from captioning.config.build import build_part
from captioning.config.tasks import plain
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.long_captions import chosen, fit_tokens, warn_of_short_search
from captioning.data.readers.many_samples import lasting_records
from captioning.data.roster import Roster, build_roster
from captioning.data.steps.base import StepContext
from captioning.data.token_table import TokenTable, id_type
from captioning.inference import building
from captioning.interfaces import AbstractTokenizer
from captioning.models.base import AbstractCaptioner, Objective
from captioning.models.training_steps import trainable
from captioning.results.checkpoints import latest_checkpoint, load_checkpoint, progress
from captioning.results.run_folder import RunFolder, end_untested, ended_untested, forget_failure
from captioning.runtime.devices import take_gpu
from captioning.runtime.file_lock import held, lock_of, locked
from captioning.runtime.files import read_json, write_json
from captioning.runtime.sample_dropout import use_torchs
from captioning.text.tokenizers.restore import restored
from captioning.text.tokenizers.treebank import SplitCaptions
from captioning.training.callbacks import CaptionEvaluation
from captioning.training.data_checks import begin_with, check_opened, rosters_of
from captioning.training.inputs import Inputs, load_inputs, read_splits
from captioning.training.memory import memory_advice
from captioning.training.preemption import Preemption
from captioning.training.preflight import check_run, check_search
from captioning.training.processes import ends_together
from captioning.training.rosters import read_corpus, trains_on_text
from captioning.training.settings import Part, TrainSettings
from captioning.training.sharding import is_sharded, load_weights, shard
from captioning.training.signals import Stopped, StopSignals
from captioning.training.speed import (
    check_speed,
    compile_model,
    own_device,
    set_cuda_graphs,
    set_matmul_precision,
    tell_of_speed,
    uses_cuda,
)
from captioning.training.start import load_start
from captioning.training.trainer import build_trainer, num_updates

log = logging.getLogger(__name__)

# What is done with a run that has ended, whose data are there unless it had ended before.
Finished = Callable[[TrainSettings, CaptionDataModule | None], None]
# A stopped run, as when its job is requeued, may need this long to end.
LOCK_SECONDS = 10.0
COUNTED = "captioning.text.tokenizers.words.WordTokenizer.build"
MIN_CAPTIONS = 20_000  # for fewer, tokenizing again takes no time
FORMAT = 1  # another one wherever this project turns captions into other tokens
PACKAGES = ("nltk", "tokenizers")  # and where these do

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Parts of a run, built from its settings."""

    model: AbstractCaptioner
    datamodule: CaptionDataModule
    trainer: pl.Trainer
    evaluation: CaptionEvaluation


def train(settings: TrainSettings, finished: Finished | None = None) -> dict[str, float]:
    """Train and test a captioner; write all results to ``settings.run_dir``.

    Args:
        settings: the run's settings.
        finished: called with the run's data in the first process when the run has ended; with None
            if the run had ended before.

    Returns:
        The test scores by name.

    Raises:
        ValueError: the folder holds a run of other settings, or settings are incompatible.
        MemoryError: too little memory; the message names settings to lower.
        Stopped: a signal ended the run; results so far are kept, and a Slurm job is requeued.
    """
    check_run(settings)
    folder = RunFolder(Path(settings.run_dir))
    ended = None if finished is None else partial(finished, settings)
    with StopSignals() as signals:
        try:
            with _alone_in(folder.path):
                return _train(settings, folder, folder.open(plain(settings)), signals, ended)
        except Stopped as stopped:
            signals.pass_on(stopped)
            raise


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other programs; further processes of this run may enter."""
    if getattr(rank_zero_only, "rank", 0) != 0:
        yield
        return
    subject = f"run_dir={folder}"
    with held(lock_of(folder), subject=subject, warn=log.warning, seconds=LOCK_SECONDS):
        yield


def _train(
    settings: TrainSettings,
    folder: RunFolder,
    checkpoint: Path | None,
    signals: StopSignals,
    finished: Callable[[CaptionDataModule | None], None] | None,
) -> dict[str, float]:
    _forget_failure(folder)
    if checkpoint is None and folder.finished():
        _check_finished(settings, folder)
        log.info(f"{folder.path} is finished; resume=never trains it from scratch")
        if finished is not None:
            rank_zero_only(finished)(None)
        return {} if ended_untested(folder.path) else folder.scores("test")
    _quieten(settings, folder.path)
    if uses_cuda(settings.accelerator):
        take_gpu(own_device(settings).index)
    tell_of_speed(settings)
    set_up(settings)
    experiment = build(settings, folder, signals)
    if checkpoint is not None:
        log.info(f"resuming from {checkpoint}")
    try:
        with memory_advice(settings, experiment.model), ends_together(experiment.trainer):
            fit(
                experiment.trainer,
                experiment.model,
                experiment.datamodule,
                checkpoint=checkpoint,
                signals=signals,
            )
            scores = _test(experiment, folder.tested_checkpoint(settings.monitor))
        if experiment.evaluation.result is None:
            rank_zero_only(end_untested)(folder.path)
        _forget_failure(folder)
        if finished is not None and experiment.trainer.is_global_zero:
            finished(experiment.datamodule)
        return scores
    finally:
        _finish_loggers(experiment.trainer)


def set_up(settings: TrainSettings) -> None:
    """Apply the settings to torch and the random generators."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    set_matmul_precision(settings.speed.matmul_precision)
    use_torchs(settings.speed.torch_dropout)
    pl.seed_everything(settings.seed, workers=True, verbose=False)


@rank_zero_only
def _check_finished(settings: TrainSettings, folder: RunFolder) -> None:
    """Raise an error instead of showing old scores if the data have changed since."""
    try:
        with lasting_records():
            splits, _ = read_splits(settings)
    except OSError as error:
        log.info(f"{folder.path}: its data are not compared with the present data: {error}")
        return
    accept = settings.data.accept_changes
    check_opened(settings, folder.path, rosters_of(splits), accept=accept)
    folder.follow()


@rank_zero_only
def _forget_failure(folder: RunFolder) -> None:
    """Delete the record of an earlier failure, at the start and again at the end."""
    forget_failure(folder.path)


def _test(experiment: Experiment, checkpoint: Path) -> dict[str, float]:
    """Test the captioner; None if there is no test split."""
    if experiment.datamodule.test is None:
        return {}
    # Not by trainer.test(ckpt_path=...): that would load the weights before averaging.
    load_weights(experiment.model, load_checkpoint(checkpoint)["state_dict"])
    with warnings.catch_warnings():
        quieten_loaders(experiment.datamodule)
        experiment.trainer.test(experiment.model, experiment.datamodule, verbose=False)
    result = experiment.evaluation.result
    return {} if result is None else dict(result.corpus)


def _finish_loggers(trainer: pl.Trainer) -> None:
    """Close wandb's run, as the next run of a sweep in this process would continue it."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.finish()


def _quieten(settings: TrainSettings, folder: Path) -> None:
    """Silence irrelevant messages, and keep wandb's files in the run folder."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # Lightning 2.6 asks torch's pytree about its leaves in a way that newer torch deprecates.
    warnings.filterwarnings("ignore", ".*treespec, LeafSpec.*", FutureWarning)
    # Batch normalisation of backbones is meant to be, whether they train or not.
    warnings.filterwarnings("ignore", "Found .* in eval mode at the start of training")
    # Updates are counted over epochs: an epoch of few of them is logged, too.
    warnings.filterwarnings("ignore", ".*smaller than the logging interval.*")
    # All processes have the same scores, as they have gathered captions and losses.
    warnings.filterwarnings("ignore", ".*sync_dist=True.*")
    if "wandb" in (settings.logger or {}):
        os.environ.setdefault("WANDB_DATA_DIR", str(folder.resolve()))


def build(settings: TrainSettings, run: RunFolder, signals: StopSignals) -> Experiment:
    """Read the data, build the model, and join them with a trainer that ends on signals."""
    with lasting_records():
        begin = rank_zero_only(partial(begin_with, settings, run))
        inputs = load_inputs(settings, check=begin)
        _write_dropped(inputs, run.path)
        _write_steps(inputs.steps, run.path)
        model, datamodule = build_captioner(settings, inputs, run.path)
    suit_machine(settings, model)
    extra = {name: build_part(part) for name, part in (settings.extra_metrics or {}).items()}
    for metric in extra.values():
        metric.check_ready()
    evaluation = CaptionEvaluation(
        folder=run.path,
        metrics=settings.metrics.test,
        val_metrics=settings.metrics.val,
        tokenizer=settings.metrics.tokenizer,
        extra=extra,
        decoding={"search": OmegaConf.to_container(settings.search, resolve=True), "rerank": None},
        plugins=settings.plugins,
    )
    trainer = build_trainer(
        settings,
        run.path,
        saved=run.opened_with(),
        evaluation=evaluation,
        truth=inputs.steps.truth,
        signals=signals,
    )
    return Experiment(model=model, datamodule=datamodule, trainer=trainer, evaluation=evaluation)


def suit_machine(settings: TrainSettings, model: AbstractCaptioner) -> None:
    """Configure a model for the settings ``speed`` and ``trainer``.

    Raises:
        ValueError: the model does not support them, see `check_speed` and `compile_model`.
    """
    check_speed(settings, model)
    compile_model(settings, model)
    set_cuda_graphs(settings, model)
    if is_sharded(settings.trainer.get("strategy")):
        shard(model)


def build_captioner(
    settings: TrainSettings, inputs: Inputs, folder: Path | None = None
) -> tuple[AbstractCaptioner, CaptionDataModule]:
    """Build the captioner that training begins with, new or from ``start_from``, and its loaders.

    Captions that are cut are listed in the run's folder, if it is given.
    """
    start = load_start(settings.start_from, features=settings.features.name)
    if start is None:
        tokenizer = _new_tokenizer(settings, inputs.splits)
    else:
        captions = (sample.caption for sample in inputs.splits.train.samples)
        tokenizer = start.tokenizer(captions, new_words=settings.new_words)
    train = inputs.splits.train
    tokens = tokens_of(train, tokenizer, cache=settings.paths.cache)
    mode = chosen(settings.loader.get("long_captions"), tokenizer)
    tokens, cut = fit_tokens(train, tokenizer, tokens, mode)
    if folder is not None:
        rank_zero_only(cut.write)(folder)
    datamodule = build_datamodule(settings, inputs, tokenizer, tokens=tokens)
    horizon = num_updates(settings, datamodule.updates_per_epoch)
    model = build_model(settings, tokenizer, inputs, horizon)
    check_search(model.search, type(model))
    warn_of_short_search(train, tokens, model.search.settings.max_length)
    if start is not None:
        start.begin(model)
    model.objective = build_objective(settings)
    return model, datamodule


def _new_tokenizer(settings: TrainSettings, splits: Splits) -> AbstractTokenizer:
    """Build a tokenizer from the training captions and the vocabulary's additional captions."""
    further = [build_roster("words", splits.words)] if splits.words else []
    if settings.vocabulary.train:
        number = settings.first_images
        further.append(read_corpus(settings.vocabulary, number=number, group="vocabulary"))
    cache = settings.paths.cache
    return build_tokenizer(settings.tokenizer, splits.train, further, splits.uncounted, cache=cache)


def build_objective(settings: TrainSettings) -> Objective | None:
    """Build the objective that training minimises; None: the model's own loss."""
    objective = settings.objective
    if not objective or not isinstance(objective, DictConfig):
        return None
    if trains_on_text(settings):
        raise ValueError(
            f"objective={objective._target_} needs photos, and corpus={settings.corpus.name} has "
            "none: choose objective=likelihood"
        )
    return build_part(objective, seed=settings.seed)


@rank_zero_only
def _write_dropped(inputs: Inputs, folder: Path) -> None:
    """Write ``dropped.json``: all items that the rosters leave out, with the rule for each."""
    dropped = {r.name: [asdict(item) for item in r.dropped] for r in inputs.splits.rosters}
    write_json(folder / "dropped.json", dropped)


@rank_zero_only
def _write_steps(steps: StepContext, folder: Path) -> None:
    """Write files on the data steps, for people and later commands, one per step."""
    if steps.truth:
        write_json(folder / "noise_truth.json", steps.truth)
    if steps.planted_words:
        words = {sample_id: asdict(word) for sample_id, word in steps.planted_words.items()}
        write_json(folder / "noise_words.json", words)
    if steps.held_out_remaining is not None:
        write_json(folder / "held_out_left.json", steps.held_out_remaining)


def build_datamodule(
    settings: TrainSettings,
    inputs: Inputs,
    tokenizer: AbstractTokenizer,
    *,
    tokens: TokenTable | None = None,
) -> CaptionDataModule:
    """Build the data loaders of a run."""
    return CaptionDataModule(
        splits=inputs.splits,
        tokenizer=tokenizer,
        readers=inputs.readers,
        loader=LoaderSettings(**settings.loader),
        seed=settings.seed,
        tokens=tokens,
    )


def build_model(
    settings: TrainSettings, tokenizer: AbstractTokenizer, inputs: Inputs, horizon: int
) -> AbstractCaptioner:
    """Build the captioner with its parts bound, as a Lightning module."""
    training = {
        "optimizer": build_part(settings.optimizer),
        "schedule": build_part(settings.schedule),
        "horizon": horizon,
    }
    model = building.build_model(settings, tokenizer, inputs.pictures, training=training)
    return trainable(model)


def fit(
    trainer: pl.Trainer,
    model: AbstractCaptioner,
    datamodule: CaptionDataModule,
    *,
    checkpoint: Path | None,
    signals: StopSignals,
) -> None:
    """Train the model, resuming from a checkpoint if one is given.

    Args:
        trainer: trainer of the run, with a folder of its own.
        model: model to train.
        datamodule: source of the batches.
        checkpoint: the file to resume from.
        signals: signals that the trainer's `Preemption` listens to.

    Raises:
        Stopped: a signal ended training; the message says how to resume.
        KeyboardInterrupt: the user stops the run; the message says how to resume.
        ValueError: settings that Lightning refuses.
    """
    try:
        with warnings.catch_warnings():
            quieten_loaders(datamodule)
            # Expected for a resumed run, and for one that branches.
            warnings.filterwarnings("ignore", "Checkpoint directory .* exists and is not empty")
            warnings.filterwarnings("ignore", ".*callbacks used to create .*ModelCheckpoint")
            warnings.filterwarnings("ignore", "The dirpath has changed from")
            # The data module itself begins where the checkpoint was written.
            warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before")
            trainer.fit(model, datamodule, ckpt_path=checkpoint, weights_only=True)
        if number := _stop_at_end(trainer):
            raise Stopped("", number=number)
    except Stopped as stop:
        raise Stopped(_how_to_go_on(trainer), number=stop.number) from None
    except SystemExit as stopped:
        if not trainer.interrupted:
            raise
        raise KeyboardInterrupt(_how_to_go_on(trainer)) from stopped
    except MisconfigurationException as error:
        raise ValueError(f"trainer and callbacks do not fit together: {error}") from error
    except RuntimeError as error:
        if "conditioned on metric" not in str(error):  # as Lightning tells a score that none logs
            raise
        raise ValueError(f"callbacks.*.monitor: {error}") from error
    finally:
        signals.deferred = False
    signals.obey()


def quieten_loaders(datamodule: CaptionDataModule) -> None:
    """Silence Lightning's advice on loader processes where it is wrong."""
    if not datamodule.reads_pixels:
        # Cached features are read in milliseconds: loader processes would only cost time.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
    # A loader with persistent processes is kept; only making it again can hang.
    warnings.filterwarnings("ignore", ".*persistent_workers=True.*can lead to instability.*")


def _stop_at_end(trainer: pl.Trainer) -> int:
    """Signal that any process received while the last epoch ended."""
    callbacks: list[pl.Callback] = getattr(trainer, "callbacks")  # noqa: B009 - not declared
    stops = [callback.stop for callback in callbacks if isinstance(callback, Preemption)]
    return max(stops, default=0)


def _how_to_go_on(trainer: pl.Trainer) -> str:
    path = latest_checkpoint(Path(trainer.default_root_dir) / "checkpoints")
    if path is None:
        return "stopped; resume=auto resumes from the start, as no epoch had ended"
    epoch, updates = progress(path)
    return f"stopped; resume=auto resumes from {path} (epoch {epoch}, {updates} updates made)"


@rank_zero_only
def print_summary(name: str, folder: Path, scores: Mapping[str, float]) -> None:
    """Print the test scores and the locations of the run's files."""
    console = Console(soft_wrap=True)
    if scores:
        table = Table(title=f"{name}, test")
        table.add_column("metric")
        table.add_column("score", justify="right")
        for name, value in scores.items():
            table.add_row(name, f"{value:.4f}")
        console.print(table)
    console.print(f"run folder: {folder}")
    if (folder / "report.html").is_file():
        console.print(f"report of the run: {folder / 'report.html'}")
    if (folder / "curation.jsonl").is_file():
        console.print(f"report on curation: {folder / 'curation' / 'report.html'}")


def build_tokenizer(
    chosen: Part,
    train: Roster,
    further: Sequence[Roster] = (),
    uncounted: Collection[str] = (),
    *,
    cache: str,
) -> AbstractTokenizer:
    """Build the tokenizer of a run; read a cached vocabulary if there is one.

    Args:
        chosen: the tokenizer's class and settings.
        train: captions of the vocabulary.
        further: captions of the vocabulary that are not in the training set.
        uncounted: origins of captions of ``train`` that the vocabulary leaves out.
        cache: cache folder for later starts and runs.
    """
    counted = _without(train, uncounted)
    rosters = [counted, *further]
    build = build_part(chosen)
    if chosen._target_ != COUNTED or sum(map(len, rosters)) < MIN_CAPTIONS:
        return build(_captions(rosters))
    settings = OmegaConf.to_container(chosen, resolve=True)
    path = _path(cache, [settings, *(roster.fingerprint for roster in rosters)], ".json")

    split: list[SplitCaptions] = []

    def make() -> AbstractTokenizer:
        split[:] = [SplitCaptions(_captions(rosters), max_words=chosen.max_words)]
        return build(split[0])

    def save(tokenizer: AbstractTokenizer) -> None:
        write_json(path, tokenizer.state(), indent=None)
        if counted is not train:
            return
        # the words are at hand: `tokens_of` need not split the captions again
        ids, ends = split[0].encode(tokenizer, len(train))
        table = TokenTable(ids=ids.astype(id_type(tokenizer)), ends=ends)
        table.save(_table_path(cache, train, tokenizer))

    return _kept(path, subject="the vocabulary", read=lambda: _restored(path), make=make, save=save)


def tokens_of(roster: Roster, tokenizer: AbstractTokenizer, *, cache: str) -> TokenTable:
    """Tokens of all captions of a roster; cached tokens are memory-mapped.

    Args:
        roster: roster of N captions.
        tokenizer: the run's tokenizer.
        cache: cache folder for later starts and runs.
    """

    def make() -> TokenTable:
        return TokenTable.encode((sample.caption for sample in roster.samples), tokenizer)

    if len(roster) < MIN_CAPTIONS:
        return make()
    path = _table_path(cache, roster, tokenizer)
    table = _kept(
        path,
        subject=f"the tokens of {roster.name}",
        read=lambda: TokenTable.open(path, number=len(roster)),
        make=make,
        save=lambda table: table.save(path),
    )
    return TokenTable.open(path, number=len(roster)) if path.is_file() else table


def _without(train: Roster, origins: Collection[str]) -> Roster:
    """Roster without samples of these origins; the same roster if there are none."""
    samples = [sample for sample in train.samples if sample.origin not in origins]
    return train if len(samples) == len(train) else build_roster(train.name, samples)


def _captions(rosters: list[Roster]) -> Iterator[str]:
    return (sample.caption for roster in rosters for sample in roster.samples)


def _table_path(cache: str, roster: Roster, tokenizer: AbstractTokenizer) -> Path:
    content = [type(tokenizer).__name__, tokenizer.state(), roster.fingerprint]
    return _path(cache, content, ".bin")


def _path(cache: str, content: list[Any], suffix: str) -> Path:
    """Path of a cache file, named by ``content`` and versions."""
    text = json.dumps([*content, FORMAT, *map(version, PACKAGES)], sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    return Path(cache) / "tokens" / f"{name}{suffix}"


def _restored(path: Path) -> AbstractTokenizer:
    try:
        return restored(read_json(path))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged ({error})") from error


def _kept(
    path: Path,
    *,
    subject: str,
    read: Callable[[], Value],
    make: Callable[[], Value],
    save: Callable[[Value], object],
) -> Value:
    """Read a cached value; compute and save it if the file is missing or damaged.

    One process computes the value while others wait. If the folder is read-only or has no locks,
    each process computes its own value.
    """
    value = _read(path, read)
    if value is not None:
        return value
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock")
        with locked(lock, subject=subject, notify=log.info) as waited:
            value = _read(path, read) if waited else None
            if value is None:
                value = make()
                save(value)
    except OSError as error:
        log.warning(f"{subject} cannot be kept for later starts: {error}")
    return make() if value is None else value


def _read(path: Path, read: Callable[[], Value]) -> Value | None:
    """Read a cached value; None if the file is missing or damaged."""
    if not path.is_file():
        return None
    try:
        return read()
    except (ValueError, OSError) as error:
        log.warning(f"{error}; it will be computed again")
        return None
