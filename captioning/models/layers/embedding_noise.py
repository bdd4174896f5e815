"""Noise that lets a text's embedding stand for a photo's (CapDec; ViECap)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def with_noise(
    embeddings: Tensor, variance: float, generator: torch.Generator | None = None
) -> Tensor:
    """``normalised(normalised(x) + n)``, each value of n drawn from a normal distribution.

    In a joint space texts and photos lie apart. A decoder trained on the neighbourhood of each text
    can read photos too.

    Args:
        embeddings: ``(B, E)`` float.
        variance: of the noise, at least 0; .016 in ViECap, which for 512 values makes the noise
            more than twice as long as the embedding.
        generator: None for the global one, which training seeds for every update.

    Returns:
        ``(B, E)`` of unit length.
    """
    embeddings = functional.normalize(embeddings, dim=-1)
    if not variance:
        return embeddings
    noise = torch.randn(
        embeddings.shape,
        generator=generator,
        dtype=embeddings.dtype,
        device=embeddings.device if generator is None else generator.device,
    )
    return functional.normalize(embeddings + noise.to(embeddings.device) * variance**0.5, dim=-1)
