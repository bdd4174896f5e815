"""Differences between the rows of a table: ``--against``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from captioning.results.runs import read_runs
from captioning.results.table_formats import to_csv, to_latex
from tests.captioning.results.table_runs import cells, make_run, table_of


def noisy(seed: int, gain: float = 0.0) -> dict[str, float]:
    draw = np.random.default_rng(seed)
    return {str(number): float(draw.gamma(1)) + gain for number in range(60)}


def test_differences_are_paired_by_image_and_pooled_over_seeds(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path, seed, 0.5, images=noisy(seed))
        turned = dict(reversed(noisy(seed, 0.01 * (seed + 1)).items()))
        make_run(tmp_path, seed, 0.6, curation="remove", images=turned)
    options = {"group": ["curation.name"], "metrics": ["CIDEr-D", "METEOR"], "against": ["none"]}
    table = table_of(read_runs([tmp_path]), **options)
    assert table.compared == ("CIDEr-D",)
    first, second = table.rows
    assert (first.is_baseline, first.cells[0].difference) == (True, None)
    difference = second.cells[0].difference
    assert [difference.mean, difference.low, difference.high] == pytest.approx([0.015] * 3)
    assert (difference.p_value, difference.num_pairs, difference.num_missing) == (0, 2, 0)
    head, *rows = cells(table)
    assert head[2:] == ["CIDEr-D", "CIDEr-D against none", "METEOR"]
    assert rows[0][3] == "baseline"
    assert rows[1][3] == "+0.0150 [+0.0150, +0.0150], p < 0.001"
    assert any(line.startswith("differences: to none: ") for line in table.head)
    latex = to_latex(table_of(read_runs([tmp_path]), **options, percent=True))
    assert "$+1.50$ $[+1.50, +1.50]$, $p < 0.001$" in latex
    rows = to_csv(table).splitlines()[-3:]
    names = ",".join(f"CIDEr-D {x}" for x in ("difference", "low", "high", "p", "pairs"))
    assert names in rows[0]
    assert (rows[1][-12:], rows[2][-8:]) == ("0,2,,,,,,,,0", ",0,2,,,0")


def test_a_seed_that_one_row_lacks_is_left_out_of_the_difference(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, seed, 0.5, images=noisy(seed))
    make_run(tmp_path, 0, None, curation="remove")
    for seed in (1, 2):
        make_run(tmp_path, seed, 0.6, curation="remove", images=noisy(seed, 0.5))
    make_run(tmp_path, 0, 0.6, curation="track")
    table = table_of(
        read_runs([tmp_path]), group=["curation.name"], metrics=["CIDEr-D"], against=["none"]
    )
    difference = table.rows[1].cells[0].difference
    assert (difference.mean, difference.num_pairs, difference.num_missing) == (
        pytest.approx(0.5),
        2,
        1,
    )
    assert cells(table)[2][3] == "+0.5000 [+0.5000, +0.5000], p < 0.001 (1 missing)"
    assert cells(table)[3][3] == "—"  # has no scores of single images


@pytest.mark.parametrize(("num_before", "num_after"), [(1, 3), (3, 1)])
def test_seeds_that_either_row_lacks_are_counted_as_missing(
    tmp_path: Path, num_before: int, num_after: int
) -> None:
    for seed in range(num_before):
        make_run(tmp_path, seed, 0.5, images=noisy(seed))
    for seed in range(num_after):
        make_run(tmp_path, seed, 0.6, curation="remove", images=noisy(seed, 0.5))
    options = {"group": ["curation.name"], "metrics": ["CIDEr-D"], "against": ["none"]}
    difference = table_of(read_runs([tmp_path]), **options).rows[1].cells[0].difference
    assert (difference.num_pairs, difference.num_missing) == (1, 2)


@pytest.mark.parametrize(
    ("seed", "images", "against", "message"),
    [
        (0, noisy(0) | {"60": 1.0}, "none", "1 are in one only, such as '60'"),
        (0, noisy(0) | {"7": math.nan}, "none", "'7' must be a finite number"),
        (0, noisy(0) | {"7": None}, "none", "no CIDEr-D for image '7'"),
        (1, noisy(0), "none", "must share a seed.* have 0, .* 1"),
        (0, noisy(0), "nothing", r"--against must give a row's values of .*: one of none; remove"),
        (0, {}, "none", "nothing to compare with none.*give the run folders"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(
    tmp_path: Path, seed: int, images: dict, against: str, message: str
) -> None:
    make_run(tmp_path, 0, 0.5, images=noisy(0))
    make_run(tmp_path, seed, 0.6, curation="remove", images=images)
    options = {"group": ["curation.name"], "metrics": ["CIDEr-D", "BLEU-4"], "against": [against]}
    with pytest.raises(ValueError, match=message):
        table_of(read_runs([tmp_path]), **options)
