"""Abstract classes through which curation gets replacement images from an image source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from captioning.data.roster import Roster
from captioning.types import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRequest:
    """Request for another image of a sample.

    Attributes:
        sample: the present sample, with the caption that the picture must fit.
        captions: captions of the image for the prompt, the sample's own first.
        photos: every picture that the sample has or had, the roster's first: none of them may be
            returned again.
        given: every picture that curation gave any sample so far, for sources that give none twice.
    """

    sample: Sample
    captions: tuple[str, ...]
    photos: tuple[Path, ...]
    given: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Result of an image request: an image, or the reason why there is none.

    Attributes:
        path: an image file, or None: leave the sample as it is.
        origin: source of the picture, in words that do not depend on the machine.
        problem: why there is none, in the same words for the same problem, so that it can be
            counted; empty where there is a picture.
        notes: further events to be counted, such as captions left out of a prompt.
    """

    path: Path | None
    origin: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


class AbstractImageSource(ABC):
    """Source of images for samples; equal requests and seed give equal images."""

    @abstractmethod
    def images(self, requests: Sequence[ImageRequest], *, seed: int) -> list[Picture]:
        """Return one image for each request, in order.

        Every process of a run calls it with the same requests and gets the same answers.

        Args:
            requests: at most one a sample.
            seed: the run's seed.

        Raises:
            OSError: pictures cannot be stored; earlier ones remain.
        """

    def start(self, roster: Roster) -> None:
        """Called once before training: raise here for requests that could not work later."""
        del roster

    @property
    def works_ahead(self) -> bool:
        """Whether `expect` generates images ahead of time."""
        return False

    def expect(self, requests: Sequence[ImageRequest], *, seed: int) -> None:
        """Announce likely requests, likeliest first; each call replaces the former list.

        Never waits, and never changes the result of `images`.
        """
        del requests, seed

    def release(self) -> None:
        """Free the GPU for training; the next call of `images` loads the model again."""
        return None

    def close(self) -> None:
        """Training has ended: stop processes and free models."""
        return None
