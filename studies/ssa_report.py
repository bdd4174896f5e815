"""The page and the figure of CIC-BART trained without and with structured semantic augmentation.

    python train.py -m experiment=ssa/flickr8k_small 'steps.add_pairs.folders=[FOLDER]' seed=0,1,2 \
      steps.add_pairs.mixture.share=0,1
    captioning controllability run=RUN well_formedness=smollm2 [generated=SET]
    python studies/ssa_report.py --data flickr8k_entities

Keeps the records of finished runs in docs/results/records, and builds docs/results/ssa_DATA.md and
docs/images/ssa_DATA.png from them: a row a mixture of captions (Tables 1 to 10 of Basioti et al.,
2024), for the controls of people's captions and of each generated set, and scores by the requested
share of the photo (Fig. 4, 12, 13).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from omegaconf import OmegaConf
from report_parts import (
    PEOPLE,
    RECORDS,
    ROOT,
    captions_used,
    finished,
    head,
    read_table,
    spread,
    studies,
    updates,
    values_of,
    write_page,
)

from captioning.files import write_atomically
from captioning.results.records import keep_record
from captioning.results.runs import Run
from captioning.results.table_formats import markdown_lines

# Captions added to the training captions, by the part of a run's name after the model.
ADDED = {
    "ssa": "SSA",
    "ssa_long": "SSA with long captions",
    "ssa_verbs": "SSA, asked for verbs",
    "paraphrase": "paraphrases",
}
MIXES = {
    "random0": "0%",
    "random25": "25%",
    "random50": "50%",
    "uniform10": "up to 10 even bins",
    "random75": "75%",
    "all": "100%",
}
# Ends the mixture's name of runs with loader.original_updates=true (earlier records:
# loader.own_updates), where both kinds are compared.
SHORT = "_short"
ORIGINAL_UPDATES = ("original_updates", "own_updates")
COLUMNS = ("H", "IoU", "Hal", "missing", "L", "LP", "G", "sC", "D-1", "D-2")
STANDARD = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE")
RANDOM = ("D-1", "D-2", "L", "LP")
BY_COVERAGE = ("IoU", "Hal")
# Scores beside those of control that lie in control.json.
FURTHER = ("random", "standard")
# Settings of the scores without whose equality rows cannot be compared.
COMPARED = ("parser", "word_vectors", "lemmas", "well_formedness")
COMPARED_FURTHER = {
    "random": ("controls", "best", "shortest", "longest", "regions", "seed", "num_images"),
    "standard": ("tokenizer", "references_hash"),
}

WITHOUT_CONTROL = (
    "Each image is asked what its first reference asks for, and held against all of its references."
)

Table = dict[str, dict[int, Run]]  # by training captions, in the order of the page, then by seed
Evaluations = dict[str, dict[str, dict[int, dict[str, Any]]]]  # by requested captions, row and seed
Rows = Mapping[str, Mapping[int, Mapping[str, Any]]]  # scores by row and seed


def read_rows(sources: Sequence[Path], *, data: str, model: str) -> Table:
    """Runs by their training captions.

    Args:
        sources: files of records, or folders of runs; runs of other data, models, noise or
            curation are passed over.
        data, model: by which the runs' names begin: ``DATA/MODEL_ssa-MIX``; the
            first records end in the names of noise and curation: ``-none-none``.
    """
    name = re.compile(
        rf"{re.escape(f'{data}/{model}')}(?:_({'|'.join(ADDED)})-([\w.]+))?(?:-none-none)?$",
        re.ASCII,
    )
    runs_by_position: dict[tuple[int, int, str], dict[int, Run]] = {}
    for (run_name,), runs in read_table(sources, ("run_name",)).items():
        match = name.match(run_name)
        if match:
            runs_by_position[_position(*match.groups(), _is_short(runs))] = runs
    return {label: runs_by_position[key] for key in sorted(runs_by_position) for label in key[2:]}


def _is_short(runs: Mapping[int, Run]) -> bool:
    """Whether runs with captions added make no more updates than without."""
    return any(
        (run.config.get("added") or run.setting("steps.add_pairs"))
        and any(run.config["loader"].get(key, False) for key in ORIGINAL_UPDATES)
        for run in runs.values()
    )


def _position(kind: str | None, mix: str | None, is_short: bool) -> tuple[int, int, str]:
    """The position of a row on the page, and its name."""
    if kind is None:
        return 0, 0, "people's captions alone"
    mix = _mixture(mix.removesuffix(SHORT) if is_short else mix)
    position = list(MIXES).index(mix) if mix in MIXES else len(MIXES)
    label = f"+ {ADDED[kind]}, {MIXES.get(mix, mix)}"
    is_short &= mix != "random0"  # which has nothing more to be trained on
    return 1 + list(ADDED).index(kind), position, label + ", for the same updates" * is_short


def _mixture(name: str) -> str:
    """The page's name of a mixture: newer run names have its share, the earliest this name."""
    if not name.replace(".", "").isdigit():
        return name
    share = float(name)
    return "all" if share == 1 else f"random{round(100 * share)}"


def read_evaluations(data: str, table: Table) -> Evaluations:
    """The scores of control in runs, by the requested captions; people's come first.

    Scores of other numbers of captions (``max_images=``) are told apart.

    Raises:
        ValueError: scores of one set of captions were made with different tools.
    """
    evaluations: Evaluations = {}
    for row, runs in table.items():
        for seed, run in sorted(runs.items()):
            for path, content in run.matching("evaluation/*/control.json").items():
                number = content["scores"]["settings"]["num_captions"]
                name = f"{captions_used(data, Path(path).parent.name)}, {number:,} of them"
                further = {part: content.get(part) for part in FURTHER}
                rows = evaluations.setdefault(name, {})
                rows.setdefault(row, {})[seed] = content["scores"] | further
    evaluations = dict(sorted(evaluations.items(), key=lambda item: not item[0].startswith(PEOPLE)))
    for name, rows in evaluations.items():
        _check(name, [scores for runs in rows.values() for scores in runs.values()])
    return evaluations


def _check(name: str, scores: Sequence[Mapping[str, Any]]) -> None:
    _check_settings(name, COMPARED, [entry["settings"] for entry in scores])
    for part, keys in COMPARED_FURTHER.items():
        settings = [entry[part]["settings"] for entry in scores if entry.get(part)]
        _check_settings(f"{name} ({part})", keys, settings)


def _check_settings(name: str, keys: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> None:
    for key in keys:
        values = {json.dumps(entry[key]) for entry in settings if key in entry}
        if len(values) > 1:
            raise ValueError(
                f"control.json of {name} was made with {key} of {' and of '.join(sorted(values))}: "
                "rows cannot be compared; run captioning.evaluation.controllability anew with the "
                "same settings for all"
            )


def page(data: str, model: str, table: Table, evaluations: Evaluations) -> list[str]:
    """The lines of the page."""
    command = f"python studies/ssa_report.py --data {data} --model {model}"
    lines = [f"# Structured semantic augmentation: {model} on {data}", ""]
    lines += head(command, {(row,): runs for row, runs in table.items()})
    lines += [
        "Mean ± sample standard deviation over seeds. Columns: [scores of control]"
        "(../metrics_control.md); H is the harmonic mean of IoU, G and sC. L and LP are of each "
        "caption's own control: the paper's L is of random ones, which have a table of their own."
    ]
    for name, rows in evaluations.items():
        tables = "1, 3, 4, 6 and 10" if name.startswith(PEOPLE) else "2, 5 and 7"
        corpora = _nested_scores(rows, "corpus")
        lines += ["", f"## Asked for {name} (the paper's Tables {tables})", ""]
        lines += [*_scored(corpora, COLUMNS), *_further(rows)]
    evaluated = {
        row for name, rows in evaluations.items() if name.startswith(PEOPLE) for row in rows
    }
    missing = [row for row in table if row not in evaluated]
    if missing:
        lines += ["", f"Not asked for {PEOPLE} yet: {'; '.join(missing)}."]
    lines += ["", "## By the share of the photo that is asked for (Fig. 4, 12, 13)", ""]
    lines += [f"![scores by coverage](../images/ssa_{data}.png)"] if evaluations else ["None yet."]
    for name, rows in evaluations.items():
        for score in BY_COVERAGE:
            lines += ["", f"{score}, asked for {name}:", "", *_by_coverage(rows, score)]
    lines += ["", "## One caption an image", "", WITHOUT_CONTROL, ""]
    return [*lines, *_standard(table)]


def _nested_scores(rows: Rows, *path: str) -> dict[str, list[Mapping[str, float]]]:
    """Scores at a path of keys in those of the runs, by row; rows without them are left out."""
    scores_by_row: dict[str, list[Mapping[str, float]]] = {}
    for row, runs in rows.items():
        for scores in runs.values():
            for key in path:
                scores = scores.get(key) or {}
            if scores:
                scores_by_row.setdefault(row, []).append(scores)
    return scores_by_row


def _further(rows: Rows) -> list[str]:
    """Tables of random controls, and of every caption against its own."""
    lines = []
    if nested := _nested_scores(rows, "random", "corpus"):
        drawn = next(iter(_nested_scores(rows, "random", "settings").values()))[0]
        text = (
            f"Random controls (Table 8; L of Tables 1, 4 and 6): {drawn['controls']} an image, of "
            f"{drawn['shortest']} to {drawn['longest']} words; D-1 and D-2 are of the best "
            f"{drawn['best']} captions, L and LP of all."
        )
        lines += ["", text, "", *_scored(nested, RANDOM)]
    if nested := _nested_scores(rows, "standard", "corpus"):
        lines += ["", "Each caption against the one that it was asked for by (Table 9):", ""]
        lines += _scored(nested, STANDARD)
    return lines


def _scored(
    corpora: Mapping[str, Sequence[Mapping[str, float]]], names: Sequence[str]
) -> list[str]:
    """A row a mixture; scores that no run has are left out."""
    known = {name for seeds in corpora.values() for corpus in seeds for name in corpus}
    columns = [name for name in names if name in known]
    cells = [
        [row, str(len(seeds)), *(_mean([c[name] for c in seeds if name in c]) for name in columns)]
        for row, seeds in corpora.items()
    ]
    return markdown_lines(["trained on", "seeds", *columns], cells)


def _mean(values: Sequence[float]) -> str:
    return spread(values, ".4f")


def _by_coverage(rows: Rows, score: str) -> list[str]:
    """A row a band of coverage, a column a mixture."""
    shares, values = bands(rows, score)
    cells = [
        [f"{100 * low:.0f} to {100 * high:.0f}%", f"{share:.1%}"]
        + [_mean(values[row].get((low, high), [])) for row in rows]
        for (low, high), share in shares.items()
    ]
    return markdown_lines(["of the photo", "captions", *rows], cells)


Band = tuple[float, float]


def bands(rows: Rows, score: str) -> tuple[dict[Band, float], dict[str, dict[Band, list[float]]]]:
    """Share of the captions in each band, and the values of a score by row and band."""
    shares: dict[Band, float] = {}
    values: dict[str, dict[Band, list[float]]] = {row: {} for row in rows}
    for row, runs in rows.items():
        for band in (band for scores in runs.values() for band in scores["bands"]):
            key = (band["low"], band["high"])
            shares[key] = band["share"]
            if score in band["means"]:
                values[row].setdefault(key, []).append(band["means"][score])
    return dict(sorted(shares.items())), values


def _standard(table: Table) -> list[str]:
    rows = []
    for row, runs in table.items():
        cells = [_mean(values_of(runs, name)) for name in STANDARD]
        rows.append([row, str(len(runs)), _updates(list(runs.values())), *cells])
    return markdown_lines(["trained on", "seeds", "updates", *STANDARD], rows)


def _updates(runs: Sequence[Run]) -> str:
    """How many a row's runs have made: more captions are more updates an epoch."""
    steps = {made for run in runs if (made := updates(run)) is not None}
    return " or ".join(map(str, sorted(steps))) or "-"


def draw(data: str, evaluations: Evaluations, path: Path) -> None:
    """A line a mixture; dashed, the share of the captions in each band."""
    figure, axes = plt.subplots(
        len(evaluations), len(BY_COVERAGE), figsize=(11, 4 * len(evaluations)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    all_rows = dict.fromkeys(row for rows in evaluations.values() for row in rows)
    colours = {row: f"C{number}" for number, row in enumerate(all_rows)}  # the same in all panels
    for row_of_axes, (name, rows) in zip(axes, evaluations.items(), strict=True):
        for axis, score in zip(row_of_axes, BY_COVERAGE, strict=True):
            axis.set(title=f"{data}, {name}", xlabel="% of the photo asked for", ylabel=score)
            _draw_bands(axis, rows, score, colours)
        row_of_axes[0].legend(fontsize="small")
    figure.savefig(path, format="png", dpi=90)
    plt.close(figure)


def _draw_bands(
    axis: plt.Axes,
    rows: Rows,
    score: str,
    colours: Mapping[str, str],
) -> None:
    shares, values = bands(rows, score)
    for row, by_band in values.items():
        bands_of_row = sorted(by_band)
        means = [statistics.fmean(by_band[place]) for place in bands_of_row]
        middles = [50 * sum(place) for place in bands_of_row]
        axis.plot(middles, means, marker="o", label=row, color=colours[row])
    captions = axis.twinx()
    captions.set_ylabel("% of the captions")
    middles = [50 * sum(band) for band in shares]
    captions.plot(middles, [100 * share for share in shares.values()], "--", color="grey")


def main(arguments: Sequence[str] | None = None) -> None:
    """Records, page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="flickr8k_entities")
    parser.add_argument("--model", default="cic_bart_small")
    options = parser.parse_args(arguments)
    data, model = options.data, options.model
    runs = Path(OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml").runs)
    for folder in finished((runs / data).glob(f"{model}*/seed*")):
        if read_rows([folder], data=data, model=model):
            keep_record(folder, RECORDS)
    table = read_rows(studies(RECORDS, data), data=data, model=model)
    if not table:
        parser.error(f"no finished run of {data}/{model} below {runs} or {RECORDS}: train one")
    evaluations = read_evaluations(data, table)
    print(write_page(f"ssa_{data}", page(data, model, table, evaluations)))
    if evaluations:
        picture = ROOT / "docs" / "images" / f"ssa_{data}.png"
        write_atomically(picture, lambda part: draw(data, evaluations, part))
        print(picture)


if __name__ == "__main__":
    main()
