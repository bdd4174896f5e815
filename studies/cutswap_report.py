"""The page of CutSwap's training tables: scores without and with augmented pairs, by share of data.

    python train.py -m experiment=cutswap/updown 'steps.add_pairs.folders=[FOLDER]' seed=0,1,2
    python studies/cutswap_report.py --data flickr8k_entities --model updown_small

Keeps the records of all finished runs in docs/results/records, with the scores of the evaluations
that lie in them (nocaps, oracle20, oracle100, consensus: see configs/experiment/cutswap), and
builds docs/results/cutswap_DATA_MODEL.md with its figure. Runs of one share of the data must have
made the same number of updates, or no page is built.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from omegaconf import OmegaConf
from report_parts import (
    RECORDS,
    ROOT,
    finished,
    head,
    keep_with_tests,
    spread,
    studies,
    updates,
    values_of,
    write_page,
)

from captioning.files import write_atomically
from captioning.metrics.novel import NOCAPS_DOMAINS
from captioning.results.runs import Run, read_runs
from captioning.results.table_formats import markdown_lines

# Metrics of the thesis' tables, by the file that they are in and their names there.
STANDARD = ("BLEU-4", "BLEU-3", "BLEU-2", "BLEU-1", "CIDEr-D", "ROUGE-L", "METEOR", "SPICE")
ORACLE = tuple(f"oracle {name}" for name in STANDARD)
DIVERSE = ("uniqueness", "novel-sentences", "mBLEU-4", "Div-1", "Div-2", "self-CIDEr")
DOMAINS = (*NOCAPS_DOMAINS, "overall")
COLUMNS = {
    "": STANDARD,  # Tables 4.3, 4.7, A1
    "nocaps": tuple(f"{name} {domain}" for domain in DOMAINS for name in ("CIDEr-D", "SPICE")),
    "oracle20": ORACLE,  # 4.5, 4.9, A3
    "oracle100": ORACLE,
    "consensus": (*STANDARD, *DIVERSE),  # and 4.6, 4.10, A4
}
DRAWN = ("CIDEr-D", "BLEU-4")  # of Figure 4.8
Row = tuple[float, float, str]  # share of the photos, of added pairs, and what that is a share of
Table = dict[Row, dict[int, Run]]  # then by seed


def read_table(sources: Sequence[Path]) -> Table:
    """Runs by share of the data and of augmented pairs.

    Raises:
        ValueError: runs of one share of the data made different numbers of updates.
    """
    table: Table = {}
    for run in read_runs(sources):
        table.setdefault(_row_of(run), {})[int(run.config["seed"])] = run
    for share in {share for share, *_ in table}:
        runs = [
            run
            for key, runs_by_seed in table.items()
            if key[0] == share
            for run in runs_by_seed.values()
        ]
        if len(update_counts := {updates(run) for run in runs}) > 1:
            raise ValueError(
                f"runs of {share:.0%} of the photos made {sorted(update_counts, key=str)} "
                "updates, which must be equal: train all with loader.original_updates=true and the "
                "same num_epochs"
            )
    return table


def _row_of(run: Run) -> Row:
    """Where a run stands; the earliest records have the shares as settings of their own."""
    steps = run.config.get("steps")
    if steps is None:
        share, added = run.config["train_share"] or 1, run.config["added_share"] or 0
        unit = run.config.get("added_share_of") or "photos"
    else:
        pairs = steps.get("add_pairs", {})
        share = steps.get("share_of_photos", {}).get("share", 1)
        added, unit = pairs.get("share") or 0, pairs.get("share_of", "photos")
    return float(share), float(added), unit if added else "photos"


def page(data: str, model: str, table: Table) -> list[str]:
    """The lines of the page: a table an evaluation, a row a share of data and of pairs."""
    named = {tuple(map(str, row)): runs for row, runs in table.items()}
    command = f"python studies/cutswap_report.py --data {data} --model {model}"
    lines = [f"# CutSwap: {model} on {data}", "", *head(command, named)]
    lines += ["Mean ± sample standard deviation over seeds."]
    for evaluation, metrics in COLUMNS.items():
        rows = [_row(key, runs, evaluation, metrics) for key, runs in sorted(table.items())[::-1]]
        rows = [row for row in rows if row]
        if rows:
            lines += ["", f"## {evaluation or 'one caption an image'}", ""]
            lines += markdown_lines(["photos", "augmented", "seeds", "updates", *metrics], rows)
    return lines


def _row(key: Row, runs: dict[int, Run], evaluation: str, metrics: Sequence[str]) -> list[str]:
    """A row's cells; none where no run has such an evaluation."""
    name = f"{evaluation}.json"
    if evaluation:
        scores_of_runs = [run.files[name] for run in runs.values() if name in run.files]
    else:
        scores_of_runs = [run.scores("test", "corpus") for run in runs.values()]
    if not scores_of_runs:
        return []
    cells = [[scores[name] for scores in scores_of_runs if name in scores] for name in metrics]
    share, added, unit = key
    labels = (
        f"{share:.0%}",
        f"+{added:.0%} of {unit}",
        str(len(scores_of_runs)),
        str(updates(next(iter(runs.values()))) or "-"),
    )
    return [*labels, *(spread(values, ".4f") for values in cells)]


def draw(table: Table, path: Path) -> None:
    """Figure 4.8: scores by share of the photos, a line a share of augmented pairs."""
    figure, axes = plt.subplots(1, len(DRAWN), figsize=(9, 4), layout="constrained")
    for axis, metric in zip(axes, DRAWN, strict=True):
        axis.set(xlabel="% of the photos", ylabel=f"test {metric}")
        for kind in sorted({row[1:] for row in table}):
            rows = sorted(row for row in table if row[1:] == kind)
            values_by_share = {row[0]: values_of(table[row], metric) for row in rows}
            values_by_share = {share: values for share, values in values_by_share.items() if values}
            means = [statistics.fmean(values) for values in values_by_share.values()]
            bars = [statistics.stdev(v) if len(v) > 1 else 0.0 for v in values_by_share.values()]
            label = f"+{kind[0]:.0%} of {kind[1]}" if kind[0] else "without"
            axis.errorbar(
                [100 * share for share in values_by_share], means, bars, marker="o", label=label
            )
        axis.legend()
    figure.savefig(path, format="png", dpi=90)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Records and page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="flickr8k_entities")
    parser.add_argument("--model", default="updown_small")
    options = parser.parse_args(arguments)
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    name = f"cutswap-{options.data}-{options.model}"
    for folder in finished((Path(paths.runs) / "cutswap" / name).glob("*/seed*")):
        keep_with_tests(folder, RECORDS, filter(None, COLUMNS))
    table = read_table(studies(RECORDS, name))
    lines = page(options.data, options.model, table)
    picture = f"cutswap_{options.data}_{options.model}.png"
    write_atomically(ROOT / "docs" / "images" / picture, lambda path: draw(table, path))
    lines += ["", f"![by share of the photos](../images/{picture})"]
    print(write_page(f"cutswap_{options.data}_{options.model}", lines))


if __name__ == "__main__":
    main()
