"""Dropout whose masks depend on each sample alone, not on its batch or its process.

So several processes train as one does, however they share out a batch. A mask's value is

    (a * c + b) mod 2^32 < share * 2^32,

with ``a`` and ``b`` random by sample, step of training and position (of a token, say), and ``c``
random by feature and call. Any two values of a mask are independent, like random numbers
(multiply-shift hashing: Dietzfelbinger, 1996). Unlike torch's generator this needs few operations,
which also makes it several times faster on a CPU.

Networks need not know of it: within `by_caption` and `by_image` it takes the place of torch's
``dropout``, also of that in ``scaled_dot_product_attention``.

On a GPU torch's own dropout is one operation, and its attention needs no matrix of weights:
`use_torchs` goes back to it for a whole run.
"""

from __future__ import annotations

import functools
import logging
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.types import Batch

log = logging.getLogger(__name__)

# Of splitmix64's steps, as signed numbers of 64 bits.
STEP, FIRST, SECOND = (
    n - 2**64 for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_native_dropout = functional.dropout
_native_attention = functional.scaled_dot_product_attention


def _mixed(numbers: Tensor) -> Tensor:
    """``int64`` numbers whose bits all depend on all bits of those given."""
    numbers = (numbers ^ (numbers >> 30)) * FIRST
    numbers = (numbers ^ (numbers >> 27)) * SECOND
    return numbers ^ (numbers >> 31)


class AbstractKeys(ABC):
    """The meaning of the first axis of tensors."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    @functools.cached_property
    def numbers(self) -> Tensor:
        """``(K,) int64`` random numbers that depend on each row's sample and the training step."""
        return self._make()

    @abstractmethod
    def _make(self) -> Tensor:
        """The `numbers`."""

    def places(self, shape: Sequence[int]) -> tuple[Tensor, Tensor] | None:
        """Factors and summands by position, ``(*shape[:-1], 1) int32``.

        None where the first axis has no whole number of places for each key.
        """
        number, *others = shape
        if not number or number % len(self.numbers):
            return None
        axes = (len(self.numbers), number // len(self.numbers), *others[:-1])
        if axes not in self._places:
            self._places[axes] = _random_pairs(self.numbers, axes)
        factors, summands = self._places[axes]
        shape = (*shape[: max(1, len(shape) - 1)], *([1] if others else []))
        return factors.view(shape), summands.view(shape)


class SampleKeys(AbstractKeys):
    """Of captions or pictures.

    Args:
        find: gives ``(K,) int64`` that tell them apart, the same in any batch, on the host; it is
            called when something is dropped.
        device: device of the tensors.
    """

    def __init__(self, find: Callable[[], Tensor], device: torch.device) -> None:
        super().__init__()
        self._find, self._device = find, device
        # Looked at now, not when it is first needed: a layer that is computed again would find
        # another one. Nothing is drawn, as in evaluation nothing may be.
        self._step = _next_number()

    def _make(self) -> Tensor:
        numbers = _mixed(_mixed(self._find()) + self._step)
        if self._device.type != "cuda":
            return numbers.to(self._device)
        return numbers.pin_memory().to(self._device, non_blocking=True)


class TokenKeys(AbstractKeys):
    """Of single tokens.

    Args:
        sequences: sequences of whose tokens there is a row each.
        index: ``(M,) int64`` the position of each token's sequence among these.
        steps: ``(M,) int64`` of each token in its sequence.
    """

    def __init__(self, sequences: AbstractKeys, index: Tensor, steps: Tensor) -> None:
        super().__init__()
        self.sequences = sequences
        self._index, self._steps = index, steps

    def _make(self) -> Tensor:
        return _mixed(self.sequences.numbers[self._index] + self._steps * STEP)


def _random_pairs(numbers: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Two ``int32`` numbers, the first one odd, for each place of axes after the first."""
    places = numbers.view(-1, *[1] * (len(axes) - 1))
    for axis, size in enumerate(axes[1:], start=1):
        steps = torch.arange(size, device=numbers.device) * (STEP * (2 * axis + 1) % 2**63)
        places = places + steps.view(-1, *[1] * (len(axes) - 1 - axis))
    places = _mixed(places)
    return places.to(torch.int32) | 1, (places >> 32).to(torch.int32)


@functools.lru_cache(maxsize=64)
def _feature_numbers(size: int, device: torch.device) -> Tensor:
    """``(size,) int32`` odd numbers, random by position."""
    with torch.inference_mode(mode=False):
        return (_mixed(torch.arange(1, size + 1) * STEP).to(torch.int32) | 1).to(device)


def _drawn() -> int:
    """A number of torch's generator on the host, which checkpointed layers draw again."""
    return int(torch.randint(2**31, ()))


def _next_number() -> int:
    """What `_drawn` will give next; torch's generator stays as it is."""
    state = torch.get_rng_state()
    number = _drawn()
    torch.set_rng_state(state)
    return number


def _dropped(places: tuple[Tensor, Tensor], size: int, share: float) -> Tensor:
    """Where a mask of ``size`` features is 0."""
    factors, summands = places
    features = _feature_numbers(size, factors.device) * (2 * _drawn() + 1 - 2**31)
    if factors.device.type == "cpu":  # faster there than one operation
        numbers = (factors * features).add_(summands)
    else:
        numbers = torch.addcmul(summands, factors, features)
    return numbers < int(share * 2**32) - 2**31


class _Current:
    """The keys in use; of all threads, as those of the backward pass need them, too."""

    keys: AbstractKeys | None = None
    told: bool = False
    torchs: bool = False


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    keys = _Current.keys
    if keys is None or not training or not 0 < p < 1:
        return _native_dropout(input, p, training, inplace)
    places = keys.places(input.shape)
    if places is None:
        _tell(input.shape)
        return _native_dropout(input, p, training, inplace)
    size = input.shape[-1] if input.dim() > 1 else 1
    return (input * (1 / (1 - p))).masked_fill(_dropped(places, size, p), 0)


def _tell(shape: Sequence[int]) -> None:
    if not _Current.told:
        _Current.told = True
        log.info(
            f"dropout of a tensor of shape {tuple(shape)} cannot follow samples: its masks will "
            "depend on the number of processes"
        )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As torch's own, which it calls where nothing is dropped."""
    if not dropout_p or _Current.keys is None:
        return _native_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (scale or 1 / math.sqrt(query.shape[-1]))
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, torch.finfo(scores.dtype).min)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return _dropout(weights, dropout_p) @ value


def use_torchs(is_on: bool) -> None:
    """Switch to dropout by torch's generator (``speed.torch_dropout``), or back to by sample.

    Masks by torch's generator depend on batches, devices and the number of processes.
    """
    _Current.torchs = is_on


def drops_by_sample() -> bool:
    """Whether dropout goes by sample here; its numbers are then drawn on the host."""
    return _Current.keys is not None


def goes_by_sample() -> bool:
    """Whether dropout will within `by_caption` and `by_image`, see `use_torchs`."""
    return not _Current.torchs


@contextmanager
def under(keys: AbstractKeys | None) -> Iterator[None]:
    """Dropout by these keys within; None: torch's own."""
    before = _Current.keys
    _use(keys)
    try:
        yield
    finally:
        _use(before)


def _use(keys: AbstractKeys | None) -> None:
    if _Current.torchs:
        keys = None
    _Current.keys = keys
    dropout, attention = _native_dropout, _native_attention
    if keys is not None:
        dropout, attention = _dropout, _attention
    functional.dropout = dropout
    functional.scaled_dot_product_attention = attention


def by_token(sequences: Tensor, steps: Tensor) -> AbstractContextManager[None]:
    """Within dropout by caption or picture: where tensors have a row a token of it.

    Args:
        sequences: ``(M,) int64`` the position of each token's sequence in the batch.
        steps: ``(M,) int64`` of each token in its sequence.
    """
    keys = _Current.keys
    return under(None if keys is None else TokenKeys(keys, sequences, steps))


def by_sequence() -> AbstractContextManager[None]:
    """Within `by_token`: where tensors have a row a sequence again."""
    keys = _Current.keys
    return under(keys.sequences if isinstance(keys, TokenKeys) else keys)


def by_caption(batch: Batch, places: Tensor | None = None) -> AbstractContextManager[None]:
    """Dropout by caption within, where tensors have a row a caption.

    Args:
        batch: the captions.
        places: ``(B',) int64`` of those that have a row, on the host; None: all.
    """
    chosen = slice(None) if places is None else places
    return under(SampleKeys(lambda: batch.host.rows[chosen], batch.rows.device))


def by_name(names: Sequence[Any], device: torch.device) -> AbstractContextManager[None]:
    """Dropout within by anything that is told apart by its text, with a row each."""
    return under(SampleKeys(lambda: torch.tensor([_number_of(name) for name in names]), device))


def by_image(batch: Batch) -> AbstractContextManager[None]:
    """Dropout by picture within, where tensors have a row a picture.

    A picture goes by its first caption in the batch of all processes, as its name may be another
    one in other annotations; where that is not known, by its name.
    """
    rows = batch.photo_rows
    if rows is None:
        return by_name(batch.image_ids, batch.rows.device)
    return under(SampleKeys(lambda: -1 - torch.tensor(rows), batch.rows.device))


def _number_of(name: Any) -> int:
    """Below 0, and so no caption's row."""
    return zlib.crc32(str(name).encode()) - 2**32


def replayed() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Of `torch.utils.checkpoint`, as ``context_fn``: layers that are computed again drop alike."""
    return nullcontext(), under(_Current.keys)
