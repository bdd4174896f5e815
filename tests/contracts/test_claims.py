"""Claims in prose: numbers in the results' pages and the front page are those of the records."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from captioning.papers.cells import Cells, Results
from captioning.papers.effects import effects_page, judgement, measured, published_sign
from captioning.papers.paper_file import load_paper, paper_names
from captioning.papers.paper_report import record_folders

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
SECTIONS = {
    "Table 2": "data_curation",
    "CutSwap": "cutswap",
    "Novel objects": "novel_objects",
    "SSA": "cic_bart_ssa",
    "ToCa": "toca",
}
NUMBER = r"(\d*\.\d+|\d+)"
PAIR = re.compile(rf"(?<![\d.]){NUMBER} ± {NUMBER}")
UNITS = (1, 0.01, 100)  # prose may give .56 of what a table has as 56 percent
MEASURED = Results(Path("nowhere"), record_folders())


@functools.cache
def spreads(name: str) -> tuple[tuple[float, float], ...]:
    """Mean and deviation of all measured cells of a paper."""
    paper = load_paper(name)
    found = []
    for scale in paper.scales:
        cells = Cells(paper, scale, MEASURED)
        for item in paper.items.values():
            for row in item.rows:
                found += [
                    (cell.mean, cell.deviation)
                    for cell in cells.row_cells(item, row)
                    if cell.deviation is not None
                ]
    return (*found, *two_classes(name))


def two_classes(name: str) -> list[tuple[float, float]]:
    """Macro F1 over bike and ball alone, which no cell has, of each run of novel objects."""
    if name != "novel_objects":
        return []
    cells = Cells(load_paper(name), "flickr8k", MEASURED)
    found = []
    for run in cells.paper.runs:
        scores = [of.metrics.get("test", {}).get("corpus", {}) for of in cells.runs_of(run)]
        values = [(s["F1 bike"] + s["F1 ball"]) / 2 for s in scores if "F1 bike" in s]
        found += [(fmean(values), stdev(values))] if len(values) > 1 else []
    return found


def is_rounded(text: str, value: float) -> bool:
    return abs(float(text) - value) <= 0.5 * 10 ** -len(text.partition(".")[2]) + 1e-9


def wrong_pairs(prose: str, name: str) -> list[str]:
    """Those of ``mean ± deviation`` in a text that no cell of a paper has."""
    wrong = []
    for mean, deviation in PAIR.findall(prose):
        known = any(
            is_rounded(mean, unit * of_mean) and is_rounded(deviation, unit * of_deviation)
            for of_mean, of_deviation in spreads(name)
            for unit in UNITS
        )
        wrong += [] if known else [f"{mean} ± {deviation}"]
    return wrong


def section(title: str) -> str:
    return RESULTS.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize(("title", "name"), SECTIONS.items())
def test_means_and_spreads_in_prose_are_those_of_the_records(title: str, name: str) -> None:
    prose = section(title)
    assert len(PAIR.findall(prose)) >= 8
    assert wrong_pairs(prose, name) == [], "mend the text by docs/papers, or measure again"


@pytest.mark.parametrize(("title", "name"), SECTIONS.items())
def test_a_number_that_was_changed_is_seen(title: str, name: str) -> None:
    pairs = PAIR.findall(section(title))
    changed = [f"{float(mean) * 1.07:.3f} ± {deviation}" for mean, deviation in pairs]
    assert len(wrong_pairs("; ".join(changed), name)) > 0.8 * len(pairs)


def test_the_page_of_effects_is_built_from_the_records() -> None:
    page = (ROOT / "docs" / "papers" / "effects.md").read_text(encoding="utf-8")
    lines = effects_page([load_paper(name) for name in paper_names()], MEASURED)
    assert page == "\n".join(lines).rstrip() + "\n", "run make tables"


@pytest.mark.parametrize("name", paper_names())
def test_what_contradicts_a_paper_has_its_cause(name: str) -> None:
    paper = load_paper(name)
    assert len(paper.effects) >= 8
    for effect in paper.effects:
        for scale in paper.scales:
            found = measured(paper, effect, scale, MEASURED)
            if judgement(published_sign(paper, effect), found) == "contradicted":
                assert effect.cause.get(scale), f"{effect.id}, {scale}: say why"


def test_the_front_page_is_right_about_published_size() -> None:
    counts = [Cells(load_paper(name), "full", MEASURED).counts for name in paper_names()]
    assert ("none is at published size" in README) == (sum(c["measured"] for c in counts) == 0)


def test_the_front_page_is_right_that_clean_captions_gain_nothing() -> None:
    assert "On Flickr8k's captions as published no policy gained more than the spread" in README
    paper = load_paper("data_curation")
    cells, item = Cells(paper, "flickr8k", MEASURED), paper.items["figure5"]
    rows = {row.name: cells.cell(item, row, 0) for row in item.rows}
    seen = 0
    for base in ("Flickr30K, no curation", "here, online: no curation"):
        of = rows[base]
        for name, cell in rows.items():
            if name.startswith(base.split(" no ")[0]) and len(cell.values) >= 3:
                spread = max(cell.deviation or 0, of.deviation or 0)
                assert cell.mean - of.mean <= 2 * spread, f"{name} gained: say so in README.md"
                seen += 1
    assert seen > 20
