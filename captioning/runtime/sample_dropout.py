"""Dropout whose masks depend only on the sample, not on its batch or its process.

Training is then the same for any number of processes. A mask's value is

    (a * c + b) mod 2^32 < share * 2^32,

with ``a`` and ``b`` random by sample, step of training and position (of a token, say), and ``c``
random by feature and call. Any two values of a mask are independent, like random numbers
(multiply-shift hashing: Dietzfelbinger, 1996). Unlike torch's generator this needs few operations,
which also makes it several times faster on a CPU.

Networks need no change: within `by_caption` and `by_image`, this dropout replaces torch's
``dropout``, also the dropout in ``scaled_dot_product_attention``.

On a GPU torch's own dropout is one operation, and its attention needs no matrix of weights:
`use_torchs` restores torch's dropout for a whole run.
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
    """Hash ``int64`` numbers: each output bit depends on all input bits."""
    numbers = (numbers ^ (numbers >> 30)) * FIRST
    numbers = (numbers ^ (numbers >> 27)) * SECOND
    return numbers ^ (numbers >> 31)


class AbstractKeys(ABC):
    """Random keys of the first axis of tensors: what each row belongs to."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    @functools.cached_property
    def numbers(self) -> Tensor:
        """``(K,) int64`` random numbers that depend on each row's sample and the training step."""
        return self._make()

    @abstractmethod
    def _make(self) -> Tensor:
        """Compute the `numbers` when they are first used."""

    def places(self, shape: Sequence[int]) -> tuple[Tensor, Tensor] | None:
        """Factors and summands of the hash by position, each ``(*shape[:-1], 1) int32``.

        None if the first axis is not a multiple of the number of keys.
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
    """Dropout keys of captions or images, one per row.

    Args:
        find: returns ``(K,) int64`` identifiers, the same in any batch, on the CPU; it is called at
            the first dropout.
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
    """Dropout keys of single tokens, one per row.

    Args:
        sequences: keys of the sequences that the tokens belong to.
        index: ``(M,) int64`` the position of each token's sequence in ``sequences``.
        steps: ``(M,) int64`` the position of each token in its sequence.
    """

    def __init__(self, sequences: AbstractKeys, index: Tensor, steps: Tensor) -> None:
        super().__init__()
        self.sequences = sequences
        self._index, self._steps = index, steps

    def _make(self) -> Tensor:
        return _mixed(self.sequences.numbers[self._index] + self._steps * STEP)


def _random_pairs(numbers: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Two random ``int32`` numbers per position, the first odd; ``axes`` is the shape."""
    places = numbers.view(-1, *[1] * (len(axes) - 1))
    for axis, size in enumerate(axes[1:], start=1):
        steps = torch.arange(size, device=numbers.device) * (STEP * (2 * axis + 1) % 2**63)
        places = places + steps.view(-1, *[1] * (len(axes) - 1 - axis))
    places = _mixed(places)
    return places.to(torch.int32) | 1, (places >> 32).to(torch.int32)


@functools.lru_cache(maxsize=64)
def _feature_numbers(size: int, device: torch.device) -> Tensor:
    """``(size,) int32`` odd random numbers, one per feature."""
    with torch.inference_mode(mode=False):
        return (_mixed(torch.arange(1, size + 1) * STEP).to(torch.int32) | 1).to(device)


def _drawn() -> int:
    """Draw from torch's CPU generator; recomputed checkpointed layers draw the same number."""
    return int(torch.randint(2**31, ()))


def _next_number() -> int:
    """Next number that `_drawn` will return, without advancing torch's generator."""
    state = torch.get_rng_state()
    number = _drawn()
    torch.set_rng_state(state)
    return number


def _dropped(places: tuple[Tensor, Tensor], size: int, share: float) -> Tensor:
    """Mask of the values to drop: True with probability ``share``; ``size`` features."""
    factors, summands = places
    features = _feature_numbers(size, factors.device) * (2 * _drawn() + 1 - 2**31)
    if factors.device.type == "cpu":  # faster there than one operation
        numbers = (factors * features).add_(summands)
    else:
        numbers = torch.addcmul(summands, factors, features)
    return numbers < int(share * 2**32) - 2**31


class _Current:
    """Dropout keys in use, shared by all threads, as the backward pass runs in another thread."""

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
            f"dropout of a tensor of shape {tuple(shape)} cannot depend on samples alone: its "
            "masks will depend on the number of processes"
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
    """Attention with dropout by sample; call torch's own attention where nothing is dropped."""
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
    """Use dropout by torch's generator (``speed.torch_dropout``), or return to dropout by sample.

    Masks by torch's generator depend on batches, devices and the number of processes.
    """
    _Current.torchs = is_on


def drops_by_sample() -> bool:
    """Whether dropout is by sample at the moment; its random numbers are then drawn on the CPU."""
    return _Current.keys is not None


def goes_by_sample() -> bool:
    """Whether `by_caption` and `by_image` will apply dropout by sample, see `use_torchs`."""
    return not _Current.torchs


@contextmanager
def under(keys: AbstractKeys | None) -> Iterator[None]:
    """Apply dropout by these keys within the block; None: torch's own dropout."""
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
    """Apply dropout by token within the block, where tensors have one row per token.

    Args:
        sequences: ``(M,) int64`` the position of each token's sequence in the batch.
        steps: ``(M,) int64`` of each token in its sequence.
    """
    keys = _Current.keys
    return under(None if keys is None else TokenKeys(keys, sequences, steps))


def by_sequence() -> AbstractContextManager[None]:
    """Return to dropout by sequence inside `by_token`, where tensors have one row per sequence."""
    keys = _Current.keys
    return under(keys.sequences if isinstance(keys, TokenKeys) else keys)


def by_caption(batch: Batch, places: Tensor | None = None) -> AbstractContextManager[None]:
    """Apply dropout by caption within the block, where tensors have one row per caption.

    Args:
        batch: the captions.
        places: ``(B',) int64`` of the captions that have a row, on the CPU; None: all.
    """
    chosen = slice(None) if places is None else places
    return under(SampleKeys(lambda: batch.host.rows[chosen], batch.rows.device))


def by_name(names: Sequence[Any], device: torch.device) -> AbstractContextManager[None]:
    """Apply dropout by name within the block, where tensors have one row per name."""
    return under(SampleKeys(lambda: torch.tensor([_number_of(name) for name in names]), device))


def by_image(batch: Batch) -> AbstractContextManager[None]:
    """Apply dropout by image within the block, where tensors have one row per image.

    The key of an image is its first caption in the batch of all processes, as other annotations may
    name the image differently. Without that caption, the key is the image's name.
    """
    rows = batch.photo_rows
    if rows is None:
        return by_name(batch.image_ids, batch.rows.device)
    return under(SampleKeys(lambda: -1 - torch.tensor(rows), batch.rows.device))


def _number_of(name: Any) -> int:
    """Hash a name to a negative number, as numbers from 0 are captions' rows."""
    return zlib.crc32(str(name).encode()) - 2**32


def replayed() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """``context_fn`` for `torch.utils.checkpoint`: recomputed layers drop the same values again."""
    return nullcontext(), under(_Current.keys)
