"""A curation policy: a schedule, a selector and an amender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from captioning.config.ranges import Epoch, NonNegativeInt, PositiveInt
from captioning.text.word_forms import words_of
from captioning.types import Edit
from curation.base import Amended, Amender, Context, Selected, Selector
from curation.score.caption_fit import waits_for_caption


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits that hold at every decision; the default of 0 allows all edits.

    The worst samples come first; a sample whose edit would break a limit is skipped, and the next
    one is tried. Only captions that were not selected count towards a limit, whatever happens to
    the selected ones. A sample that waits for a caption has none: it counts towards no limit, and
    none spares it.

    Attributes:
        min_captions_per_image: live captions of each image that stay untouched.
        min_captions_per_word: live captions with each word that stay untouched. A word that fewer
            captions hold protects all of them, also overlong ones: 1 or 2 are sensible, and the
            report names what vanished without it.

    Raises:
        ValueError: a limit is negative.
    """

    min_captions_per_image: NonNegativeInt = 0
    min_captions_per_word: NonNegativeInt = 0

    def __post_init__(self) -> None:
        for name in ("min_captions_per_image", "min_captions_per_word"):
            if getattr(self, name) < 0:
                raise ValueError(f"budget: {name} must be at least 0: got {getattr(self, name)}")

    def affordable(self, context: Context, selected: Sequence[Selected]) -> list[Selected]:
        """Samples of ``selected`` that the budget allows to edit, in the same order."""
        if not self.min_captions_per_image and not self.min_captions_per_word:
            return list(selected)
        written = [sample for sample in context.live.values() if not waits_for_caption(sample)]
        images = Counter(sample.image_id for sample in written)
        words: Counter[str] = Counter()
        if self.min_captions_per_word:
            for sample in written:
                words.update(set(words_of(sample.caption)))
        accepted = []
        for candidate in selected:
            if waits_for_caption(candidate.sample):
                accepted.append(candidate)
                continue
            caption_words = (
                set(words_of(candidate.sample.caption)) if self.min_captions_per_word else set()
            )
            if images[candidate.sample.image_id] <= self.min_captions_per_image or any(
                words[word] <= self.min_captions_per_word for word in caption_words
            ):
                continue
            images[candidate.sample.image_id] -= 1
            words.subtract(caption_words)
            accepted.append(candidate)
        return accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Epochs at whose end a policy acts; by default every epoch.

    Attributes:
        from_epoch: first epoch (from 0) that is acted on; the epochs before it are the warm-up,
            which records losses without edits. -1: before training, when there are no losses yet
            (with ``until_epoch=-1``: static curation, paper, section 5.1).
        until_epoch: last epoch that is acted on; None for no end. Equal to ``from_epoch``: once.
        every_n_epochs: act on ``from_epoch`` and each ``every_n_epochs``-th after it.

    Raises:
        ValueError: a value is not an integer, or is out of range or order.
    """

    from_epoch: Epoch = 0
    until_epoch: Epoch | None = None
    every_n_epochs: PositiveInt = 1

    def __post_init__(self) -> None:
        for name in ("from_epoch", "until_epoch", "every_n_epochs"):
            _require_integer(name, getattr(self, name))
        if self.from_epoch < -1:
            raise ValueError(
                f"from_epoch must be at least -1, which is before training: got {self.from_epoch}"
            )
        if self.until_epoch is not None and self.until_epoch < self.from_epoch:
            raise ValueError(
                f"until_epoch must not lie before from_epoch: got {self.until_epoch} "
                f"before {self.from_epoch}; use None for no end"
            )
        if self.every_n_epochs < 1:
            raise ValueError(f"every_n_epochs must be at least 1: got {self.every_n_epochs}")

    def due(self, epoch: int) -> bool:
        """Return whether the policy acts at the end of ``epoch``."""
        if epoch < self.from_epoch or (self.until_epoch is not None and epoch > self.until_epoch):
            return False
        return (epoch - self.from_epoch) % self.every_n_epochs == 0


def _require_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        if name == "until_epoch" and value is None:
            return
        end = ", or null for no end" if name == "until_epoch" else ""
        raise ValueError(f"{name} must be a whole number{end}: got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Outcome of a policy at the end of one epoch.

    Attributes:
        selected: the selected samples, worst first.
        edits: the edits, stamped with policy and epoch.
        unchanged: ids of samples that were selected and stay as they are.
        notes: texts that the amender wants counted, such as why pictures were not made.
    """

    selected: tuple[Selected, ...] = ()
    edits: tuple[Edit, ...] = ()
    unchanged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Policy:
    """A selector and an amender that act at the epochs of a schedule.

    Args:
        select: finds bad samples.
        amend: decides on them.
        schedule: when; default every epoch.
        budget: limits on the number of edited samples; default no limit.
        name: the policy's name in the journal, in logs and in tables.
        edits: whether the amender acts at all; False: selected samples are unchanged.
        for_fewer: the remedy if all samples would be removed, for the message; None: the
            selector's.

    Examples:
        >>> from captioning import Policy
        >>> from captioning.data.roster import CurationView
        >>> from curation import make_roster
        >>> from curation.amend.remove import Remove
        >>> from curation.base import Context
        >>> from curation.loop.policy import Schedule
        >>> from curation.score.length import Length
        >>> from curation.select.top import Top
        >>> select = Top(ratio=0.5, score=Length())
        >>> once = Schedule(from_epoch=-1, until_epoch=-1)  # before training
        >>> policy = Policy(select=select, amend=Remove(), schedule=once, name="long")
        >>> roster = make_roster([("a.jpg", "a dog"), ("b.jpg", "a cat on grass")])
        >>> view = CurationView(roster=roster)
        >>> [edit.sample_id for edit in policy.decide(Context.before_training(view))]
        ['b.jpg#0']
    """

    def __init__(
        self,
        *,
        select: Selector,
        amend: Amender,
        schedule: Schedule | None = None,
        budget: Budget | None = None,
        name: str,
        edits: bool = True,
        for_fewer: str | None = None,
    ) -> None:
        if not name.strip():
            raise ValueError("a policy's name must not be empty: it names its edits in the journal")
        self.select = select
        self.amend = amend
        amend.follow(select)
        self.schedule = schedule if schedule is not None else Schedule()
        self.budget = budget if budget is not None else Budget()
        self.name = name
        self.edits = edits
        self.for_fewer = select.for_fewer if for_fewer is None else for_fewer

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the additional measurements that selector and amender read."""
        return tuple(dict.fromkeys((*self.select.signals, *self.amend.signals)))

    def decide(self, context: Context) -> list[Edit]:
        """Return only the edits of `deliberate`."""
        return list(self.deliberate(context).edits)

    def deliberate(self, context: Context) -> Decision:
        """Select samples and amend them, without applying the edits.

        Raises:
            ValueError: the edits would leave no sample, touch one that is not live, or edit one
                twice.
        """
        if not self.schedule.due(context.epoch):
            return Decision()
        context = replace(context, policy=self.name)
        selected = self._selected(context)
        editable = self._editable(context, selected)
        amended = self._amended(context, editable) if editable else Amended(edits=())
        self._check(context, amended)
        return Decision(
            selected=selected,
            edits=amended.edits,
            unchanged=(*amended.unchanged, *_protected_ids(selected, editable)),
            notes=amended.notes,
        )

    def rehearse(self, context: Context) -> None:
        """Select once, and amend if no model is needed, to find errors before the first epoch.

        Args:
            context: a context with made-up losses for an epoch. The resulting decision is
                discarded, as these losses do not describe the samples.
        """
        context = replace(context, policy=self.name, is_over=False)
        editable = self._editable(context, self._selected(context))
        if editable and self.amend.amends_at_once:
            self._amended(context, editable)

    def expect(self, context: Context) -> None:
        """Let the amender start on samples that would be selected if the epoch ended now."""
        if self.edits and self.amend.works_ahead and self.schedule.due(context.epoch):
            self.amend.expect(context, self._editable(context, self._selected(context)))

    def _selected(self, context: Context) -> tuple[Selected, ...]:
        selected = tuple(self.select.select(context))
        if wrong := [entry for entry in selected if not isinstance(entry, Selected)]:
            raise ValueError(
                f"{type(self.select).__qualname__}.select must give curation.base.Selected, with a "
                f"sample and a reason: got {type(wrong[0]).__name__}"
            )
        return selected

    def _amended(self, context: Context, selected: Sequence[Selected]) -> Amended:
        amended = self.amend.amend(context, selected)
        if not isinstance(amended, Amended):
            raise ValueError(
                f"{type(self.amend).__qualname__}.amend must give curation.base.Amended, with "
                f"edits: got {type(amended).__name__}"
            )
        return amended

    def _editable(self, context: Context, selected: Sequence[Selected]) -> list[Selected]:
        """Selected samples that may be edited: outside the keep-list and within the budget."""
        if not self.edits:
            return []
        editable = list(selected)
        if context.keep:
            editable = [
                candidate
                for candidate in selected
                if candidate.sample.sample_id not in context.keep
            ]
        return self.budget.affordable(context, editable)

    def _check(self, context: Context, amended: Amended) -> None:
        # a sample may get one new caption and one new image
        edited = Counter((edit.sample_id, edit.action) for edit in amended.edits)
        live = {sample.sample_id for sample in context.live.values()}
        for (sample_id, _), number in edited.items():
            if sample_id not in live:
                raise ValueError(
                    f"policy {self.name!r} edits {sample_id!r}, which is not a live sample"
                )
            if number > 1:
                raise ValueError(f"policy {self.name!r} edits {sample_id!r} twice at once")
        num_removed = sum(edit.action == "remove" for edit in amended.edits)
        if num_removed == len(context.live):
            is_repeated = context.epoch >= 0 and self.schedule.until_epoch is None
            sooner = ", or set curation.schedule.until_epoch" if is_repeated else ""
            raise ValueError(
                f"policy {self.name!r} would remove all {num_removed} samples "
                f"{_when(context.epoch)}: {self.for_fewer}{sooner}"
            )


def _when(epoch: int) -> str:
    return "before training" if epoch < 0 else f"at the end of epoch {epoch}"


def _protected_ids(selected: Sequence[Selected], editable: Sequence[Selected]) -> list[str]:
    """Ids of the selected samples that the budget protects from edits."""
    if len(editable) == len(selected):
        return []
    editable_ids = {candidate.sample.sample_id for candidate in editable}
    return [
        candidate.sample.sample_id
        for candidate in selected
        if candidate.sample.sample_id not in editable_ids
    ]
