"""Train on captions with wrong words: what detection and correction win back.

    python tools/studies/study_mending.py --data miniworld --noise none words40 words80 \\
        --seeds 0 1 2
    python tools/studies/study_mending.py --losses
    python tools/studies/study_mending.py --report

All arms have the same number of updates. Each finished run writes a line to
docs/results/records/mending.jsonl: scores, wrong colours, numbers and objects in its captions of
the test photos, and what became of planted words. Finished runs are not repeated. ``--losses`` adds
the likelihood of human captions of the test photos. ``--report`` builds the tables of
docs/results/wrong_words*.md. Arguments after ``--`` go to train.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from page_tables import read_records
from report_parts import METRIC
from study_mending_report import ARMS, report

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import Roster
from captioning.results.runs import Run, read_run
from captioning.runtime.files import read_json, write_lines

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "mending.jsonl"
# Of the benchmark's experiments; small enough for many runs, long enough that wrong words cost.
SCALE = {
    "miniworld": ["first_images=600", "num_epochs=8", "loader.batch_size=75"],
    "flickr8k": ["first_images=1000", "num_epochs=5", "loader.batch_size=75"],
}
KEY = ("data", "noise", "arm", "seed")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, or build the tables."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(SCALE), default="miniworld")
    parser.add_argument(
        "--noise", nargs="+", default=["words40"], help="none, or NAME of plant_NAME"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--losses", action="store_true", help="those of finished runs alone")
    parser.add_argument("--report", action="store_true", help="build the tables only")
    options = parser.parse_args(arguments[:cut])
    if options.report:
        report(read_records(options.records))
        return
    if options.losses:
        add_losses(options.records)
        return
    for seed in options.seeds:
        for noise in options.noise:
            for arm in options.arms:
                if noise == "none" and arm.startswith("oracle"):
                    continue  # nothing to be known
                head = {"data": options.data, "noise": noise, "arm": arm, "seed": seed}
                make(head, options.records, arguments[cut + 1 :])


def make(head: Mapping[str, Any], records: Path, extra: Sequence[str]) -> None:
    """Run one training and record it, unless the record exists."""
    data, noise, arm, seed = (head[key] for key in KEY)
    if any(all(line[key] == head[key] for key in KEY) for line in read_records(records)):
        return
    folder = run_folder(head)
    steps = "steps=[]" if noise == "none" else f"steps=[plant_{noise}]"
    shared = [f"experiment=data_curation/benchmark_{data}", *SCALE[data], *extra]
    if not (folder / "metrics.json").is_file():
        command = [sys.executable, str(ROOT / "train.py"), *shared, steps, f"seed={seed}"]
        # nothing is chosen by validation, so there is none
        command += [*ARMS[arm], f"run_dir={folder}", "report=false", "+trainer.limit_val_batches=0"]
        print(" ".join(command[1:]), flush=True)
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(f"ended with {code}; what is finished is kept, run it again")
    line = {**head, **record(data, noise, read_run(folder), shared)}
    write_lines(records, [json.dumps(one) for one in [*read_records(records), line]])
    print(json.dumps(line | {"per_image": None}), flush=True)


def run_folder(head: Mapping[str, Any]) -> Path:
    """Folder of a run."""
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    data, noise, arm, seed = (head[key] for key in KEY)
    name = arm.replace(":", "").replace(",", "").replace(" ", "_")
    return Path(paths.runs) / f"mending_{data}-{noise}" / name / f"seed{seed}"


def add_losses(records: Path) -> None:
    """Add losses of the test photos' captions to records that lack them, if the run exists."""
    from word_losses import word_losses  # beside this file

    for head in read_records(records):
        folder = run_folder(head)
        if "losses" in head or not folder.is_dir():
            continue
        losses = word_losses(folder)
        lines = read_records(records)  # others may have come meanwhile
        for line in lines:
            if all(line[key] == head[key] for key in KEY):
                line["losses"] = losses
        write_lines(records, [json.dumps(line) for line in lines])
        print(*(head[key] for key in KEY), losses, flush=True)


def record(data: str, noise: str, run: Run, overrides: Sequence[str]) -> dict[str, Any]:
    """Record of a finished run."""
    from wrong_words import sources, wrong_words  # beside this file

    results = read_json(run.folder / "predictions.json", list)
    captions = {str(one["image_id"]): one["caption"] for one in results}
    references = roster_of(data, overrides)
    boxes = roster_of("flickr8k_entities", overrides) if data == "flickr8k" else None
    known = sources(data, references, boxes)
    edits = run.files.get("curation/epochs.json") or [{}]
    return {
        "scores": dict(run.scores("test", "corpus")),
        "wrong": {name: wrong_words(captions, words) for name, words in known.items()},
        "edits": {key: value for key, value in edits[0].items() if key.startswith("num_")},
        "detection": {key: value for key, value in _first(run).items() if key != "by_kind"},
        "settings": {key: run.setting(key) for key in ("first_images", "num_epochs", "model.name")},
        "seconds": round(sum(epoch["seconds"] for epoch in run.timing), 1),
        "versions": {key: run.versions.get(key) for key in ("commit", "machine", "date")},
        "per_image": per_image(run) if noise == "none" else None,
    }


def roster_of(data: str, overrides: Sequence[str]) -> Roster:
    """Captions of the test photos, for either form of Flickr8k."""
    chosen = [one for one in overrides if not one.startswith("experiment=")]
    return build_part(compose_config("train", [f"data={data}", *chosen]).data.test)


def _first(run: Run) -> Mapping[str, Any]:
    return run.detection[0] if run.detection else {}


def per_image(run: Run) -> dict[str, float]:
    """Score of each test photo."""
    images = run.scores("test", "per_image")
    return {image_id: round(values[METRIC], 4) for image_id, values in images.items()}


if __name__ == "__main__":
    main()
