"""The command ``captioning caption`` against servers: ``python -m tests.servers [NAME...]``.

Writes docs/results/records/servers.jsonl and docs/guides/servers.md, unless ``--no-record``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from captioning.results.table_formats import put_between_marks
from captioning.results.versions import versions
from captioning.runtime.files import write_lines
from tests.servers.cases import CASES, Bench
from tests.servers.start import ROOT, SERVERS

RECORD = ROOT / "docs" / "results" / "records" / "servers.jsonl"
PAGE = ROOT / "docs" / "guides" / "servers.md"


def tried(name: str) -> dict[str, Any]:
    """What became of each case with a server."""
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, SERVERS[name](Path(folder)) as place:
        bench = Bench(place, Path(folder))
        for case, run in CASES.items():
            try:
                outcomes[case] = run(bench)
            except AssertionError as error:
                outcomes[case] = f"FAILED: {error}"
            print(f"{name}: {case}: {outcomes[case]}", flush=True)
    facts = versions()
    return {
        "server": name,
        "outcomes": outcomes,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "make server-test",
        "commit": facts["commit"],
        "machine": facts["machine"],
        "transformers": version("transformers"),
    }


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: cases by servers."""
    first = records[0]
    outcomes = [record["outcomes"] for record in records]
    lines = [
        f"| what | {' | '.join(str(record['server']) for record in records)} |",
        f"|---|{'---|' * len(records)}",
        *(f"| {case} | {' | '.join(one.get(case, '') for one in outcomes)} |" for case in CASES),
        "",
        f"`{first['command']}`, {first['date']}, commit {first['commit']}, transformers "
        f"{first['transformers']}; {first['machine']}. Record: `results/records/servers.jsonl`.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Try the servers that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", nargs="*", choices=[[], *SERVERS], default=[])
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    records = [tried(name) for name in options.servers or SERVERS]
    if not options.no_record:
        write_lines(RECORD, (json.dumps(record) for record in records))
        put_between_marks(PAGE, table(records), "table:servers")
    return int(any("FAILED" in line for one in records for line in one["outcomes"].values()))


if __name__ == "__main__":
    sys.exit(main())
