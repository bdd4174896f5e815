"""The visual gain of a module whose losses can be worked out by hand."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from captioning.types import Batch, CaptionLosses
from curation.loop.ledger import LossLedger
from curation.loop.visual_gain_probe import VisualGainProbe, blinded

ONES = torch.ones(2, 3, 4)
# Two batches of two photos each, with 3 regions of 4 values; the last region does not exist.
MASK = torch.tensor([[True, True, False]] * 2)


def batch(rows: list[int], scale: float, lengths: list[int]) -> Batch:
    regions = ONES * scale
    regions[:, 2] = 1000.0
    token_mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Batch(
        rows=torch.tensor(rows),
        sample_ids=tuple(map(str, rows)),
        image_ids=tuple(map(str, rows)),
        image_index=torch.arange(2),
        regions=regions,
        region_mask=MASK,
        tokens=token_mask.long(),
        token_mask=token_mask,
    )


BATCHES = [batch([0, 2], 1.0, [3, 5]), batch([3, 1], 5.0, [2, 2])]


class Module(torch.nn.Module):
    """Loses the row's number, and what its photo's first region says; more in training."""

    def losses(self, model_input: Batch) -> CaptionLosses:
        assert not torch.is_grad_enabled()
        seen = model_input.regions[model_input.image_index][:, 0, 0]
        loss = model_input.rows + seen + 100.0 * self.training
        return CaptionLosses(total=loss.mean(), per_sample=loss)


TRAINER = SimpleNamespace(
    datamodule=SimpleNamespace(probe_dataloader=lambda: BATCHES),
    strategy=SimpleNamespace(batch_to_device=lambda model_input: model_input),
    precision_plugin=SimpleNamespace(forward_context=nullcontext),
)


def measured(**options) -> tuple[torch.Tensor, torch.Tensor]:
    probe = VisualGainProbe(**options)
    losses, gains = LossLedger(num_samples=4), LossLedger(num_samples=4)
    module = Module().train()
    step = {"rows": torch.tensor([0, 1]), "per_sample": torch.tensor([7.0, 8])}
    probe.observe(losses, step)
    probe.finish(losses, {"visual_gain": gains}, TRAINER, module)
    assert module.training
    return losses.mean(), gains.mean()


def test_gain_is_the_loss_without_photo_less_the_loss_with_it() -> None:
    losses, gains = measured()
    # the mean of the regions that exist is 3: photos of 1 lose 2 more without, those of 5 lose less
    assert gains.tolist() == [2, -2, 2, -2]
    assert losses[:2].tolist() == [7, 8]
    assert losses[2:].isnan().all()


def test_a_sentence_gains_once_for_each_token_that_is_predicted() -> None:
    _, gains = measured(per="sentence")
    assert gains.tolist() == [2 * 2, -2, 2 * 4, -2]


def test_losses_of_the_pass_may_take_the_place_of_those_of_training() -> None:
    losses, _ = measured(rescored=True)
    assert losses.tolist() == [1, 6, 3, 8]


def test_pixels_are_blinded_by_their_mean() -> None:
    pixels = Batch(
        rows=torch.tensor([0]),
        sample_ids=("0",),
        image_ids=("0",),
        image_index=torch.tensor([0]),
        images=torch.ones(1, 3, 2, 2),
    )
    assert blinded(pixels, None).images.abs().sum() == 0


def test_another_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="per must be 'token' or 'sentence': got 'word'"):
        VisualGainProbe(per="word")
