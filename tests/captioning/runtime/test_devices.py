"""The device of a network."""

from __future__ import annotations

import pytest
import torch

from captioning.runtime import devices
from captioning.runtime.devices import Resident, chosen_device, full_precision


def test_auto_and_devices_that_are_there_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert chosen_device("auto") == chosen_device("cuda") == torch.device("cuda:0")
    assert chosen_device("cuda:1") == torch.device("cuda:1")
    assert chosen_device(torch.device("cpu")) == chosen_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="device=cuda:2: torch sees 2 of this kind, counted from"):
        chosen_device("cuda:2")


@pytest.mark.parametrize(
    ("launcher", "seen", "current", "expected"),
    [
        ({}, 4, None, 0),
        ({"LOCAL_RANK": "2", "SLURM_LOCALID": "1"}, 4, 0, 2),
        ({"SLURM_LOCALID": "1"}, 4, None, 1),
        ({"SLURM_LOCALID": "3"}, 1, None, 0),  # the launcher shows each process one GPU alone
        ({"LOCAL_RANK": "1"}, 4, 3, 3),  # as with trainer.devices=[2, 3], once it trains
    ],
)
def test_each_process_takes_its_own_gpu(
    launcher: dict, seen: int, current: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: seen)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: current is not None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    for device in ("auto", "cuda", torch.device("cuda")):
        assert chosen_device(device) == torch.device("cuda", expected)
    assert chosen_device("cuda:0") == torch.device("cuda:0")


def test_a_device_that_is_not_there_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert chosen_device("auto") == torch.device("cpu")
    for device in ("cuda", "cuda:0"):
        with pytest.raises(ValueError, match=f"device={device}: torch sees none .*give device=cpu"):
            chosen_device(device)


def test_what_is_kept_is_computed_in_full_precision(monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    torch.set_float32_matmul_precision("high")
    try:
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision("highest")


def test_what_is_kept_is_computed_in_full_precision_within_a_step(monkeypatch) -> None:
    weights = torch.eye(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (weights @ weights).dtype == torch.bfloat16
        with full_precision():
            assert (weights @ weights).dtype == torch.float32
            with torch.autocast("cpu", dtype=torch.bfloat16):  # what asks for it itself
                assert (weights @ weights).dtype == torch.bfloat16
        assert (weights @ weights).dtype == torch.bfloat16


def test_the_gpu_that_a_training_takes_is_that_of_all_its_parts(monkeypatch) -> None:
    made_current: list[int] = []
    monkeypatch.setattr(devices, "_taken", [])
    monkeypatch.setattr(torch.cuda, "set_device", made_current.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert chosen_device("auto") == torch.device("cuda", 1)
    devices.take_gpu(0)  # as the second process of trainer.devices=[2, 0]
    assert made_current == [0]
    assert chosen_device("auto") == chosen_device("cuda") == torch.device("cuda", 0)


def test_full_precision_ends_with_the_last_of_those_within_it(monkeypatch) -> None:
    """Threads come and go in any order; an outer one must not leave the inner one's settings."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    first, second = full_precision(), full_precision()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.backends.cudnn.allow_tf32
    second.__exit__(None, None, None)
    assert torch.backends.cudnn.allow_tf32


def test_a_network_that_is_used_computes_in_full_precision(monkeypatch) -> None:
    """Scores of pairs are kept under keys that do not name a run's speed."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    place = Resident(torch.nn.Linear(1, 1), device="cpu", precision="float32")
    with place.used() as network:
        assert not torch.backends.cudnn.allow_tf32
        assert torch.is_inference_mode_enabled()
        assert network.weight.device == torch.device("cpu")
    assert torch.backends.cudnn.allow_tf32
