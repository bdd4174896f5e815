"""Prompts from captions, as in the data curation paper, section 3.3."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from augmentation.base import ImageRequest
from captioning.interfaces import TextEmbedder

# Of the paper, chosen there for photographs instead of paintings.
STYLER = "national geographic, high quality photography, Canon EOS R3, Flickr"
OVERLONG = ("drop", "shorten", "cut", "refuse")


class AbstractPromptForm(ABC):
    """Selects the captions of a prompt."""

    @abstractmethod
    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """At least one, the one that matters most first."""


class SingleCaption(AbstractPromptForm):
    """The sample's own caption alone."""

    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """One caption."""
        return (request.sample.caption,)


class Representative(AbstractPromptForm):
    """The caption of the image nearest to the mean embedding of all (Sentence-BERT).

    Of equally near ones the sample's own comes first, then the order of the annotations.

    Args:
        sentences: the encoder.
    """

    def __init__(self, *, sentences: TextEmbedder) -> None:
        self._sentences = sentences

    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """One caption."""
        vectors = self._sentences.embed_texts(request.captions)
        # unit vectors: the nearest by cosine is the nearest by distance
        return (request.captions[int((vectors @ vectors.mean(0)).argmax())],)


class Concatenation(AbstractPromptForm):
    """All captions of the image, the sample's own first."""

    def captions(self, request: ImageRequest) -> tuple[str, ...]:
        """All captions."""
        return request.captions


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt, which the model reads without cutting it unless that is asked for.

    Attributes:
        text: the prompt; empty if there is a problem.
        problem: why there is none.
        notes: the shortening, once for each caption left out, or the cut.
    """

    text: str
    problem: str = ""
    notes: tuple[str, ...] = ()


class Prompter:
    """Joins captions and a styler to a prompt no longer than the model reads.

    A model of 77 tokens would cut a longer prompt silently, beginning with the styler at its end.
    Here prompts are shortened by rule, and the shortening is counted.

    Args:
        form: which captions.
        styler: words at the end for a style, such as `STYLER`; None for none.
        overlong: ``"drop"`` leaves captions out from the end, then shortens the last one at
            a word; ``"shorten"`` shortens the captions at a word; ``"refuse"`` leaves the sample
            alone. The styler is never shortened. ``"cut"`` leaves the prompt to the model, which
            reads its beginning, as the paper's pictures must have been made.

    Raises:
        ValueError: an unknown ``overlong``.
    """

    def __init__(
        self,
        *,
        form: AbstractPromptForm,
        styler: str | None = None,
        overlong: Literal["drop", "shorten", "cut", "refuse"] = "drop",
    ) -> None:
        if overlong not in OVERLONG:
            raise ValueError(f"overlong must be one of {OVERLONG}: got {overlong!r}")
        self._form, self.overlong = form, overlong
        self.styler = " ".join((styler or "").split())

    def prompt(
        self, request: ImageRequest, *, count: Callable[[str], int], limit: int | None
    ) -> Prompt:
        """The prompt for a request.

        Args:
            request: the sample and its image's captions.
            count: tokens of a text, as the model reads it.
            limit: of tokens that it reads; None for any number.
        """
        captions = [" ".join(caption.split()) for caption in self._form.captions(request)]
        captions = [caption for caption in captions if caption]
        if not captions:
            return Prompt(text="", problem="empty prompt")

        def fits(text: str) -> bool:
            return limit is None or count(text) <= limit

        selected = list(captions)
        if self.overlong == "cut":
            text = self._join(selected)
            return Prompt(text=text, notes=() if fits(text) else ("prompt cut by the model",))
        while self.overlong == "drop" and len(selected) > 1 and not fits(self._join(selected)):
            selected.pop()
        notes = ("caption left out of the prompt",) * (len(captions) - len(selected))
        if fits(self._join(selected)):
            return Prompt(text=self._join(selected), notes=notes)
        if self.overlong == "refuse":
            return Prompt(text="", problem="prompt too long")
        shortened = self._shorten(selected, fits)
        if not shortened:
            return Prompt(text="", problem="prompt too long to be shortened at a word")
        return Prompt(text=shortened, notes=(*notes, "prompt shortened"))

    def _join(self, captions: Sequence[str]) -> str:
        """Captions as sentences, then the styler; a single caption alone stays as it is."""
        if len(captions) == 1 and not self.styler:
            return captions[0]
        text = ". ".join(caption.rstrip(" .") for caption in captions)
        return f"{text}, {self.styler}" if self.styler else f"{text}."

    def _shorten(self, captions: Sequence[str], fits: Callable[[str], bool]) -> str:
        """As many words as fit beside the styler; empty if not even one does."""
        words = ". ".join(caption.rstrip(" .") for caption in captions).split()
        low, high = 0, len(words)
        while low < high:  # the most words that fit lie in [low, high]
            middle = (low + high + 1) // 2
            if fits(self._join([" ".join(words[:middle])])):
                low = middle
            else:
                high = middle - 1
        return self._join([" ".join(words[:low])]) if low else ""
