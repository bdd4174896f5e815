"""Interfaces between the parts of the framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Sized
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from PIL import Image
from torch import Tensor

from captioning.types import Parse


class AbstractTokenizer(ABC):
    """Text to token ids and back. Ids are in [0, len(self)).

    Attributes:
        kind: marks a saved `state` of this class, under its key ``"kind"``.
        of_processor: whether a processor of transformers makes its tokens, and reads the photos.
    """

    kind: str = ""
    of_processor: bool = False
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int

    @property
    def begin_id(self) -> int | None:
        """The token that a search says before each caption, as BART's ``<s>``; None without one."""
        return None

    @property
    def further_ends(self) -> tuple[int, ...]:
        """Tokens that end a caption in a search as ``eos_id`` does; training has that one alone."""
        return ()

    @property
    def words(self) -> tuple[str, ...] | None:
        """The word of each token id where every token is a word, else None."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """Number of tokens V."""

    @abstractmethod
    def encode(self, caption: str) -> list[int]:
        """Ids of a caption, begin and end tokens included."""

    def encode_batch(self, captions: Sequence[str]) -> list[list[int]]:
        """`encode` of many captions, where that is faster than one by one."""
        return [self.encode(caption) for caption in captions]

    def left_out(self, caption: str, ids: Sized) -> int:
        """How many tokens or words of a caption's end `encode` leaves out; 0 where it fits.

        Args:
            caption: a text.
            ids: ``encode(caption)``, by whose number most captions are known to fit.
        """
        del caption, ids
        return 0

    def token_spans(self, caption: str) -> list[tuple[int, int]]:
        """The character spans of the tokens of ``encode(caption)``: one ``(start, stop)`` a token.

        ``caption[start:stop]`` has the token's characters, without spaces at its ends. Tokens
        without characters of the caption, such as begin and end, have an empty span.

        Raises:
            ValueError: the tokenizer does not tell.
        """
        del caption
        raise ValueError(
            f"{type(self).__name__} does not give the positions of tokens in a caption, which "
            f"masked words need: add its method token_spans, or choose another tokenizer="
        )

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; stops at the first end token, drops special tokens."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Plain values that rebuild the tokenizer, for checkpoints."""

    def spellings(self, text: str) -> list[list[int]]:
        """All token sequences that stand for a word or phrase inside a caption.

        Without special tokens; none where the vocabulary lacks a word. A word tokenizer has one. A
        sub-word tokenizer may have several, as for a word at the caption's beginning and after a
        blank. One that begins with a token of `continuing` stands for the word at a caption's
        beginning only.
        """
        ids = self.encode(text)
        # Only at the two ends: one token may stand for begin, end and padding.
        ids = ids[1:] if ids[:1] == [self.bos_id] else ids
        ids = ids[:-1] if ids[-1:] == [self.eos_id] else ids
        return [ids] if ids and self.unk_id not in ids else []

    def continuing(self) -> frozenset[int]:
        """Tokens that continue the word before them; none unless words have several tokens."""
        return self._continuing

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """The same, of those with parts of words: they look through the vocabulary for it.

        Kept, as constraints ask for it once an image, and a look takes tens of milliseconds.
        """
        return frozenset()

    def token_id(self, token: str) -> int | None:
        """Id of a token by its exact name, or None if no token has that name."""
        return None

    def log_frequencies(self) -> list[float] | None:
        """``V`` log-frequencies of the tokens in nats, or None where they are not known."""
        return None


class TextEmbedder(Protocol):
    """Texts to unit vectors: a sentence encoder, or the text half of a `JointEmbedder`."""

    @property
    def identity(self) -> str:
        """Name and hash of the weights, as caches of embeddings are named."""
        ...

    @property
    def dim(self) -> int:
        """Size D of an embedding."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors ``(len(texts), D) float32`` on the CPU."""
        ...


class JointEmbedder(TextEmbedder, Protocol):
    """Photos and texts into one space, where a dot product is a cosine: CLIP, the joint space."""

    @property
    def space(self) -> str:
        """Name of the space, as scores made in it are named, such as ``"ViT-B-32/openai"``."""
        ...

    def embed_photos(self, photos: Sequence[Image.Image]) -> Tensor:
        """Unit vectors ``(len(photos), D) float32`` of RGB photos of any size, on the CPU."""
        ...


class PairScorer(Protocol):
    """How well captions fit photos: by CLIP, SigLIP, BLIP's matching head, a question to a VLM."""

    @property
    def name(self) -> str:
        """The measured quantity and the weights that measure it, for reasons and reports."""
        ...

    @property
    def identity(self) -> str:
        """Name, hash of the weights and all settings that scores depend on, for caches."""
        ...

    @property
    def is_probability(self) -> bool:
        """Whether scores are probabilities that the pair matches; else cosines or nats."""
        ...

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Scores ``(N,) float32`` on the CPU, higher is a better fit. A photo is encoded once.

        Args:
            photos: I, RGB, of any size.
            captions: N, none of them blank.
            photo_of: N positions in ``photos``.
        """
        ...

    def release(self) -> None:
        """Leave the accelerator to others; the next call comes back."""
        ...


class CaptionWriter(Protocol):
    """Writes captions for photos: a model of transformers, or a finished run."""

    @property
    def name(self) -> str:
        """Name of the model, as in origins of captions."""
        ...

    @property
    def identity(self) -> str:
        """Name, hash of the weights and all settings that captions depend on, for caches."""
        ...

    @property
    def batch_size(self) -> int:
        """Photos at once."""
        ...

    def prepare_photos(self, photos: Sequence[Path], *, keys: Sequence[str]) -> None:
        """Prepare all photos once before `write_captions` receives them in batches.

        Raises:
            ValueError: a photo that cannot be read.
        """
        ...

    def write_captions(
        self,
        photos: Sequence[Path],
        *,
        keys: Sequence[str],
        beginnings: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Captions of each photo, the best first; as many as the search returns, some may be empty.

        Args:
            photos: I files.
            keys: I different texts. Random draws for a photo depend on its key and the search's
                seed alone.
            beginnings: I texts of whole sentences that the captions continue; what is returned
                lacks them. None: whole captions.

        Raises:
            ValueError: beginnings that the model or its search cannot continue.
        """
        ...

    def release(self) -> None:
        """Leave the accelerator to others; the next call comes back."""
        ...


class AbstractDecoderState(ABC):
    """A model's memory of G hypotheses, such as LSTM states or a key/value cache."""

    @abstractmethod
    def select(self, index: Tensor) -> Self:
        """The state of the hypotheses ``index (G',) int64``, repeats allowed."""


class AbstractLatentState(AbstractDecoderState):
    """The memory, before the first token, of a model that draws latents for a caption first."""

    @abstractmethod
    def drawn(
        self, *, keys: Sequence[int | str], draws: range, temperature: float, seed: int
    ) -> AbstractDecoderState:
        """One hypothesis for each draw of each image, image-major, before its first token.

        A draw depends on ``seed``, its image's key and its number alone.

        Args:
            keys: I, of the images.
            draws: numbers of the draws, at least 0.
            temperature: temperature of the latents: 1 as the model was trained, 0 for their means.
            seed: at least 0.
        """


StateT = TypeVar("StateT", bound=AbstractDecoderState)


class AbstractStepper(ABC, Generic[StateT]):
    """The only interface that search needs of a model.

    Attributes:
        prompt_ids: tokens that it reads between the begin token and every caption.
        draws_latents: whether its memory before the first token is an `AbstractLatentState`.
    """

    prompt_ids: tuple[int, ...] = ()
    draws_latents: bool = False

    @abstractmethod
    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Read one token per hypothesis and predict the next.

        Args:
            tokens: ``(G,) int64``, the last token of each hypothesis.
            state: the memory before these tokens.

        Returns:
            ``(G, V) float32`` log-probabilities and the memory after the tokens.
        """

    def next_logits(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """As `step`, before the softmax: the repetition penalty depends on it.

        A model that does not tell gives log-probabilities, whose softmax is the same.
        """
        return self.step(tokens, state)


class AbstractParser(ABC):
    """Splits captions into words with tags, lemmas and dependencies."""

    name: str

    @abstractmethod
    def parse(self, captions: Sequence[str]) -> list[Parse]:
        """One parse a caption, in order; the tokens of an empty caption are ``()``."""


class AbstractWordVectors(ABC):
    """Vectors of words, for the likeness of nouns."""

    name: str

    @abstractmethod
    def vectors(self, words: Sequence[str]) -> Tensor:
        """``(W, E) float32`` of unit length; a word without a vector gets a row of zeros."""


class AbstractLanguageModel(ABC):
    """How probable texts are, token by token."""

    name: str

    @abstractmethod
    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        """``(T,) float32`` a text, in order: log-probability in nats of each of its tokens.

        Tokens are the model's own, special ones left out; T is 0 for the empty text.
        """
