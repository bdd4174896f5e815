"""Signals: noted or obeyed, handed on, and what Slurm is asked for."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from captioning.commands.command import HydraCommand
from captioning.commands.hydra_command import run_task
from captioning.runtime.slurm import job_id, requeue
from captioning.training import signals as module
from captioning.training.signals import HANDLED, Stopped, StopSignals

SCRIPT = """#!/bin/sh
echo "$@" >> {folder}/calls
case "$1" in show) echo "JobId=7 PreemptTime={preempted} JobState=RUNNING";; esac
exit {status}
"""


class StandIn:
    """Of ``scontrol``, in a folder; keeps what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.install()

    def install(self, *, preempted: str = "None", status: int = 0) -> None:
        path = self.folder / "scontrol"
        path.write_text(SCRIPT.format(folder=self.folder, preempted=preempted, status=status))
        path.chmod(0o755)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """In the path, for job 7."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return StandIn(tmp_path)


def passed_on(number: int, *, previous: object = signal.SIG_DFL) -> Stopped:
    before = signal.signal(number, previous)  # type: ignore[arg-type]
    try:
        with StopSignals() as signals, pytest.raises(Stopped) as stopped:
            os.kill(os.getpid(), number)
        with StopSignals() as signals:
            signals.pass_on(stopped.value)
    finally:
        signal.signal(number, before)
    return stopped.value


def test_the_first_signal_counts_and_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    with StopSignals() as signals:
        signals.deferred = True
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGUSR1
        with pytest.raises(Stopped) as stopped:
            signals.obey()
    assert stopped.value.status == 128 + signal.SIGUSR1
    assert [signal.getsignal(number) for number in HANDLED] == before


def test_other_threads_leave_handlers_alone() -> None:
    before = [signal.getsignal(number) for number in HANDLED]

    def enter() -> None:
        with StopSignals() as signals:
            signals.install()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert [signal.getsignal(number) for number in HANDLED] == before


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_warned_job_is_queued_anew(number: int, scontrol) -> None:
    passed_on(number)
    assert scontrol.calls() == ["requeue 7"]


@pytest.mark.parametrize(
    ("preempted", "calls"),
    [("None", ["show job --oneliner 7"]), ("2026-01-01", ["show job --oneliner 7", "requeue 7"])],
)
def test_a_terminated_job_comes_back_where_slurm_preempts_it(preempted, calls, scontrol) -> None:
    scontrol.install(preempted=preempted)
    passed_on(signal.SIGTERM)
    assert scontrol.calls() == calls


def test_a_handler_that_was_there_before_has_the_last_word(scontrol) -> None:
    heard = []
    passed_on(signal.SIGUSR2, previous=lambda number, frame: heard.append(number))
    assert heard == [signal.SIGUSR2]
    assert scontrol.calls() == []


def test_further_processes_wait_for_the_first_and_report_no_status(scontrol, monkeypatch) -> None:
    waited = []
    monkeypatch.setattr(module, "_rank", lambda: 1)
    monkeypatch.setattr(module, "_have_met", lambda: True)
    monkeypatch.setattr(module.time, "sleep", waited.append)
    assert passed_on(signal.SIGUSR1).status == 0
    assert waited == [module.REQUEUE_SECONDS]
    assert scontrol.calls() == []


def test_a_queue_that_refuses_is_told(scontrol, caplog) -> None:
    scontrol.install(status=1)
    assert "could not be requeued (scontrol requeue 7); submit it again" in requeue("7")


def test_jobs_of_arrays_have_names_of_their_own() -> None:
    array = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    assert [job_id(array), job_id({"SLURM_JOB_ID": "9"}), job_id({})] == ["7_2", "9", None]


@pytest.mark.parametrize(
    ("rank", "have_met", "status", "printed"),
    [
        (0, True, 143, "train: it"),
        (1, True, 0, ""),
        (1, False, 143, "train: it"),  # else the others wait for it, and no launcher ends them
    ],
)
def test_commands_end_with_the_signals_status(
    rank, have_met, status, printed, monkeypatch, capsys
) -> None:
    def task(config: object) -> None:
        raise Stopped("it resumes", number=signal.SIGTERM)

    monkeypatch.setattr(module, "_rank", lambda: rank)
    monkeypatch.setattr(module, "_have_met", lambda: have_met)
    command = HydraCommand(name="train", summary="", config="", task=task)
    with pytest.raises(SystemExit) as ended:
        run_task(command, OmegaConf.create({}))
    assert ended.value.code == status
    assert capsys.readouterr().err.startswith(printed)
