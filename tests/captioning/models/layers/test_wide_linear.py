from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from captioning.models.layers.wide_linear import BLOCK, wide_linear


@pytest.mark.parametrize("words", [5, 2 * BLOCK, 2 * BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("with_bias", [False, True])
def test_it_is_the_linear_product(words: int, with_bias: bool) -> None:
    rows, weight = torch.randn(3, 8), torch.randn(words, 8)
    bias = torch.randn(words) if with_bias else None
    torch.testing.assert_close(
        wide_linear(rows, weight, bias), functional.linear(rows, weight, bias)
    )
