"""Regions pooled from the grid."""

from __future__ import annotations

import pytest
import torch

from captioning.vision.region_features import pool_regions, scale_boxes


def test_whole_photo_comes_first_and_boxes_average_their_cells() -> None:
    grid = torch.arange(16.0).view(1, 16, 1)  # a 4 x 4 grid, one value
    boxes = scale_boxes([(0, 0, 50, 40), (50, 40, 100, 80)], 100, 80, "a.jpg")
    (regions,) = pool_regions(grid, (4, 4), [boxes])
    assert regions.shape == (3, 1)
    expected = torch.tensor([7.5, (0 + 1 + 4 + 5) / 4, (10 + 11 + 14 + 15) / 4])
    assert torch.allclose(regions[:, 0], expected, atol=1e-5)


def test_photos_without_boxes_have_the_whole_photo_alone() -> None:
    grid = torch.rand(2, 16, 3)
    boxes = scale_boxes([(0, 0, 10, 10)], 10, 10, "a.jpg")
    none = scale_boxes([], 10, 10, "b.jpg")
    first, second = pool_regions(grid, (4, 4), [none, boxes])
    assert first.shape == (1, 3)
    assert second.shape == (2, 3)
    assert torch.allclose(first[0], grid[0].mean(0))
    assert torch.allclose(second[1], grid[1].mean(0), atol=1e-5)


def test_gradients_reach_the_grid() -> None:
    grid = torch.rand(1, 16, 3, requires_grad=True)
    boxes = scale_boxes([(0, 0, 5, 5)], 10, 10, "a.jpg")
    pool_regions(grid, (4, 4), [boxes])[0][1].sum().backward()
    assert grid.grad is not None
    assert grid.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "box", [(5, 0, 5, 9), (9, 0, 5, 9), (0, 0, 20, 9), (-3, 0, 5, 9), (0, 0, float("nan"), 9)]
)
def test_impossible_boxes_name_the_photo(box: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"a\.jpg"):
        scale_boxes([box], 10, 10, "a.jpg")
