"""Bujimalla et al.'s tables in small: novel objects by pasted pairs and pseudo-labels, row by row.

As published, and with a detector's labels: ``captioning paper novel_objects``. Here pseudo-labels
are told the held-out classes that the photos' own captions name.

    python studies/study_novel_objects.py --data miniworld --seeds 0 1 2

First the synthetic pairs (``captioning augment``), then the steps, each from the weights of the
one before; what is finished is not made again. At the end (or alone, with ``--report``) records go
to docs/results/records, and docs/results/novel_DATA.md is built from them. What follows ``--``
goes to train.py, such as ``-- threads=1 first_images=500``, or for the paper's S
columns, which need Java, ``-- 'extra_metrics.novel_objects.metrics=[SPICE,METEOR,CIDEr-D]'``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from report_parts import (
    RECORDS,
    ROOT,
    finished,
    head,
    read_table,
    run,
    spread,
    studies,
    values_of,
    write_page,
)

from captioning.data.region_labels import relabel_roster
from captioning.data.steps.hold_out import classes_shown
from captioning.files import read_json, write_json
from captioning.results.records import keep_record
from captioning.results.table_formats import markdown_lines
from captioning.text.lemmas import load_lemmas
from captioning.text.object_words import LEMMAS
from captioning.training.rosters import read_roster

# Pasted pairs of a class at most, by data set; 2,400 in the paper. 0: there are no boxes to cut by.
PICTURES = {"miniworld": 200, "flickr8k_entities": 300, "coco": 0}
SETS = {"synthetic": 1, "third": 3}  # all of them, and 33%
# Epochs of step 2, and of a round that is long (Sch1) or short (Sch2). Rates are a half and a
# quarter of step 1's.
LENGTHS, NUM_ROUNDS = (2, 2, 1), 4
MAX_CONSTRAINTS = 3  # of a photo, as for detections
NOTE = (
    "Test split, mean ± sample standard deviation over seeds. Out-of-domain: photos of which a "
    "caption names a held-out class, scores averaged over classes; in-domain: all others. The "
    "names in brackets are the paper's rows. **Constraints are true labels, no detector's**: those "
    "of pseudo-labels (PLC, PLB) are the held-out classes that the photo's own captions name; "
    "those at inference are the held-out classes of its annotated boxes, or where there are none, "
    "as on COCO's photos here, those that its references name, which makes F1 1.0 by "
    "construction. These rows are upper bounds. `captioning paper novel_objects` has the commands "
    "with a detector's labels."
)
# Samples of a photo with pseudo-labels: one a search. With more the phrases of searches become
# the captioner's own, and it names the classes in photos that lack them.
SAMPLES = {"PLC": 1, "PLB": 2}


@dataclass(frozen=True, slots=True)
class Row:
    """A run of the tables.

    Attributes:
        label: the training data by the paper's name, and the paper's row.
        begins: the row whose weights it begins with; None: from scratch.
        added: the set of pasted pairs that is trained on too, if any.
        labels: pseudo-labels: "PLB" by both searches, "PLC" by constrained search.
        long: the paper's Sch1: rounds of more updates, whose rate falls faster; or Sch2.
        all_pairs: no class is held out.
    """

    label: str
    begins: str | None = None
    added: str | None = None
    labels: str | None = None
    long: bool = True
    all_pairs: bool = False


# In the order in which they must be made.
ROWS: dict[str, Row] = {
    "all_pairs": Row("InD + OutD (3A-i)", all_pairs=True),
    "in_domain": Row("InD (2A)"),
    "plc": Row("InD + PLC, Sch1 (2C)", "in_domain", None, "PLC"),
    "plb": Row("InD + PLB, Sch1 (2D)", "in_domain", None, "PLB"),
    "syn": Row("InD + Syn (2E)", "in_domain", "synthetic"),
    "syn_plc": Row("InD + Syn + PLC, Sch1 (2F)", "syn", "synthetic", "PLC"),
    "syn_plb": Row("InD + Syn + PLB, Sch1 (2G)", "syn", "synthetic", "PLB"),
    "syn_plc_sch2": Row("InD + Syn + PLC, Sch2 (4D)", "syn", "synthetic", "PLC", long=False),
    "syn_plb_sch2": Row("InD + Syn + PLB, Sch2 (4G)", "syn", "synthetic", "PLB", long=False),
    "third": Row("InD + Syn33%", "in_domain", "third"),
    "third_plc": Row("InD + Syn33% + PLC, Sch1 (4B)", "third", "third", "PLC"),
    "third_plb": Row("InD + Syn33% + PLB, Sch1 (4E)", "third", "third", "PLB"),
    "all_pairs_syn": Row("InD + OutD + Syn (Table 5)", None, "synthetic", all_pairs=True),
}
# Not trained: the first step's captioner, searching under constraints.
CONSTRAINED = "in_domain_constrained"
LABELS = {name: row.label for name, row in ROWS.items()} | {
    CONSTRAINED: "InD, constrained search at inference by true labels (2B)"
}


def overrides(row: Row, folder: Path, seed: int, rate: float) -> list[str]:
    """The overrides of train.py for a row, beside the experiment.

    Args:
        row: which.
        folder: of the data set's runs.
        seed: of the run.
        rate: the first step's learning rate.
    """
    arguments, data = [], folder.name.removeprefix("novel-")
    second, *rounds = LENGTHS
    steps = [] if row.all_pairs else [f"hold_out_{data}"]
    steps += [] if row.added is None else ["add_pairs"]
    arguments.append(f"steps={flow(steps)}")
    if row.all_pairs:
        arguments.append(f"extra_metrics.novel_objects.classes={flow(held_out(data))}")
    if row.added is not None:
        arguments.append(f"steps.add_pairs.folders=[{folder / row.added}]")
    if row.begins is None:
        return arguments
    arguments.append(f"start_from={folder / row.begins / f'seed{seed}'}")
    if row.labels is None:
        return [*arguments, f"num_epochs={second}", f"optimizer.lr={rate / 2}"]
    length = rounds[0] if row.long else rounds[1]
    arguments += [
        "curation=pseudo_label",
        f"steps.hold_out.samples_per_photo={SAMPLES[row.labels]}",
        f"num_epochs={NUM_ROUNDS * length}",
        f"curation.schedule.every_n_epochs={length}",
        f"curation.schedule.until_epoch={(NUM_ROUNDS - 1) * length - 1}",
        "schedule=rounds",
        f"schedule.scale={0.5 if row.long else 0.8}",
        f"optimizer.lr={rate / 4}",
    ]
    return arguments + ["curation.amend.plain=null"] * (row.labels == "PLC")


def held_out(data: str) -> dict[str, list[str]]:
    """Word forms of a data set's classes that are held out."""
    config = OmegaConf.load(ROOT / "configs" / "steps" / f"hold_out_{data}.yaml")
    return OmegaConf.to_container(config.hold_out.classes)


def make_pairs(data: str, name: str, folder: Path, limit: Sequence[str]) -> None:
    """Pasted pairs, if they are not there yet."""
    if (folder / name / "card.json").is_file():
        return
    number = PICTURES[data] // SETS[name]
    options = ["method=novel_objects", f"data={data}", f"method.choices.num_pictures={number}"]
    run(["-m", "captioning", "augment", *options, f"out={folder / name}", *limit])


def make_runs(options: argparse.Namespace, extra: Sequence[str], folder: Path) -> None:
    """All rows that are not finished yet, with those that they begin with.

    None of pasted pairs where there are no boxes.
    """
    rows = [name for name in chain(options.rows) if PICTURES[options.data] or not ROWS[name].added]
    experiment = f"experiment=novel_objects/{options.data}"
    path = ROOT / "configs" / "experiment" / "novel_objects" / f"{options.data}.yaml"
    rate = OmegaConf.load(path).optimizer.lr
    limit = [override for override in extra if override.startswith("first_images=")]
    for seed in options.seeds:
        for name in rows:
            row = ROWS[name]
            if row.added is not None:
                make_pairs(options.data, row.added, folder, limit)
            if not (folder / name / f"seed{seed}" / "metrics.json").is_file():
                arguments = overrides(row, folder, seed, rate)
                named = f"run_name={folder.name}/{name}"
                run(["train.py", experiment, named, f"seed={seed}", *arguments, *extra])
        if "in_domain" in rows:
            search_constrained(folder, seed)


def chain(names: Sequence[str]) -> list[str]:
    """Rows and those that their weights come from, in the order in which they must be made."""
    required = list(names)
    for name in required:  # grows as it is read
        first = ROWS[name].begins
        if first is not None and first not in required:
            required.append(first)
    return [name for name in ROWS if name in required]


def refuse_others(folder: Path, extra: Sequence[str]) -> None:
    """Runs of other settings are not taken for finished ones of these.

    Raises:
        SystemExit: the folder's runs were made with other overrides.
    """
    path, overrides = (
        folder / "overrides.json",
        sorted(o for o in extra if not o.startswith("threads")),
    )
    if not path.is_file():
        write_json(path, overrides)
    elif (earlier := read_json(path)) != overrides:
        sys.exit(
            f"{folder} has runs with the overrides {earlier}, not {overrides}: give the same, or "
            "move the folder away"
        )


def search_constrained(folder: Path, seed: int) -> None:
    """The first step's captioner by constrained search, as a run folder of its own (2B).

    A caption must name the held-out classes that the photo's boxes are called by: what a detector
    without faults would say. Where no photo has boxes, those that the references mention.
    """
    run_folder, out = (folder / name / f"seed{seed}" for name in ("in_domain", CONSTRAINED))
    if (out / "metrics.json").is_file():
        return
    config = OmegaConf.load(run_folder / "config.yaml")
    write_json(out / "words.json", words_to_say(config))
    metric = OmegaConf.to_container(config.extra_metrics.novel_objects, resolve=True)
    arguments = [f"run={run_folder}", f"out={out}", "search=constrained", "constraints=words"]
    arguments += [f"constraints.path={out / 'words.json'}", "extra_metrics=[novel_objects]"]
    arguments += [f"extra_metrics.novel_objects.classes={flow(metric['classes'])}"]
    arguments += [f"extra_metrics.novel_objects.metrics={flow(metric['metrics'])}"]
    arguments += [f"metrics.test={flow(list(config.metrics.test))}"]
    run(["evaluate.py", *arguments, f"metrics.tokenizer={config.metrics.tokenizer}"])
    config.run_name, config.run_dir = f"{folder.name}/{CONSTRAINED}", str(out)
    OmegaConf.save(config, out / "config.yaml")


def words_to_say(config: DictConfig) -> dict[str, list[list[str]]]:
    """By test photo: the forms of each held-out class in it, of which a caption must say one."""
    roster = read_roster(config, "test")
    classes = OmegaConf.to_container(config.steps.hold_out.classes, resolve=True)
    if any(sample.regions for sample in roster.samples):
        seen = {}
        for sample in relabel_roster(roster, load_lemmas(LEMMAS)).samples:
            labels = {region.label for region in sample.regions}
            seen[sample.image_id] = {name for name in classes if labels & set(classes[name])}
    else:
        seen = {image: set() for image in roster.rows_by_image} | classes_shown(roster, classes)
    return {
        image: [forms for name, forms in classes.items() if name in names][:MAX_CONSTRAINTS]
        for image, names in seen.items()
    }


def flow(value: dict | list) -> str:
    """A value as an override of Hydra has it."""
    return json.dumps(value).replace('"', "")


def report(data: str, folder: Path) -> None:
    """Keep the records of all finished runs, and write the page."""
    for run_folder in finished(folder.glob("*/seed*")):
        keep_record(run_folder, RECORDS)
    table = read_table(studies(RECORDS, folder.name), ("run_name",))
    runs_by_row = {name: table.get((f"{folder.name}/{name}",), {}) for name in LABELS}
    lines = [f"# Novel objects on {data}", ""]
    lines += head(f"python studies/study_novel_objects.py --data {data} --report", table)
    scores = [
        run.scores("test", "corpus") for runs in runs_by_row.values() for run in runs.values()
    ]
    names = dict.fromkeys(name for corpus in scores for name in corpus)
    columns = [name for name in names if name.endswith(("out-of-domain", "in-domain"))]
    rows = []
    for name, runs in runs_by_row.items():
        cells = [spread(values_of(runs, column), ".4f") for column in columns]
        if runs:
            rows.append([LABELS[name], str(len(runs)), *cells])
    lines += [*markdown_lines(["trained on", "seeds", *columns], rows), "", NOTE]
    print(write_page(f"novel_{data}", lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then report."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=PICTURES, default="miniworld")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--report", action="store_true", help="train nothing")
    options = parser.parse_args(arguments[:cut])
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    folder = Path(paths.runs).absolute() / f"novel-{options.data}"
    if not options.report:
        refuse_others(folder, arguments[cut + 1 :])
        make_runs(options, arguments[cut + 1 :], folder)
    report(options.data, folder)


if __name__ == "__main__":
    main()
