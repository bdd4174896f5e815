"""The oracle's share is of what the photo takes off the loss, seed by seed."""

from __future__ import annotations

import sys
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[3] / "tools" / "studies"
sys.path.insert(0, str(STUDIES))

from study_sentences import BEST, PLAIN, loss_table  # noqa: E402


def line(arm: str, seed: int, photo: float) -> dict[str, object]:
    return {"arm": arm, "seed": seed, "loss": 3.0 + seed, "photo": photo}


def test_the_share_is_of_the_seeds_that_have_both_ends() -> None:
    lines = [
        *(line(PLAIN, seed, 0.40) for seed in range(3)),
        *(line(BEST, seed, 0.50) for seed in range(2)),
        *(line("remove by fit", seed, value) for seed, value in enumerate((0.44, 0.46, 0.9))),
    ]
    table = "\n".join(loss_table(lines))
    assert "| remove by fit | 3 | 4.000 ± 1.000 | 0.600 ± 0.260 | 50% |" in table
    assert "| no curation | 3 | 4.000 ± 1.000 | 0.400 ± 0.000 | - |" in table
    assert f"| {BEST} | 2 |" in table
    assert "100%" in table
