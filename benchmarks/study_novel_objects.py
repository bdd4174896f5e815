"""Bujimalla et al.'s tables: novel objects by pasted pairs and pseudo-labels, row by row.

    python benchmarks/study_novel_objects.py --data miniworld --seeds 0 1 2

First the synthetic pairs (``python -m augmentation``), then the steps, each from the weights of the
one before; what is finished is not made again. At the end (or alone, with ``--report``) records go
to docs/results/runs, and docs/results/novel_DATA.md is built from them. What follows ``--`` goes to
train.py, such as ``-- threads=1 limit_images=500``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

ROOT = Path(__file__).resolve().parents[1]
# Pasted pairs of a class at most, by data set; the paper: 2,400 of COCO's 82,783 photos.
PICTURES = {"miniworld": 300, "flickr8k_entities": 600}
SETS = {"synthetic": 1, "third": 3}  # all of them, and 33%
# The paper's 15,000 updates of step 2, and rounds of 15,000 (Sch1) or 6,000 (Sch2), in epochs, where
# its 40,000 of step 1 are the experiment's. Rates are a half and a quarter of step 1's.
EPOCHS, LONG_ROUND, SHORT_ROUND, NUM_ROUNDS = 2, 2, 1, 4
CONSTRAINED = "constrained"  # evaluation of the first step by constrained search, 2B
SEARCHES = {"PLB": 2, "PLC": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run of the tables.

    Attributes:
        said: what it trains on, as the paper calls it.
        begins: the row whose weights it begins with; None: from scratch.
        added: the set of pasted pairs that is trained on too, if any.
        labels: pseudo-labels: "PLB" by both searches, "PLC" by constrained search.
        slow: the paper's Sch1: rounds of more updates, whose rate falls faster; or Sch2.
        all_pairs: no class is held out.
    """

    said: str
    begins: str | None = None
    added: str | None = None
    labels: str | None = None
    slow: bool = True
    all_pairs: bool = False


# In the order in which they must be made. Names of the paper's rows stand in brackets.
ROWS: dict[str, Row] = {
    "all_pairs": Row(said="InD + OutD (3A-i)", all_pairs=True),
    "in_domain": Row(said="InD (2A)"),
    "plc": Row(said="InD + PLC, Sch1 (2C)", begins="in_domain", labels="PLC"),
    "plb": Row(said="InD + PLB, Sch1 (2D)", begins="in_domain", labels="PLB"),
    "syn": Row(said="InD + Syn (2E)", begins="in_domain", added="synthetic"),
    "syn_plc": Row(
        said="InD + Syn + PLC, Sch1 (2F)", begins="syn", added="synthetic", labels="PLC"
    ),
    "syn_plb": Row(
        said="InD + Syn + PLB, Sch1 (2G)", begins="syn", added="synthetic", labels="PLB"
    ),
    "syn_plc_sch2": Row(
        said="InD + Syn + PLC, Sch2 (4D)",
        **{"begins": "syn", "added": "synthetic", "labels": "PLC", "slow": False},
    ),
    "syn_plb_sch2": Row(
        said="InD + Syn + PLB, Sch2 (4G)",
        **{"begins": "syn", "added": "synthetic", "labels": "PLB", "slow": False},
    ),
    "third": Row(said="InD + Syn33%", begins="in_domain", added="third"),
    "third_plc": Row(
        said="InD + Syn33% + PLC, Sch1 (4B)", begins="third", added="third", labels="PLC"
    ),
    "third_plb": Row(
        said="InD + Syn33% + PLB, Sch1 (4E)", begins="third", added="third", labels="PLB"
    ),
    "all_pairs_syn": Row(said="InD + OutD + Syn (Table 5)", added="synthetic", all_pairs=True),
}


def overrides(row: Row, folder: Path, seed: int, rate: float) -> list[str]:
    """What train.py is given for a row, beside the experiment.

    Args:
        row: which.
        folder: of the data set's runs.
        seed: of the run.
        rate: the first step's learning rate.
    """
    given = ["hold_out.classes=null"] if row.all_pairs else []
    if row.added is not None:
        given.append(f"added=[{folder / row.added}]")
    if row.begins is None:
        return given
    given.append(f"start_from={folder / row.begins / f'seed{seed}'}")
    if row.labels is None:
        return [*given, f"num_epochs={EPOCHS}", f"optimizer.lr={rate / 2}"]
    length = LONG_ROUND if row.slow else SHORT_ROUND
    given += [
        "curation=pseudo_label",
        f"hold_out.samples_per_photo={SEARCHES[row.labels]}",
        f"num_epochs={NUM_ROUNDS * length}",
        f"curation.schedule.every_n_epochs={length}",
        f"curation.schedule.until_epoch={(NUM_ROUNDS - 1) * length - 1}",
        "schedule=rounds",
        f"schedule.scale={0.5 if row.slow else 0.8}",
        f"optimizer.lr={rate / 4}",
    ]
    return given + ["curation.amend.plain=null"] * (row.labels == "PLC")


def run(program: Sequence[str]) -> None:
    """A program in a process of its own.

    Raises:
        SystemExit: it failed.
    """
    print(" ".join(program), flush=True)
    done = subprocess.run([sys.executable, *program], check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"it ended with {done.returncode}; what is finished is kept, run this again")


def make_pairs(data: str, name: str, folder: Path, limit: Sequence[str]) -> None:
    """Pasted pairs, if they are not there yet."""
    if (folder / name / "card.json").is_file():
        return
    number = PICTURES[data] // SETS[name]
    made = ["method=novel_objects", f"data={data}", f"method.choices.num_pictures={number}"]
    run(["-m", "augmentation", *made, f"out={folder / name}", *limit])


def make_runs(options: argparse.Namespace, extra: Sequence[str], folder: Path) -> None:
    """All rows that are not finished yet, and constrained search at the first one's test (2B)."""
    experiment = f"experiment=novel_objects/{options.data}"
    config = OmegaConf.load(ROOT / "configs" / "experiment" / f"{experiment.split('=')[1]}.yaml")
    limit = [one for one in extra if one.startswith("limit_images=")]
    for seed in options.seeds:
        for name in options.rows:
            row, place = ROWS[name], folder / name / f"seed{seed}"
            if row.added is not None:
                make_pairs(options.data, row.added, folder, limit)
            if not (place / "metrics.json").is_file():
                given = overrides(row, folder, seed, config.optimizer.lr)
                named = f"run_name=novel/{options.data}/{name}"
                run(["train.py", experiment, named, f"seed={seed}", *given, *extra])
        search = folder / "in_domain" / f"seed{seed}"
        out = search / "evaluation" / CONSTRAINED
        if "in_domain" in options.rows and not (out / "metrics.json").is_file():
            run(["evaluate.py", f"run={search}", f"out={out}", *constrained(config)])


def constrained(config: DictConfig) -> list[str]:
    """What evaluate.py is given to search for captions that name what boxes are called (2B)."""
    words = {name: list(forms) for name, forms in config.held_out.items()}
    metric = config.extra_metrics.novel_objects
    return [
        *("search=constrained", "constraints=detections", "extra_metrics=[novel_objects]"),
        f"extra_metrics.novel_objects.classes={json.dumps(words)}",
        f"extra_metrics.novel_objects.metrics=[{','.join(metric.metrics)}]",
        f"metrics.test=[{','.join(config.metrics.test)}]",
        f"metrics.tokenizer={config.metrics.tokenizer}",
    ]


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
    folder = Path(paths.runs).absolute() / "novel" / options.data
    if not options.report:
        make_runs(options, arguments[cut + 1 :], folder)
    report(options.data, folder)


if __name__ == "__main__":
    main()
