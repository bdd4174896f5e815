"""Record of a run's software and hardware: machine, packages, and the user's own packages."""

from __future__ import annotations

import datetime
import hashlib
import importlib
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)

PACKAGES = (
    *("caption-curation", "torch", "pytorch-lightning", "timm"),
    *("hydra-core", "numpy", "pycocoevalcap"),
)
# Software whose versions may change a run's results; "commit" is the project's in a checkout.
WATCHED = ("commit", "python", *PACKAGES)


def versions(plugins: Iterable[str] = ()) -> dict[str, Any]:
    """Machine and software versions of a run.

    Args:
        plugins: the user's own packages, with a digest of their code.
    """
    facts: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}, "
        + torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = None
    if digests := {name: _digest(name) for name in plugins}:
        facts["plugins"] = digests
    return facts


def _digest(plugin: str) -> str:
    """First 12 digits of the SHA-256 of each package's Python files, by name."""
    package = importlib.import_module(plugin.partition(".")[0])
    folders = [Path(folder) for folder in getattr(package, "__path__", [])]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    if not folders and package.__file__:
        files = [Path(package.__file__)]
    digest = hashlib.sha256()
    # not the locks of editors, which are links to nowhere
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _commit() -> str | None:
    """Project's commit, marked if files have changed since; None outside a checkout."""
    try:
        commit = _git("describe", "--always", "--abbrev=12")
        # Not `describe --dirty`: it locks the index, and where it is killed the lock stays.
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    """Output of a git command that only reads the project's checkout."""
    root = str(Path(__file__).parents[2])
    command = ["git", "--no-optional-locks", "-C", root, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def warn_of_other_versions(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Warn if a run resumes with other software, which may change its results."""
    changed = [
        f"{name} {before[name]} -> {now[name]}"
        for name in WATCHED
        if before.get(name) and now[name] and before[name] != now[name]
    ]
    codes = before.get("plugins") or {}
    changed += [
        f"the code of {name}"
        for name, digest in (now.get("plugins") or {}).items()
        if name in codes and codes[name] != digest
    ]
    if changed:
        log.warning(
            f"this run resumes with other software than before ({', '.join(changed)}), so its "
            "results may differ; install the former versions for the same results"
        )
