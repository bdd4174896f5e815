"""The page of ToCa's small trainings: synthetic captions against the captions they were made of.

    python studies/toca_report.py

Keeps the records of finished runs of experiment=toca/*_small in docs/results/records, with what the
card of their synthetic captions says, and builds docs/results/toca.md: for each data set a row for
T (people's captions) alone, D (synthetic ones) alone, D then T, and those without relations (R w/o)
or structures (G w/o), as the paper's Table 6; by share of T, as Table 5; by volume, as Figure 1.
Runs that were tested on further photos (RUN/flickr8k) have those scores in a section of their own.
`studies/study_toca.py` makes the runs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf
from report_parts import (
    METRIC,
    RECORDS,
    ROOT,
    finished,
    further_tests,
    head,
    scores,
    spread,
    studies,
    values_of,
    write_page,
)

from captioning.files import read_json
from captioning.results.records import keep_record
from captioning.results.runs import Run, read_runs
from captioning.results.table_formats import markdown_lines
from captioning.training.rosters import has_corpus

METRICS = ("BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D")
TITLES = {"flickr8k": "Flickr8k's photos", "coco": "COCO's photos"}
ALSO = ("flickr8k",)  # on whose photos runs of other data sets can be tested, without settings
# As run folders are called.
KINDS = {"t": "T alone", "tt": "T alone, longer", "d": "D alone", "dt": "D, then T"}
ALONE = ("t", "tt")  # without synthetic captions
FOLDERS = "{model}-toca_*"
FACTS = "synthetic.json"  # in a record: what the synthetic captions are
NOTE = (
    "Mean ± sample standard deviation over seeds, test split. T: a share of COCO's 616,767 "
    "captions, on COCO's photos without those of the tested ones; D: synthetic captions, made of "
    "the same share. Epochs are those of the row's own training: of D, then T those on T, behind "
    "the D alone of the same set; of T alone there are trainings for as many epochs as that, and "
    "for as many updates as D and T together. Taught: the language model that wrote D was trained "
    "on T before (docs/toca.md). By share and by volume, of trainings that differ in "
    "their epochs alone, the one that scores highest stands."
)
ALSO_NOTE = (
    "The runs of COCO's photos again, asked for captions of Flickr8k's test photos. Runs of "
    "`--data flickr8k` are others: their T is drawn from all of COCO's captions, those of its "
    "tested photos too, and they are tested at the epoch that is best on Flickr8k's validation "
    "photos; these are tested at their last one, which no photo chooses."
)


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """What runs of a row have in common.

    Attributes:
        data: whose photos the run itself is tested on.
        share: of COCO's captions, T.
        variant: how the synthetic captions differ from ToCa's, see `variant_of`; "" if they do not.
        captions: synthetic ones that are trained on; 0 for T alone.
        kind: of `KINDS`.
        epochs: of this training; of one on T that began with D, those on T.
        also: of `ALSO`, whose photos the finished run was tested on; "": its own test.
    """

    data: str
    share: float
    variant: str
    captions: int
    kind: str
    epochs: int
    also: str = ""


Table = dict[Row, dict[int, Run]]  # by row, then by seed


def synthetic_captions(folder: Path) -> dict[str, Any]:
    """What a run's synthetic captions are, of the card beside them.

    Args:
        folder: of a run on D, or of one that goes on with T.

    Raises:
        FileNotFoundError: no card, or the run that it began with is not there.
        ValueError: the card is of an older version.
    """
    config = OmegaConf.load(folder / "config.yaml")
    if config.start_from is not None:
        return synthetic_captions(Path(config.start_from))
    path = Path(config.corpus.train.path).parent / "card.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder}: its synthetic captions have no {path}; give their folder back, or move the "
            "run elsewhere"
        )
    card = read_json(path)
    if "share" not in card:
        raise ValueError(
            f"{path} has no 'share': give the command of the synthesis again, which writes the "
            "card anew"
        )
    method, num_captions = card["config"]["method"], card["counts"]["captions"]
    return {
        "captions": max(1, int((config.corpus.share or 1) * num_captions)),
        "share": card["share"]["corpus"] or 1,
        **{name: method[name] for name in ("tau", "use_relations", "use_structures")},
        # older cards call these settings whole_first and most_given, or have none
        "whole_first": method.get("complete_first", method.get("whole_first", False)),
        "most_given": method.get("max_given_words", method.get("most_given")),
        "taught": not method.get("prompts", {}).get("instruct", True),
        "words_of_t": has_corpus(config, "vocabulary"),
    }


def variant_of(facts: Mapping[str, Any]) -> str:
    """How a synthesis, or the vocabulary, differs from the default, as the paper's tables say."""
    is_short = facts.get("most_given") is not None
    variants = {
        "taught": facts.get("taught", False) and is_short,
        "taught, whole templates": facts.get("taught", False) and not is_short,
        "R w/o": not facts["use_relations"],
        "G w/o": not facts["use_structures"],
        f"τ = {facts['tau']}": facts["tau"] is not None,
        "slots passed over": not facts["whole_first"],
        "words of D alone": not facts["words_of_t"],
    }
    return ", ".join(variant for variant, is_so in variants.items() if is_so)


def keep(folder: Path) -> Path:
    """Keep the record of a run, its further tests and what its synthetic captions are.

    Returns:
        The study's file.
    """
    facts = None if kind_of(folder) in ALONE else synthetic_captions(folder)
    further = further_tests(folder, ALSO) | ({} if facts is None else {FACTS: facts})
    return keep_record(folder, RECORDS, further=further)


def kind_of(folder: Path) -> str:
    """The kind of a run, of its folder's name.

    Raises:
        ValueError: the name has none.
    """
    match = re.search(r"-toca_(\w+?)-", folder.parent.name)
    if match is None or match[1] not in KINDS:
        raise ValueError(
            f"{folder}: the name of a run must have -toca_t-, -toca_tt-, -toca_d- or -toca_dt-, as "
            "those of experiment=toca/*_small have"
        )
    return match[1]


def read_table(sources: Sequence[Path], *, only: Sequence[str] = ()) -> Table:
    """Runs by row and seed.

    Raises:
        ValueError: two runs are the same row and seed.
        FileNotFoundError: a record of a run on D says nothing of D.
    """
    table: Table = {}
    read = read_runs(sources, only=only)
    for also, run in (test for recorded_run in read for test in tests_of(recorded_run).items()):
        runs, seed = table.setdefault(row_of(run, also), {}), int(run.config["seed"])
        if seed in runs:
            raise ValueError(
                f"{runs[seed].folder} and {run.folder} are the same row and seed: keep one of them"
            )
        runs[seed] = run
    return table


def tests_of(run: Run) -> dict[str, Run]:
    """A recorded run with the scores of its own test (""), and with those of each further one."""
    further = {
        also: replace(run, metrics={"test": {"corpus": run.files[f"{also}.json"]}})
        for also in ALSO
        if f"{also}.json" in run.files
    }
    return {"": run, **further}


def row_of(run: Run, also: str = "") -> Row:
    """The row of a recorded run, or of a further test of it."""
    kind, data = kind_of(run.folder), run.config["data"]["name"]
    epochs = int(run.config["num_epochs"])
    if kind in ALONE:
        return Row(data, float(run.config["corpus"]["share"] or 1), "", 0, kind, epochs, also)
    if FACTS not in run.files:
        raise FileNotFoundError(f"{run.name}: its record says nothing of D: there is no {FACTS}")
    facts = run.files[FACTS]
    share, captions = float(facts["share"]), int(facts["captions"])
    return Row(data, share, variant_of(facts), captions, kind, epochs, also)


def page(table: Table) -> list[str]:
    """The lines of docs/results/toca.md."""
    named = {(str(row),): runs for row, runs in table.items()}
    lines = ["# ToCa in small", "", *head("python studies/toca_report.py", named), NOTE]
    tests = {(row.data, row.also) for row in table}
    for data, also in sorted(tests, key=lambda test: ([*TITLES].index(test[0]), test[1])):
        part = {row: runs for row, runs in table.items() if (row.data, row.also) == (data, also)}
        lines += ["", *_title(data, also), "", *_scores(part)]
        for variant in sorted({row.variant for row in part}):
            # T alone stands beside each of them, as far as there is such a share
            shares = {row.share for row in part if row.variant == variant}
            beside = {
                row: runs
                for row, runs in part.items()
                if row.variant == variant or (row.kind in ALONE and row.share in shares)
            }
            named = f", {variant}" if variant else ""
            lines += _section(f"By share of T (Table 5){named}", _by_share(beside))
            lines += _section(f"By volume (Figure 1){named}", _by_volume(beside))
    return lines


def _title(data: str, also: str) -> list[str]:
    """Of a test; with a note where it could be taken for that of other runs."""
    if not also:
        return [f"## {TITLES[data]}"]
    return [f"## {TITLES[also]}, by the runs of {TITLES[data]}", "", ALSO_NOTE]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"### {title}", "", *lines] if lines else []


def _scores(table: Table) -> list[str]:
    """A line a row, all metrics."""
    rows = [
        [
            KINDS[row.kind] + (f" ({row.variant})" if row.variant else ""),
            f"{row.share:.10g}",
            f"{row.captions:,}" if row.captions else "-",
            str(row.epochs),
            str(len(runs)),
            *(_cell(runs, metric) for metric in METRICS),
        ]
        for row, runs in sorted(table.items(), key=_position)
    ]
    columns = ["trained on", "share of T", "captions of D", "epochs", "seeds"]
    return markdown_lines([*columns, *METRICS], rows)


def _position(item: tuple[Row, object]) -> tuple[float, str, int, int, int]:
    """Where a row stands: by share, T first, then the whole D before parts of it."""
    row = item[0]
    kind = [*KINDS].index(row.kind)
    volume = -(10**12) if row.kind in ALONE else -row.captions
    return (row.share, row.variant, volume, kind, row.epochs)


def _cell(runs: dict[int, Run], metric: str) -> str:
    return spread(values_of(runs, metric), ".4f")


def _by_share(table: Table) -> list[str]:
    """CIDEr-D by share with all of D; nothing where there is one share."""
    max_captions: dict[float, int] = {}
    for row in table:
        max_captions[row.share] = max(max_captions.get(row.share, 0), row.captions)
    complete = {
        row: runs for row, runs in table.items() if row.captions in (0, max_captions[row.share])
    }
    return _grid("share of T", complete, lambda row: row.share, "{:.10g}")


def _by_volume(table: Table) -> list[str]:
    """CIDEr-D by volume, at the share of which there are several."""
    with_synthetic = {row: runs for row, runs in table.items() if row.captions}
    lines: list[str] = []
    for share in sorted({row.share for row in with_synthetic}):
        part = {row: runs for row, runs in with_synthetic.items() if row.share == share}
        grid = _grid("captions of D", part, lambda row: row.captions, "{:,}")
        lines += [*([""] if lines else []), f"Share of T: {share:.10g}", "", *grid] * bool(grid)
    return lines


def _grid(name: str, table: Table, of: Callable[[Row], float], form: str) -> list[str]:
    """CIDEr-D, a line a value and a column a kind; nothing where there is one value.

    Of trainings that differ in their epochs alone the one that scores highest counts, for too many
    epochs harm a small share.
    """
    table = dict(sorted(table.items(), key=lambda item: fmean(scores(item[1]).values())))
    values = sorted({of(row) for row in table})
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in table)]
    cells = {(of(row), row.kind): spread([*scores(r).values()], ".4f") for row, r in table.items()}
    rows = [[form.format(v), *(cells.get((v, kind), "-") for kind in kinds)] for v in values]
    titles = [f"{KINDS[kind]}, {METRIC}" for kind in kinds]
    return markdown_lines([name, *titles], rows) if len(values) > 1 else []


def main(arguments: Sequence[str] | None = None) -> None:
    """Records and page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="viecap_small")
    folders = FOLDERS.format(model=parser.parse_args(arguments).model)
    runs = Path(OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml").runs)
    for data in TITLES:
        for folder in finished((runs / data).glob(f"{folders}/seed*")):
            keep(folder)
    sources = [path for data in TITLES for path in studies(RECORDS, data)]
    print(write_page("toca", page(read_table(sources, only=[folders]))))


if __name__ == "__main__":
    main()
