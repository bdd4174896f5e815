"""Captioners on a GPU: losses, gradients and captions of the processor, and no step that waits."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.nn import functional

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
from captioning.models.layers.cuda_graphs import Graphed, GraphedPart
from captioning.runtime.sample_dropout import use_torchs
from captioning.types import Batch
from curation.loop.ledger import LossLedger
from tests.contracts.test_captioners import FAMILIES, batch_for, build, only
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


GRAPHED = [name for name in MODELS if not name.startswith("blip")]


@pytest.fixture
def torchs_dropout() -> Iterator[None]:
    """As ``speed=gpu``: dropout by sample is drawn on the host, which no graph does."""
    use_torchs(True)
    yield
    use_torchs(False)


def with_and_without_graphs(name: str) -> tuple[AbstractCaptioner, AbstractCaptioner]:
    """Two equal models on the GPU, the second one with graphs."""
    model = build(name)
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.train()
    graphed = copy.deepcopy(model).cuda()
    graphed.use_cuda_graphs()
    return model.cuda(), graphed


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", GRAPHED)
def test_cuda_graphs_give_the_same_losses_and_gradients(
    name: str, precision: torch.dtype, torchs_dropout: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, graphed = with_and_without_graphs(name)
    replays = []
    replay = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(
        torch.cuda.CUDAGraph, "replay", lambda graph: (replays.append(graph), replay(graph))
    )
    batch = batch_for(model)
    # sizes grow, then fall
    for part in (only(model, batch, 4), batch, only(model, batch, 2), batch):
        on_gpu = part.to("cuda")
        model.zero_grad()
        graphed.zero_grad()
        with torch.autocast("cuda", precision, enabled=precision != torch.float32):
            expected, found = gradients(model, on_gpu), gradients(graphed, on_gpu)
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            largest = max(1.0, float(values.abs().max()))
            rtol, atol = (1e-3, 1e-4) if precision == torch.float32 else (0.1, 0.05)
            torch.testing.assert_close(
                found[key], values, rtol=rtol, atol=atol * largest, msg=lambda t, k=key: f"{k}: {t}"
            )
    assert len(replays) % 8 == 0 < len(replays)  # forward and backward of each batch


@pytest.mark.parametrize("name", GRAPHED)
def test_cuda_graphs_add_up_gradients_of_several_batches(name: str, torchs_dropout: None) -> None:
    """Those of one whose backward pass comes after the next one's forward pass, too."""
    model, graphed = with_and_without_graphs(name)
    batch = batch_for(model).to("cuda")
    for captioner in (model, graphed):
        first = captioner.losses(batch).total
        second = captioner.losses(batch).total
        second.backward()
        first.backward()
        captioner.losses(batch).total.backward()
    for (key, one), other in zip(model.named_parameters(), graphed.parameters(), strict=True):
        if one.grad is not None:
            close = {"rtol": 1e-3, "atol": 1e-3 * max(1.0, float(one.grad.abs().max()))}
            torch.testing.assert_close(
                other.grad, one.grad, **close, msg=lambda t, k=key: f"{k}: {t}"
            )


def test_a_cuda_graph_gives_gradients_once() -> None:
    model = build("updown").cuda()
    model.use_cuda_graphs()
    total = model.losses(batch_for(model).to("cuda")).total
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="speed.cuda_graphs=false"):
        total.backward()


def test_a_cuda_graph_drops_others_each_time() -> None:
    graphed = Graphed(lambda x: (functional.dropout(x, 0.25),))
    ones = torch.ones(1000, device="cuda", requires_grad=True)
    seen = []
    for _ in range(3):
        (dropped,) = graphed(ones)
        (gradient,) = torch.autograd.grad(dropped.sum(), ones)
        assert torch.equal(gradient, dropped)
        seen.append(dropped == 0)
    assert all(150 < int(zeros.sum()) < 350 for zeros in seen)
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_a_cuda_graph_is_of_training_or_of_evaluation() -> None:
    dropout = torch.nn.Dropout(0.5)
    graphed = GraphedPart(dropout, lambda x: (2 * dropout(x),))
    ones = torch.ones(1000, device="cuda", requires_grad=True)
    for training in (False, True, False):
        dropout.train(training)
        assert bool((graphed(ones)[0] == 0).any()) is training


def test_a_cuda_graph_is_of_no_use_without_gradients() -> None:
    graphed = Graphed(lambda x: (x + 1,))
    (after,) = graphed(torch.ones(4, device="cuda"))
    assert not after.requires_grad
    assert torch.equal(after.cpu(), torch.full((4,), 2.0))


def test_a_cuda_graph_reads_weights_as_they_are_now() -> None:
    layer = torch.nn.Linear(8, 8, device="cuda")
    graphed = GraphedPart(layer, lambda x: (layer(x),))
    values = torch.randn(4, 8, device="cuda")
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16):
            (found,) = graphed(values)
            expected = layer(values)
        torch.testing.assert_close(found, expected)
        with torch.no_grad():
            layer.weight.add_(0.5)


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
