"""Known vulnerabilities of the tested packages: ``make audit``.

::

    python .ci/audit.py PIP_AUDIT CONSTRAINTS

The status is 1 where one is known, and 0 where none is, or where the advisory service could not be
asked; which of the two is said in the last line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 300


def audit(program: str, constraints: str) -> tuple[int, str]:
    """Status and what to print."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [program, "--requirement", constraints, "--no-deps", "--disable-pip"]
        command += ["--progress-spinner", "off", "--format", "json", "--output", str(report)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = [str(error)]
        try:
            packages = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
        except (OSError, ValueError, KeyError):
            return 0, f"NOT AUDITED: the advisory service could not be asked ({reason[0][:300]})"
    found = [
        f"{package['name']} {package['version']}: {entry['id']}, mended in "
        f"{', '.join(entry['fix_versions']) or 'no version yet'}"
        for package in packages
        for entry in package.get("vulns", ())
    ]
    asked = f"{len(packages)} packages audited, {len(found)} known vulnerabilities"
    return int(bool(found)), "\n".join([*found, asked])


if __name__ == "__main__":
    status, text = audit(*sys.argv[1:])
    print(text)
    sys.exit(status)
