"""Captioners on a GPU: losses, gradients and captions of the processor, and no step that waits."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from captioning.decoding.beam import BeamSearch
from captioning.decoding.beam_averaged import AveragedBeamSearch
from captioning.decoding.beam_transformers import TransformersBeamSearch
from captioning.decoding.constrained import ConstrainedBeamSearch
from captioning.decoding.diverse import DiverseBeamSearch
from captioning.decoding.greedy import GreedySearch
from captioning.decoding.latent_draws import LatentSearch
from captioning.decoding.machine import build_machine
from captioning.decoding.sampling import Sampling
from captioning.decoding.search import AbstractSearch
from captioning.models.base import AbstractCaptioner
from captioning.types import Batch
from curation.loop.ledger import LossLedger
from tests.contracts.test_captioners import FAMILIES, batch_for, build
from tests.tiny import MODELS

SHORT = {"max_length": 8}
SEARCHES: dict[str, Callable[[], AbstractSearch]] = {
    "beam": lambda: BeamSearch.with_settings(beam_size=3, no_repeat_ngram_size=2, **SHORT),
    "averaged": lambda: AveragedBeamSearch.with_settings(beam_size=3, **SHORT),
    "transformers": lambda: TransformersBeamSearch.with_settings(beam_size=3, **SHORT),
    "diverse": lambda: DiverseBeamSearch.with_settings(
        beam_size=4, num_groups=2, diversity=0.5, **SHORT
    ),
    "greedy": lambda: GreedySearch.with_settings(repetition_penalty=1.2, **SHORT),
    "nucleus": lambda: Sampling.with_settings(top_k=10, top_p=0.9, num_captions=3, **SHORT),
    "constrained": lambda: ConstrainedBeamSearch.with_settings(beam_size=3, **SHORT),
}
every_model = pytest.mark.parametrize("name", [*MODELS, *FAMILIES])
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def gradients(model: AbstractCaptioner, batch: Batch) -> dict[str, torch.Tensor]:
    """Of the loss, by parameter; and the losses by caption."""
    losses = model.losses(batch)
    losses.total.backward()
    found = {key: p.grad.cpu() for key, p in model.named_parameters() if p.grad is not None}
    return {"losses": losses.per_sample.detach().cpu(), **found}


@every_model
def test_losses_and_gradients_are_those_of_the_processor(name: str, deterministic) -> None:
    model = build(name)
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.train()  # cuDNN has no backward pass in evaluation
    batch = batch_for(model)
    moved = gradients(copy.deepcopy(model).cuda(), batch.to("cuda"))
    expected = gradients(model, batch)
    assert moved.keys() == expected.keys()
    for key, values in expected.items():
        close = {"rtol": 1e-3, "atol": 1e-4 * max(1.0, float(values.abs().max()))}
        torch.testing.assert_close(
            moved[key], values, **close, msg=lambda text, key=key: f"{key}: {text}"
        )


def captions_are_the_processors(model: AbstractCaptioner, batch: Batch, **options: Any) -> None:
    expected = model.candidates(batch, **options)
    found = model.cuda().candidates(batch.to("cuda"), **options)
    assert [[p.caption for p in captions] for captions in found] == [
        [p.caption for p in captions] for captions in expected
    ]


@pytest.mark.parametrize("search", SEARCHES)
@every_model
def test_captions_are_those_of_the_processor(name: str, search: str, deterministic) -> None:
    model = build(name)
    batch = batch_for(model)
    machines = None
    if search == "constrained":
        token = int(batch.tokens[0, 2])
        machines = [build_machine([[(token,)]])] * len(batch.image_ids)
    options = {"search": SEARCHES[search](), "machines": machines}
    captions_are_the_processors(model, batch, **options)


def test_latents_are_drawn_as_by_the_processor(deterministic) -> None:
    model, batch = build("cos_cvae"), batch_for(build("cos_cvae"))
    search = LatentSearch.with_settings(num_captions=4, beam_size=2, **SHORT)
    captions_are_the_processors(model, batch, search=search)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Within it, what waits for the device raises an error."""
    torch.cuda.synchronize()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does not know of all that waits
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ViECap finds entities of photos on the device; models of transformers wait in its code.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "viecap"])
def test_no_step_waits_for_the_device(name: str) -> None:
    model = build(name).cuda().train()
    batch = batch_for(model).to("cuda")
    ledger = LossLedger(num_samples=len(batch), device=torch.device("cuda"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step() -> None:
        losses = model.losses(batch)
        losses.total.backward()
        ledger.add(batch.rows, losses.per_sample)
        optimizer.step()
        optimizer.zero_grad()

    step()
    with no_waiting():
        step()
