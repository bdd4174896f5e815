"""Jobs that a queue ended: the others of their sweep are waited for all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any


@contextmanager
def lost_jobs_kept(report: Callable[[Sequence[str], str], None]) -> Iterator[None]:
    """Have Hydra's launchers of submitit take a lost job for one without a score.

    They ask every job for its result and end with the first that has none: cancelled, out of time
    or memory, or on a node that died. Jobs behind it would be forgotten.

    Args:
        report: called with the overrides of a lost job and why it is lost.
    """
    if find_spec("submitit") is None:
        yield
        return
    from submitit.core.core import Job
    from submitit.core.utils import UncompletedJobError

    results = Job.results

    def patient(job: Any) -> list[Any]:
        from hydra.core.utils import JobReturn, JobStatus

        try:
            return results(job)
        except UncompletedJobError as error:
            report(job.submission().args[0], _reason(job, error))
            return [JobReturn(status=JobStatus.COMPLETED)]

    Job.results = patient  # type: ignore[method-assign]
    try:
        yield
    finally:
        Job.results = results  # type: ignore[method-assign]


def _reason(job: Any, error: Exception) -> str:
    """Why a job has no result, by its queue or by the last line of what it raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    has_error = lines and "has not produced any output" not in lines[0]
    why = lines[-1] if has_error else "cancelled, out of memory or time, or its machine died"
    log = job.paths.stderr if job.paths.stderr.is_file() else job.paths.stdout
    return f"job {job.job_id} ended without a result (state {job.state}): {why}; its output: {log}"
