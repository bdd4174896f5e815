"""Wrong sentences in long captions: detection by each score, and the gain by each policy.

    python tools/studies/study_sentences.py --data miniworld --seeds 0 1 2
    python tools/studies/study_sentences.py --data flickr8k --seeds 0 1 2
    python tools/studies/study_sentences.py --data flickr8k --seeds 0 1 2 --untrained
    python tools/studies/study_sentences.py --report

Long captions join a photo's five captions, and a sixth of all sentences is wrong
(``steps=[plant_sentences,compose_captions]``). Flickr8k's captions are from its test photos and
losses from its validation photos, as the joint space was trained on the other photos. Each finished
run writes a line to docs/results/records/sentences.jsonl: the loss of correct long captions of
other photos, how much their own photo lowers this loss compared with another photo, and for ``no
curation`` how well the loss finds the planted sentences. Finished runs are not repeated.
``--report`` builds the tables of docs/guides/long_captions.md. Arguments after ``--`` go to
train.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from page_tables import fill, read_records

from captioning.config.build import build_part
from captioning.config.compose import compose_config
from captioning.data.roster import CurationView
from captioning.results.runs import read_run
from captioning.results.table_formats import markdown_lines
from captioning.results.versions import versions
from captioning.runtime.files import write_lines
from captioning.training.rosters import read_train
from captioning.training.settings import DataSettings
from curation.base import AbstractSentenceScore, Context
from curation.detect import contexts, detect_sentences
from curation.loop.planted_faults import faulty_kinds

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "results" / "records" / "sentences.jsonl"
PAGE = ROOT / "docs" / "guides" / "long_captions.md"
KEY = ("data", "arm", "seed")
LISTS = "${paths.data}/flickr8k/Flickr_8k"
DATA: dict[str, list[str]] = {
    "miniworld": ["experiment=data_curation/benchmark_miniworld"],
    "flickr8k": [
        *("experiment=data_curation/benchmark_flickr8k", "data.name=flickr8k_unseen"),
        f"data.train.split_file={LISTS}.testImages.txt",
        f"data.test.split_file={LISTS}.devImages.txt",
    ],
}
SCALE = [
    *("first_images=600", "num_epochs=8", "loader.batch_size=25", "loader.captions_per_image=1"),
    *("tokenizer.max_words=120", "tokenizer.min_count=3", "metrics.test=[BLEU]", "report=false"),
    *("+trainer.limit_val_batches=0", "+trainer.limit_test_batches=1", "threads=1"),
]
NOISE = "steps=[plant_sentences,compose_captions]"
CLEAN = "steps=[compose_captions]"
ORACLE = ["curation/score=sentence_truth", "curation/select=above"]
BEFORE = "curation/schedule=before_training"
SHARE = "curation.select.ratio=0.83"  # of captions with a wrong sentence, as planted
AFTER = ["curation/schedule=once", "curation.warmup=1", SHARE]
REMOVE = [NOISE, "curation=remove_sentences"]
MASK = [NOISE, "curation=mask_sentences"]
ARMS: dict[str, list[str]] = {
    "clean data": [CLEAN, "curation=none"],
    "no curation": [NOISE, "curation=track", "curation/score=sentence_loss"],
    "oracle: remove": [*REMOVE, *ORACLE, BEFORE],
    "oracle: mask": [*MASK, *ORACLE, BEFORE],
    "remove by loss": [*REMOVE, "curation/score=sentence_loss", *AFTER],
    "remove by fit": [*REMOVE, "curation/score=sentence_fit", BEFORE, SHARE],
    "remove by words": [*REMOVE, "curation/score=sentence_words", BEFORE, SHARE],
    "remove by fit and words": [*REMOVE, "curation/score=sentence_joint", BEFORE, SHARE],
    "mask by loss": [*MASK, "curation/score=sentence_loss", *AFTER],
    "mask by fit and words": [*MASK, "curation/score=sentence_joint", BEFORE, SHARE],
}
PLAIN, BEST = "no curation", "oracle: remove"
SCORES = ("sentence_loss",)
UNTRAINED = "untrained"
UNTRAINED_SCORES = ("sentence_fit", "sentence_words", "sentence_joint")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, or build the tables."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", choices=list(DATA), default="miniworld")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument(
        "--untrained", action="store_true", help="scores that need no run alone, of 600 captions"
    )
    parser.add_argument("--report", action="store_true", help="build the tables only")
    options = parser.parse_args(arguments[:cut])
    if options.report:
        fill(PAGE, tables(read_records(options.records)))
        return
    if options.untrained:
        for seed in options.seeds:
            judge(options.data, seed, options.records, arguments[cut + 1 :])
        return
    for seed in options.seeds:
        for arm in options.arms:
            head = {"data": options.data, "arm": arm, "seed": seed}
            make(head, options.records, arguments[cut + 1 :])


def make(head: Mapping[str, Any], records: Path, extra: Sequence[str]) -> None:
    """Run one training and record it, unless the record exists."""
    from word_losses import photo_gain, word_losses  # beside this file

    if any(all(line[key] == head[key] for key in KEY) for line in read_records(records)):
        return
    data, arm, seed = (head[key] for key in KEY)
    paths = OmegaConf.load(ROOT / "configs" / "paths" / "default.yaml")
    name = arm.replace(":", "").replace(" ", "_")
    folder = Path(paths.runs) / f"sentences_{data}" / name / f"seed{seed}"
    if not (folder / "metrics.json").is_file():
        command = [sys.executable, str(ROOT / "train.py"), *DATA[data], *SCALE, *ARMS[arm]]
        command += [f"seed={seed}", f"run_dir={folder}", *extra]
        print(" ".join(command[1:]), flush=True)
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(f"ended with {code}; what is finished is kept, run it again")
    run = read_run(folder)
    line = {
        **head,
        "loss": word_losses(folder)["all"],
        "photo": photo_gain(folder),
        "found": found_sentences(folder, extra) if arm == PLAIN else None,
        "settings": {key: run.setting(key) for key in ("first_images", "num_epochs")},
        "seconds": round(sum(epoch["seconds"] for epoch in run.timing), 1),
        "versions": {key: run.versions.get(key) for key in ("commit", "machine", "date")},
    }
    write_lines(records, [json.dumps(one) for one in [*read_records(records), line]])
    print(json.dumps(line), flush=True)


def judge(data: str, seed: int, records: Path, extra: Sequence[str]) -> None:
    """Record how well scores without a run find the planted sentences, unless recorded."""
    head = {"data": data, "arm": UNTRAINED, "seed": seed}
    if any(all(line[key] == head[key] for key in KEY) for line in read_records(records)):
        return
    own = [*DATA[data], *SCALE, *ARMS[PLAIN], f"seed={seed}", "first_images=600", *extra]
    roster, _ = read_train(DataSettings.of(compose_config("train", own)))
    context = Context.before_training(CurationView(roster=roster), seed=seed)
    found = {
        name: detect_sentences(score, context, roster_kinds(context))
        for name, score in scores_of(UNTRAINED_SCORES, extra).items()
    }
    about = versions()
    line = {
        **head,
        "found": found,
        "settings": {"first_images": 600},
        "versions": {key: about[key] for key in ("commit", "machine", "date")},
    }
    write_lines(records, [json.dumps(one) for one in [*read_records(records), line]])
    print(json.dumps(line), flush=True)


def scores_of(names: Sequence[str], extra: Sequence[str]) -> dict[str, AbstractSentenceScore]:
    """Scores of ``configs/curation/score`` by name."""
    paths = [one for one in extra if one.startswith("paths.")]
    chosen = [f"+curation/score@scores.{name}={name}" for name in names]
    config = compose_config("detect", ["run=none", *chosen, *paths])
    return {name: build_part(config.scores[name]) for name in names}


def roster_kinds(context: Context) -> dict[int, str]:
    """Kind of fault by row."""
    return faulty_kinds(context.view, context.view.roster.planted)


def found_sentences(folder: Path, extra: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Measure how well each score finds the planted sentences at the run's end."""
    *_, context = contexts(folder)
    return {
        name: detect_sentences(score, context, roster_kinds(context))
        for name, score in scores_of(SCORES, extra).items()
    }


def tables(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """All tables by the names of their marks, each for one dataset."""
    found = {}
    for data in sorted({line["data"] for line in lines}):
        own = [line for line in lines if line["data"] == data]
        found[f"sentences found {data}"] = found_table(own)
        found[f"sentences trained {data}"] = loss_table(own)
    return found


def found_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Average precision of each score, a mean over the seeds with the standard deviation."""
    rows: list[list[str]] = []
    kinds: list[str] = []
    for arm, names in ((UNTRAINED, UNTRAINED_SCORES), (PLAIN, SCORES)):
        runs = [line for line in lines if line["arm"] == arm]
        for name in names if runs else ():
            own = [run["found"][name] for run in runs]
            kinds = sorted(own[0]["average_precision_by_kind"])
            each = [[one["average_precision_by_kind"][kind] for one in own] for kind in kinds]
            values = [[one["average_precision"] for one in own], *each]
            worst = [one["worst_of_caption"] for one in own]
            captions = str(runs[0]["settings"]["first_images"])
            rows.append([f"`{name}`", captions, str(len(own)), *map(_mean, [*values, worst])])
    head = ["score", "captions", "seeds", "average precision", *(f"AP, `{kind}`" for kind in kinds)]
    return markdown_lines([*head, "the wrong one is its caption's worst"], rows)


def loss_table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Loss of correct captions for each arm, the photo's effect on it, and the oracle's share.

    The share refers to the oracle's increase of the photo's effect. Wrong sentences are sound
    language, so that the loss alone hardly detects them.
    """
    own = {arm: {one["seed"]: one for one in lines if one["arm"] == arm} for arm in ARMS}
    photo = {arm: {seed: one["photo"] for seed, one in runs.items()} for arm, runs in own.items()}
    rows = []
    for arm, runs in own.items():
        if not runs:
            continue
        seeds = sorted(runs.keys() & photo[PLAIN].keys() & photo[BEST].keys())
        gains = [photo[arm][seed] - photo[PLAIN][seed] for seed in seeds]
        whole = [photo[BEST][seed] - photo[PLAIN][seed] for seed in seeds]
        share = statistics.fmean(gains) / statistics.fmean(whole) if seeds else None
        shown = "-" if arm == PLAIN or share is None else f"{share:.0%}"
        losses = _mean([one["loss"] for one in runs.values()])
        rows.append([arm, str(len(runs)), losses, _mean(list(photo[arm].values())), shown])
    return markdown_lines(["arm", "seeds", "loss", "off by the photo", "share of the oracle"], rows)


def _mean(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    mean = statistics.fmean(values)
    return f"{mean:.3f}" if len(values) < 2 else f"{mean:.3f} ± {statistics.stdev(values):.3f}"


if __name__ == "__main__":
    main()
