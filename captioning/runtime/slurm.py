"""Slurm job that a program runs in: its identifier, preemption and requeueing."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Mapping

log = logging.getLogger(__name__)


def job_id(environment: Mapping[str, str]) -> str | None:
    """Identifier of this Slurm job, ``JOB_TASK`` in an array; None outside Slurm."""
    if environment.get("SLURM_ARRAY_JOB_ID"):
        return f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    return environment.get("SLURM_JOB_ID") or None


def is_preempted(job: str) -> bool:
    """Whether Slurm preempts this job, that is, takes its resources for another job.

    A cancelled job gets the same signal, and must not be requeued. A preempted job that ends by
    itself within its grace period would not be requeued.
    """
    shown = _scontrol("show", "job", "--oneliner", job)
    match = re.search(r"\bPreemptTime=(\S+)", shown or "")
    return match is not None and match[1] != "None"


def requeue(job: str) -> str:
    """Requeue a Slurm job; return a line that says whether this worked."""
    if _scontrol("requeue", job) is None:
        return f"job {job} could not be requeued (scontrol requeue {job}); submit it again"
    return f"job {job} is queued again"


def _scontrol(*arguments: str) -> str | None:
    """Output of ``scontrol``; None if it failed, with the reason logged."""
    try:
        done = subprocess.run(
            ["scontrol", *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(f"scontrol: {error}")
        return None
    if done.returncode:
        log.warning(f"scontrol: {done.stderr.strip()}")
        return None
    return done.stdout
