"""Settings of the datamodule: the loaded data, and the loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from captioning.config.ranges import NumWorkers, PositiveInt
from captioning.data.roster import Roster
from captioning.text.sentence_spans import LongCaptions
from captioning.types import Sample


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Rosters of a run's training, validation and test samples.

    Attributes:
        train, val, test: rosters; ``test`` may be None.
        left_out: captions of training that are not trained on but may lend contexts.
        words: captions that are not trained on, but whose words the vocabulary counts.
        uncounted: origins of training captions whose words it does not count.
        train_has_photos: False: training sees captions alone.
    """

    train: Roster
    val: Roster
    test: Roster | None = None
    left_out: tuple[Sample, ...] = ()
    words: tuple[Sample, ...] = ()
    uncounted: frozenset[str] = frozenset()
    train_has_photos: bool = True

    @property
    def rosters(self) -> list[Roster]:
        """All rosters of the run."""
        return [roster for roster in (self.train, self.val, self.test) if roster is not None]

    @property
    def pictured(self) -> list[Roster]:
        """Rosters of the run whose photos are read."""
        return self.rosters[0 if self.train_has_photos else 1 :]


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """Settings of batches and loaders.

    Attributes:
        batch_size: captions a training batch, over all processes.
        captions_per_image: captions of an image that stand together in a batch.
        eval_batch_size: images a batch when captions are generated.
        fixed_updates: keep the whole roster's number of batches an epoch when curation removes
            samples (comparable numbers of updates). False: the epoch shrinks with the set, as in
            the paper.
        original_updates: an epoch has as many batches as the original captions fill, without added
            pairs (`captioning.data.steps.add_pairs`), so that these change no schedule.
        one_caption: an epoch has one caption of each image, drawn again in each epoch, so images
            weigh the same, however many captions they have.
        updates_per_epoch: batches of an epoch, whatever the number of captions: for schedules that
            count updates. An epoch takes the first captions of its shuffle, or continues with
            further ones; None: once through the captions.
        like_lengths: batches hold captions of like length, so that fewer of their tokens are
            padding; which ones, and their order, depend on seed and epoch.
        long_captions: treatment of captions that the tokenizer would cut. ``"cut"``: they end
            there, within a sentence; ``"sentence"``: with the last sentence that fits;
            ``"refuse"``: the run does not begin. None: ``"sentence"`` where a processor of
            transformers makes the tokens, else ``"cut"``, as the papers do. What is cut is counted
            in the log and in ``long_captions.json``.
        num_workers: loader processes of each training process; 0 makes batches in the training
            process itself. ``"auto"``: 0 where cached features are read, which takes milliseconds;
            where photos are read, one for each free CPU core, at most 8.
        prefetch_factor: batches that each of them makes ahead.
        multiprocessing_context: how they are started; None for Python's default.

    Raises:
        ValueError: a number below 1 (below 0 of workers), ``one_caption`` where several shall stand
            together, or ``original_updates`` or ``updates_per_epoch`` for epochs whose length
            something else decides.
    """

    batch_size: PositiveInt = 125
    captions_per_image: PositiveInt = 5
    eval_batch_size: PositiveInt = 50
    fixed_updates: bool = True
    original_updates: bool = False
    one_caption: bool = False
    updates_per_epoch: PositiveInt | None = None
    like_lengths: bool = False
    long_captions: LongCaptions | None = None
    num_workers: NumWorkers | Literal["auto"] = "auto"
    prefetch_factor: PositiveInt = 4
    multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = None

    def __post_init__(self) -> None:
        minimums = {
            "batch_size": 1,
            "captions_per_image": 1,
            "eval_batch_size": 1,
            "updates_per_epoch": 1,
            "num_workers": 0,
            "prefetch_factor": 1,
        }
        for name, minimum in minimums.items():
            value = getattr(self, name)
            if (name, value) in (("num_workers", "auto"), ("updates_per_epoch", None)):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ValueError(
                    f"loader.{name} must be a whole number of at least {minimum}: got {value!r}"
                )
        if self.one_caption and self.captions_per_image != 1:
            raise ValueError(
                "loader.one_caption=true selects one caption per image: set "
                f"loader.captions_per_image=1, not {self.captions_per_image}"
            )
        if self.updates_per_epoch and (self.original_updates or not self.fixed_updates):
            raise ValueError(
                f"loader.updates_per_epoch={self.updates_per_epoch} fixes an epoch's length: set "
                "loader.fixed_updates=true and loader.original_updates=false"
            )
        if self.original_updates and not self.fixed_updates:
            raise ValueError(
                "loader.original_updates=true needs loader.fixed_updates=true: epochs must not "
                "shrink"
            )
