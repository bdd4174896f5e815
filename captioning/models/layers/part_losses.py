"""Compute losses and gradients of a batch in parts, one after another.

Only one part's activations are in memory, and captions of similar length are padded together. The
gradient equals the whole batch's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from captioning.models.layers.weighted_mean import LEAST
from captioning.runtime.sample_dropout import goes_by_sample
from captioning.types import Batch, CaptionLosses, Mean
from captioning.vision.prompt_tensors import PHOTO_KEYS, PREFIX, left_padding, rows_of, unpadded

IDS = f"{PREFIX}input_ids"


def photo_parts(batch: Batch, most: int) -> list[list[int]]:
    """Split a batch's photos into parts, the longest captions first.

    Args:
        batch: batch of captions.
        most: maximum positions (prompts, captions and padding) of a part with several photos.
    """
    _, exist = batch.host.caption_tokens()
    lengths, owners = exist.sum(1).tolist(), batch.host.image_index.tolist()
    longest, number = [0] * len(batch.image_ids), [0] * len(batch.image_ids)
    for length, owner in zip(lengths, owners, strict=True):
        longest[owner] = max(longest[owner], length)
        number[owner] += 1
    width = batch.extras[IDS].shape[1] if IDS in batch.extras else 0
    parts: list[list[int]] = []
    used = room = 0
    for photo in sorted(range(len(longest)), key=lambda photo: -longest[photo]):
        if not parts or used + width + number[photo] * room > most:
            parts.append([])
            used, room = 0, longest[photo]
        parts[-1].append(photo)
        used += width + number[photo] * room
    return parts


def batch_part(batch: Batch, photos: Sequence[int], *, trims: bool = True) -> tuple[Batch, Tensor]:
    """Select photos of a batch with their captions, without unnecessary padding.

    Args:
        batch: batch of captions.
        photos: photo numbers in the batch.
        trims: whether to remove padding before prompts, too.

    Returns:
        The part, and ``(B',) int64`` indices of its captions in the batch.
    """
    host = batch.host
    part, captions = _part(host, host, photos, trims)
    if host is batch:
        return part, captions
    return _part(batch, host, photos, trims)[0].with_host(part), captions


def _part(batch: Batch, host: Batch, photos: Sequence[int], trims: bool) -> tuple[Batch, Tensor]:
    device = batch.rows.device
    places = {photo: place for place, photo in enumerate(photos)}
    owners = host.image_index.tolist()
    captions = [number for number, owner in enumerate(owners) if owner in places]
    chosen, index = torch.tensor(captions), torch.tensor(list(photos)).to(device)
    rows = chosen.to(device)
    _, exist = host.caption_tokens()
    tokens, mask = batch.caption_tokens()
    width = int(exist[chosen].sum(1).max())

    def of_tokens(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[rows, :width]

    padded = host.extras.get(f"{PREFIX}attention_mask")
    padding = left_padding(padded[list(photos)] if trims and padded is not None else None)
    of_photos = {
        name: value
        for name, value in batch.extras.items()
        if name.startswith(PREFIX) or name == PHOTO_KEYS
    }
    extras = unpadded(rows_of(of_photos, index, host.extras), padding)
    part = Batch(
        rows=batch.rows[rows],
        sample_ids=tuple(batch.sample_ids[number] for number in captions),
        image_ids=tuple(batch.image_ids[photo] for photo in photos),
        image_index=torch.tensor([places[owners[number]] for number in captions]).to(device),
        tokens=tokens[rows, :width],
        token_mask=mask[rows, :width],
        weights=None if batch.weights is None else batch.weights[rows],
        token_weights=of_tokens(batch.token_weights),
        token_sentences=of_tokens(batch.token_sentences),
        draw=batch.draw,
        filler=batch.filler,
        photo_rows=batch.photo_rows and tuple(batch.photo_rows[photo] for photo in photos),
        extras=extras,
    )
    return part, chosen


def part_losses(
    batch: Batch,
    parts: Sequence[Sequence[int]],
    losses: Callable[[Batch, Tensor], CaptionLosses],
    parameters: Sequence[nn.Parameter],
    *,
    drops: bool = False,
) -> CaptionLosses:
    """Return a batch's losses, with gradients computed immediately, part by part.

    Args:
        batch: batch of captions.
        parts: see `photo_parts`.
        losses: function from a part and its caption indices ``(B',) int64`` to losses with one
            mean (`CaptionLosses.means`).
        parameters: trainable parameters that the losses depend on.
        drops: whether there is dropout, whose masks depend on a token's position in its prompt.

    Returns:
        Losses; only ``total`` has a gradient.
    """
    run = _Run(batch, parts, losses, parameters, drops)
    total: Any = _Handed.apply(run, *parameters)
    weights = torch.stack(run.weights)
    return CaptionLosses(
        total=total,
        per_sample=run.of_captions["per_sample"],
        nll=run.of_captions["nll"],
        smoothed=run.of_captions["smoothed"],
        token_nll=run.of_captions.get("token_nll"),
        means=(Mean(value=total, number=len(weights), weights=weights),),
    )


class _Run:
    """One pass over the parts; for arguments see `part_losses`."""

    def __init__(
        self,
        batch: Batch,
        parts: Sequence[Sequence[int]],
        losses: Callable[[Batch, Tensor], CaptionLosses],
        parameters: Sequence[nn.Parameter],
        drops: bool,
    ) -> None:
        self._trims = not drops
        self._batch, self._parts, self._losses = batch, parts, losses
        self._parameters = parameters
        self.weights: list[Tensor] = []
        self.of_captions: dict[str, Tensor] = {}

    def __call__(self) -> tuple[Tensor, list[Tensor | None]]:
        """Return the batch's mean loss and its gradient by parameter."""
        sums: list[Tensor | None] = [None] * len(self._parameters)
        summed: list[Tensor] = []
        state = torch.get_rng_state()
        for photos in self._parts:
            if goes_by_sample():  # masks are those that the whole batch would have
                torch.set_rng_state(state)
            part, captions = batch_part(self._batch, photos, trims=self._trims)
            found = self._losses(part, captions)
            (mean,) = found.means
            weight = mean.denominator
            value = found.total * weight
            gradients = torch.autograd.grad(value, self._parameters, allow_unused=True)
            sums = [_added(*pair) for pair in zip(sums, gradients, strict=True)]
            self.weights.append(weight)
            summed.append(value.detach())
            for name in ("per_sample", "nll", "smoothed", "token_nll"):
                if (values := getattr(found, name)) is not None:
                    self._set(name, captions, values.detach())
        whole = torch.stack(self.weights).sum().clamp(min=LEAST)
        for gradient in sums:
            if gradient is not None:
                gradient.div_(whole)
        return torch.stack(summed).sum() / whole, sums

    def _set(self, name: str, captions: Tensor, values: Tensor) -> None:
        if name not in self.of_captions:
            tokens, _ = self._batch.caption_tokens()
            shape = tokens[:, 1:].shape[: values.dim()]
            self.of_captions[name] = values.new_zeros(shape)
        rows = self.of_captions[name]
        if values.dim() > 1:
            rows = rows[:, : values.shape[1]]
        rows[captions.to(values.device)] = values


def _added(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first.add_(second)


class _Handed(torch.autograd.Function):
    """Autograd function for a scalar whose gradient is already computed."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *parameters: Tensor) -> Tensor:
        with torch.enable_grad():
            total, ctx.gradients = run()
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = outer
        gradients = ctx.gradients
        ctx.gradients = None
        return (None, *(None if g is None else g.mul_(scale.to(g)) for g in gradients))
