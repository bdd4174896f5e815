"""Import of optional packages, and checksums of the weights that they or the project ship.

The project is on no package index, so no message says ``pip install PROJECT[extra]``: that would
install a stranger's package of the same name. The extra's own packages are named instead.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from captioning.runtime.files import write_lines

DISTRIBUTION = "caption-curation"


def import_extra(module: str, *, extra: str, purpose: str) -> Any:
    """Import an optional or slow module when a feature first needs it.

    Args:
        module: name of the module, such as ``"sklearn.cluster"``.
        extra: the extra of ``pyproject.toml`` that installs the module.
        purpose: the feature that needs it, which begins the message: ``"clusters of objects"``.

    Raises:
        ModuleNotFoundError: the module is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # a package that is there may lack one of its own
        raise missing(error.name or module, extra=extra, purpose=purpose) from error


def package_folder(package: str, *, extra: str, purpose: str) -> Path:
    """Find an optional package's folder without running its code. For arguments see `import_extra`.

    Raises:
        ModuleNotFoundError: the package is not installed; the message says how to install it.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise missing(package, extra=extra, purpose=purpose)
    return Path(next(iter(spec.submodule_search_locations)))


def extra_version(package: str, *, extra: str, purpose: str) -> str:
    """Version of an optional package. For arguments see `import_extra`.

    Raises:
        ModuleNotFoundError: the package is not installed; the message says how to install it.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise missing(package, extra=extra, purpose=purpose) from error


def missing(package: str, *, extra: str, purpose: str) -> ModuleNotFoundError:
    """Build the error that names the missing package and a command that installs it."""
    return ModuleNotFoundError(
        f"{purpose}: the package {package} is not installed; it belongs to the extra {extra!r}: "
        f"{install_command(extra)}",
        name=package,
    )


def install_command(extra: str) -> str:
    """Pip command that installs an extra's packages, and the one for a checkout of the project."""
    packages = packages_of(extra)
    command = f"pip install {shlex.join(packages)}, or " if packages else ""
    return f'{command}in a checkout pip install -e ".[{extra}]"'


def packages_of(extra: str) -> list[str]:
    """Packages of an extra with their versions, from the metadata of the installed project."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    parts = [line.partition(";") for line in lines]
    pattern = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    return [package.strip() for package, _, marker in parts if pattern.search(marker)]


def checked(path: Path, sha256: str) -> Path:
    """Return a file's path after comparing the file's SHA-256 with the tested version's.

    Third-party packages bring these weights. Another version, or a changed file, would change
    results silently.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file's SHA-256 differs from ``sha256``.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; install its package again")
    state = path.stat()
    digest = _digest(path, (state.st_ino, state.st_size, state.st_mtime_ns))
    if digest != sha256:
        raise ValueError(
            f"{path}: differs from the file that the project was tested with (SHA-256 {digest}, "
            f"expected {sha256}); install its package again, in the version that constraints.txt "
            "names"
        )
    return path


@functools.cache
def _digest(path: Path, state: tuple[int, int, int]) -> str:
    """SHA-256 of a file, cached by its ``state``: a command may build a network several times."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_shipped(sums: Path) -> None:
    """Compare the weights that the project ships with their recorded SHA-256 digests.

    Args:
        sums: lines of ``SHA-256  NAME``, as ``sha256sum`` writes them; names are relative to its
            folder.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: the digest of a file differs from the recorded one.
    """
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ", 1)
        checked(sums.parent / name, digest)


def write_sums(sums: Path, paths: Iterable[Path]) -> None:
    """Write the SHA-256 digests that `check_shipped` compares files with.

    Args:
        sums: the file to write.
        paths: files in its folder or below.
    """
    lines = []
    for path in sorted(paths):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append(f"{digest}  {path.relative_to(sums.parent).as_posix()}")
    write_lines(sums, lines)
