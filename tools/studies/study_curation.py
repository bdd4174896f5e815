"""Benchmark curation: planted faults with every score and policy, a table and a figure.

    python tools/studies/study_curation.py --data flickr8k --noise swap20 swap40 --seeds 0 1 2

For each noise and seed, a first run only tracks losses, and ``captioning curate detect`` measures
how well every score finds the faults. The policies then share its first two epochs
(``branch_from``) and have the same number of updates; ``--policies`` without names skips them.
Finished runs are not repeated. Records go to docs/results/records, the figure to
docs/images/curation_DATA.png. At the end, or with ``--report`` only, the records become
docs/results/curation_DATA.md. Arguments after ``--`` go to train.py, such as ``-- threads=1
first_images=500``.

``curation=recommended`` against no curation and the oracle; once more with ``--data flickr8k_one``,
the first caption of each photo alone:

    python tools/studies/study_curation.py --noise none swap5 swap20 swap40 --space HEADS \
      --policies remove_recommended_before remove_oracle_before

The space in the package learnt from these training photos, so a fair test needs HEADS of another
(``captioning train-space out=HEADS``, of other photos). ``--selector`` trains nothing, and
keeps counts of what would be removed; ``--report`` puts both into docs/results/recommended.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from captioning.runtime.files import write_lines, write_text

ROOT = Path(__file__).resolve().parents[2]

SUSPECTED = "curation.select.ratio"
SPACE = "curation.score.space"
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
    "remove_recommended_before": ["curation=recommended", SPACE],
    "down_weight_visual_gain": [
        *("curation=down_weight", *GAIN_ONCE, "curation.amend.factor=0.1", SUSPECTED),
    ],
}
ROWS = POLICIES | FURTHER
SELECTED = ROOT / "docs" / "results" / "records" / "recommended.jsonl"  # what would be removed
# The data by name: overrides beside those of experiment=data_curation/benchmark_NAME. One caption a
# photo is a fifth of the captions, which are seen three times as often. The first 2,000 photos
# are for machines that are too slow to train on all of them for each row and seed.
ONE = "flickr8k_one"
FEWER = "flickr8k_2000"
DATA: dict[str, list[str]] = {
    "flickr8k": ["experiment=data_curation/benchmark_flickr8k"],
    FEWER: [
        *("experiment=data_curation/benchmark_flickr8k", f"data.name={FEWER}", "first_images=2000"),
    ],
    ONE: ["experiment=data_curation/benchmark_flickr8k", f"data.name={ONE}", "num_epochs=12"],
    "miniworld": ["experiment=data_curation/benchmark_miniworld"],
}


def run_folder(data: str, noise: str, policy: str, seed: int, runs: Path) -> Path:
    """Folder of a run of the benchmark."""
    return runs / "benchmark" / f"{data}-{noise}" / policy / f"seed{seed}"


def detect(folder: Path) -> None:
    """Measure how well every score finds the faults of a finished run, unless measured before.

    Raises:
        SystemExit: the command failed.
    """
    if (folder / "curation" / "detection_by_score.json").is_file():
        return
    run([sys.executable, "-m", "captioning", "curate", "detect", f"run={folder}"])


def run(command: Sequence[str]) -> None:
    """Run a command in a separate process.

    Raises:
        SystemExit: the command failed.
    """
    print(" ".join(command[1:]), flush=True)
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(f"ended with {done.returncode}; what is finished is kept, run it again")


def train(
    data: str, noise: str, seed: int, overrides: Sequence[str], space: str = "joint_space"
) -> None:
    """Run train.py once."""
    steps = "steps=[]" if noise == "none" else f"steps=[plant_{noise}]"
    command = [sys.executable, str(ROOT / "train.py")]
    command += [*DATA[data], steps, f"seed={seed}"]
    if data == ONE:
        command.append(f"data.train.token_file={first_captions()}")
    values = {SUSPECTED: suspected(noise), SPACE: space}
    run([*command, *(f"{key}={values[key]}" if key in values else key for key in overrides)])


def first_captions() -> Path:
    """Flickr8k's token file with only the first caption of each photo, in the cache."""
    paths: Any = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    path = Path(paths.cache).resolve() / "flickr8k_first_captions.txt"
    if not path.is_file():
        source = Path(paths.data) / "flickr8k" / "Flickr8k.token.txt"
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "".join(line for line in lines if line.split("\t")[0].endswith("#0")))
    return path


def suspected(noise: str) -> float:
    """Share of captions with planted faults, or a trial share if no faults are planted."""
    if noise == "none":
        return IN_CLEAN_DATA
    config = OmegaConf.load(ROOT / "configs" / "steps" / f"plant_{noise}.yaml")
    return round(sum(config.plant_faults.kinds.values()), 6)


def make_runs(options: argparse.Namespace, extra: Sequence[str], runs: Path) -> None:
    """Run everything that is not finished, seed by seed, so that tables can be read early."""
    shared = any(not name.endswith("_before") for name in options.policies)
    track = TRACK if shared or not options.policies else ["curation=track"]
    for seed in options.seeds:
        for noise in options.noise:
            rows = {"track": track} | {name: ROWS[name] for name in options.policies}
            if noise == "none":
                rows = {n: o for n, o in rows.items() if "oracle" not in n}  # nothing to be known
            for name, overrides in rows.items():
                folder = run_folder(options.data, noise, name, seed, runs)
                if not (folder / "metrics.json").is_file():
                    alone = name == "track" or name.endswith("_before")
                    branch = [] if alone else ["branch_from=${tracked}"]
                    named = [*overrides, f"curation.name={name}"]
                    train(options.data, noise, seed, [*named, *branch, *extra], options.space)
                if name == "track" and noise != "none" and track is TRACK:
                    detect(folder)


def keep_selected(options: argparse.Namespace) -> None:
    """Record what ``curation=recommended`` would remove for each noise and seed."""
    from page_tables import read_records  # beside this file, as others

    for line in selected(options):
        print(json.dumps(line), flush=True)
        names = ("data", "noise", "seed", "space")
        others = [o for o in read_records(SELECTED) if any(o[name] != line[name] for name in names)]
        write_lines(SELECTED, (json.dumps(record) for record in [*others, line]))


def selected(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Number of planted and of removed captions; photos and captions are embedded once."""
    import numpy as np
    from study_check import bears, one_caption, seen_again

    from captioning.config.build import build_part
    from captioning.config.compose import compose_config
    from captioning.data.steps.plant_faults import plant_faults
    from captioning.results.versions import versions
    from curation.check.fit_checks import caption_fit
    from curation.check.folder_check import build_encoders

    data = "flickr8k" if options.data == ONE else options.data
    config = compose_config("train", [f"data={data}", "curation=recommended"])
    encoders = build_encoders(options.space, Path(config.paths.cache) / "check")
    roster = build_part(config.data.train)
    roster = one_caption(roster) if options.data == ONE else roster
    clean = embedded(roster, *encoders, folder=config.features.folder)
    about = {key: versions()[key] for key in ("commit", "machine", "date")}
    about |= {"space": Path(options.space).stem}
    for seed in options.seeds:
        for noise in options.noise:
            kinds = {} if noise == "none" else {"swap": suspected(noise)}
            faulty, truth = plant_faults(roster, kinds=kinds, seed=seed)
            chances = np.nan_to_num(caption_fit(seen_again(clean, faulty, *encoders)).values)
            removed, wrong = chances > config.curation.select.threshold, bears(faulty, truth)
            counts = {"planted": wrong, "removed": removed, "right": removed & wrong}
            yield {
                "data": options.data,
                "noise": noise,
                "seed": seed,
                "captions": len(faulty),
                **{name: int(rows.sum()) for name, rows in counts.items()},
                "estimated": round(float(chances.mean()), 4),
                **about,
            }


def embedded(roster: Any, encoder: Any, sentences: Any, *, folder: str) -> Any:
    """Result of `curation.check.photo_vectors.look_at`, from features in the cache."""
    import torch

    from captioning.data.features.build import ensure_features
    from captioning.vision.photo_keys import content_key
    from curation.check.evidence import Evidence, PhotoFacts

    paths = list(dict.fromkeys(sample.image_path for sample in roster.samples))
    store = ensure_features(paths, backbone=encoder.backbone, folder=folder)
    places = store.positions(paths)
    blocks = [places[start : start + 128] for start in range(0, len(places), 128)]
    photos = torch.cat([encoder.embed_features(store.read(block)[0]) for block in blocks])
    captions = [sample.caption for sample in roster.samples]
    return Evidence(
        roster=roster,
        photos={path: PhotoFacts(key=content_key(path)) for path in paths},
        photo_vectors=photos.numpy(),
        caption_vectors=encoder.embed_texts(captions).numpy(),
        sentence_vectors=sentences.embed_texts(captions).numpy(),
        encoder=encoder,
        space=encoder.space,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then build the report."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=DATA, default="flickr8k")
    parser.add_argument(
        "--noise",
        nargs="+",
        default=["swap20"],
        help="none, or NAME of configs/steps/plant_NAME.yaml",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--policies", nargs="*", choices=ROWS, default=list(POLICIES))
    parser.add_argument(
        "--space", default="joint_space", help="of remove_recommended_before, a file of heads"
    )
    parser.add_argument(
        "--selector", action="store_true", help="what curation=recommended would remove; no run"
    )
    parser.add_argument("--report", action="store_true", help="the page alone")
    options = parser.parse_args(arguments[:cut])
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    runs = Path(paths.runs)
    if options.selector and options.data == FEWER:
        parser.error(f"--selector counts all photos: give --data flickr8k, not {FEWER}")
    if options.selector:
        keep_selected(options)
        return
    if not options.report:
        make_runs(options, arguments[cut + 1 :], runs)
    from study_curation_report import keep, report  # beside this file; matplotlib is slow to load

    if not options.report:
        keep(options.data, runs / "benchmark")
    report(options.data)


if __name__ == "__main__":
    main()
