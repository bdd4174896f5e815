"""VL-BART's embedding of an image's regions (Cho et al., ICML 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

NUM_IMAGES = 2  # VL-BART can read two images at once; here all regions are of the first


class VisualEmbedding(nn.Module):
    """One layer norm over the sum of a region's features, box and place in the input.

    Args:
        feature_size: F of the regions' features.
        hidden_size: D.
        published_area: the fifth number of a box is its area. There the authors' code reads boxes
            as (x1, x2, y1, y2) although they are (x1, y1, x2, y2), so its "area" is
            (y1 - x1) * (y2 - x2). True does the same, for weights that were trained with it.
    """

    def __init__(
        self, *, feature_size: int, hidden_size: int, published_area: bool = False
    ) -> None:
        super().__init__()
        self.features = nn.Linear(feature_size, hidden_size)
        self.places = nn.Linear(5, hidden_size)
        self.image = nn.Embedding(NUM_IMAGES, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.published_area = published_area

    def forward(self, features: Tensor, boxes: Tensor, place_embeddings: Tensor) -> Tensor:
        """Embed regions.

        Args:
            features: ``(N, C, F)``.
            boxes: ``(N, C, 4)`` x1, y1, x2, y2 in shares of the photo's sides.
            place_embeddings: ``(C, D)`` embedding of each place in the input.

        Returns:
            ``(N, C, D)``.
        """
        x1, y1, x2, y2 = boxes.unbind(-1)
        area = (y2 - x2) * (y1 - x1) if self.published_area else (x2 - x1) * (y2 - y1)
        places = self.places(torch.cat([boxes, area.unsqueeze(-1)], dim=-1))
        return self.norm(self.features(features) + places + self.image.weight[0] + place_embeddings)
