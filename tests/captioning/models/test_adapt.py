"""What trains, and what stays as it is."""

from __future__ import annotations

import pytest
import torch

from captioning.models.adapt import _layer_forward, add_low_rank, freeze
from tests.tiny import build, make_batch

LORA = {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": ["query", "value"]}


def test_frozen_parameters_get_no_gradient():
    model = build("blip").train()
    freeze(model, ["project.*", "*.crossattention.*"])
    model.losses(make_batch()).total.backward()
    for name, parameter in model.named_parameters():
        frozen = name.startswith("project.") or ".crossattention." in name
        assert (parameter.grad is None) == frozen, name


def test_wrong_names_are_refused():
    model = build("blip")
    with pytest.raises(ValueError, match=r"no parameter name matches 'vision\.\*'"):
        freeze(model, ["vision.*"])
    with pytest.raises(ValueError, match="freezes all parameters"):
        freeze(model, ["*"])
    with pytest.raises(ValueError, match="no layer is named q_proj"):
        add_low_rank(build("blip"), **(LORA | {"modules": ["q_proj", "query"]}))


def test_low_rank_additions_alone_are_trained():
    pytest.importorskip("peft", reason="needs peft")
    model, batch = build("blip").train(), make_batch()
    before = model.losses(batch).per_sample
    captions = model.eval().generate(batch)
    add_low_rank(model, **LORA)
    assert torch.equal(model.train().losses(batch).per_sample, before)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    rate, losses = 0.5, []
    for _ in range(5):
        loss = model.losses(batch).total
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(trained.values()))
        with torch.no_grad():
            for parameter, gradient in zip(trained.values(), gradients, strict=True):
                parameter -= rate * gradient
    assert losses[-1] < losses[0]
    assert [prediction.score for prediction in model.eval().generate(batch)] != [
        prediction.score for prediction in captions
    ]


@pytest.mark.parametrize("needs_input", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_layer_with_its_addition_computes_what_pefts_own_does(needs_input, has_bias):
    peft = pytest.importorskip("peft", reason="needs peft")
    torch.manual_seed(0)
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=["0"])
    model = torch.nn.Sequential(torch.nn.Linear(5, 7, bias=has_bias)).double()
    model.requires_grad_(False)
    peft.inject_adapter_in_model(config, model)
    layer = model[0]
    with torch.no_grad():
        layer.lora_B["default"].weight.normal_()
    found = []
    for forward in (layer.forward, lambda x: _layer_forward(layer, x)):
        inputs = torch.randn(2, 4, 5, dtype=torch.float64, generator=seeded())
        inputs.requires_grad_(needs_input)
        model.zero_grad()
        outputs = forward(inputs)
        outputs.square().sum().backward()
        found.append([outputs.detach(), *(p.grad for p in model.parameters()), inputs.grad])
    assert found[1][0].requires_grad is False
    torch.testing.assert_close(*([v for v in values if v is not None] for values in found))
    assert [v is None for v in found[0]] == [v is None for v in found[1]]
    assert "_LowRank" in type(_layer_forward(layer, inputs).grad_fn).__name__


def seeded():
    return torch.Generator().manual_seed(1)


def test_what_is_more_than_a_layer_and_its_addition_stays_pefts():
    peft = pytest.importorskip("peft", reason="needs peft")
    config = peft.LoraConfig(r=3, lora_alpha=6, lora_dropout=0.5, target_modules=["0"])
    model = torch.nn.Sequential(torch.nn.Linear(5, 7))
    model.requires_grad_(False)
    peft.inject_adapter_in_model(config, model)
    layer, inputs = model.train()[0], torch.ones(2, 5)
    assert "_LowRank" not in type(_layer_forward(layer, inputs).grad_fn).__name__
    layer.eval()
    assert "_LowRank" in type(_layer_forward(layer, inputs).grad_fn).__name__
    with torch.autocast("cpu", torch.bfloat16):
        assert _layer_forward(layer, inputs).dtype == torch.bfloat16
    layer.merge()
    assert _layer_forward(layer, inputs).grad_fn is None
