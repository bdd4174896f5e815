"""The tested packages with the SHA-256 that the package index gives of their files: ``make lock``.

::

    python .ci/lock.py constraints.txt > constraints.lock

pip's own finder is asked, as ``pip index`` does, so pip's settings hold; no package is downloaded.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pip._internal.commands.index import IndexCommand
from pip._internal.models.candidate import InstallationCandidate

HEAD = """\
# Made by `make lock`, not by hand: the packages of constraints.txt with the SHA-256 of the files
# that fit {platform}, Python {python}. `make locked-env` installs them and refuses others.
# Other platforms have other files, torch's builds for one kind of GPU or for processors alone
# among them: make the file anew there, or use constraints.txt.
"""


def locked(package: str, candidates: Iterable[InstallationCandidate]) -> str:
    """The line of a package.

    Args:
        package: ``NAME==VERSION``.
        candidates: files of all versions.

    Raises:
        ValueError: the index has no file of this version, or gives no SHA-256 of one.
    """
    version = package.partition("==")[2]
    links = [entry.link for entry in candidates if str(entry.version) == version]
    if not links or any(link.hash_name != "sha256" for link in links):
        raise ValueError(f"{package}: the index gives no SHA-256 of it")
    hashes = sorted({f"--hash=sha256:{link.hash}" for link in links})
    return f"{package} {' '.join(hashes)}"


def lines(packages: Iterable[str]) -> Iterator[str]:
    """A line for each package."""
    command = IndexCommand("index", "lock")
    options, _ = command.parse_args([])
    with command.main_context():
        finder = command._build_package_finder(options, command._build_session(options))
        for package in packages:
            yield locked(package, finder.find_all_candidates(package.partition("==")[0]))


if __name__ == "__main__":
    texts = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    system = f"{sys.platform} {platform.machine()}"
    sys.stdout.write(HEAD.format(platform=system, python=".".join(map(str, sys.version_info[:2]))))
    for line in lines(text for text in texts if text and not text.startswith("#")):
        print(line)
