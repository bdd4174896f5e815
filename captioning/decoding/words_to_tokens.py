"""Convert the settings of a search from words to token ids, and its results to captions.

Results of users' own searches and decoders are checked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, TypeVar

import torch
from torch import Tensor

from captioning.decoding.machine import Machine
from captioning.decoding.search import AbstractSearch
from captioning.decoding.settings import SearchRequest
from captioning.decoding.state import ConstrainedResult, SearchResult
from captioning.interfaces import AbstractDecoderState, AbstractStepper, AbstractTokenizer
from captioning.types import Prediction

SearchT = TypeVar("SearchT", bound=AbstractSearch)
# Tolerance for probabilities that add up to 1 in half precision.
TOLERANCE = 0.1  # nats


def check_result(result: Any, *, num_images: int, by: object) -> None:
    """Raise an error if the result of a search has a wrong type or wrong shapes.

    Args:
        result: result of the search.
        num_images: number of images I in the request.
        by: the search, for the message.

    Raises:
        ValueError: not a `SearchResult` or `ConstrainedResult`, or a tensor of another shape.
    """
    name, shapes = type(by).__qualname__, {}
    for part in ("tokens", "scores", "lengths"):
        value = getattr(result, part, None)
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{name} must return a captioning.decoding.state.SearchResult, whose {part} are a "
                f"tensor: got {shown(result)}"
            )
        shapes[part] = tuple(value.shape)
    images_and_captions = shapes["tokens"][:2]
    is_right = len(shapes["tokens"]) == 3 and images_and_captions[0] == num_images
    if not is_right or {shapes["scores"], shapes["lengths"]} != {images_and_captions}:
        raise ValueError(
            f"{name} must return tokens (I, M, T), scores (I, M) and lengths (I, M) for I = "
            f"{num_images} images with M captions each: got {shapes}"
        )


@torch.no_grad()
def check_stepper(stepper: AbstractStepper, state: Any, request: SearchRequest) -> None:
    """Let a model predict the first words of images, and check the predictions.

    The check waits for the device, and skips models whose memory depends on sampled latents.

    Args:
        stepper: the model.
        state: the memory before the first token, one row per image.
        request: the request with the images.

    Raises:
        ValueError: not a pair of log-probabilities ``(I, V)`` and state, or probabilities that do
            not add up to 1.
    """
    if stepper.draws_latents:
        return
    name = f"{type(stepper).__qualname__}.step"
    given = stepper.step(
        torch.full((request.num_images,), request.bos_id, device=request.device), state
    )
    if not isinstance(given, tuple) or len(given) != 2:
        raise ValueError(f"{name} must return log-probabilities and a state: got {shown(given)}")
    values = given[0]
    if not isinstance(values, Tensor) or values.dim() != 2 or len(values) != request.num_images:
        raise ValueError(
            f"{name} must return log-probabilities ({request.num_images}, V), a row for each "
            f"hypothesis and a column for each token: got {shown(values)}"
        )
    sums = values.float().logsumexp(-1)
    if not bool((sums.abs() < TOLERANCE).all()):
        raise ValueError(
            f"{name} must return log-probabilities: the probabilities of a row add up to "
            f"{float(sums.exp()[0]):.3g} instead of 1; apply log_softmax to logits, or switch this "
            "check off if the values are intended (trainer.num_sanity_val_steps=0)"
        )


def shown(value: Any) -> str:
    """Describe a value by its type, and a tensor by its shape."""
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def bind_search(search: SearchT, tokenizer: AbstractTokenizer) -> SearchT:
    """Return the search with forbidden words and end words replaced by token ids.

    Forbidden words missing in the vocabulary are ignored. The unknown word is forbidden unless
    special tokens may be produced.

    Raises:
        ValueError: an end word missing in the vocabulary, or a word of several tokens.
    """
    settings = search.settings
    forbidden = _ids("forbidden_words", settings.forbidden_words, tokenizer)
    ends = _ids("end_words", settings.end_words, tokenizer, needed=True)
    model_ends = (tokenizer.eos_id, *tokenizer.further_ends)
    # Some tokenizers end captions with the token for unknown words.
    is_allowed = settings.special_tokens or tokenizer.unk_id in model_ends
    unknown = () if is_allowed else (tokenizer.unk_id,)
    return search.changed(
        forbidden_words=(),
        forbidden_ids=tuple(dict.fromkeys((*settings.forbidden_ids, *forbidden, *unknown))),
        end_words=(),
        end_ids=(*settings.end_ids, *ends),
    )


def _ids(
    name: str, words: Sequence[str], tokenizer: AbstractTokenizer, needed: bool = False
) -> list[int]:
    ids = []
    for word in words:
        spellings = tokenizer.spellings(word)
        if needed and not spellings:
            raise ValueError(
                f"{name} must be in the vocabulary: got {word!r}; tokenizer=words has no "
                "punctuation marks"
            )
        if needed:  # a spelling that closes with an end, such as space and full stop, ends by it
            singles = {spelling[0] for spelling in spellings if len(spelling) == 1}
            spellings = [s for s in spellings if len(s) == 1 or s[-1] not in singles]
        if long_spellings := [spelling for spelling in spellings if len(spelling) > 1]:
            raise ValueError(
                f"{name} must be one token each: got {word!r}, which has the tokens "
                f"{long_spellings[0]}; leave the word out, or give ids of single tokens"
            )
        ids += [token for (token,) in spellings]
    return ids


def find_captions(
    search: AbstractSearch,
    state: AbstractDecoderState,
    *,
    stepper: AbstractStepper,
    tokenizer: AbstractTokenizer,
    image_ids: Sequence[str],
    machines: Sequence[Machine] | None = None,
    beginning: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> list[list[Prediction]]:
    """Find captions of each image, in the order of the search.

    An image's samples depend on its id, not on its batch.

    Args:
        search: search from `bind_search`.
        state: the stepper's memory before the first token.
        stepper: the captioning model.
        tokenizer: tokenizer that decodes the captions.
        image_ids: ids of the I images.
        machines: I machines that enforce words in each image's captions.
        beginning: tokens that all captions must continue; see `beginning_tokens`.
        device: device of the state.

    Returns:
        One or more predictions per image; an empty caption with score ``-inf`` if the search finds
        no hypothesis.

    Raises:
        ValueError: machines for a search without constraints, an invalid result, or a beginning
            that the model or search cannot continue.
    """
    if machines is not None and not search.takes_machines:
        raise ValueError(
            f"constraints need search=constrained: got {type(search).__name__} without constraints"
        )
    if beginning:
        stepper, state = _continued(search, stepper, state, beginning)
    search = search.counting_captions(1 + len(stepper.prompt_ids))
    request = request_of(stepper, tokenizer, image_ids, machines=machines, device=device)
    result = search(stepper, state, request)
    check_result(result, num_images=len(image_ids), by=search)
    return [
        _predictions(image_id, tokens, scores, fulfilled, tokenizer)
        for image_id, tokens, scores, fulfilled in zip(
            image_ids,
            _without_padding(result),
            result.scores.tolist(),
            _fulfilled(result),
            strict=True,
        )
    ]


def beginning_tokens(text: str, tokenizer: AbstractTokenizer) -> list[int]:
    """Encode whole sentences that a search continues with the next one; see `find_captions`.

    Raises:
        ValueError: the tokenizer has no punctuation, or truncates the text.
    """
    ids, told = tokenizer.encode(text), shorten(text, 60, placeholder="...")
    if left_out := tokenizer.left_out(text, ids):
        raise ValueError(
            f"the tokenizer drops {left_out} tokens or words of the {len(text.split())} words to "
            f"continue ({told!r}): choose a captioner that was trained with a higher "
            "tokenizer.max_tokens or max_words"
        )
    ids = ids[1:-1]
    if text[-1:].casefold() not in tokenizer.decode(ids)[-2:].casefold():
        raise ValueError(
            f"the tokenizer drops the end of {told!r}, so its captioner writes one-sentence "
            "captions and cannot continue sentences"
        )
    return ids


def _continued(
    search: AbstractSearch,
    stepper: AbstractStepper,
    state: AbstractDecoderState,
    beginning: Sequence[int],
) -> tuple[AbstractStepper, AbstractDecoderState]:
    """Wrap a model so that it reads a beginning after its begin token; return its memory, too."""
    if not search.steps or stepper.draws_latents:
        cause = type(stepper if search.steps else search).__name__
        raise ValueError(
            f"{cause} cannot continue sentences: choose another "
            f"{'captioner' if search.steps else 'search, such as beam'}"
        )
    return _Continued(stepper, beginning), _Unread(state)


@dataclass(frozen=True)
class _Unread(AbstractDecoderState):
    """Memory of a model that has not read the beginning yet."""

    inner: AbstractDecoderState

    def select(self, index: Tensor) -> _Unread:
        return _Unread(self.inner.select(index))


class _Continued(AbstractStepper[AbstractDecoderState]):
    """Model that reads a beginning between the begin token and the first predicted token."""

    def __init__(self, stepper: AbstractStepper, beginning: Sequence[int]) -> None:
        self._stepper, self._beginning = stepper, tuple(beginning)
        self.prompt_ids = (*stepper.prompt_ids, *beginning)

    def step(
        self, tokens: Tensor, state: AbstractDecoderState
    ) -> tuple[Tensor, AbstractDecoderState]:
        return self._stepper.step(*self._begun(tokens, state))

    def next_logits(
        self, tokens: Tensor, state: AbstractDecoderState
    ) -> tuple[Tensor, AbstractDecoderState]:
        return self._stepper.next_logits(*self._begun(tokens, state))

    def _begun(
        self, tokens: Tensor, state: AbstractDecoderState
    ) -> tuple[Tensor, AbstractDecoderState]:
        if not isinstance(state, _Unread):
            return tokens, state
        state = state.inner
        for token in self._beginning:
            _, state = self._stepper.step(tokens, state)
            tokens = torch.full_like(tokens, token)
        return tokens, state


def request_of(
    stepper: AbstractStepper,
    tokenizer: AbstractTokenizer,
    image_ids: Sequence[str],
    *,
    machines: Sequence[Machine] | None = None,
    device: torch.device | str = "cpu",
) -> SearchRequest:
    """Build the request for a search; see `find_captions`."""
    return SearchRequest(
        num_images=len(image_ids),
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        prompt_ids=stepper.prompt_ids,
        image_ids=image_ids,
        machines=machines,
        device=device,
        unk_id=tokenizer.unk_id,
        further_ends=tokenizer.further_ends,
    )


def _without_padding(result: SearchResult | ConstrainedResult) -> list[list[list[int]]]:
    """Return the tokens of each caption without padding, which may equal the unknown word."""
    pairs = zip(result.tokens.tolist(), result.lengths.tolist(), strict=True)
    return [
        [ids[:length] for ids, length in zip(captions, lengths, strict=True)]
        for captions, lengths in pairs
    ]


def _fulfilled(result: SearchResult | ConstrainedResult) -> list[list[bool | None]]:
    """Whether each caption meets its constraints; None without constraints."""
    if isinstance(result, ConstrainedResult):
        return result.fulfilled.tolist()
    num_images, num_captions = result.scores.shape
    return [[None] * num_captions for _ in range(num_images)]


def _predictions(
    image_id: str,
    tokens: list[list[int]],
    scores: list[float],
    fulfilled: list[bool | None],
    tokenizer: AbstractTokenizer,
) -> list[Prediction]:
    """Return an image's captions; the first even if it is empty with score ``-inf``."""
    return [
        Prediction(
            image_id=image_id, caption=tokenizer.decode(ids), score=score, satisfied=satisfied
        )
        for number, (ids, score, satisfied) in enumerate(
            zip(tokens, scores, fulfilled, strict=True)
        )
        if number == 0 or score > -torch.inf
    ]
