"""The table of families in docs/results/vlm.md: ``python -m tests.families.table`` writes it."""

from __future__ import annotations

from pathlib import Path

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from captioning.results.table_formats import put_between_marks
from captioning.runtime.processors import REFUSED
from tests.contracts.test_families import BROKEN, ONE_BY_ONE, OWN_BEAMS
from tests.families.registry import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "results" / "vlm.md"
NAME = "families"  # of the page's marks
ALSO = {"blip-2": ("blip2_opt", "blip2_t5")}  # under names of their text networks


def rows() -> list[tuple[str, str, str]]:
    """Model type, state and reason of every family that the installed transformers lists."""
    return [(kind, *_state(kind)) for kind in sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)]


def _state(kind: str) -> tuple[str, str]:
    names = ALSO.get(kind, (kind.replace("-", "_").replace(".", "_"),))
    if kind in REFUSED:
        return "refused", REFUSED[kind]
    if not FAMILIES.keys() & {*names}:
        return "not tried", ""
    if broken := BROKEN.get(transformers.__version__, {}).get(names[0]):
        return "fails", broken
    if {*names} & {*ONE_BY_ONE}:
        return "one by one", "results depend on the batch in transformers too: `batch_size=1`"
    if {*names} & {*OWN_BEAMS}:
        return "held", "`search=beam`, as its own beams are wrong or fail"
    return "held", ""


def table() -> str:
    """The rows as Markdown."""
    lines = [f"| `{kind}` | {state} | {reason} |" for kind, state, reason in rows()]
    return "\n".join(("| family | state | reason |", "|---|---|---|", *lines))


def write_table(page: Path) -> None:
    """Write the table between the page's marks."""
    put_between_marks(page, f"{table()}\n", NAME)


if __name__ == "__main__":
    write_table(PAGE)
