"""The parts of README.md that records hold: ``python -m tests.front_page`` writes them."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from captioning.commands.main import main
from captioning.results.table_formats import marks, put_between_marks

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RECORDS = ROOT / "docs" / "results" / "records"
PICTURE = ROOT / "docs" / "images" / "front.png"
sys.path.insert(0, str(ROOT / "tools" / "studies"))

from page_tables import read_records, share_of  # noqa: E402
from report_parts import read_table, scores, spread  # noqa: E402
from study_curation_report import summary  # noqa: E402

PAPERS = {
    "data_curation": "Data curation with text-to-image models",
    "cutswap": "CutSwap",
    "novel_objects": "Novel objects by partial supervision",
    "cic_bart_ssa": "CIC-BART-SSA",
    "toca": "ToCa",
}
KEYS = ("planted", "removed", "right")
SCALES = ("full", "flickr8k", "miniworld")


def found() -> str:
    """How many swapped captions the score of ``recommended`` finds in Flickr8k."""
    counts = [r for r in read_records(RECORDS / "recommended.jsonl") if r["noise"] == "swap20"]
    shares = []
    for data in ("flickr8k", "flickr8k_one"):
        sums = {k: sum(r[k] for r in counts if r["data"] == data) for k in counts[0] if k in KEYS}
        right = sums["right"]
        shares += [share_of(right, sums["planted"]), share_of(right, sums["removed"])]
    return (
        "Of captions that were swapped between photos (20% of Flickr8k's) it finds "
        "{} at a precision of {} where photos have five captions, {} at {} where they have one "
        "([how measured](docs/guides/policies.md#recommended)).\n".format(*shares)
    )


def papers() -> str:
    """Measured cells of each paper's tables, by scale."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["paper", "list"])
    counts: dict[tuple[str, str], str] = {}
    for row in re.findall(r"^\| (\w+) \| \d+ \| (\w+) ((?:\| \d+ )+)\|$", printed.getvalue(), re.M):
        measured, missing, impossible, _ = (int(cell) for cell in row[2].split("|")[1:])
        counts[row[:2]] = f"{measured:,} of {measured + missing + impossible:,}"
    lines = ["| paper | published size | Flickr8k | generated scenes |", "|---|---|---|---|"]
    for name, title in PAPERS.items():
        cells = " | ".join(counts[name, scale] for scale in SCALES)
        lines.append(f"| [{title}](docs/papers/{name}.md) | {cells} |")
    return "\n".join(lines) + "\n"


def demo_scores() -> Mapping[str, str]:
    """Test scores of the demo's two policies: mean and deviation over three seeds."""
    table = read_table([RECORDS / "demo.jsonl"], ("curation.name",))
    named = {"without curation": table[("track",)], "with curation": table[("recommended",)]}
    return {name: spread(list(scores(runs).values()), ".3f") for name, runs in named.items()}


PARTS: Mapping[str, Callable[[], str]] = {"found": found, "curation": summary, "papers": papers}


def part(name: str, text: str) -> str:
    """What stands between two marks of a text."""
    begin, end = marks(name)
    return text.partition(f"{begin}\n")[2].partition(end)[0]


if __name__ == "__main__":
    for name, written in PARTS.items():
        put_between_marks(README, written(), name)
