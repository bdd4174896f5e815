from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from curation.loop.ledger import LossLedger, read_history


def test_means_of_repeats_and_nan_for_the_unseen():
    ledger = LossLedger(num_samples=4)
    ledger.add(torch.tensor([0, 2, 2]), torch.tensor([1.0, 2.0, 4.0]))
    ledger.add(torch.tensor([2]), torch.tensor([6.0]))
    ledger.reduce()
    means = ledger.close_epoch(epoch=0)
    assert means[[0, 2]].tolist() == [1.0, 4.0]
    assert torch.isnan(means[[1, 3]]).all()
    assert torch.isnan(ledger.mean()).all()


def test_history_keeps_epochs_apart():
    ledger = LossLedger(num_samples=2)
    for epoch in (3, 5):
        ledger.add(torch.tensor([0, 1]), torch.tensor([float(epoch), 0.0]))
        ledger.close_epoch(epoch=epoch)
    assert ledger.epochs == (3, 5)
    assert ledger.history()[:, 0].tolist() == [3.0, 5.0]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_named(loss):
    ledger = LossLedger(num_samples=3)
    ledger.add(torch.tensor([0, 1]), torch.tensor([1.0, loss]))
    with pytest.raises(ValueError, match=f"epoch 4, such as 'sample 1' \\({loss}\\)"):
        ledger.close_epoch(epoch=4, name_of=lambda row: f"sample {row}")
    assert ledger.epochs == ()


def test_shapes_must_agree():
    message = r"one value per row: got \(3,\) for rows \(2,\)"
    with pytest.raises(ValueError, match=message):
        LossLedger(num_samples=4).add(torch.tensor([0, 1]), torch.zeros(3))


def test_adding_after_reducing_is_an_error_until_the_epoch_is_closed():
    ledger = LossLedger(num_samples=2)
    ledger.reduce()
    with pytest.raises(RuntimeError, match="close_epoch"):
        ledger.add(torch.tensor([0]), torch.tensor([1.0]))
    ledger.close_epoch(epoch=0)
    ledger.add(torch.tensor([0]), torch.tensor([1.0]))
    assert ledger.mean()[0] == 1.0


@pytest.mark.parametrize("begin_anew", ["load_state_dict", "clear_running"])
def test_an_epoch_begun_anew_takes_losses_though_the_last_was_reduced(begin_anew):
    ledger = LossLedger(num_samples=2)
    ledger.add(torch.tensor([0]), torch.tensor([5.0]))
    ledger.reduce()
    if begin_anew == "load_state_dict":
        ledger.load_state_dict(LossLedger(num_samples=2).state_dict())
    else:
        ledger.clear_running()
    ledger.add(torch.tensor([0]), torch.tensor([1.0]))
    assert ledger.mean()[0] == 1.0


def test_half_precision_losses_are_summed_in_single():
    ledger = LossLedger(num_samples=1)
    for _ in range(3):
        ledger.add(torch.tensor([0]), torch.tensor([2049.0]).to(torch.bfloat16))
    assert ledger.mean().dtype == torch.float32
    assert ledger.mean()[0] == 2048.0  # bfloat16 rounds the loss, the sum of three does not


def test_state_survives_a_checkpoint_of_plain_values(tmp_path):
    ledger = LossLedger(num_samples=3)
    ledger.add(torch.tensor([0]), torch.tensor([1.5]))
    ledger.close_epoch(epoch=0)
    ledger.add(torch.tensor([2]), torch.tensor([2.5]))
    torch.save(ledger.state_dict(), tmp_path / "state.pt")
    other = LossLedger(num_samples=3)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other.history().nan_to_num(-1), ledger.history().nan_to_num(-1))
    assert torch.equal(other.mean().nan_to_num(-1), ledger.mean().nan_to_num(-1))
    assert other.epochs == (0,)


def test_a_saved_state_does_not_change_with_the_ledger():
    ledger = LossLedger(num_samples=2)
    ledger.add(torch.tensor([0]), torch.tensor([1.0]))
    state = ledger.state_dict()
    ledger.add(torch.tensor([0]), torch.tensor([1.0]))
    assert state["sum"].tolist() == [1.0, 0.0]


def test_the_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match="2 samples, this roster has 3"):
        LossLedger(num_samples=3).load_state_dict(LossLedger(num_samples=2).state_dict())


def test_the_history_file_is_whole_or_not_there(tmp_path):
    ledger = LossLedger(num_samples=2)
    ledger.add(torch.tensor([1]), torch.tensor([0.5]))
    ledger.close_epoch(epoch=7)
    path = tmp_path / "losses.npz"
    ledger.save(path, sample_ids=["ä#0", "b\n#1"])
    ids, epochs, history = read_history(path)
    assert (ids, epochs) == (["ä#0", "b\n#1"], [7])
    assert np.isnan(history[0, 0])
    assert history[0, 1] == 0.5
    before = path.read_bytes()
    with pytest.raises(TypeError):
        ledger.save(path, sample_ids=[object()])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (np.ones((2, 2)), r"shape \(2, 2\) of the losses does not match 1 epochs and 2 samples"),
        (np.array([[1.0, np.inf]]), "some losses are infinite"),
    ],
)
def test_a_history_that_no_run_writes_is_refused(tmp_path, history, message):
    ids = np.frombuffer(b'["a", "b"]', dtype=np.uint8)
    np.savez(tmp_path / "losses.npz", history=history, epochs=np.array([0]), sample_ids=ids)
    with pytest.raises(ValueError, match=message):
        read_history(tmp_path / "losses.npz")


def test_no_flipped_bit_of_the_history_is_read(tmp_path):
    ledger, path = LossLedger(num_samples=40), tmp_path / "losses.npz"
    ledger.add(torch.arange(40), torch.rand(40))
    ledger.close_epoch(epoch=0)
    ledger.save(path, sample_ids=[f"a#{number}" for number in range(40)])
    complete, expected, draw = path.read_bytes(), read_history(path), random.Random(0)
    damaged = [complete[:100], b"", b"[1]", complete[:-9]]
    for place in draw.sample(range(8 * len(complete)), 200):
        flipped = bytearray(complete)
        flipped[place // 8] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            ids, epochs, history = read_history(path)
        except ValueError:
            refused += 1
        else:  # a byte that nobody reads
            assert (ids, epochs) == expected[:2]
            assert np.array_equal(history, expected[2])
    assert refused > 100
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"losses\.npz has no losses of a run .*resume or"):
        read_history(path)
