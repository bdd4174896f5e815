"""Interface of batch readers, which add tensors to a batch besides the captions' tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from captioning.config.loadable import loadable
from captioning.interfaces import AbstractTokenizer
from captioning.types import Sample

if TYPE_CHECKING:
    from captioning.data.roster import Roster

Stage = Literal["train", "probe", "eval"]
Tensors = dict[str, Any]
DRAW = "draw"
"""Name under which a reader's third argument holds the key of the batch's random numbers: seed,
epoch and batch number, or None. Random numbers from this key and a sample's row depend on nothing
else, see `captioning.data.batches.pictures.PixelReader`."""
Read = Callable[[Sequence[Sample], Sequence[Sample], Tensors], Tensors]
"""Function that returns tensors of a batch from its B captions, one sample of each of its I
pictures, and the tensors of earlier readers."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """Data of an epoch that a reader gets before it reads batches.

    Attributes:
        stage: ``"train"``; ``"probe"``: the training samples once more, without anything random;
            ``"eval"``: pictures to caption.
        samples: samples of all batches.
        roster: roster of training; the samples' rows count in it, except in ``"eval"``. None where
            photos of no data set are captioned.
        tokenizer: tokenizer of captions.
        left_out: captions that are not trained on but may lend contexts.
        has_photos: False: captions alone; their photos must not be read.
        pictures: form of the pictures: ``"pixels"``, ``"grid"``, ``"regions"`` (of annotated
            boxes), ``"imported"`` or ``"imported regions"`` (with boxes of their own, the whole
            photo first); empty where no reader gives any.
        read_pictures: the function that reads them, for readers that come after it.
    """

    stage: Stage
    samples: Sequence[Sample]
    roster: Roster | None
    tokenizer: AbstractTokenizer
    left_out: Sequence[Sample] = ()
    has_photos: bool = True
    pictures: str = ""
    read_pictures: Read | None = None


@loadable
class AbstractBatchReader(ABC):
    """Base class of readers that add tensors to batches.

    Attributes:
        fixes_captions: whether its tensors depend on all captions of the epoch, so that none may
            change within the epoch.
    """

    fixes_captions: ClassVar[bool] = False

    @property
    def pictures(self) -> str:
        """Form of the pictures that the reader adds, see `Epoch.pictures`; empty for none."""
        return ""

    @property
    def refuses_photos(self) -> str:
        """Why training cannot use photos outside the rosters; empty if it can."""
        return ""

    def check_photos(self, paths: Iterable[Path]) -> None:
        """Check, before training, that the reader can read all photos.

        Raises:
            ValueError: unreadable photos; the message names them.
        """
        del paths  # most readers bring photos of any form to one size

    @abstractmethod
    def open(self, epoch: Epoch) -> Read | None:
        """Return a function that reads the batches of an epoch; None: the reader adds nothing.

        A tensor with the name of a field of `captioning.types.Batch` becomes that field, any other
        goes into ``Batch.extras``.

        Raises:
            ValueError: it does not suit the epoch's samples or pictures.
        """


def of_captions(function: Callable[[Sequence[Sample]], Tensors]) -> Read:
    """Wrap a function of captions as a reader of whole batches."""
    return partial(_read_captions, function)


def _read_captions(
    function: Callable[[Sequence[Sample]], Tensors],
    captions: Sequence[Sample],
    photos: Sequence[Sample],
    batch: Tensors,
) -> Tensors:
    return function(captions)
