"""The soft prompt's transformer against plain formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from captioning.models.viecap import PrefixProjector


def build(**settings) -> PrefixProjector:
    torch.manual_seed(0)
    sizes = {"embedding_size": 6, "hidden_size": 8, "num_projected": 2, "num_learned": 3}
    return PrefixProjector(**sizes, **{"num_layers": 2, "num_heads": 2} | settings).double()


def by_hand(model: PrefixProjector, embedding: Tensor) -> Tensor:
    """One soft prompt ``(3, 8)``, head by head."""
    weights = dict(model.named_parameters())
    projected = model.project.weight @ embedding + model.project.bias
    hidden = torch.cat([projected.view(2, 8), model.learned])
    for number in range(2):
        part = {
            name.removeprefix(f"layers.{number}."): value
            for name, value in weights.items()
            if name.startswith(f"layers.{number}.")
        }
        normed = torch.nn.functional.layer_norm(
            hidden, (8,), part["norm_attention.weight"], part["norm_attention.bias"]
        )
        queries = normed @ part["queries.weight"].T
        keys, values = (normed @ part["keys_values.weight"].T).split(8, dim=1)
        heads = [slice(0, 4), slice(4, 8)]
        attended = [
            (queries[:, h] @ keys[:, h].T / 2).softmax(-1) @ values[:, h]  # 2 = sqrt(4)
            for h in heads
        ]
        hidden = hidden + torch.cat(attended, 1) @ part["output.weight"].T + part["output.bias"]
        normed = torch.nn.functional.layer_norm(
            hidden, (8,), part["norm_inner.weight"], part["norm_inner.bias"]
        )
        inner = (normed @ part["inner.0.weight"].T + part["inner.0.bias"]).relu()
        hidden = hidden + inner @ part["inner.2.weight"].T + part["inner.2.bias"]
    return hidden[2:]


def test_it_is_the_formula() -> None:
    model = build()
    embeddings = torch.randn(4, 6, dtype=torch.float64)
    expected = torch.stack([by_hand(model, embedding) for embedding in embeddings])
    torch.testing.assert_close(model(embeddings), expected)


def test_its_sizes_are_those_of_viecap() -> None:
    model = PrefixProjector(embedding_size=512, hidden_size=768)
    names = [name for name, _ in model.named_parameters()]
    assert not [name for name in names if name.endswith(("queries.bias", "keys_values.bias"))]
    assert len(model.layers) == 8
    assert model.layers[0].inner[0].out_features == 2 * 768
    assert model(torch.zeros(2, 512)).shape == (2, 10, 768)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_heads": 3},
            "num_heads of the projector must divide the language model's 8 dims: got num_heads=3",
        ),
        ({"num_learned": 0}, "must be at least 1: got 2 and 0"),
    ],
)
def test_sizes_that_cannot_be(settings: dict, message: str) -> None:
    sizes = {"embedding_size": 6, "hidden_size": 8, "num_projected": 2, "num_learned": 3}
    with pytest.raises(ValueError, match=message):
        PrefixProjector(**sizes | {"num_heads": 2} | settings)
