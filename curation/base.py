"""Interfaces of scores, selectors and amenders, and the records that they exchange."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from captioning.data.roster import CurationView
from captioning.types import Edit, EditAction, MaskedSpan, Sample

if TYPE_CHECKING:  # users' loops need no Lightning, a slow import
    import pytorch_lightning as pl

REPLACING = ("replace_caption", "replace_image")
"""Actions after which a sample is another pair of photo and caption."""
SENTENCE_LOSS = "sentence_loss"
"""The signal that holds the mean loss a token of each sentence, ``(E, N, K)``."""
LEFT_ALONE = "left alone: "
"""How notes begin that say why a selected sample stays as it is."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The data that a policy may read at an epoch's end. Decisions do not change it.

    Attributes:
        view: the samples as they are now, with the edits that led here.
        losses: ``(N,) float32`` mean loss of each roster row in this epoch, in nats; NaN where the
            sample was not seen (removed, or left out by the loader).
        history: ``(E, N) float32`` losses of all closed epochs, this one last; NaN where unseen.
        epoch: the epoch that just ended, from 0; -1 for a decision before training.
        seed: seed of the run.
        signals: further measurements by name, such as the visual gain: ``(E, N) float32`` over the
            closed epochs, the newest last; NaN where unknown. What is measured by sentence is
            ``(E, N, K)``, of the K first sentences of each caption.
        keep: ids of samples that no policy may edit, see `curation.loop.keep`.
        policy: name of the policy that decides.
        is_over: False during the epoch, when an amender works ahead.
    """

    view: CurationView
    losses: Tensor
    history: Tensor
    epoch: int
    seed: int = 0
    signals: Mapping[str, Tensor] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    policy: str = ""
    is_over: bool = True

    def __post_init__(self) -> None:
        num_samples = len(self.view.roster)
        if self.losses.shape != (num_samples,):
            raise ValueError(
                "losses must have one value per roster row: "
                f"got {tuple(self.losses.shape)} for {num_samples} rows"
            )
        if self.history.dim() != 2 or self.history.shape[1] != num_samples:
            raise ValueError(f"history must be (E, {num_samples}): got {tuple(self.history.shape)}")
        for name, values in self.signals.items():
            if values.dim() not in (2, 3) or values.shape[1] != num_samples:
                raise ValueError(
                    f"signal {name!r} must be (E, {num_samples}), or (E, {num_samples}, K) by "
                    f"sentence: got {tuple(values.shape)}"
                )

    @classmethod
    def before_training(cls, view: CurationView, *, seed: int = 0) -> Context:
        """The context of a decision before training, without measurements."""
        nothing = torch.full((1, len(view.roster)), torch.nan)
        return cls(view=view, losses=nothing[0], history=nothing, epoch=-1, seed=seed)

    @cached_property
    def live(self) -> dict[int, Sample]:
        """Live samples by roster row, in roster order."""
        return {sample.row: sample for sample in self.view.samples()}

    @cached_property
    def live_rows(self) -> np.ndarray:
        """``(L,) int64`` rows of the live samples, ascending."""
        return np.fromiter(self.live, dtype=np.int64, count=len(self.live))

    def of_present_pairs(self, values: Tensor) -> Tensor:
        """Keep the measurements of the present pairs of photo and caption only.

        Measurements made before an edit replaced a sample's caption or picture do not describe its
        present pair.

        Args:
            values: ``(E, N)`` of consecutive epochs, `epoch` last, such as `history`; or
                ``(E, N, K)`` by sentence.

        Returns:
            The same; NaN where the sample is not live, and in the epochs up to the one
            at whose end its caption or its picture was replaced last.
        """
        epochs = torch.arange(self.epoch - len(values) + 1, self.epoch + 1)
        is_present = self._is_live & (epochs[:, None] > self._replaced_after)
        if values.dim() == 3:
            is_present = is_present[..., None]
        return torch.where(is_present, values, torch.nan)

    def of_live(self, scores: Tensor) -> Tensor:
        """``(N,)`` ``scores`` of each roster row, NaN where the sample is not live."""
        return torch.where(self._is_live, scores, torch.nan)

    @cached_property
    def _is_live(self) -> Tensor:
        """``(N,) bool``."""
        is_live = torch.zeros(len(self.view.roster), dtype=torch.bool)
        is_live[torch.from_numpy(self.live_rows)] = True
        return is_live

    @cached_property
    def _replaced_after(self) -> Tensor:
        """``(N,) int64`` epoch after which each row got another caption or picture last; or -1."""
        epochs = torch.full((len(self.view.roster),), -1)
        by_id = self.view.roster.by_id
        for edit in self.view.journal:
            if edit.action in REPLACING:
                epochs[by_id[edit.sample_id].row] = edit.epoch
        return epochs

    def edit(
        self,
        candidate: Selected,
        action: EditAction,
        *,
        value: str | None = None,
        origin: str | None = None,
    ) -> Edit:
        """An edit of a selected sample, signed with the policy and the epoch.

        Args:
            candidate: the sample, and why it was selected.
            action: the edit's action.
            value: see `Edit`.
            origin: origin of the value; None: the sample's.
        """
        return Edit(
            sample_id=candidate.sample.sample_id,
            action=action,
            value=value,
            origin=candidate.sample.origin if origin is None else origin,
            reason=candidate.reason,
            policy=self.policy,
            epoch=self.epoch,
        )

    def random(self, purpose: str) -> np.random.Generator:
        """A fresh generator that depends on the run's seed, the epoch and ``purpose`` alone.

        Fresh, so that the same context gives the same edits however often it is asked, and in
        every process.
        """
        return np.random.default_rng([self.seed, self.epoch + 1, zlib.crc32(purpose.encode())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A sample that a selector finds bad, and why, in words for people."""

    sample: Sample
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The edits that an amender made of the selected samples.

    Attributes:
        edits: made by `Context.edit`, at most one of an action per selected sample.
        unchanged: ids of selected samples that stay as they are: nothing better was available.
        notes: short texts that reports count, such as why pictures were not made.
    """

    edits: tuple[Edit, ...]
    unchanged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Score(ABC):
    """Base class of scores: the suspicion of each sample; higher is more suspicious.

    Attributes:
        name: the measured quantity, for reasons and reports, such as ``"loss"``.
        may_know_none: whether it may leave all samples without a score.

    Examples:
        >>> import torch
        >>> from captioning import Score
        >>> from captioning.data.roster import CurationView
        >>> from curation import make_roster
        >>> from curation.base import Context
        >>> class Characters(Score):
        ...     name = "characters"
        ...     def scores(self, context):
        ...         found = torch.full((len(context.view.roster),), torch.nan)
        ...         for row, sample in context.live.items():
        ...             found[row] = len(sample.caption)
        ...         return found
        >>> roster = make_roster([("a.jpg", "a dog"), ("b.jpg", "a cat on grass")])
        >>> view = CurationView(roster=roster)
        >>> Characters().scores(Context.before_training(view))
        tensor([ 5., 14.])
    """

    name: str
    may_know_none = False

    @property
    def opens_photos(self) -> bool:
        """Whether it reads photos, which need not be there where features were imported."""
        return False

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the losses of another kind that it reads, see `Context.signals`."""
        return ()

    @abstractmethod
    def scores(self, context: Context) -> Tensor:
        """``(N,)`` suspicion of each roster row, higher is worse; NaN where unknown or not live.

        Pure: the same context gives the same scores, in every process.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractSpanDoubt(ABC):
    """A part of a live sample's caption that is judged: a word, or a sentence.

    Attributes:
        row: the sample's row in the roster.
        start: index of the part's first character in the sample's present caption.
    """

    row: int
    start: int

    @property
    @abstractmethod
    def text(self) -> str:
        """The part as written; ``caption[start:start + len(text)] == text``."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The suspicion in the unit of its score; higher is worse."""

    @property
    def stop(self) -> int:
        """Index behind the part's last character."""
        return self.start + len(self.text)

    def overlaps(self, masks: Iterable[MaskedSpan]) -> bool:
        """Whether it has a character in one of the spans."""
        return any(mask.start < self.stop and self.start < mask.stop for mask in masks)

    def check(self, sample: Sample) -> None:
        """Refuse a record of another caption.

        Args:
            sample: the sample of its row.

        Raises:
            ValueError: the caption does not have the part at its place.
        """
        if not self.text or sample.caption[self.start : self.stop] != self.text:
            raise ValueError(
                f"a score doubts {self.text!r} at character {self.start} of "
                f"{sample.sample_id!r}, but the caption {sample.caption!r} does not have this text "
                "there: score the present captions"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WordDoubt(AbstractSpanDoubt):
    """A word of a live sample's caption, and the word that is likeliest in its place.

    Attributes:
        row, start: see `AbstractSpanDoubt`.
        word: the word as written; ``caption[start:start + len(word)] == word``.
        alternative: the likeliest other word for the place, in the form that would stand there.
        log_odds: log-probability of the alternative minus the word's, in nats; above 0 the
            alternative is the likelier one.
        probability: probability that the word is wrong, in [0, 1].
        topic: topic of the word's row, such as ``"color"``; empty if unknown.
    """

    word: str
    alternative: str
    log_odds: float
    probability: float
    topic: str = ""

    @property
    def text(self) -> str:
        """The word."""
        return self.word

    @property
    def value(self) -> float:
        """The probability."""
        return self.probability


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceDoubt(AbstractSpanDoubt):
    """A sentence of a live sample's caption.

    Attributes:
        row, start: see `AbstractSpanDoubt`.
        sentence: the sentence as written, see `captioning.text.sentence_spans.sentence_spans`.
        suspicion: higher is worse, in the unit of its score.
    """

    sentence: str
    suspicion: float

    @property
    def text(self) -> str:
        """The sentence."""
        return self.sentence

    @property
    def value(self) -> float:
        """The suspicion."""
        return self.suspicion


def highest(doubts: Sequence[AbstractSpanDoubt], num_rows: int, *, value: str = "value") -> Tensor:
    """``(num_rows,) float32`` the highest of each row's doubts; NaN for rows without one.

    Args:
        doubts: doubts of words or sentences.
        num_rows: number of roster rows.
        value: attribute of the doubts that counts.
    """
    values = np.full(num_rows, -np.inf)
    rows = np.array([doubt.row for doubt in doubts], dtype=np.int64)
    np.maximum.at(values, rows, [getattr(doubt, value) for doubt in doubts])
    return torch.from_numpy(np.where(np.isinf(values), np.nan, values)).float()


SpanT = TypeVar("SpanT", bound=AbstractSpanDoubt)


def by_row(doubts: Iterable[SpanT]) -> dict[int, list[SpanT]]:
    """The doubts of each row that has some, in their order."""
    rows: dict[int, list[SpanT]] = {}
    for doubt in doubts:
        rows.setdefault(doubt.row, []).append(doubt)
    return rows


class AbstractSpanScore(Score):
    """A score that also tells which parts of a caption are in doubt."""

    may_know_none = True  # for samples without a judged part

    @abstractmethod
    def doubts(self, context: Context) -> Sequence[AbstractSpanDoubt]:
        """A record for each part of the live samples that is judged, by row and start.

        Parts that are likely right are judged, too: those who act on records choose by
        `AbstractSpanDoubt.value`. Pure: the same context gives the same records, in every process.
        """


class AbstractSentenceScore(AbstractSpanScore):
    """A score that tells which sentences of a caption are in doubt."""

    def scores(self, context: Context) -> Tensor:
        """The highest suspicion of a caption's sentences that are not masked; NaN without one."""
        doubts = self.doubts(context)
        free = [doubt for doubt in doubts if not doubt.overlaps(context.live[doubt.row].masks)]
        return highest(free, len(context.view.roster))

    @abstractmethod
    def doubts(self, context: Context) -> list[SentenceDoubt]:
        """A record for each sentence of the live samples that is judged, by row and start."""


class AbstractWordScore(AbstractSpanScore):
    """A score that also tells which words of a caption are in doubt."""

    @property
    def counted_value(self) -> str:
        """Field of `WordDoubt` whose highest among a caption's words is the caption's score."""
        return "probability"

    @abstractmethod
    def doubts(self, context: Context) -> list[WordDoubt]:
        """A record for each word of the live samples that is judged, by row and start."""


class Selector(ABC):
    """Base class of selectors: find bad samples; the same context gives the same selection.

    Attributes:
        for_fewer: the remedy if it selects too many, naming its setting, for messages.

    Examples:
        >>> from captioning import Selector
        >>> from captioning.data.roster import CurationView
        >>> from curation import make_roster
        >>> from curation.base import Context, Selected
        >>> from curation.score.length import Length
        >>> class Shorter(Selector):
        ...     def scores(self, context):
        ...         return -Length().scores(context)
        ...     def select(self, context):
        ...         short = [s for s in context.live.values() if len(s.caption.split()) < 3]
        ...         return [Selected(sample=sample, reason="under 3 words") for sample in short]
        >>> roster = make_roster([("a.jpg", "a dog"), ("b.jpg", "a cat on grass")])
        >>> view = CurationView(roster=roster)
        >>> [s.sample.caption for s in Shorter().select(Context.before_training(view))]
        ['a dog']
    """

    for_fewer: ClassVar[str] = "choose another curation/select, which selects fewer"

    @property
    def opens_photos(self) -> bool:
        """Whether it reads photos, which need not be there where features were imported."""
        return False

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the losses of another kind that it reads, see `Context.signals`."""
        return ()

    @abstractmethod
    def scores(self, context: Context) -> Tensor:
        """``(N,)`` suspicion of each roster row, higher is worse, NaN where unknown."""

    @abstractmethod
    def select(self, context: Context) -> list[Selected]:
        """The bad samples among the live ones, worst first; ties break by ``sample_id``."""


class Amender(ABC):
    """Base class of amenders: turn a selection into edits, which the view then applies.

    Attributes:
        changes_images: whether samples may get other pictures.
        masks_words: whether words may be masked, which the loop must leave out of its loss.
        changes_weights: whether samples may get other weights in the loss.
        amends_at_once: whether `amend` runs no model and waits for no other process, so that it may
            be asked while an epoch is under way.

    Examples:
        >>> from captioning import Amender
        >>> from captioning.data.roster import CurationView
        >>> from curation import make_roster
        >>> from curation.base import Amended, Context, Selected
        >>> class AddFullStop(Amender):
        ...     def amend(self, context, selected):
        ...         texts = [(one, f"{one.sample.caption}.") for one in selected]
        ...         how = "replace_caption"
        ...         edits = [context.edit(one, how, value=text) for one, text in texts]
        ...         return Amended(edits=tuple(edits))
        >>> view = CurationView(roster=make_roster([("a.jpg", "a dog")]))
        >>> selected = [Selected(sample=view.samples()[0], reason="no full stop")]
        >>> AddFullStop().amend(Context.before_training(view), selected).edits[0].value
        'a dog.'
    """

    changes_images = False
    masks_words = False
    changes_weights = False
    amends_at_once = False

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the losses of another kind that it reads, see `Context.signals`."""
        return ()

    @abstractmethod
    def amend(self, context: Context, selected: Sequence[Selected]) -> Amended:
        """Edits for the selected samples; samples that cannot be amended are in ``unchanged``.

        Called in every process of a run with the same arguments; all must decide the same edits.
        """

    def follow(self, select: Selector) -> None:
        """Called once, as the policy is made: for amenders that ask the selector's score, too."""
        del select

    def start(self, view: CurationView) -> None:
        """Called once before training: refuse settings here that would fail later."""
        del view

    def attach(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Called once as fitting starts, before any decision: for amenders that use the model."""
        del trainer, module

    @property
    def works_ahead(self) -> bool:
        """Whether `expect` is of any use."""
        return False

    def expect(self, context: Context, selected: Sequence[Selected]) -> None:
        """Announces the samples likely to be selected at the end of this epoch, likeliest first.

        The amender may begin to work on it. Never waits, and does not change the result of `amend`.
        """
        del context, selected

    def close(self) -> None:
        """Training is over: let go of processes and models."""
        return None


ScoreT = TypeVar("ScoreT", bound=AbstractSpanScore)


class AbstractSpanAmender(Amender, Generic[ScoreT]):
    """An amender that acts on parts of captions: on the words or sentences in doubt.

    Args:
        score: says which parts are in doubt; None: the selector's own.

    Attributes:
        work: its action, for messages, such as ``"masking words"``.
        score_type: scores that it can ask.
        which_score: the scores to choose from, for the message.
    """

    work: str
    score_type: type[ScoreT]
    which_score: str

    def __init__(self, *, score: ScoreT | None) -> None:
        self.score = score

    @property
    def signals(self) -> tuple[str, ...]:
        """Those of its score."""
        return () if self.score is None else self.score.signals

    def follow(self, select: Selector) -> None:
        """Ask the selector's score, unless there is one already."""
        score = getattr(select, "score", None)
        if self.score is None and isinstance(score, self.score_type):
            self.score = score

    def start(self, view: CurationView) -> None:
        """Refuse to begin without a score of such parts.

        Raises:
            ValueError: there is none.
        """
        del view
        self._span_score()

    def _span_score(self) -> ScoreT:
        if self.score is None:
            raise ValueError(
                f"{self.work} needs a score that finds {self.which_score} with a selector by "
                "score, or name one in curation.amend.score"
            )
        return self.score


class AbstractWordAmender(AbstractSpanAmender[AbstractWordScore]):
    """An amender that acts on the words in doubt.

    Args:
        score: see `AbstractSpanAmender`.
        threshold: least probability of being wrong at which it acts on a word, in [0, 1].

    Raises:
        ValueError: a threshold outside [0, 1].
    """

    score_type = AbstractWordScore
    which_score = "words are in doubt: choose curation/score=words"

    def __init__(self, *, score: AbstractWordScore | None, threshold: float) -> None:
        super().__init__(score=score)
        self.threshold = require_fraction("threshold", threshold)

    def _doubts(self, context: Context) -> list[WordDoubt]:
        """The words that are sure enough to be wrong."""
        doubts = self._span_score().doubts(context)
        return [doubt for doubt in doubts if doubt.probability >= self.threshold]


def require_fraction(name: str, value: float) -> float:
    """``value`` if it is a number in [0, 1].

    Raises:
        ValueError: anything else; the message names the argument.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(
            f"{name} must be a fraction in [0, 1]: got {value!r} (write 0.05 for 5 percent)"
        )
    return float(value)


def as_numpy(values: Tensor) -> np.ndarray:
    """``values`` as a float64 array in host memory."""
    return values.detach().to("cpu", torch.float64).numpy()
