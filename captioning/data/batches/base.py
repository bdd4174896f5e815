"""What a batch holds beside its captions' tokens: one reader for each kind of thing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from captioning.data.roster import Roster
from captioning.interfaces import AbstractTokenizer
from captioning.types import Sample

Stage = Literal["train", "probe", "eval"]
Tensors = dict[str, Any]
Read = Callable[[Sequence[Sample], Sequence[Sample], Tensors], Tensors]
"""Gives a batch its tensors, from its B captions, one sample of each of its I pictures, and what
readers before this one have given it."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What a reader is told before it reads batches.

    Attributes:
        stage: ``"train"``; ``"probe"``: the training samples once more, without anything random;
            ``"eval"``: pictures to caption.
        samples: all that batches will be made of.
        roster: of training, which the samples' rows are of, except in ``"eval"``.
        tokenizer: of captions.
        left_out: captions that are not trained on but may lend contexts.
        has_photos: False: captions alone, whose photos must not be looked at.
        pictures: what is known of pictures: ``"pixels"``, ``"grid"``, ``"regions"`` (of annotated
            boxes) or ``"imported"``; empty where no reader says.
    """

    stage: Stage
    samples: Sequence[Sample]
    roster: Roster
    tokenizer: AbstractTokenizer
    left_out: Sequence[Sample] = ()
    has_photos: bool = True
    pictures: str = ""


class AbstractBatchReader(ABC):
    """Gives batches some of their tensors.

    Attributes:
        fixes_captions: whether what it gives goes by all captions of the epoch, so that none can be
            written anew within it.
    """

    fixes_captions: ClassVar[bool] = False

    @property
    def pictures(self) -> str:
        """What pictures it gives, see `Epoch.pictures`; empty for none."""
        return ""

    @property
    def refuses_photos(self) -> str:
        """Why no photos can be trained on beside those of the rosters; empty if they can."""
        return ""

    @abstractmethod
    def open(self, epoch: Epoch) -> Read | None:
        """What reads the batches of an epoch; None: they get nothing of this reader.

        What it reads that is named as a field of `captioning.types.Batch` becomes that field, the
        rest goes into ``Batch.extras``.

        Raises:
            ValueError: it does not suit the epoch's samples or pictures.
        """


def of_captions(function: Callable[[Sequence[Sample]], Tensors]) -> Read:
    """A reader's function that looks at a batch's captions alone."""
    return partial(_read_captions, function)


def _read_captions(
    function: Callable[[Sequence[Sample]], Tensors],
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
) -> Tensors:
    return function(captions)
