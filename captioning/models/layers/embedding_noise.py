"""Noise that lets a text's embedding stand for a photo's (CapDec; ViECap)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from captioning.models.layers.keyed_noise import keyed_noise
from captioning.models.layers.on_device import on_device


def with_noise(embeddings: Tensor, variance: float, keys: Sequence[tuple[int, ...]]) -> Tensor:
    """``normalised(normalised(x) + n)``, each value of n drawn from a normal distribution.

    In a joint space texts and photos lie apart. A decoder trained on the neighbourhood of each text
    can read photos too.

    Args:
        embeddings: ``(B, E)`` float.
        variance: of the noise, at least 0; .016 in ViECap, which for 512 values makes the noise
            more than twice as long as the embedding.
        keys: of the B texts; a text's noise depends on its own key alone, see `keyed_noise`.

    Returns:
        ``(B, E)`` of unit length.
    """
    embeddings = functional.normalize(embeddings, dim=-1)
    if not variance:
        return embeddings
    noise = keyed_noise(keys, [1] * len(keys), embeddings.shape[1])[:, 0].to(embeddings.dtype)
    noise = on_device(noise, embeddings.device)
    return functional.normalize(embeddings + noise * variance**0.5, dim=-1)
