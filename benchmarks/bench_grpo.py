"""Benchmark GRPO training with LoRA: TRL's GRPOTrainer against this framework.

python benchmarks/bench_grpo.py [--form smolvlm] [--ways trl ours] [--seeds 0 1 2]
    [--photos 8] [--batch 2] [--draws 8] [--tokens 12] [--epochs 3] [--rate 2e-3]
    [--threads 1] [--record FILE.json]

Both train from the same folder of random weights on the same photos, with as many draws of as many
photos per step, rank 16 on all linear layers of the language model, AdamW at one constant rate,
float32, one update a draw, no KL, losses averaged over tokens. The reward is the share of the
letter a in a caption. Each run has a process of its own, and the ways take turns by seed. Seconds a
step are the process's own of the processor, medians of all steps but the first; they cover
drawing, judging and the update. Curves are mean rewards of the steps' draws. Forms are those of
`bench_fine_tuning.py`. Needs ``trl``, ``peft``, ``num2words``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from bench_fine_tuning import (
    FORMS,
    PROMPT,
    arguments,
    lora,
    rows_of,
    save_data,
    save_model,
    vocabulary_of,
)

WAYS = ("trl", "ours")


def peak_gib() -> float:
    """Peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def share_of_a(captions: Sequence[str], samples: object = None) -> list[float]:
    """Reward: share of the letter a in each caption; 0 for an empty caption."""
    return [caption.count("a") / max(len(caption), 1) for caption in captions]


class Steps:
    """CPU seconds and mean reward of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.rewards: list[float] = []
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.process_time()

    def end(self) -> None:
        self.seconds.append(time.process_time() - self._began)


def with_trl(spec: dict[str, Any], steps: Steps) -> None:
    """Train with TRL's GRPOTrainer."""
    import datasets
    import transformers
    from transformers import AutoModelForImageTextToText, AutoProcessor

    trl: Any = importlib.import_module("trl")
    model = f"{spec['folder']}/model"
    network = AutoModelForImageTextToText.from_pretrained(model)
    paths = [path for path, _ in rows_of(spec)]
    ask = [{"role": "user", "content": PROMPT}]
    data = datasets.Dataset.from_dict({"prompt": [ask] * len(paths), "image": paths})
    data = data.cast_column("image", datasets.Image())

    def reward(completions: list[Any], **_: Any) -> list[float]:
        texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
        values = share_of_a(texts)
        steps.rewards.append(mean(values))
        return values

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            steps.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            steps.end()

    with tempfile.TemporaryDirectory() as folder:
        options = arguments(spec, folder) | {
            "per_device_train_batch_size": spec["batch"] * spec["draws"],
            "learning_rate": spec["rate"],
            "lr_scheduler_type": "constant",
        }
        trainer = trl.GRPOTrainer(
            network,
            reward,
            args=trl.GRPOConfig(
                **options,
                num_generations=spec["draws"],
                max_completion_length=spec["tokens"],
                gradient_checkpointing=False,
                temperature=1.0,
            ),
            train_dataset=data,
            processing_class=AutoProcessor.from_pretrained(model),
            peft_config=lora(network),
            callbacks=[Clock()],
        )
        trainer.train()


def with_ours(spec: dict[str, Any], steps: Steps) -> None:
    """Train with ``captioning train objective=grpo``."""
    import pytorch_lightning as pl

    from captioning.config.compose import compose_config
    from captioning.results.run_folder import RunFolder
    from captioning.training import run
    from captioning.training.objectives.rewards import FunctionReward
    from captioning.training.preflight import check_run, settings_of
    from captioning.training.signals import StopSignals

    class Clock(pl.Callback):
        def on_train_batch_start(self, *args: Any) -> None:
            steps.begin()

        def on_train_batch_end(self, *args: Any) -> None:
            steps.end()

    def reward(captions: Sequence[str], samples: Any) -> list[float]:
        values = share_of_a(captions)
        steps.rewards.append(mean(values))
        return values

    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            "experiment=vlm/low_rank",
            f"model.pretrained={spec['folder']}/model",
            f"model.prompt='{PROMPT}'",
            "model.lora.dropout=0.0",
            "model.check=false",
            "objective=grpo",
            f"objective.num_samples={spec['draws']}",
            f"optimizer.lr={spec['rate']}",
            "schedule=constant",
            f"search.max_length={spec['tokens']}",
            "data=own",
            f"data.root={spec['folder']}/data",
            f"paths.cache={folder}/cache",
            f"run_dir={folder}/run",
            f"loader.batch_size={spec['batch']}",
            "loader.num_workers=0",
            "tokenizer.max_tokens=400",
            f"num_epochs={spec['epochs']}",
            f"seed={spec['seed']}",
            *("logger=none", "report=false", "start_score=false", "monitor=last"),
            *("ema_decay=null", "trainer.precision=32-true", "trainer.accelerator=cpu"),
            *("trainer.enable_progress_bar=false", "+trainer.limit_val_batches=0"),
            "curation=none",
            f"threads={spec['threads']}",
        ]
        settings = settings_of(compose_config("train", overrides))
        check_run(settings)
        run.set_up(settings)
        with StopSignals() as signals:
            experiment = run.build(settings, RunFolder(Path(settings.run_dir)), signals)
            objective: Any = experiment.model.objective
            objective.reward = FunctionReward(function=reward)
            trainer: Any = experiment.trainer
            trainer.callbacks.append(Clock())
            run.fit(
                trainer,
                experiment.model,
                experiment.datamodule,
                checkpoint=None,
                signals=signals,
            )
    steps.rewards = steps.rewards[1:]  # the first was the trial of the reward


def child(spec: dict[str, Any]) -> None:
    """Run one implementation with one seed; print its steps in the last line."""
    import torch

    torch.set_num_threads(spec["threads"])
    steps = Steps()
    before = peak_gib()
    (with_trl if spec["way"] == "trl" else with_ours)(spec, steps)
    found = {"seconds": steps.seconds, "rewards": steps.rewards}
    print(json.dumps({**found, "gib": peak_gib(), "gib_before": before}))


def run_child(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a child process."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(spec["threads"]),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, __file__, "--child", json.dumps(spec)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        raise SystemExit(f"{spec['way']} ended early:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def summary(results: list[dict[str, Any]], way: str) -> dict[str, Any]:
    """Seconds per step over the seeds, and rewards of the first and last thirds."""
    own = [line for line in results if line["way"] == way]
    third = max(1, len(own[0]["rewards"]) // 3)
    begins = [mean(line["rewards"][:third]) for line in own]
    ends = [mean(line["rewards"][-third:]) for line in own]
    return {
        "way": way,
        "seconds_a_step": round(median(s for line in own for s in line["seconds"][1:]), 3),
        "reward_first_third": round(mean(begins), 4),
        "reward_last_third": round(mean(ends), 4),
        "reward_last_third_std": round(stdev(ends), 4) if len(ends) > 1 else None,
        "gib": round(max(line["gib"] for line in own), 3),
    }


def main() -> None:
    """Measure both implementations with each seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=FORMS, default="smolvlm")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--photos", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--record", type=Path, default=None)
    parser.add_argument("--child", type=json.loads, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    from importlib.metadata import version

    from captioning.results.versions import versions

    settings = {n: v for n, v in vars(options).items() if n not in ("child", "record")}
    head = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "settings": settings,
        **versions(),
        **{name: version(name) for name in ("trl", "peft", "accelerate")},
    }
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, vocabulary = Path(name), vocabulary_of(1000, 0)
        spec = {**settings, "folder": name, "captions": 1, "words": 10, "seed": 0}
        spec |= {"size": "small", "device": "cpu", "form": options.form}
        save_data(folder / "data", spec, vocabulary)
        save_model(folder / "model", spec, vocabulary)
        for seed in options.seeds:
            for way in options.ways:
                found = run_child({**spec, "way": way, "seed": seed})
                rewards = [round(value, 4) for value in found.pop("rewards")]
                seconds = [round(value, 3) for value in found.pop("seconds")]
                line = {"way": way, "seed": seed, "seconds": seconds, "rewards": rewards, **found}
                results.append(line)
                print(json.dumps(line), flush=True)
                ways = [w for w in WAYS if any(line["way"] == w for line in results)]
                record = {
                    **head,
                    "summary": [summary(results, w) for w in ways],
                    "results": results,
                }
                if options.record is not None:
                    options.record.write_text(json.dumps(record, indent=1) + "\n")
    for row in (summary(results, way) for way in options.ways):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
