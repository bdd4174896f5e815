"""A Slurm of two nodes on this machine, with accounting, for tests: queues, nodes, preemption.

``python -m tests.cluster.slurm FOLDER`` starts it and stops it on Ctrl+C; all that it writes is in
FOLDER. It needs root, as its daemons drop to other users, and Debian's packages slurm-wlm,
slurmdbd, munge and mariadb-server.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch")
NODES = ("one", "two")
SETTINGS = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd_%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
# A dead node is noticed in seconds, as tests do not wait for minutes.
SlurmdTimeout=8
InactiveLimit=0
KillWait=10
# Jobs that are queued anew begin at once, and not after two minutes.
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
JobRequeue=1
MinJobAge=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePass={folder}/munge.socket
AccountingStoragePort={accounting}
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs=2 RealMemory=4000
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs=2 RealMemory=4000
PartitionName=low Nodes=one,two Default=YES MaxTime=60 PriorityTier=1 GraceTime=20
PartitionName=high Nodes=one,two MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""
ACCOUNTING = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass={password}
StorageLoc=accounting
"""


def missing() -> str:
    """Why no Slurm can be started here; empty if it can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    if absent:
        return f"no Slurm here: {', '.join(absent)} missing (Debian: {PACKAGES})"
    return "" if os.geteuid() == 0 else "the tests' Slurm needs root, as its daemons drop to users"


PACKAGES = "slurm-wlm slurmdbd munge mariadb-server"


class LocalSlurm:
    """A running Slurm.

    Args:
        folder: for all its files; short, as sockets lie in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._values: dict[str, Any] = {
            "folder": folder,
            "host": socket.gethostname(),
            "password": secrets.token_hex(8),
            **dict(zip(("controller", "accounting", "database", *NODES), _ports(5), strict=True)),
        }

    @property
    def environment(self) -> dict[str, str]:
        """With which Slurm's commands ask this Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": search_path()}

    def start(self) -> LocalSlurm:
        """Start all daemons.

        Raises:
            TimeoutError: one does not answer; its log is in the folder.
        """
        for name in ("state", "spool_one", "spool_two"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self._write("slurm.conf", SETTINGS)
        self._write("slurmdbd.conf", ACCOUNTING)
        (self.folder / "slurmdbd.conf").chmod(0o600)
        self._start_munge()
        self._start_database()
        self._run("slurmdbd", "slurmdbd", "-D")
        wait_for(lambda: self.ask("sacctmgr", "-i", "add", "cluster", "tests") is not None)
        self._run("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        wait_for(lambda: (self.ask("sinfo", "-h", "-p", "low", "-o", "%t %D") or "") == "idle 2")
        return self

    def start_node(self, name: str) -> None:
        """Start a node."""
        self._run(name, "slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        """Let a node die, with all that runs on it, without a word."""
        daemon = self._running.pop(name)
        daemon.kill()
        daemon.wait()
        steps = [pid for pid, line in _processes() if line.startswith("slurmstepd: [")]
        spool = f"SLURMD_NODENAME={name}"
        for pid in [*steps, *(pid for pid, _ in _processes())]:
            if spool in _environment_of(pid) or (pid in steps and _has_child_on(pid, name)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop all daemons, the last started first."""
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def ask(self, *command: str) -> str | None:
        """What a command of Slurm prints, or None if it fails."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def submit(self, script: str, *options: str, cwd: Path) -> str:
        """Queue a script; its number.

        Raises:
            RuntimeError: the queue refuses it.
        """
        done = subprocess.run(
            ["sbatch", "--parsable", *options],
            input=script,
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """Of a job, by the controller: ``PENDING``, ``RUNNING``, ``COMPLETED``..."""
        return self.fields(job).get("JobState", "")

    def fields(self, job: str) -> dict[str, str]:
        """All that the controller says of a job."""
        shown = self.ask("scontrol", "show", "job", "--oneliner", job) or ""
        return {part.partition("=")[0]: part.partition("=")[2] for part in shown.split()}

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(mode=0o700)
        (folder / "key").write_bytes(secrets.token_bytes(128))
        (folder / "key").chmod(0o400)
        self._run(
            "munged",
            *("munged", "--foreground", "--force", f"--key-file={folder / 'key'}"),
            f"--socket={self.folder / 'munge.socket'}",
            *(f"--{name}-file={folder / name}" for name in ("log", "pid", "seed")),
        )
        wait_for((self.folder / "munge.socket").exists)

    def _start_database(self) -> None:
        data, socket_path = self.folder / "database", self.folder / "mysql.socket"
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"),
                *("--auth-root-authentication-method=normal", "--skip-test-db"),
            ],
            capture_output=True,
            env=self.environment,
            check=True,
        )
        self._run(
            "mariadbd",
            *("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}"),
            *(f"--socket={socket_path}", "--bind-address=127.0.0.1"),
            f"--port={self._values['database']}",
            *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
            f"--pid-file={self.folder / 'mariadbd.pid'}",
        )
        user = f"'slurm'@'127.0.0.1' IDENTIFIED BY '{self._values['password']}'"
        grant = f"CREATE USER {user}; GRANT ALL ON accounting.* TO 'slurm'@'127.0.0.1';"
        client = ("mariadb", "--no-defaults", f"--socket={socket_path}", "-uroot")
        wait_for(lambda: self.ask(*client, "-e", grant) is not None)

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.format(**self._values).lstrip())


def wait_for(condition: Callable[[], Any], *, seconds: float = 60, every: float = 0.2) -> Any:
    """Ask until the answer is true; the answer.

    Raises:
        TimeoutError: it never was.
    """
    end = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} was not true within {seconds} s")
        time.sleep(every)
    return answer


def search_path() -> str:
    """Where programs are, daemons too."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _ports(number: int) -> Sequence[int]:
    """Free ports of this machine."""
    sockets = [socket.socket() for _ in range(number)]
    for entry in sockets:
        entry.bind(("127.0.0.1", 0))
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return ports


def _processes() -> list[tuple[int, str]]:
    """Number and command line of all processes."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append((int(path.parent.name), path.read_bytes().replace(b"\0", b" ").decode()))
    return lines


def _environment_of(pid: int) -> Mapping[str, str] | Sequence[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return ()


def _has_child_on(pid: int, node: str) -> bool:
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return any(f"SLURMD_NODENAME={node}" in _environment_of(int(child)) for child in children)
    return False


if __name__ == "__main__":
    slurm = LocalSlurm(Path(sys.argv[1]))
    try:
        slurm.start()
        print(f"export SLURM_CONF={slurm.folder / 'slurm.conf'}", flush=True)
        signal.pause()
    finally:
        slurm.stop()
