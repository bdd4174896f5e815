"""Build tables of docs/results/vlm.md and docs/guides/gpu.md from benchmark records.

python tools/studies/bench_tables.py

For `bench_fine_tuning.py`: each row of this project against the fastest other implementation of the
same run. For `bench_memory.py`: estimated and measured memory of a step. If several records hold a
row, the latest is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_tables import fill

from captioning.results.table_formats import markdown_lines

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "results"
FORMS = {"smolvlm": "SmolVLM's", "qwen3_vl": "Qwen3-VL's", "llava_onevision": "LLaVA-OneVision's"}
MIB = 2**20


def latest(name: str, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Results of all records of a benchmark with their commits, latest for each key."""
    records = [json.loads(path.read_text("utf-8")) for path in RECORDS.glob(f"*-{name}*.json")]
    found = {
        tuple(line[key] for key in keys): {**line, "commit": record["commit"][:8]}
        for record in sorted(records, key=lambda record: record["date"])
        for line in record["results"]
    }
    order = list(FORMS)
    return [found[at] for at in sorted(found, key=lambda at: (order.index(at[0]), *at[1:]))]


def fine_tuning(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows of Markdown on fine-tuning, one per form, captions and words."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["form"], line["captions"], line["words"]), []).append(line)
    columns = ["form, captions a photo x words", "captions/s: fastest other", "ours", "times"]
    columns += ["first epoch", "GiB: other, ours", "ours of it: whole, above start", "commit"]
    rows = []
    for (form, captions, words), ways in groups.items():
        (ours,) = (line for line in ways if line["way"] == "ours")
        others = [line for line in ways if not line["way"].startswith("ours")]
        other = max(others, key=lambda line: line["captions_per_s"])
        shares = [f"{ours[key] / other[key]:.0%}" for key in ("gib", "gib_above_start")]
        times = [ours[key] / other[key] for key in ("captions_per_s", "first_epoch")]
        rows.append(
            [
                f"{FORMS[form]}, {captions} x {words} words",
                f"{other['captions_per_s']:.2f}",
                f"{ours['captions_per_s']:.2f}",
                *(f"{value:.2f}" for value in times),
                f"{other['gib']:.2f}, {ours['gib']:.2f}",
                ", ".join(shares),
                ours["commit"],
            ]
        )
    return markdown_lines(columns, rows)


def memory(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows of Markdown on memory, one per form, words and change."""
    columns = ["form, words a caption", "training", "said: MiB", "measured: MiB"]
    columns.append("said / measured")
    rows = [
        [
            f"{FORMS[line['form']]}, {line['words']}",
            line["change"],
            f"{line['said'] / MIB:,.0f}",
            f"{line['measured'] / MIB:,.0f}",
            f"{line['said'] / line['measured']:.2f}",
        ]
        for line in lines
    ]
    return markdown_lines(columns, rows)


def main() -> None:
    """Fill the tables of both pages."""
    keys = ("form", "captions", "words", "way")
    table = fine_tuning(latest("bench_fine_tuning", keys))
    fill(ROOT / "docs" / "results" / "vlm.md", {"fine tuning": table})
    table = memory(latest("bench_memory", ("form", "words", "change")))
    fill(ROOT / "docs" / "guides" / "gpu.md", {"memory": table})


if __name__ == "__main__":
    main()
