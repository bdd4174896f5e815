"""What searches and decoders of one's own give is looked at before it is used."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from captioning.decoding.settings import SearchRequest
from captioning.interfaces import AbstractStepper

# Of probabilities that add up to 1 in half precision.
TOLERANCE = 0.1  # nats


def check_result(result: Any, *, num_images: int, by: object) -> None:
    """Refuse what is no result of a search. Shapes alone are looked at.

    Args:
        result: of the search.
        num_images: I, that were searched for.
        by: the search.

    Raises:
        ValueError: no `SearchResult` or `ConstrainedResult`, or a part of another shape.
    """
    name, shapes = type(by).__qualname__, {}
    for part in ("tokens", "scores", "lengths"):
        value = getattr(result, part, None)
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{name} must give a captioning.decoding.state.SearchResult, whose {part} are a "
                f"tensor: got {shown(result)}"
            )
        shapes[part] = tuple(value.shape)
    images_and_captions = shapes["tokens"][:2]
    is_right = len(shapes["tokens"]) == 3 and images_and_captions[0] == num_images
    if not is_right or {shapes["scores"], shapes["lengths"]} != {images_and_captions}:
        raise ValueError(
            f"{name} must give tokens (I, M, T), scores (I, M) and lengths (I, M), of I = "
            f"{num_images} images with M captions each: got {shapes}"
        )


@torch.no_grad()
def check_stepper(stepper: AbstractStepper, state: Any, request: SearchRequest) -> None:
    """Have a model predict the first words of images, and look at what it gives.

    Waits for the device. A model whose memory is drawn from latents is left alone.

    Args:
        stepper: the model.
        state: its memory before the first token, of an image a row.
        request: the images.

    Raises:
        ValueError: no pair of log-probabilities ``(I, V)`` and a state, or probabilities that do
            not add up to 1.
    """
    if stepper.draws_latents:
        return
    name = f"{type(stepper).__qualname__}.step"
    given = stepper.step(
        torch.full((request.num_images,), request.bos_id, device=request.device), state
    )
    if not isinstance(given, tuple) or len(given) != 2:
        raise ValueError(f"{name} must give log-probabilities and a state: got {shown(given)}")
    values = given[0]
    if not isinstance(values, Tensor) or values.dim() != 2 or len(values) != request.num_images:
        raise ValueError(
            f"{name} must give log-probabilities ({request.num_images}, V), a row for each "
            f"hypothesis and a column for each token: got {shown(values)}"
        )
    sums = values.float().logsumexp(-1)
    if not bool((sums.abs() < TOLERANCE).all()):
        raise ValueError(
            f"{name} must give log-probabilities: the probabilities of a row add up to "
            f"{float(sums.exp()[0]):.3g} in place of 1; take log_softmax of logits, or leave the "
            "check out where this is meant (trainer.num_sanity_val_steps=0)"
        )


def shown(value: Any) -> str:
    """A value by its kind, of a tensor its shape."""
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
