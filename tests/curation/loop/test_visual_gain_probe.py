"""The visual gain of a module whose losses can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from captioning.data.batches import datamodule
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.pictures import FeatureReader
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import CurationView, Roster, build_roster
from captioning.text.tokenizers.words import WordTokenizer
from captioning.types import Batch, CaptionLosses, Edit, Sample
from curation.loop import visual_gain_probe
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
        photo_rows=tuple(rows),
    )


def roster(num_images: int, num_captions: int = 1) -> Roster:
    samples = [
        Sample(
            row=0,
            sample_id=f"{image}#{number}",
            image_id=str(image),
            image_path=Path(f"{image}.jpg"),
            caption="a dog" + " that runs" * ((image * 5 + number) % 4),
        )
        for image in range(num_images)
        for number in range(num_captions)
    ]
    return build_roster("train", samples)


BATCHES = [batch([0, 2], 1.0, [3, 5]), batch([3, 1], 5.0, [2, 2])]


class Module(torch.nn.Module):
    """Loses the row's number, and what its photo's first region says; more in training."""

    def losses(self, model_input: Batch) -> CaptionLosses:
        assert not torch.is_grad_enabled()
        seen = model_input.regions[model_input.image_index][:, 0, 0]
        loss = model_input.rows + seen + 100.0 * self.training
        return CaptionLosses(total=loss.mean(), per_sample=loss)


TRAINER = SimpleNamespace(
    datamodule=SimpleNamespace(
        view=CurationView(roster=roster(4)),
        probe_dataloader=lambda: BATCHES,
        eval_dataloader=lambda _, shared: BATCHES,
    ),
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


@pytest.mark.parametrize(("epoch", "is_measured"), [(1, True), (2, False)])
def test_the_gain_is_measured_in_its_last_epoch_and_not_later(epoch, is_measured) -> None:
    trainer, gains = (
        SimpleNamespace(**vars(TRAINER), current_epoch=epoch),
        LossLedger(num_samples=4),
    )
    probe = VisualGainProbe(until_epoch=1)
    probe.finish(LossLedger(num_samples=4), {"visual_gain": gains}, trainer, Module())
    assert gains.mean().isfinite().tolist() == [is_measured] * 4


def test_another_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="per must be 'token' or 'sentence': got 'word'"):
        VisualGainProbe(per="word")


class Features:
    """Stands for a store of photos that differ in every value and in their numbers of regions."""

    kind = "grid"
    has_boxes = False

    def positions(self, paths):
        return np.array([int(Path(path).stem) for path in paths])

    def read(self, positions):
        drawn = [
            torch.rand(5, 3, generator=torch.Generator().manual_seed(int(number))).half()
            for number in positions
        ]
        counts = torch.tensor([1 + int(number) % 5 for number in positions])
        width = int(counts.max())
        mask = torch.arange(width) < counts[:, None]
        return torch.stack(drawn)[:, :width], mask


class Reads(torch.nn.Module):
    """Loses what the regions of a caption's photo say together."""

    def losses(self, batch: Batch) -> CaptionLosses:
        regions = batch.regions[batch.image_index].double().sum(2)
        loss = (regions * batch.region_mask[batch.image_index]).sum(1)
        return CaptionLosses(total=loss.mean(), per_sample=loss)


def gains(probe: VisualGainProbe, edits: list[Edit], batch_size: int = 4) -> torch.Tensor:
    """Gains of eleven photos with two captions each, after edits; NaN where there is none."""
    train = roster(11, num_captions=2)
    module = CaptionDataModule(
        splits=Splits(train=train, val=train),
        tokenizer=WordTokenizer.build([s.caption for s in train.samples], min_count=1),
        readers={"pictures": FeatureReader(store=Features())},
        loader=LoaderSettings(batch_size=batch_size, eval_batch_size=batch_size),
    )
    module.view = module.view.apply(edits)
    trainer = SimpleNamespace(
        datamodule=module,
        strategy=TRAINER.strategy,
        precision_plugin=TRAINER.precision_plugin,
        current_epoch=0,
    )
    ledger = LossLedger(num_samples=len(train))
    probe.finish(LossLedger(num_samples=len(train)), {"visual_gain": ledger}, trainer, Reads())
    return ledger.mean()


FIRST_EPOCH = [Edit(sample_id=f"{n}#{k}", action="remove") for n in (0, 5, 6) for k in (0, 1)]


def test_a_resumed_run_measures_the_same_gains() -> None:
    probe = VisualGainProbe()
    gains(probe, [])
    straight, resumed = gains(probe, FIRST_EPOCH), gains(VisualGainProbe(), FIRST_EPOCH)
    assert int(straight.isnan().sum()) == len(FIRST_EPOCH)
    assert torch.equal(straight.nan_to_num(), resumed.nan_to_num())


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Which of two processes this one takes itself for, one after the other."""

    def ranks() -> Iterator[int]:
        for rank in (0, 1):
            monkeypatch.setattr(datamodule, "rank_and_size", lambda rank=rank: (rank, 2))
            yield rank

    return ranks()


def test_batches_and_processes_change_no_gain(two_processes: Iterator[int]) -> None:
    alone = gains(VisualGainProbe(), [])
    for batch_size in (1, 3, 100):
        assert torch.equal(gains(VisualGainProbe(), [], batch_size), alone)
    shares = [gains(VisualGainProbe(), [], 3) for _ in two_processes]
    for share in shares:
        measured_here = ~share.isnan()
        assert torch.equal(share[measured_here], alone[measured_here])
    assert not (shares[0].isnan() & shares[1].isnan()).any()


def test_of_many_photos_some_are_averaged_all_over_the_set(monkeypatch) -> None:
    monkeypatch.setattr(visual_gain_probe, "MEAN_PHOTOS", 3)
    asked = []
    data = SimpleNamespace(
        view=CurationView(roster=roster(8)),
        probe_dataloader=lambda: BATCHES,
        eval_dataloader=lambda photos, shared: asked.append((photos, shared)) or BATCHES,
    )
    trainer = SimpleNamespace(**{**vars(TRAINER), "datamodule": data})
    probe, ledger = VisualGainProbe(), LossLedger(num_samples=4)
    for _ in range(2):
        probe.finish(ledger, {"visual_gain": ledger}, trainer, Module())
    ((photos, shared),) = asked
    assert [sample.image_id for sample in photos.samples] == ["0", "3", "6"]
    assert not shared


def test_a_data_module_without_whole_rosters_is_told_what_to_add() -> None:
    data = SimpleNamespace(view=CurationView(roster=roster(4)), probe_dataloader=lambda: BATCHES)
    trainer = SimpleNamespace(**{**vars(TRAINER), "datamodule": data})
    ledger = LossLedger(num_samples=4)
    with pytest.raises(ValueError, match=r"needs trainer\.datamodule\.eval_dataloader\(roster, "):
        VisualGainProbe().finish(ledger, {"visual_gain": ledger}, trainer, Module())
