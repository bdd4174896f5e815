"""Build the page of all captioners on Flickr8k's photos from the records of their runs.

    python tools/studies/models_report.py

The script builds docs/results/models_flickr8k.md from docs/results/records (`captioning record`): a
row per captioner, then tables on several captions (`captioning diverse-captions run=FOLDER`) and on
control (`captioning controllability run=FOLDER`) for runs that have them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report_parts import (
    RECORDS,
    Table,
    head,
    read_table,
    scores,
    spread,
    studies,
    values_of,
    write_page,
)

from captioning.evaluation.controllability import SHOWN_SCORES
from captioning.evaluation.diverse_captions import tables
from captioning.results.runs import Run
from captioning.results.table_formats import markdown_lines

# Names of rows by the folders of the experiments' runs.
ROWS = {
    "flickr8k/updown_small": "UpDown",
    "flickr8k/blip_small": "BLIP",
    "flickr8k/cos_cvae_small": "COS-CVAE",
    "flickr8k/viecap_small-text_own": "ViECap, Flickr8k's captions without photos",
    "flickr8k/viecap_small-text_coco": "ViECap, COCO's captions without photos",
    "flickr8k/clipcap_small": "ViECap trained on pairs (ClipCap)",
    "flickr8k_entities/updown_small": "UpDown, gold boxes",
    "flickr8k_entities/cic_bart_small": "CIC-BART, ordered control",
    "flickr8k_entities/cic_bart_small_set": "CIC-BART, control by a set",
    "flickr8k_entities/cic_bart_small_uncontrolled": "CIC-BART, nothing asked",
    "coco/viecap_small-text_flickr30k": "ViECap, Flickr30k's captions, COCO's photos",
}
# The run by whose score a row's share is computed, by data set.
REFERENCES = {
    "flickr8k": "flickr8k/updown_small",
    "flickr8k_entities": "flickr8k_entities/updown_small",
}
# How names of such runs ended when the first records were made: without noise, without curation.
RECORDED_ENDING = "-none-none"
PEOPLE = "people's captions"
METRICS = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE", "timing.captions_per_second")


def page(table: Table) -> list[str]:
    """Lines of docs/results/models_flickr8k.md.

    Args:
        table: runs by their names, such as a key of `ROWS`, then by seed.
    """
    lines = ["# Captioners on Flickr8k's photos", ""]
    lines += head("python tools/studies/models_report.py", table)
    lines += _scores(table)
    diverse = {
        f"{ROWS[name]}, seed {seed}, {_search(folder)}": content["scores"]
        for name, seed, folder, content in _further(table, "diverse.json")
    }
    if diverse:
        lines += ["", "## Several captions an image", "", *tables(diverse)]
    return lines + _control(table)


def _scores(table: Table) -> list[str]:
    """Table of one caption per image: mean over seeds, and the share of UpDown's CIDEr-D."""
    names = [name.removeprefix("timing.").replace("_", " ") for name in METRICS]
    rows = []
    for name in (name for name in ROWS if (name,) in table):
        runs, data = table[name,], name.partition("/")[0]
        cells = [_cell(runs, metric) for metric in METRICS]
        reference = scores(table.get((REFERENCES.get(data, ""),), {}))
        share = _share(list(scores(runs).values()), list(reference.values()))
        rows.append([ROWS[name], data, str(len(runs)), *cells, share])
    return [
        *markdown_lines(["captioner", "data", "seeds", *names, "of UpDown's CIDEr-D"], rows),
        "",
        "Mean ± sample standard deviation over seeds, test split of each data set. A captioner "
        "that is asked for something is told the regions and the length of the first reference, "
        "which others are not. The small joint space was trained on pairs of Flickr8k's training "
        "photos and captions: ViECap's rows with it are not zero-shot.",
    ]


def _cell(runs: dict[int, Run], metric: str) -> str:
    digits = ".0f" if metric.startswith("timing.") else ".4f"
    return spread(values_of(runs, metric), digits)


def _share(values: Sequence[float], reference: Sequence[float]) -> str:
    if not values or not reference:
        return "-"
    return f"{100 * statistics.fmean(values) / statistics.fmean(reference):.0f}%"


def _further(table: Table, file_name: str) -> list[tuple[str, int, str, dict[str, Any]]]:
    """Results of a further command for each run: name, seed, folder name and content."""
    return [
        (name, seed, Path(path).parent.name, content)
        for name in ROWS
        for seed, run in sorted(table.get((name,), {}).items())
        for path, content in run.matching(f"evaluation/*/{file_name}").items()
    ]


def _control(table: Table) -> list[str]:
    """Table of control scores, and of agreement with other requested regions."""
    results = _further(table, "control.json")
    if not results:
        return []
    columns = [
        m for m in SHOWN_SCORES if any(m in content["scores"]["corpus"] for *_, content in results)
    ]
    swap_columns = ["IoU of its own regions", "of swapped ones", "difference, 95%", "changed"]
    rows = []
    for name, seed, folder, content in results:
        corpus = content["scores"]["corpus"]
        cells = [f"{corpus[m]:.3f}" if m in corpus else "-" for m in columns]
        source = captions_used(name.partition("/")[0], folder)
        captioner = ROWS[name] if source == PEOPLE else f"{ROWS[name]}, asked for {source}"
        rows.append([captioner, str(seed), *cells, *_swapped(content["swapped"])])
    table_lines = markdown_lines(["captioner", "seed", *columns, *swap_columns], rows)
    return ["", "## Control", "", *table_lines]


def captions_used(data: str, folder: str) -> str:
    """Source of the captions whose controls were requested in a folder of ``evaluation``.

    They are human captions of the test split of ``data`` (``test_in`` for MiniWorld), captions
    generated for its photos, or captions of other data.
    """
    for plain in (f"{data}-test_in", f"{data}-test"):
        if folder == plain:
            return PEOPLE
        if folder.startswith(f"{plain}-"):
            return f"captions of {folder.removeprefix(f'{plain}-')}"
    return f"captions of {folder}"


def _search(folder: str) -> str:
    """Search of the captions, from the end of the folder's name."""
    return folder.rpartition("-")[2].replace("_", " ")


def _swapped(swap: Mapping[str, Any] | None) -> list[str]:
    if swap is None:
        return ["-"] * 4
    difference = swap["difference"]
    means = [f"{swap[side]['IoU']:.3f}" for side in ("matched", "swapped")]
    return [
        *means,
        f"{difference['mean']:+.4f} [{difference['low']:+.4f}, {difference['high']:+.4f}]",
        f"{swap['changed']:.0%}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Build and write the page."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    names = sorted({name.partition("/")[0] for name in ROWS})
    table = read_table([path for name in names for path in studies(RECORDS, name)], ("run_name",))
    print(write_page("models_flickr8k", page(by_row(table))))


def by_row(table: Table) -> Table:
    """Runs by the keys of `ROWS`, for old and new run names."""
    rows: Table = {}
    for (name,), runs in table.items():
        row = name.removesuffix(RECORDED_ENDING)
        if row in ROWS:
            rows.setdefault((row,), {}).update(runs)
    return {(row,): rows[row,] for row in ROWS if (row,) in rows}


if __name__ == "__main__":
    main()
