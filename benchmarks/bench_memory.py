"""Compare the memory estimated for a training step with the memory measured on a CPU.

    python benchmarks/bench_memory.py --record FILE

Forms, captions and photos are those of bench_fine_tuning.py. Each row is a process that trains one
epoch. Measured is the growth of its resident memory from the first step on, weights added; freed
memory is given back at once. With ``--held`` it is kept for later tensors, as trainings do for
speed, so more is held than is in use. Said is what `captioning train` logs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_fine_tuning import FORMS, PROMPT, save_data, save_model, vocabulary_of

MIB = 2**20
LORA = ["experiment=vlm/low_rank", "model.lora.dropout=0.0"]
FULL = ["experiment=vlm/fine_tuning"]
CHANGES = {
    "lora": LORA,
    "lora, batch 2": [*LORA, "loader.batch_size=2"],
    "lora, checkpointing": [*LORA, "model.checkpointing=true"],
    "lora, whole batch": [*LORA, "model.positions_at_once=null"],
    "lora, int8": [*LORA, "model.quantize=int8"],
    "lora, nf4": [*LORA, "model.quantize=nf4"],
    "dora": [*LORA, "model.lora.kind=dora"],
    "full": FULL,
    "full, adamw8bit": [*FULL, "optimizer=adamw8bit"],
    "full, checkpointing": [*FULL, "model.checkpointing=true"],
}


def resident(key: str) -> int:
    """``VmRSS`` or ``VmHWM`` of this process in bytes."""
    text = Path("/proc/self/status").read_text()
    (size,) = re.findall(rf"{key}:\s+(\d+) kB", text)
    return int(size) * 1024


def child(spec: dict[str, Any]) -> None:
    """Train one epoch, and print the estimated and the used memory."""
    import pytorch_lightning as pl
    import torch

    from captioning.config.compose import compose_config
    from captioning.results.run_folder import RunFolder
    from captioning.training import run, step_memory
    from captioning.training.preflight import check_run, settings_of
    from captioning.training.signals import StopSignals

    torch.set_num_threads(1)
    step_memory.LEAST = 0  # small quantized models, too
    folder = spec["folder"]
    overrides = [
        *CHANGES[spec["change"]],
        f"model.pretrained={folder}/model",
        f"model.prompt='{PROMPT}'",
        "data=own",
        f"data.root={folder}/data",
        f"paths.cache={folder}/cache",
        f"run_dir={folder}/run",
        "loader.captions_per_image=1",
        "loader.num_workers=0",
        "tokenizer.max_tokens=400",
        *("num_epochs=1", "logger=none", "report=false", "monitor=last", "threads=1"),
        *("start_score=false", "+trainer.limit_val_batches=0", "curation=none"),
        *("trainer.precision=32-true", "trainer.accelerator=cpu"),
        "trainer.enable_progress_bar=false",
    ]
    if not any("batch_size" in override for override in overrides):
        overrides.append("loader.batch_size=8")
    settings = settings_of(compose_config("train", overrides))
    check_run(settings)
    run.set_up(settings)
    began: list[int] = []
    ended: list[int] = []

    class Begin(pl.Callback):
        def on_train_batch_start(self, *args: Any) -> None:
            if not began:
                ctypes.CDLL(None).malloc_trim(0)
                Path("/proc/self/clear_refs").write_text("5")
                began.append(resident("VmRSS"))

        def on_train_batch_end(self, *args: Any) -> None:
            ended[:] = [resident("VmHWM")]

    with StopSignals() as signals:
        experiment = run.build(settings, RunFolder(Path(settings.run_dir)), signals)
        trainer: Any = experiment.trainer
        trainer.callbacks.append(Begin())
        run.fit(trainer, experiment.model, experiment.datamodule, checkpoint=None, signals=signals)
    (said,) = (c.needed for c in trainer.callbacks if isinstance(c, step_memory.SayStepMemory))
    most = ended[0] - began[0]
    found = {name: getattr(said, name) for name in said.__dataclass_fields__}
    found |= {"said": said.weights + said.beside_weights + said.image_states}
    print(json.dumps({**found, "measured": said.weights + most}), flush=True)


def row(form: str, words: int, change: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measurements of one training process."""
    with tempfile.TemporaryDirectory() as name:
        spec = {
            "folder": name,
            "form": form,
            "words": words,
            "change": change,
            "captions": 1,
            "photos": options.photos,
            "seed": options.seed,
            "size": "small",
            "device": "cpu",
        }
        vocabulary = vocabulary_of(1000, options.seed)
        save_data(Path(name) / "data", spec, vocabulary)
        save_model(Path(name) / "model", spec, vocabulary)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        if not options.held:
            environment |= {"MALLOC_MMAP_THRESHOLD_": "1048576"}
        command = [sys.executable, __file__, "--child", json.dumps(spec)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{form}, {change}:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {"form": form, "words": words, "change": change, **found}


def main() -> None:
    """Measure each model with each change and number of words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--words", nargs="+", type=int, default=[10, 150])
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--photos", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held", action="store_true", help="keep freed memory")
    parser.add_argument("--record", type=Path, default=None)
    parser.add_argument("--child", type=json.loads, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    from captioning.results.versions import versions

    settings = {name: value for name, value in vars(options).items() if name != "child"}
    head = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "settings": {**settings, "record": None},
        **versions(),
    }
    rows: list[dict[str, Any]] = []
    print("| form, words | change | said: MiB | measured | said / measured |\n" + "|---" * 5 + "|")
    for form in options.forms:
        for words in options.words:
            for change in options.changes:
                found = row(form, words, change, options)
                said, measured = found["said"], found["measured"]
                print(
                    f"| {form}, {words} | {change}{' [measured]' * found['is_measured']} | "
                    f"{said / MIB:,.0f} | {measured / MIB:,.0f} | {said / measured:.2f} |",
                    flush=True,
                )
                rows.append(found)
                if options.record is not None:
                    text = json.dumps({**head, "results": rows}, indent=1)
                    options.record.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
