"""How well a space of images and texts finds one by the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from captioning.metrics.detection import area_under_roc

RANKS = (1, 5, 10)


def retrieval_scores(
    images: Tensor, captions: Tensor, image_index: Tensor, *, seed: int = 0
) -> dict[str, float]:
    """Recall at 1, 5 and 10 in both directions, and how well cosines tell matched from shuffled.

    A tie counts against the right answer, so equal embeddings find nothing.

    Args:
        images: ``(I, D)`` unit vectors, I > 1.
        captions: ``(N, D)`` unit vectors, one or more an image.
        image_index: ``(N,) int64`` in [0, I), the image of each caption.
        seed: of the shuffled pairs: each caption beside another image, drawn evenly.

    Returns:
        ``text-to-image R@k``: share of captions whose image is among the k nearest;
        ``image-to-text R@k``: share of images of which a caption is among the k nearest;
        ``AUC``: probability that a matched pair is nearer than a shuffled one.

    Raises:
        ValueError: an image without captions, less than two images, or embeddings that are not
            finite.
    """
    if not (images.isfinite().all() and captions.isfinite().all()):
        raise ValueError("images and captions must be finite: some embeddings hold NaN or infinity")
    num_images, num_captions = len(images), len(captions)
    counts = torch.bincount(image_index, minlength=num_images)
    if num_images < 2 or len(counts) > num_images or not counts.all():
        raise ValueError(
            f"image_index must name each of at least 2 images: got {num_images} images, "
            f"{int((counts > 0).sum())} of them named"
        )
    cosines = captions @ images.T
    matched_cosines = cosines[torch.arange(num_captions), image_index]
    image_ranks = (cosines >= matched_cosines[:, None]).sum(
        1
    )  # from 1, the right one counts itself
    best = matched_cosines.new_full((num_images,), -torch.inf).scatter_reduce(
        0, image_index, matched_cosines, "amax"
    )
    is_other = torch.ones_like(cosines, dtype=torch.bool)
    is_other[torch.arange(num_captions), image_index] = False
    caption_ranks = 1 + ((cosines >= best) & is_other).sum(0)
    scores = {}
    for name, ranks in (("text-to-image", image_ranks), ("image-to-text", caption_ranks)):
        for k in RANKS:
            scores[f"{name} R@{k}"] = float((ranks <= k).double().mean())
    shift = np.random.default_rng(seed).integers(1, num_images, num_captions)
    wrong = (image_index + torch.from_numpy(shift)) % num_images
    shuffled_cosines = cosines[torch.arange(num_captions), wrong]
    matched = np.arange(2 * num_captions) < num_captions
    return scores | {
        "AUC": area_under_roc(torch.cat([matched_cosines, shuffled_cosines]).numpy(), matched)
    }
