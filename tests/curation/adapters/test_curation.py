"""A plain loop: what is recorded, decided, kept and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout
from foreign import make_policy, make_roster
from plain_run import Rows, files_of, losses_of, opened, run_epoch

from captioning.commands.main import main
from captioning.runtime.file_lock import lock_of
from curation.adapters.presets import preset
from curation.amend.down_weight import DownWeight
from curation.amend.remove import Remove
from curation.amend.replace import ReplaceCaption
from curation.detect import contexts, detect_by_score
from curation.finished_run import read_run
from curation.loop.policy import Policy, Schedule
from curation.loop.visual_gain_probe import VisualGain
from curation.manifest import Manifest, settings_of
from curation.score.duplicate import Duplicate
from curation.score.joint import Joint
from curation.score.length import Length
from curation.score.loss import Loss
from curation.score.siblings import Siblings, WordLikeness
from curation.score.words import Words
from curation.select.top import Top


def test_the_worst_samples_leave_and_the_folder_tells_it(tmp_path):
    curation = opened(tmp_path)
    assert (curation.epoch, len(curation.samples())) == (0, 18)
    run_epoch(curation)
    worst = sorted(range(18), key=lambda row: float(losses_of(torch.tensor(row), 0)))[-2:]
    assert {s.row for s in curation.roster.samples} - {s.row for s in curation.samples()} == {
        *worst
    }
    assert (curation.epoch, curation.first_epoch) == (1, 0)
    run_epoch(curation)
    curation.finish()
    record = read_run(tmp_path)
    assert (record.policy, record.seed, record.epochs) == ("test policy", 0, [0, 1])
    assert record.view.samples() == curation.samples()
    assert np.isnan(record.history[1]).sum() == 2
    assert (tmp_path / "curation" / "report.html").is_file()


def test_a_loop_goes_on_after_the_last_epoch_that_its_folder_holds(tmp_path):
    straight, resumed = tmp_path / "a", tmp_path / "b"
    curation = opened(straight, seed=4)
    for _ in range(3):
        run_epoch(curation)
    curation = opened(resumed, seed=4)
    run_epoch(curation)
    curation.add(torch.tensor([0, 1]), torch.tensor([9.0, 9.0]))  # then it is killed
    for _ in range(2):
        curation = opened(resumed, seed=4)
        run_epoch(curation)
    assert curation.epoch == 3
    assert files_of(straight) == files_of(resumed)


def test_a_loop_goes_on_from_its_own_checkpoint_of_an_earlier_epoch(tmp_path):
    straight, behind = tmp_path / "a", tmp_path / "b"
    for folder in (straight, behind):
        curation = opened(folder, policy=make_policy(amend=ReplaceCaption()))
        for _ in range(3):
            run_epoch(curation)
    curation = opened(behind, policy=make_policy(amend=ReplaceCaption()), first_epoch=1)
    assert curation.first_epoch == 1
    assert {edit.epoch for edit in read_run(behind).view.journal} == {0}
    assert read_run(behind).epochs == [0]
    for _ in range(2):
        run_epoch(curation)
    assert files_of(straight) == files_of(behind)


def test_the_state_of_a_checkpoint_counts_more_than_the_folder(tmp_path):
    straight, resumed = tmp_path / "a", tmp_path / "b"
    states = []
    for folder in (straight, resumed):
        curation = opened(folder)
        for _ in range(3):
            run_epoch(curation)
            states.append(curation.state_dict())
    torch.save(states[3], tmp_path / "checkpoint.pt")
    curation = opened(resumed)
    curation.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    assert (curation.first_epoch, len(curation.samples())) == (1, 16)
    for _ in range(2):
        run_epoch(curation)
    assert files_of(straight) == files_of(resumed)


def test_amid_an_epoch_the_losses_so_far_are_kept_only_where_asked_for(tmp_path):
    curation = opened(tmp_path)
    curation.add(torch.arange(9), torch.ones(9))
    state = curation.state_dict()
    for mid_epoch, num_seen in ((True, 18), (False, 9)):
        other = opened(tmp_path / str(mid_epoch))
        other.load_state_dict(state, mid_epoch=mid_epoch)
        other.add(torch.arange(9, 18), torch.ones(9))
        assert other.end_epoch().record["num_seen"] == num_seen


def test_to_begin_anew_puts_the_old_run_aside(tmp_path):
    run_epoch(opened(tmp_path))
    old = (tmp_path / "curation.jsonl").read_bytes()
    curation = opened(tmp_path, first_epoch=0, seed=9)
    assert (curation.epoch, len(curation.samples())) == (0, 18)
    assert (tmp_path / "curation.old-1" / "curation.jsonl").read_bytes() == old
    opened(tmp_path, first_epoch=0, seed=9)  # nothing happened, so nothing is kept
    assert not (tmp_path / "curation.old-2").exists()


def test_a_policy_may_act_before_training(tmp_path):
    policy = make_policy(ratio=0.5, from_epoch=-1, until_epoch=-1)
    policy.select = Top(ratio=0.5, score=Rows())
    assert len(opened(tmp_path, policy=policy).samples()) == 9
    again = opened(tmp_path, policy=policy)
    assert (again.epoch, len(again.samples())) == (0, 9)


@pytest.mark.parametrize("score", ["loss", "loss_history"])
def test_a_policy_by_losses_cannot_act_before_training(tmp_path, score):
    options = ("curation/schedule=before_training", "curation.select.ratio=0.5")
    policy = preset("remove", f"curation/score={score}", *options)
    with pytest.raises(ValueError, match=rf"score \({score.replace('_', ' ')}.*before training"):
        opened(tmp_path, policy=policy)
    policy = preset("remove", "curation/select=share", *options)
    assert len(opened(tmp_path, policy=policy).samples()) < 18


def test_further_measurements_are_scored(tmp_path):
    policy = Policy(select=Top(ratio=0.12, score=VisualGain()), amend=ReplaceCaption(), name="gain")
    curation = opened(tmp_path, policy=policy, signals=("visual_gain",))
    rows = torch.arange(18)
    gains = torch.ones(18)
    gains[7] = -5
    curation.add(rows, torch.ones(18), visual_gain=gains)
    assert 7 in [chosen.sample.row for chosen in curation.end_epoch().decision.selected]
    assert (tmp_path / "curation" / "visual_gain.npz").is_file()
    with pytest.raises(ValueError, match="signals must be the ones given to Curation.open"):
        curation.add(rows, torch.ones(18))


def test_weights_follow_the_policy(tmp_path):
    curation = opened(tmp_path, policy=make_policy(amend=DownWeight(factor=0.25)))
    assert curation.weights(torch.tensor([0, 5])).tolist() == [1, 1]
    assert curation.mean_weight == 1
    run_epoch(curation)
    low = [sample.row for sample in curation.samples() if sample.weight < 1]
    assert curation.weights(torch.tensor(low)).tolist() == [0.25, 0.25]
    assert curation.mean_weight == pytest.approx((16 + 0.5) / 18)


def test_planted_faults_are_scored_and_detected_by_the_command(tmp_path):
    roster = make_roster()
    truth = {roster.samples[7].sample_id: "swap", roster.samples[9].sample_id: "swap"}
    curation = opened(tmp_path, truth=truth)
    run_epoch(curation)
    assert json.loads((tmp_path / "noise_truth.json").read_text()) == truth
    assert json.loads((tmp_path / "curation/detection.json").read_text())[0]["num_faulty"] == 2
    curation.finish()
    assert read_run(tmp_path).truth == truth
    (context,) = contexts(tmp_path)
    assert detect_by_score({"loss": Loss()}, context)["loss"]["num_faults"] == 2


@pytest.mark.parametrize(
    ("rows", "losses", "message"),
    [
        ([0, 1], [1.0], r"losses must have one value for each row \(2,\): got \(1,\)"),
        ([0, 1], 1.0, "a mean over the batch has no losses of samples"),
        ([0, 18], [1.0, 1.0], "row 18 is outside the roster of 18 samples"),
        ([-1, 0], [1.0, 1.0], "row -1 is outside the roster"),
        ([0.0, 1.0], [1.0, 1.0], r"rows must be \(B,\) whole numbers: got \(2,\) of torch.float32"),
    ],
)
def test_a_wrong_batch_is_refused_at_once(tmp_path, rows, losses, message):
    with pytest.raises(ValueError, match=message):
        opened(tmp_path).add(torch.tensor(rows), torch.tensor(losses))


def test_what_is_wrong_on_a_device_is_told_at_the_epochs_end(tmp_path):
    curation = opened(tmp_path)
    known = curation._without_outside(torch.tensor([3, 18, -4]))  # as rows on a GPU
    assert known.tolist() == [3, 17, 0]
    curation.add(known, torch.ones(3))
    with pytest.raises(ValueError, match="epoch 0: 2 rows lie outside the roster of 18 samples"):
        curation.end_epoch()


def test_an_epoch_without_losses_or_with_a_nan_is_refused(tmp_path):
    curation = opened(tmp_path)
    with pytest.raises(ValueError, match="epoch 0: no loss was added: call curation.add"):
        curation.end_epoch()
    curation.add(torch.tensor([4]), torch.tensor([float("nan")]))
    with pytest.raises(ValueError, match="not finite in epoch 0, such as 'img1#1'"):
        curation.end_epoch()


def test_a_folder_of_another_run_is_refused(tmp_path):
    run_epoch(opened(tmp_path))
    with pytest.raises(ValueError, match="holds a run on other samples"):
        opened(tmp_path, samples=make_roster(num_images=5))
    with pytest.raises(ValueError, match="holds a run on other samples"):
        opened(tmp_path, samples=make_roster(num_images=5), first_epoch=0)
    changes = {
        "policy": (make_policy(ratio=0.2), r"settings.select.ratio: 0.12 -> 0.2"),
        "seed": (1, "seed: 0 -> 1"),
        "signals": (("visual_gain",), "signals"),
    }
    for key, (value, message) in changes.items():
        with pytest.raises(ValueError, match=f"holds a run with another curation .*{message}"):
            opened(tmp_path, **{key: value})
    with pytest.raises(ValueError, match="first_epoch=2 does not match .* holds 1 epochs"):
        opened(tmp_path, first_epoch=2)
    (tmp_path / "config.yaml").write_text("seed: 0")
    with pytest.raises(ValueError, match="is a run of `captioning train`: choose another folder"):
        opened(tmp_path)


def by_score(score) -> Policy:
    return Policy(select=Top(ratio=0.12, score=score), amend=Remove(), name="one name")


def siblings(nearest: int | None) -> Siblings:
    return Siblings(likeness=WordLikeness(), nearest=nearest)


def joint(weight: float, nearest: int | None = 2) -> Joint:
    parts = {"length": Length(), "siblings": siblings(nearest)}
    return Joint(parts=parts, weights={"length": weight, "siblings": 1.0})


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (siblings(1), siblings(None), r"select\.score\.nearest: 1 -> None"),
        (Duplicate(max_bits=None), Duplicate(max_bits=0), r"score\.max_bits: None -> 0"),
        (joint(1.0), joint(100.0), r"score\.weights\.length: 1.0 -> 100.0"),
        (joint(1.0, 1), joint(1.0, 3), r"score\.parts\.siblings\.nearest: 1 -> 3"),
        (Words(), Words(num_folds=4), r"score\.num_folds: 3 -> 4"),
        (Words(), Words(topics=["color"]), r"score\.topics: \['action', .* -> \['color'\]"),
        (Words(), Words(training={"lr": 0.1}), r"score\.training\.lr: 0.006 -> 0.1"),
    ],
)
def test_a_folder_of_a_policy_with_other_settings_is_refused(before, now, message):
    saved, changed = (
        Manifest(
            roster="toy",
            fingerprint="0",
            policy="one name",
            settings=settings_of(by_score(score)),
            seed=0,
        )
        for score in (before, now)
    )
    read = replace(saved, settings=json.loads(json.dumps(saved.settings)))
    saved.check(read, Path("run"), restart=False)
    with pytest.raises(ValueError, match=f"holds a run with another curation .*{message}"):
        changed.check(read, Path("run"), restart=False)


def test_a_changed_part_of_a_policy_does_not_go_on_in_the_folder(tmp_path):
    run_epoch(opened(tmp_path, policy=by_score(siblings(1))))
    with pytest.raises(ValueError, match="settings.select.score.nearest: 1 -> 2"):
        opened(tmp_path, policy=by_score(siblings(2)))
    assert opened(tmp_path, policy=by_score(siblings(1))).epoch == 1


def test_a_folder_that_another_process_writes_to_is_refused(tmp_path):
    with FileLock(lock_of(tmp_path)), pytest.raises(ValueError, match="is in use by .*: wait"):
        opened(tmp_path)
    curation = opened(tmp_path)
    assert opened(tmp_path).epoch == 0  # the same process may, as where a cell is run again
    with pytest.raises(Timeout):
        FileLock(lock_of(tmp_path)).acquire(timeout=0)
    run_epoch(curation)
    curation.finish()
    FileLock(lock_of(tmp_path)).acquire(timeout=0)


def test_damaged_files_are_named(tmp_path, capsys):
    run_epoch(opened(tmp_path))
    details = tmp_path / "curation"
    roster = (details / "roster.jsonl").read_text()
    (details / "roster.jsonl").write_text(roster.replace("picture 2", "portrait 2", 1))
    assert main(["report", str(tmp_path), "--no-figures"]) == 1  # without the part on curation
    assert "roster.jsonl was changed: its samples have fingerprint" in capsys.readouterr().err
    (details / "roster.jsonl").write_text(roster[:-5])
    with pytest.raises(ValueError, match="roster.jsonl line 18 is not JSON"):
        read_run(tmp_path)
    state = (details / "state.safetensors").read_bytes()
    (details / "state.safetensors").write_bytes(state[:100])
    with pytest.raises(ValueError, match="state.safetensors is not a readable state of curation"):
        opened(tmp_path)
    manifest = json.loads((details / "manifest.json").read_text())
    (details / "manifest.json").write_text(json.dumps(manifest | {"seed": "x"}))
    with pytest.raises(ValueError, match="manifest.json: 'seed' must be a int"):
        opened(tmp_path)


@pytest.mark.parametrize("policy", ["pseudo_label", "condition"])
def test_a_policy_that_needs_our_captioner_is_refused(tmp_path, policy):
    with pytest.raises(ValueError, match=f"'{policy}' works only with this framework's captioner"):
        opened(tmp_path, policy=policy)


PLAIN = """
import sys, torch
from curation import Curation, CuratedDataset, per_sample_losses
from curation.amend.remove import Remove
from curation.loop.policy import Policy
from curation.select.top import Top
policy = Policy(select=Top(ratio=0.5), amend=Remove(), name="mine")
records = [{"image": f"{i}.jpg", "caption": f"photo {i}"} for i in range(4)]
curation = Curation.open(sys.argv[1], samples=records, policy=policy, plot=False)
CuratedDataset(lambda sample: {"text": sample.caption}, curation)[0]
curation.add(torch.arange(4), torch.arange(4.0))
assert len(curation.end_epoch().view.samples()) == 2
curation.finish()
heavy = {"pytorch_lightning", "transformers", "hydra", "matplotlib", "datasets"}
print(sorted({*heavy, "captioning.models", "captioning.training"} & set(sys.modules)))
"""


@pytest.mark.long
def test_a_plain_loop_imports_little(tmp_path, repository):
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path)],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]"


def test_a_schedule_is_a_setting(tmp_path):
    policy = make_policy()
    policy.schedule = Schedule(from_epoch=1)
    curation = opened(tmp_path, policy=policy)
    run_epoch(curation)
    assert len(curation.samples()) == 18
    run_epoch(curation)
    assert len(curation.samples()) == 16


def test_a_loop_that_ends_no_epoch_is_told_so(tmp_path, caplog):
    curation = opened(tmp_path)
    curation.add(torch.arange(3), torch.ones(3))
    curation.finish()
    assert "no epoch was ended, so curation decided nothing" in caplog.text
