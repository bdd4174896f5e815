"""The callback in a real trainer, with a module and a data module that are not the project's."""

from __future__ import annotations

import json

import page_data
import pytest
import torch
from foreign import ForeignData, ForeignModule, make_policy, make_roster, train
from pytorch_lightning.callbacks import ModelCheckpoint

from curation.amend.replace import ReplaceCaption, ReplaceImage
from curation.journal.journal import read_journal, replay
from curation.loop.callback import CurationCallback, _is_progress_check
from curation.loop.curator import _spread
from curation.loop.ledger import read_history
from curation.loop.probes import RescoreProbe
from tests.curation.toy_source import ToySource

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory.*exists and is not empty.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*"),
]


def curation(**options) -> CurationCallback:
    options.setdefault("policy", make_policy())
    options.setdefault("plot", False)
    return CurationCallback(**options)


@pytest.mark.parametrize(
    ("num_batches", "looked_at"), [(1, [0]), (3, [0, 1, 2]), (9, [0, 2, 4, 6, 8])]
)
def test_losses_are_looked_at_through_short_epochs_too(num_batches, looked_at):
    assert [n for n in range(num_batches) if _is_progress_check(n, num_batches)] == looked_at


def test_what_has_no_spread_is_recorded_without_one():
    assert _spread("loss", torch.tensor([])) == {"loss_mean": None, "loss_std": None}
    assert _spread("loss", torch.tensor([2.0])) == {"loss_mean": 2.0, "loss_std": None}
    assert _spread("loss", torch.tensor([1.0, 3.0]))["loss_std"] == pytest.approx(2**0.5)


def test_removed_samples_leave_the_next_epoch(tmp_path):
    _, data, trainer = train(tmp_path, epochs=3, callback=curation())
    # 18 samples; 12% of the live ones, rounded down, are 2, then 1 and 1
    assert [len(set(rows)) for rows in data.epochs_seen] == [18, 16, 15]
    assert trainer.callback_metrics["curation/num_live_after"] == 14
    header, edits = read_journal(tmp_path)
    assert header.roster == "toy/train"
    assert [edit.epoch for edit in edits] == [0, 0, 1, 2]
    assert {edit.policy for edit in edits} == {"test policy"}
    removed = {data.view.roster.by_id[edit.sample_id].row for edit in edits[:2]}
    assert removed.isdisjoint(data.epochs_seen[1])


def test_the_ledger_holds_each_samples_own_loss(tmp_path):
    callback = curation(policy=make_policy(ratio=0.0))
    module, data, _ = train(tmp_path, epochs=1, callback=callback, module=ForeignModule(rate=0.0))
    _, epochs, history = read_history(tmp_path / "curation" / "losses.npz")
    batch = next(iter(ForeignData(roster=data.view.roster, batch_size=18).probe_dataloader()))
    expected = module.probe_step(batch)[1].detach()
    assert epochs == [0]
    torch.testing.assert_close(torch.from_numpy(history[0]), expected, rtol=0, atol=0)


@pytest.mark.parametrize("probe", [None, RescoreProbe()])
@pytest.mark.parametrize("amend", [None, ReplaceCaption()])
def test_two_and_two_epochs_equal_four(tmp_path, probe, amend):
    def options():
        return {"policy": make_policy(amend=amend), "probe": probe, "seed": 5}

    complete, whole_data, _ = train(tmp_path / "four", epochs=4, callback=curation(**options()))
    train(tmp_path / "two", epochs=2, callback=curation(**options()))
    # what a killed run may have written beyond its checkpoint
    with (tmp_path / "two" / "curation.jsonl").open("a") as file:
        file.write('{"sample_id": "img0#0", "act')
    halves, halves_data, _ = train(
        tmp_path / "two",
        epochs=4,
        callback=curation(**options()),
        resume_from=tmp_path / "two" / "last.ckpt",
    )
    assert halves_data.epochs_seen[-1] == whole_data.epochs_seen[-1]
    for name in ("curation.jsonl", "curation/epochs.json", "curation/report.html"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "four" / name).read_bytes()
    saved = [
        read_history(tmp_path / folder_name / "curation/losses.npz")[2]
        for folder_name in ("two", "four")
    ]
    assert saved[0].tobytes() == saved[1].tobytes()
    for name, value in complete.state_dict().items():
        assert torch.equal(value, halves.state_dict()[name])


def test_a_checkpoint_at_validation_holds_the_epochs_edits(tmp_path):
    checkpoint = ModelCheckpoint(
        dirpath=tmp_path, monitor="val_loss", save_last=True, save_on_train_epoch_end=False
    )
    train(tmp_path, epochs=1, callback=curation(), checkpoint=checkpoint, limit_val_batches=1.0)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    journal = saved["callbacks"]["CurationCallback"]["journal"]
    assert len(journal) == 2
    assert "remove" in journal[0]


@pytest.mark.parametrize("value", [0, 2])
def test_loaders_that_are_not_rebuilt_are_refused(tmp_path, value):
    with pytest.raises(ValueError, match="reload_dataloaders_every_n_epochs=1"):
        train(tmp_path, epochs=1, callback=curation(), reload_dataloaders_every_n_epochs=value)


def test_a_data_module_without_a_view_is_refused(tmp_path):
    data = ForeignData(roster=make_roster())
    data.view = data.view.samples()
    with pytest.raises(ValueError, match="view must be a CurationView"):
        train(tmp_path, epochs=1, callback=curation(), data=data)


def test_a_step_without_rows_is_refused(tmp_path):
    class Plain(ForeignModule):
        def training_step(self, batch, batch_idx):
            return self.per_sample(*batch[1:]).mean()

    with pytest.raises(ValueError, match="'rows'"):
        train(tmp_path, epochs=1, callback=curation(), module=Plain())


def test_a_loss_that_is_not_a_number_names_the_sample(tmp_path):
    class Broken(ForeignModule):
        def training_step(self, batch, batch_idx):
            result = super().training_step(batch, batch_idx)
            nan = torch.where(batch[0] == 7, torch.nan, 0.0)
            return {**result, "per_sample": result["per_sample"] + nan}

    with pytest.raises(ValueError, match=r"not finite in epoch 0, such as 'img2#1' \(nan\)"):
        train(tmp_path, epochs=1, callback=curation(), module=Broken())
    assert read_journal(tmp_path)[1] == []


def test_truth_gives_detection_scores(tmp_path):
    truth = {"img0#1": "caption of another photo", "img3#2": "overlong"}
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    callback = curation(truth=tmp_path / "truth.json", plot=True)
    train(tmp_path, epochs=2, callback=callback)
    detections = json.loads((tmp_path / "curation/detection.json").read_text())
    assert [entry["epoch"] for entry in detections] == [0, 1]
    assert detections[0]["num_faulty"] == 2
    assert 0 <= detections[0]["auc"] <= 1
    by_kind = detections[0]["by_kind"]
    assert list(by_kind) == ["caption of another photo", "overlong"]
    assert [kind["num_faults"] for kind in by_kind.values()] == [1, 1]
    # each against the sound samples: together the area of all faults
    assert sum(kind["auc"] for kind in by_kind.values()) / 2 == pytest.approx(detections[0]["auc"])
    assert (tmp_path / "curation/epoch_001.png").read_bytes().startswith(b"\x89PNG")
    page_facts = page_data.facts(tmp_path / "curation/report.html")
    assert [entry["planted"] for entry in page_facts["truth"]["kinds"]] == [1, 1]
    assert len(page_facts["epochs"]) == 2


def test_truth_of_other_annotations_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'nowhere#0'"):
        train(tmp_path, epochs=1, callback=curation(truth={"nowhere#0": "swap"}))


def test_the_journal_replays_to_the_runs_view(tmp_path):
    callback = curation(policy=make_policy(ratio=0.3, amend=ReplaceCaption()))
    _, data, _ = train(tmp_path, epochs=3, callback=callback)
    assert replay(make_roster(), tmp_path).samples() == data.view.samples()


def test_a_fresh_run_sets_an_old_journal_aside(tmp_path):
    train(tmp_path, epochs=1, callback=curation())
    before = (tmp_path / "curation.jsonl").read_bytes()
    train(tmp_path, epochs=1, callback=curation(policy=make_policy(ratio=0.0)))
    assert (tmp_path / "curation.old-1.jsonl").read_bytes() == before
    assert read_journal(tmp_path)[1] == []


def test_what_a_killed_run_had_not_finished_is_removed(tmp_path):
    details = tmp_path / "curation"
    details.mkdir()
    cut_off = [details / f".0f3a9c12b4de{suffix}" for suffix in (".npz", ".json", ".png", ".html")]
    for path in (*cut_off, details / ".kept"):
        path.write_bytes(b"cut o")
    train(tmp_path, epochs=1, callback=CurationCallback(policy=make_policy(), plot=False))
    assert [path for path in details.iterdir() if path.name[0] == "."] == [details / ".kept"]


def test_a_checkpoint_of_other_annotations_is_refused(tmp_path):
    train(tmp_path, epochs=1, callback=curation())
    other = ForeignData(roster=make_roster(num_images=5))
    with pytest.raises(ValueError, match="fingerprint"):
        train(
            tmp_path, epochs=2, callback=curation(), data=other, resume_from=tmp_path / "last.ckpt"
        )


def test_rescoring_leaves_modes_and_random_numbers_alone(tmp_path):
    class Watched(ForeignModule):
        modes = ()

        def probe_step(self, batch):
            Watched.modes = (*Watched.modes, self.training, self.dropout.training)
            assert not torch.is_grad_enabled()
            return super().probe_step(batch)

    def run(probe):
        torch.manual_seed(0)
        callback = curation(policy=make_policy(ratio=0.0), probe=probe)
        module = Watched(dropout=0.5)
        module.linear.eval()  # a frozen part must stay in eval mode
        train(tmp_path, epochs=2, callback=callback, module=module)
        assert not module.linear.training
        assert module.dropout.training
        return module.state_dict()

    with pytest.warns(UserWarning, match="eval mode at the start"):
        online, rescored = run(None), run(RescoreProbe())
    assert set(Watched.modes) == {False}
    assert all(torch.equal(online[name], rescored[name]) for name in online)


def test_policies_work_ahead_while_the_epoch_goes_on(tmp_path):
    source = ToySource(folder=tmp_path / "pictures")
    policy = make_policy(ratio=0.2, amend=ReplaceImage(source=source), from_epoch=1)
    train(tmp_path, epochs=2, callback=curation(policy=policy), module=ForeignModule(rate=0.0))
    # 5 batches an epoch: a look after each but the last; nothing is due in the first epoch
    assert len(source.expected) == 4
    edited = [edit.sample_id for edit in read_journal(tmp_path)[1]]
    # what was not seen yet counts with the epoch before, whose losses are the same here
    assert all(set(expected) == set(edited) for expected in source.expected)
    assert source.num_closed > 0


def test_the_source_of_pictures_is_closed_when_training_fails(tmp_path):
    class Broken(ForeignModule):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("broken")

    source = ToySource()
    policy = make_policy(amend=ReplaceImage(source=source))
    with pytest.raises(RuntimeError, match="broken"):
        train(tmp_path, epochs=1, callback=curation(policy=policy), module=Broken())
    assert source.num_closed > 0


def test_a_data_module_that_refuses_new_photos_is_refused_before_training(tmp_path):
    data = ForeignData(roster=make_roster())
    data.refuses_photos = "its features were imported"
    policy = make_policy(amend=ReplaceImage(source=ToySource()))
    with pytest.raises(ValueError, match="'test policy' replaces images, but its features were"):
        train(tmp_path, epochs=1, callback=curation(policy=policy), data=data)
    assert data.epochs_seen == []
    train(tmp_path, epochs=1, callback=curation(), data=data)
