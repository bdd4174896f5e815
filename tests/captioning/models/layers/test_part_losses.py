"""A batch that goes through a network in parts has the losses and gradients of the whole one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from captioning.models.adapt import add_low_rank
from captioning.models.layers.part_losses import batch_part, photo_parts
from captioning.models.vlm import Vlm
from captioning.types import Batch
from tests.tiny_vlm import batch_of, captioner, model_folder

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
FAMILY = "qwen2_vl"  # prompts of several lengths, patches in rows


def weighted() -> tuple[Vlm, Batch]:
    """Captions and tokens that count differently, one caption not at all."""
    model = captioner(model_folder(FAMILY), label_smoothing=0.1).double().train()
    batch = batch_of(model_folder(FAMILY), model.tokenizer)
    generator = torch.Generator().manual_seed(0)
    pixels = {n: v.double() for n, v in batch.extras.items() if v.is_floating_point()}
    return model, replace(
        batch,
        extras={**batch.extras, **pixels},
        weights=torch.tensor([1.0, 0.0, 0.5, 1.0, 0.25]),
        token_weights=torch.rand(batch.tokens.shape, generator=generator),
        token_sentences=torch.zeros_like(batch.tokens),
    )


def test_longest_captions_come_first_and_each_photo_once() -> None:
    _, batch = weighted()
    assert photo_parts(batch, 10**6) == [sorted(range(3), key=lambda i: -longest(batch, i))]
    alone = photo_parts(batch, 1)
    assert sorted(alone) == [[0], [1], [2]]
    assert [longest(batch, i) for (i,) in alone] == sorted(
        (longest(batch, i) for i in range(3)), reverse=True
    )


def longest(batch: Batch, photo: int) -> int:
    return int(batch.token_mask[batch.image_index == photo].sum(1).max())


def test_parts_hold_no_padding_that_they_do_not_need() -> None:
    _, batch = weighted()
    for photo in range(3):
        part, captions = batch_part(batch, [photo])
        assert captions.tolist() == (batch.image_index == photo).nonzero().squeeze(1).tolist()
        assert part.tokens.shape[1] == longest(batch, photo)
        assert bool(part.extras["prompt.attention_mask"][0, 0])


@pytest.mark.parametrize("most", [1, 60])
def test_losses_and_gradients_are_those_of_the_whole_batch(most: int) -> None:
    found = []
    for positions in (None, most):
        model, batch = weighted()
        model.positions_at_once = positions
        losses = model.losses(batch)
        (3 * losses.total).backward()
        (mean,) = losses.means
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found.append(
            {
                "total": losses.total.detach(),
                "per_sample": losses.per_sample,
                "nll": losses.nll.detach(),
                "smoothed": losses.smoothed,
                "token_nll": losses.token_nll,
                "denominator": mean.denominator,
                **gradients,
            }
        )
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)


def test_masks_of_dropout_are_those_of_the_whole_batch() -> None:
    pytest.importorskip("peft", reason="needs peft")
    lora = {"rank": 2, "alpha": 4, "dropout": 0.5, "modules": ["q_proj", "v_proj"]}
    found = []
    for positions in (None, 1):
        torch.manual_seed(0)
        model = captioner(model_folder(FAMILY))
        add_low_rank(model, **lora)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.fill_(0.1)
        model.train()
        model.positions_at_once = positions
        batch = batch_of(model_folder(FAMILY), model.tokenizer)
        found.append(model.losses(batch).per_sample)
        found.append(torch.rand(3))  # what is drawn afterwards
    torch.testing.assert_close(found[0], found[2])
    assert torch.equal(found[1], found[3])


def test_a_batch_without_weight_changes_nothing() -> None:
    model, batch = weighted()
    model.positions_at_once = 1
    losses = model.losses(replace(batch, weights=torch.zeros(5)))
    losses.total.backward()
    assert float(losses.total.detach()) == 0
    assert all(float(p.grad.abs().max()) == 0 for p in model.parameters() if p.grad is not None)


def test_an_objective_gets_gradients_by_caption() -> None:
    model, batch = weighted()
    model.positions_at_once = 1
    model.objective = lambda model, batch, number: model.losses(batch)
    assert model.losses(batch).nll.requires_grad
