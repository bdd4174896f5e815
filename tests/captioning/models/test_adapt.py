"""What trains, and what stays as it is."""

from __future__ import annotations

import pytest
import torch

from captioning.models.adapt import add_low_rank, freeze
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
    with pytest.raises(ValueError, match=r"no parameter is named like 'vision\.\*'"):
        freeze(model, ["vision.*"])
    with pytest.raises(ValueError, match="nothing to train"):
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
