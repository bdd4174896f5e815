"""Policies that rank by the sum of a caption's token losses, as the data curation paper does."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from foreign import ForeignData, ForeignModule, make_roster, train

from captioning.config.compose import compose_config
from captioning.types import CaptionLosses
from curation.amend.remove import Remove
from curation.journal.journal import read_journal
from curation.loop.callback import CurationCallback
from curation.loop.curator import Curator
from curation.loop.ledger import LossLedger, read_history
from curation.loop.policy import Policy
from curation.loop.probes import RescoreProbe, score
from curation.score.joint import Joint, WithinImage
from curation.score.length import Length
from curation.score.loss import SUMMED, Loss
from curation.score.per_image import PerImage
from curation.select.random import Random
from curation.select.sigma import Sigma
from curation.select.top import Top

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory.*exists and is not empty.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*"),
]


class Summing(ForeignModule):
    """Its sums are those of as many tokens as the target has words."""

    def training_step(self, batch, batch_idx):
        outputs = super().training_step(batch, batch_idx)
        return outputs | {"per_sample_sum": outputs["per_sample"] * batch[2]}

    def probe_step(self, batch) -> Any:
        rows, per_sample = super().probe_step(batch)
        return rows, per_sample, per_sample * batch[2]


def by_sum(**options) -> CurationCallback:
    policy = Policy(select=Top(ratio=0.12, score=Loss(loss="sum")), amend=Remove(), name="by sum")
    return CurationCallback(policy=policy, plot=False, **options)


@pytest.mark.parametrize("probe", [None, RescoreProbe()])
def test_the_highest_sums_are_removed_also_after_a_resume(tmp_path, probe):
    module, data, _ = train(
        tmp_path / "a", epochs=2, callback=by_sum(probe=probe), module=Summing(rate=0.0)
    )
    batch = next(iter(ForeignData(roster=make_roster(), batch_size=18).probe_dataloader()))
    scored: Any = module.probe_step(batch)
    sums = scored[2].detach()
    worst = sums.topk(3).indices.tolist()  # 12% of 18 and of 16 samples: 2 and 1
    _, edits = read_journal(tmp_path / "a")
    assert [data.view.roster.by_id[edit.sample_id].row for edit in edits] == worst
    assert edits[0].reason.startswith(f"summed loss {float(sums.max()):.3f}, rank 1 of 18")
    history = read_history(tmp_path / "a/curation/summed_loss.npz")[2]
    torch.testing.assert_close(torch.from_numpy(history[0]), sums, rtol=0, atol=0)
    record = json.loads((tmp_path / "a/curation/epochs.json").read_text())[0]
    assert record["summed_loss_mean"] == pytest.approx(float(sums.mean()))
    assert record["summed_loss_std"] == pytest.approx(float(sums.std()))

    train(tmp_path / "b", epochs=1, callback=by_sum(probe=probe), module=Summing(rate=0.0))
    train(
        tmp_path / "b",
        epochs=2,
        callback=by_sum(probe=probe),
        module=Summing(rate=0.0),
        resume_from=tmp_path / "b/last.ckpt",
    )
    for name in ("curation.jsonl", "curation/epochs.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_histogram_shows_what_is_ranked_by(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "matplotlib.axes.Axes.set", lambda axes, **options: shown.append(options["xlabel"])
    )
    callback = by_sum()
    callback.plot = True
    train(tmp_path, epochs=1, callback=callback, module=Summing())
    assert shown == ["loss of the caption (nats)"]


@pytest.mark.parametrize("probe", [None, RescoreProbe()])
def test_a_model_without_token_losses_is_refused(tmp_path, probe):
    with pytest.raises(ValueError, match=r"score\.loss=sum needs .* 'per_sample_sum' of"):
        train(tmp_path, epochs=1, callback=by_sum(probe=probe))


class Captioner(pl.LightningModule):
    """Its losses are 1, their sums 3, or 4 with label smoothing."""

    def __init__(self, smoothed: torch.Tensor | None) -> None:
        super().__init__()
        self.smoothed = smoothed

    def losses(self, batch: Any) -> CaptionLosses:
        one = torch.ones(2)
        return CaptionLosses(total=one.mean(), per_sample=one, nll=3 * one, smoothed=self.smoothed)


def test_sums_may_have_label_smoothing():
    batch = SimpleNamespace(rows=torch.tensor([0, 1]))
    module = Captioner(torch.full((2,), 4.0))
    for smoothed, expected in ((False, 3.0), (True, 4.0)):
        _, losses, sums, _ = score(module, batch, smoothed=smoothed)
        assert losses.tolist() == [1, 1]
        assert sums is not None
        assert sums.tolist() == [expected] * 2


def test_the_papers_rows_rank_by_smoothed_sums():
    config = compose_config("train", ["experiment=data_curation/coco_blip", "curation=remove"])
    assert config.curation.callback.probe.smoothed
    assert config.curation.callback.policy.select.score.loss == "sum"


@pytest.mark.parametrize("module", [Captioner(None), Summing()])
def test_a_model_without_smoothed_sums_is_refused(module):
    with pytest.raises(ValueError, match=r"set curation\.probe\.smoothed=false"):
        score(module, SimpleNamespace(rows=torch.tensor([0, 1])), smoothed=True)


def test_a_checkpoint_without_sums_is_refused(tmp_path):
    track = Policy(select=Top(ratio=0.0), amend=Remove(), name="track")
    callback = CurationCallback(policy=track, plot=False)
    train(tmp_path, epochs=1, callback=callback, module=Summing())
    assert not (tmp_path / "curation/summed_loss.npz").exists()
    with pytest.raises(ValueError, match="did not measure 'summed_loss': start from a run with"):
        train(
            tmp_path,
            epochs=2,
            callback=by_sum(),
            module=Summing(),
            resume_from=tmp_path / "last.ckpt",
        )


def test_scores_of_scores_read_their_sums():
    summed, length = Loss(loss="sum"), Length()
    for of_scores in (
        WithinImage(score=summed),
        PerImage(score=summed),
        Joint(parts={"loss": summed, "length": length}),
    ):
        assert Sigma(score=of_scores).signals == (SUMMED,)
    assert Top(score=length).signals == Random(ratio=0.1).signals == ()
    with pytest.raises(ValueError, match=r"loss must be one of \('mean', 'sum'\): got 'max'"):
        Loss(loss="max")  # pyright: ignore[reportArgumentType]


def test_a_loop_of_ones_own_must_measure_them():
    policy = Policy(select=Top(score=Loss(loss="sum")), amend=Remove(), name="by sum")
    view = ForeignData(roster=make_roster()).view
    with pytest.raises(ValueError, match=r"Curation\.open\(signals=\('summed_loss',\)\)"):
        Curator(policy=policy, view=view)
    curator = Curator(policy=policy, view=view, signals=(SUMMED,))
    curator.expect(0)  # before any loss there is nothing to work ahead on


def test_an_epoch_under_way_is_not_told_to_lack_captions(caplog, monkeypatch):
    monkeypatch.setattr(Remove, "works_ahead", True)
    monkeypatch.setattr(Remove, "expect", lambda self, context, selected: None)
    view = ForeignData(roster=make_roster()).view
    policy = Policy(select=Top(ratio=0.5), amend=Remove(), name="by loss")
    curator = Curator(policy=policy, view=view)
    curator.ledger.add(torch.tensor([0, 1]), torch.tensor([1.0, 2.0]))
    curator.expect(0)
    assert not caplog.messages
    curator.end_epoch(0)
    assert caplog.messages[0].startswith(f"epoch 0 trained on 2 of {len(view.roster)} captions")


def test_a_ledger_keeps_sums_only_where_they_are_wanted():
    rows, losses = torch.tensor([0, 1, 0]), torch.tensor([1.0, 2.0, 3.0])
    ledger = LossLedger(num_samples=2)
    ledger.add(rows, losses, losses * 4)
    assert ledger.sums is None
    ledger.sums = LossLedger(num_samples=2)
    ledger.add(rows, losses, losses * 4)
    assert ledger.sums.mean().tolist() == [8, 8]  # the mean of the times that a sample was seen
