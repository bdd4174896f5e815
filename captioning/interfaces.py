"""Abstract interfaces between the parts of the framework."""

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
    """Tokenizer between text and token ids in [0, len(self)).

    Attributes:
        kind: name of this class in a saved `state`, under the key ``"kind"``.
        of_processor: whether a processor of transformers tokenizes text and reads photos.
    """

    kind: str = ""
    of_processor: bool = False
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int

    @property
    def begin_id(self) -> int | None:
        """Token with which a search begins captions, such as BART's ``<s>``; None if unused."""
        return None

    @property
    def further_ends(self) -> tuple[int, ...]:
        """Tokens that also end a caption in a search; training uses only ``eos_id``."""
        return ()

    @property
    def words(self) -> tuple[str, ...] | None:
        """Word of each token id if every token is a word, else None."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """Number of tokens V."""

    @abstractmethod
    def encode(self, caption: str) -> list[int]:
        """Encode a caption to ids, including begin and end tokens."""

    def encode_batch(self, captions: Sequence[str]) -> list[list[int]]:
        """Encode many captions, where this is faster than one by one."""
        return [self.encode(caption) for caption in captions]

    def left_out(self, caption: str, ids: Sized) -> int:
        """Number of tokens or words that `encode` cuts from a caption's end; 0 if the caption fits.

        Args:
            caption: text of the caption.
            ids: ``encode(caption)``, whose length shows for most captions that they fit.
        """
        del caption, ids
        return 0

    def token_spans(self, caption: str) -> list[tuple[int, int]]:
        """Character spans ``(start, stop)`` of the tokens of ``encode(caption)``, one per token.

        ``caption[start:stop]`` is the token's text, without spaces at its ends. Tokens without
        characters of the caption, such as begin and end, have an empty span.

        Raises:
            ValueError: the tokenizer does not give positions.
        """
        del caption
        raise ValueError(
            f"{type(self).__name__} does not give the positions of tokens in a caption, which "
            f"masked words need: add its method token_spans, or choose another tokenizer="
        )

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text; stop at the first end token and drop special tokens."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Plain values for checkpoints, from which the tokenizer can be rebuilt."""

    def spellings(self, text: str) -> list[list[int]]:
        """All token sequences that spell a word or phrase inside a caption.

        Special tokens are excluded; the result is empty if the vocabulary lacks a word. A word
        tokenizer has one sequence. A sub-word tokenizer may have several, as for a word at the
        caption's beginning and after a space. A sequence that begins with a token of `continuing`
        is only for a caption's beginning.
        """
        ids = self.encode(text)
        # Only at the two ends: one token may stand for begin, end and padding.
        ids = ids[1:] if ids[:1] == [self.bos_id] else ids
        ids = ids[:-1] if ids[-1:] == [self.eos_id] else ids
        return [ids] if ids and self.unk_id not in ids else []

    def continuing(self) -> frozenset[int]:
        """Tokens that continue the previous word; empty if every token is a word."""
        return self._continuing

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Cached tokens that continue the previous word, for sub-word tokenizers.

        They are cached, as constraints need them per image and the search takes 10 ms and more.
        """
        return frozenset()

    def token_id(self, token: str) -> int | None:
        """Id of the token with exactly this name, or None."""
        return None

    def log_frequencies(self) -> list[float] | None:
        """Log-frequencies of the V tokens in nats, or None if unknown."""
        return None


class TextEmbedder(Protocol):
    """Encoder of texts as unit vectors: a sentence encoder, or a `JointEmbedder`'s text half."""

    @property
    def identity(self) -> str:
        """Name and hash of the weights, which identify cached embeddings."""
        ...

    @property
    def dim(self) -> int:
        """Size D of an embedding."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts as unit vectors ``(len(texts), D) float32`` on the CPU."""
        ...


class JointEmbedder(TextEmbedder, Protocol):
    """Encoder of photos and texts in one space, where a dot product is a cosine, such as CLIP."""

    @property
    def space(self) -> str:
        """Name of the space, which names its scores, such as ``"ViT-B-32/openai"``."""
        ...

    def embed_photos(self, photos: Sequence[Image.Image]) -> Tensor:
        """Embed RGB photos of any size as unit vectors ``(len(photos), D) float32`` on the CPU."""
        ...


class PairScorer(Protocol):
    """Scorer of how well captions fit photos, such as CLIP or BLIP's matching head."""

    @property
    def name(self) -> str:
        """Name of the measured quantity and its weights, for reasons and reports."""
        ...

    @property
    def identity(self) -> str:
        """Name, hash of the weights and all settings that affect scores, for caches."""
        ...

    @property
    def is_probability(self) -> bool:
        """Whether scores are probabilities that the pair matches; otherwise cosines or nats."""
        ...

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Scores ``(N,) float32`` on the CPU, higher for a better fit; each photo is encoded once.

        Args:
            photos: I RGB photos of any size.
            captions: N captions, none of them blank.
            photo_of: position in ``photos`` of each caption's photo.
        """
        ...

    def release(self) -> None:
        """Move the networks off the accelerator; the next call moves them back."""
        ...


class CaptionWriter(Protocol):
    """Generator of captions for photos: a model of transformers, or a finished run."""

    @property
    def name(self) -> str:
        """Name of the model, recorded as the captions' origin."""
        ...

    @property
    def identity(self) -> str:
        """Name, hash of the weights and all settings that affect captions, for caches."""
        ...

    @property
    def batch_size(self) -> int:
        """Number of photos per batch."""
        ...

    def prepare_photos(self, photos: Sequence[Path], *, keys: Sequence[str]) -> None:
        """Prepare all photos once before `write_captions` receives them in batches.

        Raises:
            ValueError: a photo cannot be read.
        """
        ...

    def write_captions(
        self,
        photos: Sequence[Path],
        *,
        keys: Sequence[str],
        beginnings: Sequence[str] | None = None,
    ) -> list[list[str]]:
        """Captions of each photo, best first, as many as the search returns; some may be empty.

        Args:
            photos: I paths of photos.
            keys: I different texts. Random draws for a photo depend only on its key and the
                search's seed.
            beginnings: I texts of whole sentences for the captions to continue; the result excludes
                them. None: whole captions.

        Raises:
            ValueError: the model or its search cannot continue the beginnings.
        """
        ...

    def release(self) -> None:
        """Move the networks off the accelerator; the next call moves them back."""
        ...


class AbstractDecoderState(ABC):
    """State of a model for G hypotheses, such as LSTM states or a key-value cache."""

    @abstractmethod
    def select(self, index: Tensor) -> Self:
        """State of the hypotheses ``index (G',) int64``, which may repeat."""


class AbstractLatentState(AbstractDecoderState):
    """Initial state of a model that draws latents for a caption before its first token."""

    @abstractmethod
    def drawn(
        self, *, keys: Sequence[int | str], draws: range, temperature: float, seed: int
    ) -> AbstractDecoderState:
        """State with one hypothesis per draw of each image, image-major, before the first token.

        A draw depends only on ``seed``, its image's key and its number.

        Args:
            keys: I, of the images.
            draws: numbers of the draws, at least 0.
            temperature: temperature of the latents: 1 as in training, 0 for their means.
            seed: at least 0.
        """


StateT = TypeVar("StateT", bound=AbstractDecoderState)


class AbstractStepper(ABC, Generic[StateT]):
    """Interface to a model for search: one token at a time.

    Attributes:
        prompt_ids: tokens that the model reads between the begin token and every caption.
        draws_latents: whether its state before the first token is an `AbstractLatentState`.
    """

    prompt_ids: tuple[int, ...] = ()
    draws_latents: bool = False

    @abstractmethod
    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Read one token per hypothesis and predict the next.

        Args:
            tokens: ``(G,) int64``, the last token of each hypothesis.
            state: the state before these tokens.

        Returns:
            ``(G, V) float32`` log-probabilities and the state after the tokens.
        """

    def next_logits(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Read one token like `step` and return logits, on which the repetition penalty depends.

        A model without logits returns log-probabilities, whose softmax is the same.
        """
        return self.step(tokens, state)


class AbstractParser(ABC):
    """Parser of captions into words with tags, lemmas and dependencies."""

    name: str

    @abstractmethod
    def parse(self, captions: Sequence[str]) -> list[Parse]:
        """Parse each caption, in order; an empty caption has the tokens ``()``."""


class AbstractWordVectors(ABC):
    """Word vectors, by which nouns are compared."""

    name: str

    @abstractmethod
    def vectors(self, words: Sequence[str]) -> Tensor:
        """Vectors ``(W, E) float32`` of unit length; zeros for a word without a vector."""


class AbstractLanguageModel(ABC):
    """Language model that gives the log-probability of each token of a text."""

    name: str

    @abstractmethod
    def log_probs(self, texts: Sequence[str]) -> list[Tensor]:
        """Log-probability in nats of each token of each text, ``(T,) float32`` per text.

        Tokens are the model's own, without special tokens; T is 0 for the empty text.
        """
