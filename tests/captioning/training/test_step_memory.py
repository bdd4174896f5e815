"""What a step is said to need before it is what it then takes, and nothing is left behind."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from captioning.models.adapt import add_low_rank
from captioning.models.layers.image_states import ImageStates
from captioning.training import step_memory as module
from captioning.training.step_memory import SayStepMemory, rehearsed, step_memory
from captioning.vision.prompt_tensors import PHOTO_KEYS
from tests.tiny import build, make_batch
from tests.tiny_vlm import batch_of, captioner, model_folder


def prepared(family: str, *, lora: bool = False, **settings: Any) -> tuple[Any, Any]:
    """A model in training mode and a batch of five captions of three photos."""
    if family in ("updown", "blip"):
        return build(family).train(), make_batch()
    if settings.get("quantize"):
        pytest.importorskip("torchao", reason="needs torchao")
    folder = model_folder(family)
    model = captioner(folder, **{k: v for k, v in settings.items() if k != "quantize"})
    if lora:
        pytest.importorskip("peft", reason="needs peft")
        add_low_rank(model, rank=2, alpha=4, dropout=0.0)
    return model.train(), batch_of(folder, model.tokenizer, extra_padding=3)


CASES = [
    ("llava", {}),
    ("llava", {"lora": True}),
    ("llava", {"lora": True, "checkpointing": True}),
    ("qwen2_vl", {"lora": True}),
    ("git", {}),
    ("updown", {}),
    ("blip", {}),
]


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_a_rehearsal_counts_what_the_step_takes(family: str, settings: dict[str, Any]) -> None:
    model, batch = prepared(family, **settings)
    said = step_memory(model, batch)
    assert not said.is_measured
    real = rehearsed(model, batch, is_real=True)
    assert real.is_measured
    assert (
        said.weights
        == real.weights
        == sum(p.nbytes for p in [*model.parameters(), *model.buffers()])
    )
    assert said.gradients == real.gradients > 0
    assert said.activations == pytest.approx(real.activations, rel=0.15)
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert said.optimizer == pytest.approx(2 * trained, rel=0.02)  # Adam's two means


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_a_rehearsal_leaves_nothing_behind(family: str, settings: dict[str, Any]) -> None:
    model, batch = prepared(family, **settings)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    expected = model.losses(batch).per_sample
    torch.manual_seed(0)
    step_memory(model, batch)
    assert torch.equal(model.losses(batch).per_sample, expected)
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_checkpointed_layers_take_less() -> None:
    sizes = [
        step_memory(*prepared("llava", checkpointing=given, positions_at_once=None)).activations
        for given in (True, False)
    ]
    assert sizes[0] < sizes[1]


def test_states_of_photos_are_counted_and_not_kept() -> None:
    model, batch = prepared("llava", lora=True)
    model._states = kept = ImageStates(model.network, num_photos=300, room=float("inf"))
    batch.extras[PHOTO_KEYS] = torch.arange(3)
    said = step_memory(model, batch)
    assert model._states is kept
    assert kept.expected_bytes() == 0
    model.losses(batch)
    assert said.image_states == kept.expected_bytes() > 0


def test_a_model_that_asks_for_values_is_measured_by_a_step(monkeypatch) -> None:
    model, batch = prepared("llava")
    losses = type(model).losses

    def asking(self, batch):
        found = losses(self, batch)
        assert float(found.total) > 0
        return found

    monkeypatch.setattr(type(model), "losses", asking)
    said = step_memory(model, batch)
    assert said.is_measured
    assert "measured on a first step" in str(said)


class Trainer:
    """What the callback asks of Lightning's."""

    is_global_zero = True

    def __init__(self, batch: Any) -> None:
        samples = [SimpleNamespace(caption="a dog"), SimpleNamespace(caption="a dog on the grass")]
        trainer = self

        class Dataset:
            known = None

            def __init__(self) -> None:
                self.samples = samples

            def __getitem__(self, positions: list[int]) -> Any:
                trainer.asked = positions
                return batch

        self.asked, dataset = None, Dataset()
        self.train_dataloader = SimpleNamespace(dataset=dataset, sampler=[[0, 0], [1, 1], [0]])
        self.strategy = SimpleNamespace(batch_to_device=lambda batch: batch)
        self.precision_plugin = SimpleNamespace(train_step_context=nullcontext)


def settings_with_batches() -> Any:
    return SimpleNamespace(
        loader={"batch_size": 8},
        trainer={},
        model=SimpleNamespace(checkpointing=False),
        precision="32-true",
        features=SimpleNamespace(backbone=None, reader=None),
        speed=SimpleNamespace(cuda_graphs=False),
    )


@pytest.mark.parametrize(("share", "ends"), [(4.0, "said"), (0.8, "warned"), (0.2, "refused")])
def test_a_step_that_will_not_fit_names_what_to_lower(
    share: float, ends: str, monkeypatch, caplog
) -> None:
    model, batch = prepared("llava")
    trainer: Any = Trainer(batch)
    needed = step_memory(model, batch).beside_weights
    monkeypatch.setattr(module, "LEAST", 0)
    monkeypatch.setattr(module, "free_memory", lambda: int(share * needed))
    say = SayStepMemory(settings=settings_with_batches())
    with caplog.at_level(logging.INFO):
        if ends == "refused":
            with pytest.raises(MemoryError, match="GiB too much: lower loader.batch_size=8"):
                say.on_train_start(trainer, model)
        else:
            say.on_train_start(trainer, model)
    assert trainer.asked == [1, 1]  # the batch of the longest captions
    assert "memory of a step: " in caplog.text
    warned = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert any("may not fit" in text and "checkpointing" in text for text in warned) is (
        ends == "warned"
    )
