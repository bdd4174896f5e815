"""The tested packages with the SHA-256 of their files, from what pip reports: ``make lock``.

::

    python .ci/lock.py REPORT > constraints.lock

REPORT is of ``pip install --dry-run --ignore-installed --no-deps --report REPORT``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """\
# Made by `make lock`, not by hand: the packages of constraints.txt with the SHA-256 of the files
# that pip takes on {platform}, Python {python}. `make locked-env` installs them and refuses others.
# Other platforms have other files, torch's builds for one kind of GPU or for processors alone
# among them: make the file anew there, or use constraints.txt.
"""


def locked(report: dict[str, Any]) -> str:
    """The text of the file.

    Raises:
        ValueError: a package without a digest.
    """
    platform = report["environment"]
    lines = []
    for entry in report["install"]:
        name, version = entry["metadata"]["name"], entry["metadata"]["version"]
        hashes = entry["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise ValueError(f"{name}=={version}: the index gives no SHA-256 of it")
        lines.append(f"{name.lower()}=={version} --hash=sha256:{hashes['sha256']}")
    system = f"{platform['sys_platform']} {platform['platform_machine']}"
    head = HEAD.format(platform=system, python=platform["python_version"])
    return head + "".join(f"{line}\n" for line in sorted(lines))


if __name__ == "__main__":
    sys.stdout.write(locked(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
