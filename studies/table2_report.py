"""The page and the figure of the sweep behind the data curation paper's Table 2, Figures 5 and 7.

    python studies/table2_report.py --data flickr8k

The head of configs/experiment/data_curation/table2_DATA.yaml has the commands of the sweep.
Keeps the records of all finished runs in docs/results/records, and builds
docs/results/table2_DATA.md and docs/images/table2_DATA.png from them: a column a way
to curate, a row an amount, so that one sees how much of it is good.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from omegaconf import OmegaConf
from report_parts import (
    METRIC,
    RECORDS,
    ROOT,
    Table,
    finished,
    head,
    read_table,
    scores,
    spread,
    studies,
    write_page,
)

from captioning.files import write_atomically
from captioning.results.records import keep_record
from captioning.results.table_formats import markdown_lines

# The paper's names of the ways to curate, by how the policies' names begin.
METHODS = {
    "remove": "REMOVE",
    "replace_caption": "REPLACECAP",
    "replace_image": "REPLACEIMG",
    "static_replace_image": "REPLACEIMG, static",
}
STATIC = "schedule_before_training"
# Names as configs/curation had them when the records were made: remove_top_loss_5.
_RECORDED = re.compile(r"(?P<way>[a-z_]+?)_(?:top_loss_)?(?P<amount>sigma_2|\d+)")

Grid = dict[str, dict[str, dict[int, float]]]  # score by way, amount and seed


def read_grid(table: Table) -> tuple[dict[int, float], Grid]:
    """Scores of no curation by seed, and of all others.

    Args:
        table: runs by noise and policy, then by seed.

    Raises:
        ValueError: a policy whose name does not say what it does.
    """
    plain: dict[int, float] = {}
    grid: Grid = {}
    for (_, name), runs in table.items():
        if name == "track":
            plain = scores(runs)
            continue
        method, amount = method_and_amount(name)
        grid.setdefault(method, {})[amount] = scores(runs)
    return plain, grid


def method_and_amount(policy: str) -> tuple[str, str]:
    """What a policy does, such as ``"remove"``, and to how much: a percentage or ``"sigma_2"``.

    Raises:
        ValueError: a policy whose name does not say it.
    """
    recorded = _RECORDED.fullmatch(policy)
    if recorded and recorded["way"] in METHODS:
        return recorded["way"], recorded["amount"]
    method, *words = policy.split("-")
    method = f"static_{method}" if STATIC in words else method
    ratios = [word.removeprefix("select.ratio_") for word in words if "select.ratio_" in word]
    if method not in METHODS or not (ratios or "select_sigma" in words):
        raise ValueError(f"the policy {policy!r} is none of this sweep: remove-select.ratio_0.05")
    return method, f"{100 * float(ratios[0]):.0f}" if ratios else "sigma_2"


def amounts(grid: Grid) -> list[str]:
    """All amounts, two standard deviations first, then percents upwards."""
    all_amounts = {amount for column in grid.values() for amount in column}
    return sorted(all_amounts, key=lambda amount: (amount != "sigma_2", int(amount.split("_")[-1])))


def page(data: str, table: Table) -> list[str]:
    """The lines of docs/results/table2_DATA.md."""
    plain, grid = read_grid(table)
    methods = [method for method in METHODS if method in grid]
    lines = [f"# How much to curate: {data}", ""]
    lines += head(f"python studies/table2_report.py --data {data}", table)
    lines += [f"Test {METRIC}, mean ± sample standard deviation over seeds."]
    lines += [f"No curation: {spread(list(plain.values()), '.4f')}.", ""]
    rows = []
    for amount in amounts(grid):
        cells = [spread(list(grid[method].get(amount, {}).values()), ".4f") for method in methods]
        rows.append(["2 std" if amount == "sigma_2" else f"{amount}%", *cells])
    lines += markdown_lines(["amount", *(METHODS[method] for method in methods)], rows)
    lines += ["", f"![{METRIC} by amount](../images/table2_{data}.png)", ""]
    lines += ["Dynamic ways act on the highest losses after every epoch from the second on; the"]
    lines += ["static one once before training, on a random share of every image's captions."]
    return lines


def draw(data: str, table: Table, path: Path) -> None:
    """A line a way to curate, as in the paper's Figures 5 and 7; stars are two deviations."""
    plain, grid = read_grid(table)
    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axis.set(title=data, xlabel="% of the samples, each time", ylabel=f"test {METRIC}")
    for number, (method, label) in enumerate(METHODS.items()):
        points = {
            amount: list(scores_by_seed.values())
            for amount, scores_by_seed in grid.get(method, {}).items()
        }
        points = {amount: values for amount, values in points.items() if values}
        starred = points.pop("sigma_2", None)
        if starred:
            axis.plot([0], [statistics.fmean(starred)], "*", color=f"C{number}", markersize=11)
        percents = sorted(map(int, points))
        means = [statistics.fmean(points[str(percent)]) for percent in percents]
        several = [points[str(percent)] for percent in percents]
        bars = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in several]
        if percents:
            axis.errorbar(percents, means, bars, marker="o", label=label, color=f"C{number}")
    if plain:
        axis.axhline(statistics.fmean(plain.values()), color="grey", ls="--", label="no curation")
    axis.legend()
    figure.savefig(path, format="png", dpi=90)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Records, page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("flickr8k", "miniworld"), default="flickr8k")
    data = parser.parse_args(arguments).data
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    for folder in finished((Path(paths.runs) / "table2" / f"table2-{data}").glob("*/seed*")):
        keep_record(folder, RECORDS)
    table = read_table(studies(RECORDS, f"table2-{data}"))
    print(write_page(f"table2_{data}", page(data, table)))
    picture = ROOT / "docs" / "images" / f"table2_{data}.png"
    write_atomically(picture, lambda part: draw(data, table, part))
    print(picture)


if __name__ == "__main__":
    main()
