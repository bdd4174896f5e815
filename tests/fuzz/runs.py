"""Run folders, folders of other loops, journals, results, records, checkpoints, made sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from PIL import Image
from safetensors.torch import save_file

from augmentation.set_folder import claim_folder
from captioning.convert.published_tensors import read_state
from captioning.data.readers.coco import read_coco
from captioning.data.readers.jsonl import read_jsonl
from captioning.results.checkpoints import check_intact, config_of, latest_checkpoint
from captioning.results.coco_results import read_results
from captioning.results.run_folder import RunFolder
from captioning.results.runs import read_published, read_runs
from captioning.results.table import table_text
from captioning.types import Edit
from curation.adapters.curation_state import read_state as read_loop_state
from curation.adapters.curation_state import write_state
from curation.finished_run import read_run
from curation.journal.journal import Header, encode, read_journal, repair, undo, write_journal
from curation.loop.keep import KeepList, read_keep, write_keep
from curation.loop.ledger import LossLedger
from curation.manifest import Manifest, read_loop_roster, write_manifest
from curation.review.edit_report import write_report
from curation.study.answers import read_answers
from curation.study.items import Item, Placed, fingerprint
from tests.fuzz.harness import Subject, Target

CAPTIONS = "captions.jsonl"


def data(folder: Path) -> dict[str, Any]:
    """Two photos with two captions each; the settings of their reader."""
    folder.mkdir()
    for name in "ab":
        Image.new("RGB", (6, 4), "red").save(folder / f"{name}.jpg")
    lines = [{"image": f"{n}.jpg", "captions": [f"one {n}", f"two {n}"]} for n in "ab"]
    (folder / CAPTIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"name": "t", "annotations": str(folder / CAPTIONS), "image_folder": str(folder)}


def run_folder(folder: Path) -> Path:
    """A run whose files were written by the functions that a run calls."""
    reader = data(folder / "photos")
    run = folder / "run"
    (run / "curation" / "images").mkdir(parents=True)
    Image.new("RGB", (6, 4), "blue").save(run / "curation" / "images" / "new.png")
    target = "captioning.data.readers.jsonl.read_jsonl"
    config = {
        "data": {"name": "toy", "train": {"_target_": target, **reader}},
        "curation": {"name": "remove"},
        "run_name": "r",
        "monitor": "last",
        "seed": 0,
        "paths": {"cache": str(folder / "cache")},
    }
    OmegaConf.save(OmegaConf.create(config), run / "config.yaml")
    roster = read_jsonl(**reader)
    common: dict[str, Any] = {"policy": "p", "epoch": 0}
    edits = [
        Edit(sample_id="a.jpg#0", action="replace_caption", value="new", **common),
        Edit(sample_id="a.jpg#1", action="down_weight", value="0.5", **common),
        Edit(sample_id="b.jpg#0", action="remove", **common),
        Edit(
            sample_id="b.jpg#1", action="replace_image", value="curation/images/new.png", **common
        ),
    ]
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=5)
    write_journal(run / "curation.jsonl", header, map(encode, edits))
    ledger = LossLedger(num_samples=4)
    history = torch.tensor([[1.0, 2, 3, 4], [0.5, 1.5, float("nan"), 2.5]])
    ledger.load_state_dict(ledger.state_dict() | {"history": history, "epochs": [0, 1]})
    ids = [sample.sample_id for sample in roster.samples]
    ledger.save(run / "curation" / "losses.npz", sample_ids=ids)
    keep = KeepList(roster=roster.name, fingerprint=roster.fingerprint, sample_ids=("a.jpg#1",))
    write_keep(keep, run / "curation" / "keep.json")
    scores = {"corpus": {"CIDEr-D": 0.5, "BLEU-4": 0.2}, "per_image": {"1": {"CIDEr-D": 0.5}}}
    for name, value in {
        "metrics.json": {"test": scores, "settings": {}},
        "versions.json": {"commit": "abc", "date": "2026-01-01", "machine": "m", "command": "c"},
        "timing.json": {"epochs": [{"epoch": 0, "seconds": 1.5}]},
        "curation/epochs.json": [_record(0), _record(1)],
        "curation/detection.json": [{"epoch": 0, "auc": 0.5}],
        "history.json": [{"epoch": 0, "scores": {"CIDEr-D": 0.5}, "samples": []}],
    }.items():
        (run / name).write_text(json.dumps(value))
    return run


def _record(epoch: int) -> dict[str, Any]:
    """As `curation.loop.curator` writes one."""
    live = {"num_live_before": 4, "num_live_after": 3, "num_seen": 4, "num_selected": 1}
    edits = {f"num_{name}": 1 for name in ("removed", "caption_replaced", "image_replaced")}
    spread = {"loss_mean": 2.5, "loss_std": 1.0}
    further = {"num_down_weighted": 0, "num_kept": 0, "notes": {}}
    return {"epoch": epoch, **live, **edits, **further, **spread}


def curated_run(folder: Path) -> Subject:
    run = run_folder(folder)

    def call() -> None:
        write_report(read_run(run), folder / "report.html", num_pictures=2)

    names = ("curation.jsonl", "curation/losses.npz", "curation/epochs.json", "curation/keep.json")
    files = [run / name for name in (*names, "config.yaml")]
    # Of a config the data are read, which has names of its own.
    return Subject(call=call, files=files, names=("config.yaml", CAPTIONS, "photos"))


def tabled_run(folder: Path) -> Subject:
    run = run_folder(folder)
    names = ("config.yaml", "metrics.json", "versions.json", "timing.json")

    def call() -> None:
        table_text(
            runs=[str(run)],
            only=[],
            group=["run_name"],
            split="test",
            metrics=["CIDEr-D", "detection.auc", "timing.seconds"],
            percent=False,
            digits=None,
            best=True,
            lower=[],
            against=None,
            published=None,
            format="md",
            command="c",
        )

    files = [run / name for name in (*names, "curation/detection.json")]
    return Subject(call=call, files=files, names=(run.name,))


def opened_run(folder: Path) -> Subject:
    """What a training reads of the folder that it goes on in."""
    run = folder / "run"
    settings = {"resume": "auto", "branch_from": None, "run_dir": str(run), "seed": 0}
    settings |= {"a": {"b": [1]}}

    def call() -> None:
        RunFolder(run).open(settings)

    call()
    (run / "checkpoints").mkdir()
    content = {"epoch": 1, "global_step": 5, "config": OmegaConf.to_yaml(settings)}
    torch.save(content | {"state_dict": {"w": torch.ones(3)}}, run / "checkpoints" / "last.ckpt")
    (run / "metrics.json").write_text(json.dumps({"val": [], "settings": {}}))
    names = ("config.yaml", "versions.json", "metrics.json", "checkpoints/last.ckpt")
    return Subject(call=call, files=[run / name for name in names], names=("run",))


def checkpoints(folder: Path) -> Subject:
    for number, name in enumerate(("last.ckpt", "preempted.ckpt", "best.ckpt")):
        content = {"epoch": number, "global_step": 9, "config": "seed: 0\n", "state_dict": {}}
        content["state_dict"] = {"a.weight": torch.ones(4, 3), "b": torch.zeros(2)}
        torch.save(content, folder / name)

    def call() -> None:
        path = latest_checkpoint(folder)
        assert path is not None
        check_intact(path)
        config_of(path)

    return Subject(call=call, files=[folder / "last.ckpt", folder / "preempted.ckpt"])


def published_weights(folder: Path) -> Subject:
    tensors = {"a.weight": torch.ones(4, 3), "b": torch.zeros(2)}
    zipped, older, safe = folder / "zip.pth", folder / "older.pth", folder / "s.safetensors"
    torch.save({"model": tensors, "epoch": 3}, zipped)
    torch.save({"state_dict": tensors}, older, _use_new_zipfile_serialization=False)
    save_file(tensors, safe)
    files = [zipped, older, safe]
    return Subject(call=lambda: [read_state(path) for path in files], files=files)


def journal(folder: Path) -> Subject:
    path = run_folder(folder) / "curation.jsonl"

    def call() -> None:
        repair(path)
        _, edits = read_journal(path)
        if edits:
            undo(edits, epochs=[edits[0].epoch])

    return Subject(call=call, files=[path])


def loop_folder(folder: Path) -> Subject:
    """Of a loop of somebody else's."""
    reader = data(folder / "photos")
    roster, run = read_jsonl(**reader), folder / "loop"
    manifest = Manifest(
        roster=roster.name,
        fingerprint=roster.fingerprint,
        policy="p",
        settings={"ratio": 0.1},
        seed=1,
        signals=("gain",),
    )
    write_manifest(run, manifest, roster)
    header = Header(roster=roster.name, fingerprint=roster.fingerprint, seed=1)
    write_journal(run / "curation.jsonl", header, [])
    state = run / "curation" / "state.safetensors"
    write_state(state, {"journal": [], "records": [], "ledger": {"sum": torch.zeros(4)}})

    def call() -> None:
        read_loop_roster(run)
        read_run(run)
        read_loop_state(state)

    names = ("curation/manifest.json", "curation/roster.jsonl", "curation/state.safetensors")
    return Subject(call=call, files=[run / name for name in names])


def results(folder: Path) -> Subject:
    texts = {
        "one.json": [{"image_id": 9, "caption": "a dog"}, {"image_id": "x", "caption": ""}],
        "many.json": [{"image_id": 9, "captions": ["a dog", "dogs"], "scores": [1, 0.5]}],
    }
    for name, value in texts.items():
        (folder / name).write_text(json.dumps(value))
    (folder / "scores.yaml").write_text("ours: {CIDEr-D: 1.5}\ntheirs: {BLEU-4: 0.3}\n")
    study: list[Any] = [{"study": "records", "common": {"config": {"run_name": "r"}}}]
    images = {"ids": ["1"], "scores": {"CIDEr-D": [0.5]}}
    scores = {"corpus": {"CIDEr-D": 0.5}, "per_image": images}
    study += [{"run": f"r/{seed}", "metrics": {"test": scores}} for seed in range(2)]
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in study))
    (folder / "keep.json").write_text(
        json.dumps(KeepList(roster="r", fingerprint="f", sample_ids=("a",)).to_dict())
    )

    def call() -> None:
        for name in texts:
            read_results(folder / name)
        read_published(folder / "scores.yaml")
        read_runs([folder / "records.jsonl"])
        read_keep(folder / "keep.json")

    names = (*texts, "scores.yaml", "records.jsonl", "keep.json")
    return Subject(call=call, files=[folder / name for name in names])


def made_set(folder: Path) -> Subject:
    """A folder of pictures that augmentation has made, as it is claimed and read."""
    settings = {"method": {"name": "cutswap", "ratio": 0.5}, "seed": 0}
    claim_folder(folder / "set", settings)
    Image.new("RGB", (40, 20)).save(folder / "set" / "a.jpg")
    images = [{"id": 7, "file_name": "a.jpg", "width": 40, "height": 20}]
    captions = [{"id": 1, "image_id": 7, "caption": "A dog."}]
    boxes = [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2.5, 30, 10], "iscrowd": 0}]
    contents = {
        "captions.json": {"images": images, "annotations": captions},
        "instances.json": {"annotations": boxes, "categories": [{"id": 3, "name": "dog"}]},
    }
    for name, value in contents.items():
        (folder / "set" / name).write_text(json.dumps(value))

    def call() -> None:
        claim_folder(folder / "set", settings)
        read_coco(
            name="s",
            annotations=folder / "set" / "captions.json",
            instances=folder / "set" / "instances.json",
            image_folder=folder / "set",
        )

    files = [folder / "set" / name for name in ("settings.json", *contents)]
    return Subject(call=call, files=files, names=("set",))


def study_answers(folder: Path) -> Subject:
    path = folder / "export.json"
    item = Item(name="a.png", path=folder / "a.png", captions=("A dog.",), loss=1.5)
    placed = [Placed(item=item, set_number=0, half="low")]
    part = {"from_name": "general", "type": "choices", "value": {"choices": ["number"]}}
    entry = {"completed_by": 1, "created_at": "2026-11-01", "result": [part]}
    data = {"number": 0, "study": fingerprint(placed)}
    path.write_text(json.dumps([{"data": data, "annotations": [entry]}]))
    return Subject(call=lambda: read_answers(path, placed), files=[path])


TARGETS = [
    Target(name="curated run and its report", make=curated_run, share=2),
    Target(name="run in a table", make=tabled_run),
    Target(name="run that goes on", make=opened_run),
    Target(name="checkpoints", make=checkpoints, share=2),
    Target(name="published weights", make=published_weights, share=2),
    Target(name="journal", make=journal, share=2),
    Target(name="folder of another loop", make=loop_folder),
    Target(name="results, records, keep-lists", make=results, share=2),
    Target(name="made set of pictures", make=made_set),
    Target(name="answers of a study", make=study_answers, share=0.5),
]
