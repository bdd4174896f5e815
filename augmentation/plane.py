"""Project embeddings of words and texts to two dimensions, for figures."""

from __future__ import annotations

import numpy as np

from captioning.runtime.extras import import_extra

PERPLEXITY = 30.0


def two_dimensions(vectors: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Project vectors ``(W, D)`` to ``(W, 2) float32`` by t-SNE with cosine distances.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    manifold = import_extra("sklearn.manifold", extra="augmentation", purpose="figures by t-SNE")
    model = manifold.TSNE(
        perplexity=min(PERPLEXITY, (len(vectors) - 1) / 3),
        metric="cosine",
        init="random",
        random_state=seed,
    )
    return model.fit_transform(vectors.astype(np.float64)).astype(np.float32)
