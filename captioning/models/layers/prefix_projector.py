"""From one embedding to a few vectors that a language model reads before its words (ClipCap)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioning.models.layers.cuda_graphs import (
    AbstractGraphedPart,
    GraphedPart,
    Room,
    trains_on_gpu,
)


class PrefixProjector(nn.Module, AbstractGraphedPart):
    """A transformer over vectors projected from the embedding and learned vectors.

    Its outputs for the learned vectors are the soft prompt (Mokady et al., 2021, figure 2; ViECap).

    Args:
        embedding_size: of the embedding.
        hidden_size: D of the language model's words.
        num_projected: number of vectors that the embedding is projected to.
        num_learned: number of learned vectors: the soft prompt's length.
        num_layers: of the transformer; normalised before each part, without dropout.
        num_heads: of its attentions, whose queries, keys and values have no bias.
        mlp_ratio: hidden units of its feed-forward parts by D.

    Raises:
        ValueError: heads that do not divide D, or no learned vector.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: int,
        num_projected: int = 10,
        num_learned: int = 10,
        num_layers: int = 8,
        num_heads: int = 8,
        mlp_ratio: float = 2.0,
    ) -> None:
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(
                f"the projector's heads must divide the language model's {hidden_size} values: "
                f"got num_heads={num_heads}"
            )
        if num_learned < 1 or num_projected < 1:
            raise ValueError(
                "num_projected and num_learned must be at least 1: got "
                f"{num_projected} and {num_learned}"
            )
        self.project = nn.Linear(embedding_size, num_projected * hidden_size)
        self.learned = nn.Parameter(torch.randn(num_learned, hidden_size))
        inner = int(hidden_size * mlp_ratio)
        self.layers = nn.ModuleList(
            _Layer(hidden_size, num_heads, inner) for _ in range(num_layers)
        )
        self._graphed: GraphedPart | None = None
        self._room = Room()

    def use_cuda_graphs(self) -> None:
        """Project on a GPU by one CUDA graph; batches are padded to the largest seen."""
        self._graphed = GraphedPart(self, self._project)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Soft prompts ``(B, num_learned, D)`` of embeddings ``(B, embedding_size)``."""
        if self._graphed is None or not trains_on_gpu(embeddings):
            return self._project(embeddings)[0]
        number = len(embeddings)
        (all_embeddings,) = self._room.for_sizes(number)
        padded = functional.pad(embeddings, (0, 0, 0, all_embeddings - number))
        return self._graphed(padded)[0][:number]

    def _project(self, embeddings: Tensor) -> tuple[Tensor]:
        """See `forward`."""
        size = self.learned.shape[1]
        projected = self.project(embeddings).view(len(embeddings), -1, size)
        hidden = torch.cat([projected, self.learned.expand(len(embeddings), -1, -1)], dim=1)
        for layer in self.layers:
            hidden = layer(hidden)
        return (hidden[:, projected.shape[1] :],)


class _Layer(nn.Module):
    """Attention of all vectors on all, then a feed-forward part."""

    def __init__(self, size: int, num_heads: int, inner: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm_attention = nn.LayerNorm(size)
        self.queries = nn.Linear(size, size, bias=False)
        self.keys_values = nn.Linear(size, 2 * size, bias=False)
        self.output = nn.Linear(size, size)
        self.norm_inner = nn.LayerNorm(size)
        self.inner = nn.Sequential(nn.Linear(size, inner), nn.ReLU(), nn.Linear(inner, size))

    def forward(self, hidden: Tensor) -> Tensor:
        """``(B, N, D)`` each."""
        normed = self.norm_attention(hidden)
        parts = (self.queries(normed), *self.keys_values(normed).chunk(2, dim=-1))
        by_head = [part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts]
        attended = functional.scaled_dot_product_attention(*by_head)
        hidden = hidden + self.output(attended.transpose(1, 2).flatten(2))
        return hidden + self.inner(self.norm_inner(hidden))
