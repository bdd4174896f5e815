"""The tables of ``docs/concepts/reliability.md``, from records: ``python -m tests.chaos.page``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.results.table_formats import markdown_lines, put_between_marks

DOCS = Path(__file__).parents[2] / "docs"
RECORDS, PAGE = DOCS / "results" / "records", DOCS / "concepts" / "reliability.md"
SUITES = ("chaos", "fuzz", "soak")
MOST = 5  # failures of a line that are shown
MIB = 2**20
# Targets by the names that older records have, and how the page names them.
CLEARER = {
    "run that goes on": "run that resumes",
    "captions alone": "captions without photos",
    "pictures of a study": "images of a study",
    "made set of pictures": "generated set of images",
    "made set of captions": "generated set of captions",
    "data base of a study": "database of a study",
    "folder of another loop": "folder of another training loop",
}
Records = Sequence[Mapping[str, Any]]


def read_record(suite: str) -> list[dict[str, Any]]:
    """The lines of a suite's record; none where it was never run."""
    path = RECORDS / f"{suite}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def tables(records: Mapping[str, Records]) -> str:
    """Markdown of what was tried, how often, with what result."""
    lines: list[str] = []
    struck = [r for r in records["chaos"] if "scenario" in r]
    faults = [r for r in records["chaos"] if "fault" in r]
    if struck:
        lines += ["", "### Commands that were killed", *_totals(struck), *_about(struck)]
        lines += markdown_lines(_STRUCK, map(_struck, struck))
        lines += _failures(struck, "scenario")
    if faults:
        lines += ["", "### Faults of the machine", *_about(faults)]
        lines += markdown_lines(_FAULTS, map(_fault, faults))
        lines += _failures(faults, "fault")
    if records["fuzz"]:
        lines += ["", "### Damaged files", *_inputs(records["fuzz"]), *_about(records["fuzz"])]
        lines += markdown_lines(_FUZZED, map(_fuzzed, records["fuzz"]))
        lines += _failures(records["fuzz"], "target")
    if records["soak"]:
        lines += ["", "### Long runs", *_soaked(records["soak"]), *_about(records["soak"])]
        lines += [
            "",
            "![Memory and folder size over the hours](../images/soak.png)",
        ]
    return "\n".join([*lines[1:], ""])


_STRUCK = ("command", "SIGKILL", "SIGTERM", "completed runs", "failures")
_FAULTS = ("fault", "trials", "reported in one line, or handled", "failures")
_FUZZED = ("kind of input", "inputs", "read", "refused in one line", "failures")


def _struck(record: Mapping[str, Any]) -> list[str]:
    ended = record.get("launcher", 0)
    note = f" ({ended} times a launcher ended the process that waited)" if ended else ""
    values = (record["kills"], record["terms"], record["rounds"], len(record["failures"]))
    return [record["scenario"] + note, *map(str, values)]


def _fault(record: Mapping[str, Any]) -> list[str]:
    notes = "".join(f" ({word})" for word in record["words"])
    values = (record["tries"], record["told"], len(record["failures"]))
    return [record["fault"] + notes, *map(str, values)]


def _fuzzed(record: Mapping[str, Any]) -> list[str]:
    values = (record[key] for key in ("inputs", "read", "refused", "failed"))
    name = record["target"]
    return [CLEARER.get(name, name), *(f"{value:,}" for value in values)]


def _totals(records: Records) -> list[str]:
    kills, terms = (sum(record[key] for record in records) for key in ("kills", "terms"))
    failed = sum(bool(record["failures"]) for record in records)
    return [
        f"The suite sent {kills} SIGKILLs and {terms} SIGTERMs at random moments. After each,",
        "the suite searched for partial files and for surviving processes, and compared completed",
        f"runs with an undisturbed run. {failed} of {len(records)} commands failed.",
    ]


def _inputs(records: Records) -> list[str]:
    inputs, failed = (sum(record[key] for record in records) for key in ("inputs", "failed"))
    return [f"Readers received {inputs:,} damaged inputs, of which {failed:,} failed."]


def _about(records: Records) -> list[str]:
    """When, on what and by which commands; parts of a suite may have been run separately."""
    runs: dict[str, list[str]] = {}
    for r in records:
        runs.setdefault(f"{r['date']}, commit {r['commit']}, {r['machine']}", []).append(
            f"`{r['command']}`"
        )
    lines = [f"{run}: {', '.join(dict.fromkeys(told))}." for run, told in runs.items()]
    return [*lines, ""] if len(lines) == 1 else ["", *(f"- {line}" for line in lines), ""]


def _failures(records: Records, name: str) -> list[str]:
    """What failed, if anything did."""
    lines = [
        f"- {record[name]}: `{' '.join(failure.replace('`', '').split())[:200]}`"
        for record in records
        for failure in list(record["failures"])[:MOST]
    ]
    return ["", "Failures:", *lines] if lines else []


def _soaked(samples: Records) -> list[str]:
    last = samples[-1]
    hours = last["seconds"] / 3600
    rows = []
    for key in ("rss", "files", "threads", "folder", "logs"):
        values = [
            sample[key] / (MIB if key in ("rss", "folder", "logs") else 1) for sample in samples
        ]
        unit = " (MiB)" if key in ("rss", "folder", "logs") else ""
        middle = values[len(values) // 2]
        rows.append([key + unit, *(f"{value:,.0f}" for value in (values[0], middle, values[-1]))])
    return [
        f"The run trained {hours:.2f} hours with curation on MiniWorld: {last['epochs']:,} epochs, "
        f"{last['steps']:,} steps, {len(samples)} measurements. `make soak` runs six hours.",
        "",
        *markdown_lines(("quantity", "first", "halfway", "last"), rows),
        "",
    ]


def built() -> str:
    """The tables of the records as they are."""
    return tables({suite: read_record(suite) for suite in SUITES})


if __name__ == "__main__":
    put_between_marks(PAGE, built(), "records")
