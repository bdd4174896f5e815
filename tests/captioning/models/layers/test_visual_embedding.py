"""The sum of a region's features, place and turn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from captioning.models.cic_bart import VisualEmbedding


@pytest.mark.parametrize(("published", "area"), [(False, 0.6 * 0.2), (True, 0.2 * -0.2)])
def test_area_as_it_is_and_as_published(published: bool, area: float) -> None:
    visual = VisualEmbedding(feature_size=3, hidden_size=4, published_area=published)
    features, turns = torch.randn(1, 1, 3), torch.randn(1, 4)
    boxes = torch.tensor([[[0.1, 0.3, 0.7, 0.5]]])  # x1, y1, x2, y2
    place = visual.places(torch.tensor([[[0.1, 0.3, 0.7, 0.5, area]]]))
    total = visual.features(features) + place + visual.image.weight[0] + turns
    torch.testing.assert_close(visual(features, boxes, turns), visual.norm(total))


def test_one_norm_over_the_sum() -> None:
    visual = VisualEmbedding(feature_size=3, hidden_size=8)
    norms = [module for module in visual.modules() if isinstance(module, nn.LayerNorm)]
    assert norms == [visual.norm]
    embedded = visual(torch.randn(2, 5, 3), torch.rand(2, 5, 4), torch.randn(5, 8))
    torch.testing.assert_close(embedded.mean(-1), torch.zeros(2, 5), atol=1e-6, rtol=0)
