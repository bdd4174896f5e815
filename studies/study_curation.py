"""The benchmark of curation: planted faults, every score and policy, one table and one figure.

    python studies/study_curation.py --data flickr8k --noise swap20 swap40 --seeds 0 1 2

First a run for each noise and seed that only tracks losses, and how well every score finds its
faults (``captioning curate detect``); then the policies, which share its first two epochs
(``branch_from``), all with the same number of updates; ``--policies`` without names leaves them
out. What is finished is not made again. Then records go to docs/results/records, and the figure is
drawn (docs/images/curation_DATA.png). At the end, or alone with ``--report``, the records become
docs/results/curation_DATA.md and the README's table. What follows ``--`` goes to train.py, such as
``-- threads=1 first_images=500``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[1]

SUSPECTED = "curation.select.ratio"
IN_CLEAN_DATA = 0.05  # the share that is suspected where nothing was planted
ONCE = "curation/schedule=once"
BEFORE = "curation/schedule=before_training"
# The rows: overrides of captioning train by name, which becomes the policy's. Those with SUSPECTED
# act once, at the end of the second epoch, on as large a share as faults were planted; those of the
# paper after every epoch from then.
GAIN = ["curation/score=visual_gain", "curation/probe=visual_gain"]
GAIN_ONCE = [*GAIN, "curation.probe.until_epoch=1", ONCE]
GAIN_WORDS = "curation/score=joint_visual_gain_words"
TRACK = ["curation=track", *GAIN, "curation.probe.until_epoch=2", "keep_every_epoch=true"]
ORACLE = ["curation/score=truth", "curation/select=above"]
RANDOM = ["curation/select=random", SUSPECTED]
BOTH = ["curation/score=joint_similarity_siblings"]
POLICIES: dict[str, list[str]] = {
    "remove_oracle": ["curation=remove", *ORACLE, ONCE],
    "remove_random": ["curation=remove", *RANDOM, ONCE],
    "remove_top_loss_1": ["curation=remove", "curation.select.ratio=0.01"],
    "remove_top_loss_5": ["curation=remove", "curation.select.ratio=0.05"],
    "remove_top_loss_10": ["curation=remove", "curation.select.ratio=0.1"],
    "remove_sigma_2": ["curation=remove", "curation/select=sigma"],
    "remove_visual_gain": ["curation=remove", *GAIN_ONCE, SUSPECTED],
    "remove_siblings": ["curation=remove", "curation/score=siblings", ONCE, SUSPECTED],
    "remove_sibling_words": ["curation=remove", "curation/score=sibling_words", ONCE, SUSPECTED],
    "remove_similarity": ["curation=remove", "curation/score=similarity", ONCE, SUSPECTED],
    "remove_joint": ["curation=remove", "curation/score=joint", ONCE, SUSPECTED],
    "remove_joint_similarity_siblings": ["curation=remove", *BOTH, ONCE, SUSPECTED],
    "remove_joint_visual_gain_words": ["curation=remove", GAIN_WORDS, *GAIN_ONCE[1:], SUSPECTED],
}
# Further rows, made when they are named: other amenders, and a ratio that nobody has to know.
FURTHER: dict[str, list[str]] = {
    "replace_caption_oracle": ["curation=replace_caption", *ORACLE, ONCE],
    "replace_image_oracle": ["curation=replace_image", *ORACLE, ONCE],
    "replace_caption_both": ["curation=replace_caption", *BOTH, ONCE, SUSPECTED],
    "replace_image_both": ["curation=replace_image", *BOTH, ONCE, SUSPECTED],
    "remove_both_mixture": ["curation=remove", *BOTH, ONCE, "curation/select=mixture"],
    "remove_visual_gain_mixture": ["curation=remove", *GAIN_ONCE, "curation/select=mixture"],
    "replace_image_similarity": [
        *("curation=replace_image", "curation/score=similarity", ONCE, SUSPECTED),
    ],
    # Scores that need no losses can act before training, on the same footing as the last oracle.
    "remove_oracle_before": ["curation=remove", *ORACLE, BEFORE],
    "remove_random_before": ["curation=remove", *RANDOM, BEFORE],
    "remove_siblings_before": ["curation=remove", "curation/score=siblings", BEFORE, SUSPECTED],
    "remove_both_before": ["curation=remove", *BOTH, BEFORE, SUSPECTED],
    "down_weight_visual_gain": [
        *("curation=down_weight", *GAIN_ONCE, "curation.amend.factor=0.1", SUSPECTED),
    ],
}
ROWS = POLICIES | FURTHER


def run_folder(data: str, noise: str, policy: str, seed: int, runs: Path) -> Path:
    """Where a run of the benchmark lies."""
    return runs / "benchmark" / f"{data}-{noise}" / policy / f"seed{seed}"


def detect(folder: Path) -> None:
    """How well every score finds the faults of a finished run, if that is not known yet.

    Raises:
        SystemExit: it failed.
    """
    if (folder / "curation" / "detection_by_score.json").is_file():
        return
    run([sys.executable, "-m", "captioning", "curate", "detect", f"run={folder}"])


def run(command: Sequence[str]) -> None:
    """A command in a process of its own.

    Raises:
        SystemExit: it failed.
    """
    print(" ".join(command[1:]), flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(f"ended with {done.returncode}; what is finished is kept, run it again")


def train(data: str, noise: str, seed: int, overrides: Sequence[str]) -> None:
    """One run of train.py."""
    steps = "steps=[]" if noise == "none" else f"steps=[plant_{noise}]"
    command = [sys.executable, str(ROOT / "train.py")]
    command += [f"experiment=data_curation/benchmark_{data}", steps, f"seed={seed}"]
    ratio = f"{SUSPECTED}={suspected(noise)}"
    run([*command, *(ratio if override == SUSPECTED else override for override in overrides)])


def suspected(noise: str) -> float:
    """The share of the captions that faults are planted in, or one to try where there are none."""
    if noise == "none":
        return IN_CLEAN_DATA
    config = OmegaConf.load(ROOT / "configs" / "steps" / f"plant_{noise}.yaml")
    return round(sum(config.plant_faults.kinds.values()), 6)


def make_runs(options: argparse.Namespace, extra: Sequence[str], runs: Path) -> None:
    """All runs that are not finished yet, seed by seed, so that a table can be read early."""
    for seed in options.seeds:
        for noise in options.noise:
            rows = {"track": TRACK} | {name: ROWS[name] for name in options.policies}
            if noise == "none":
                rows = {n: o for n, o in rows.items() if "oracle" not in n}  # nothing to be known
            for name, overrides in rows.items():
                folder = run_folder(options.data, noise, name, seed, runs)
                if not (folder / "metrics.json").is_file():
                    alone = name == "track" or name.endswith("_before")
                    branch = [] if alone else ["branch_from=${tracked}"]
                    named = [*overrides, f"curation.name={name}"]
                    train(options.data, noise, seed, [*named, *branch, *extra])
                if name == "track" and noise != "none":
                    detect(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then report."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("flickr8k", "miniworld"), default="flickr8k")
    parser.add_argument(
        "--noise",
        nargs="+",
        default=["swap20"],
        help="none, or NAME of configs/steps/plant_NAME.yaml",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--policies", nargs="*", choices=ROWS, default=list(POLICIES))
    parser.add_argument("--report", action="store_true", help="the page alone")
    options = parser.parse_args(arguments[:cut])
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    runs = Path(paths.runs)
    if not options.report:
        make_runs(options, arguments[cut + 1 :], runs)
    from study_curation_report import keep, report  # beside this file; matplotlib is slow to load

    if not options.report:
        keep(options.data, runs / "benchmark")
    report(options.data)


if __name__ == "__main__":
    main()
