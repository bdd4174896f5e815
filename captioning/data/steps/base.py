"""Interface of steps, which transform one roster into the next and store data for later steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from captioning.config.loadable import loadable
from captioning.data.roster import PlantedWord, Roster
from captioning.types import Sample

CORPUS = "corpus"
"""The split of captions that are trained on without photos."""


@dataclass(kw_only=True)
class StepContext:
    """Inputs of steps from the run, and results that steps store for later parts.

    Attributes:
        split: of the data set, such as ``"train"``, or `CORPUS`.
        seed: the run's seed. A step whose draws must not change with it has its own seed.
        cache_folder: caches results that are expensive to compute.
        truth: kind of planted fault by ``sample_id``; written to ``noise_truth.json``.
        planted_words: place and right word by ``sample_id``, of planted faults of a word or phrase;
            written to ``noise_words.json``.
        held_out_remaining: forms of held-out words that remain in the training captions, with the
            number of captions; None: no class is held out. Written to ``held_out_left.json``.
        left_out: captions that are not trained on but may lend contexts, in roster order.
        words: captions that are not trained on, but whose words the vocabulary counts.
        uncounted: origins of captions that are trained on, but whose words it does not count.
        is_cut: whether photos of the split, or all captions of some, were left out, by
            ``first_images`` or a step. Pairs made of them are then left out too, and a held-out
            class may be mentioned by none.
    """

    split: str
    seed: int
    cache_folder: Path
    truth: dict[str, str] = field(default_factory=dict)
    planted_words: dict[str, PlantedWord] = field(default_factory=dict)
    held_out_remaining: dict[str, int] | None = None
    left_out: tuple[Sample, ...] = ()
    words: tuple[Sample, ...] = ()
    uncounted: frozenset[str] = frozenset()
    is_cut: bool = False


@loadable
class AbstractStep(ABC):
    """Base class of steps, which change the samples of a split before anything else.

    A step is a frozen dataclass whose fields are the keys of its YAML in ``configs/steps``.
    Omissions that a user may look for go into ``roster.dropped``, with the rule.

    Attributes:
        every_split: whether it acts on all splits, or on training data alone.
    """

    every_split: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, roster: Roster, context: StepContext) -> Roster:
        """Return the changed roster; the context is changed in place.

        Raises:
            ValueError: a setting does not suit the data; the message names ``steps.NAME.key``.
        """


def apply_steps(roster: Roster, steps: Iterable[AbstractStep], context: StepContext) -> Roster:
    """Apply all steps to a roster, in order."""
    for step in steps:
        changed = step(roster, context)
        if not isinstance(changed, Roster):
            raise ValueError(
                f"step {type(step).__qualname__} must return the changed roster: got "
                f"{type(changed).__name__}; captioning.data.roster.build_roster makes one"
            )
        roster = changed
    return roster
