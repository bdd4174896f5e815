"""Package a finished run as the shipped captioner: ``python -m tools.assets captioner``.

The bundle is that of ``captioning export`` with matrices in 16 or 8 bits, a card as JSON and a file
of digests. Its captions of test photos are compared with captions by 32 bits before it is kept.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from captioning.data.roster import Roster
from captioning.export.energy import CardFacts
from captioning.export.export import export, without_folders
from captioning.inference.bundle import (
    CONFIG,
    FEATURES_PREFIX,
    RECORD,
    SCALES,
    WEIGHTS,
    in_eight_bits,
)
from captioning.inference.captioner import Captioner
from captioning.inference.loading import SHIPPED
from captioning.metrics.coco import evaluate_captions
from captioning.results.run_folder import RunFolder
from captioning.results.versions import versions
from captioning.runtime.extras import write_sums
from captioning.runtime.files import read_json, write_json, write_text
from captioning.runtime.tensor_files import read_tensors, write_tensors
from captioning.training.rosters import first_images, read_roster, settings_of_run

CARD = "card.json"
MOST_BYTES = 25_000_000
MOST_LOSS = 0.01  # of CIDEr-D by fewer bits
LICENCE = "## Licence"


def ship(
    run: str | Path,
    out: str | Path = SHIPPED,
    *,
    num_photos: int = 200,
    bits: Literal[8, 16] = 16,
    evaluations: Sequence[str | Path] = (),
    terms: str = "",
) -> dict[str, Any]:
    """Write a run's captioner for the package; all or nothing.

    Args:
        run: folder of the run, whose test data must be available.
        out: a new folder; digests of its files are in ``OUT.sha256``.
        num_photos: number of test photos for comparing both precisions.
        bits: bits per number in matrices; 8 have a scale per row. Convolutions keep 16, vectors 32.
        evaluations: folders that ``captioning evaluate`` wrote, whose scores go into the card.
        terms: terms of use of data and weights, for the card.

    Returns:
        The card.

    Raises:
        FileExistsError: ``out`` exists already.
        FileNotFoundError: the run folder or its checkpoint does not exist.
        ValueError: the bundle is too large, or fewer bits make captions worse.
    """
    run, out = Path(run), Path(out)
    if out.exists():
        raise FileExistsError(f"{out} is there already; remove it, or give a new folder")
    part = out.with_name(f".{secrets.token_hex(6)}.captioner")
    try:
        export(run, part, card=CardFacts(terms=terms or None))
        roster = first_images(read_roster(settings_of_run(run), "test"), num_photos)
        whole = _captions(part, roster)
        shrink(part / WEIGHTS, bits=bits)
        card = _card(run, part, terms, bits)
        card["precision"] = {"bits": bits, **compare(whole, _captions(part, roster), roster)}
        card["evaluations"] = {Path(f).name: _scores_of(Path(f)) for f in evaluations}
        write_json(part / CARD, card)
        _complete_readme(part / "README.md", card, part=part.name, name=out.name)
        _check_size(part)
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    write_sums(out.with_suffix(".sha256"), [path for path in out.rglob("*") if path.is_file()])
    return card


def shrink(path: Path, *, bits: Literal[8, 16]) -> None:
    """Store a file's matrices and convolutions with fewer bits if their values allow it.

    Vectors keep 32 bits: they are small, and variances of normalisation need the range.
    """
    tensors, texts = read_tensors(path)
    shrunk: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        half = tensor.half()
        if tensor.dtype != torch.float32 or tensor.ndim < 2 or not half.isfinite().all():
            shrunk[name] = tensor
        elif bits == 8 and tensor.ndim == 2 and not name.startswith(FEATURES_PREFIX):
            shrunk[name], shrunk[f"{name}{SCALES}"] = in_eight_bits(tensor)
        else:
            shrunk[name] = half
    write_tensors(path, shrunk, texts)


def compare(whole: Mapping[str, str], shipped: Mapping[str, str], roster: Roster) -> dict[str, Any]:
    """Compare captions by 32-bit weights with captions by fewer bits.

    Args:
        whole, shipped: a caption of each photo by image id.
        roster: with the references of these photos.

    Raises:
        ValueError: fewer bits lower CIDEr-D by more than `MOST_LOSS`.
    """
    same = sum(whole[image_id] == caption for image_id, caption in shipped.items())
    before, after = _cider(whole, roster), _cider(shipped, roster)
    if after < before - MOST_LOSS:
        raise ValueError(
            f"fewer bits lower CIDEr-D from {before:.4f} to {after:.4f} on {len(shipped)} test "
            "photos; take 16 bits, or another run"
        )
    scores = {"whole": before, "shipped": after}
    return {"photos": len(shipped), "same_captions": same / len(shipped), "CIDEr-D": scores}


def _captions(folder: Path, roster: Roster) -> dict[str, str]:
    captioner = Captioner.load(folder, device="cpu")
    samples = [roster.samples[rows[0]] for rows in roster.rows_by_image.values()]
    boxes = [[region.box for region in sample.regions] for sample in samples]
    results = captioner.caption(
        [sample.image_path for sample in samples], boxes=boxes if captioner.takes_boxes else None
    )
    return {s.image_id: result.caption for s, result in zip(samples, results, strict=True)}


def _cider(captions: Mapping[str, str], roster: Roster) -> float:
    references = {
        image_id: [roster.samples[row].caption for row in rows]
        for image_id, rows in roster.rows_by_image.items()
    }
    result = evaluate_captions(dict(captions), references, metrics=["CIDEr-D"], tokenizer="python")
    return float(result.corpus["CIDEr-D"])


def _card(run: Path, bundle: Path, terms: str, bits: int) -> dict[str, Any]:
    config = RunFolder(run).config()
    record = run / "versions.json"
    trained = read_json(record) if record.is_file() else {}
    trained["command"] = without_folders(str(trained.get("command", "")))
    return {
        "what": f"a captioner, {config.model.name} on {config.features.name}",
        "data": {"name": config.data.name, "left_out": _counts(run / "dropped.json")},
        "terms": terms or "not said",
        "training": {
            "seed": config.seed,
            "epochs": config.num_epochs,
            "versions": trained,
        },
        "shipping": versions()
        | {"command": f"python -m tools.assets captioner {run.name} --bits {bits}"},
        "scores": _scores_of(run),
        "bytes": (bundle / WEIGHTS).stat().st_size,
    }


def _counts(path: Path) -> dict[str, int]:
    rosters = read_json(path) if path.is_file() else {}
    return {name: len(items) for name, items in rosters.items()}


def _scores_of(folder: Path) -> dict[str, Any]:
    """Test scores of a run or of an evaluation, with their settings.

    Raises:
        FileNotFoundError, ValueError: the folder has no scores.
    """
    metrics = read_json(folder / "metrics.json", dict)
    test = metrics.get("test", metrics)
    if "corpus" not in test:
        raise ValueError(f"{folder}/metrics.json has no test scores: test the run first")
    photos = len(test.get("per_image", {}))
    return {"photos": photos, "settings": test.get("settings", {}), **test["corpus"]}


def _complete_readme(path: Path, card: Mapping[str, Any], *, part: str, name: str) -> None:
    """Complete the export's model card with the bundle's name and the comparison of precisions."""
    text = path.read_text(encoding="utf-8").replace(part, name)
    before, _, licence = text.partition(LICENCE)
    found = card["precision"]
    lines = [
        "## Precision",
        "",
        f"Matrices have {found['bits']} bits a number. On {found['photos']} test photos "
        f"{found['same_captions']:.1%} of the captions are those with 32 bits; CIDEr-D "
        f"{found['CIDEr-D']['whole']:.4f} became {found['CIDEr-D']['shipped']:.4f}.",
        "",
    ]
    for data, scores in card["evaluations"].items():
        rows = [f"| {key} | {v:.4f} |" for key, v in scores.items() if isinstance(v, float)]
        lines += [f"## Scores on {data}", "", f"{scores['photos']} photos.", ""]
        lines += ["| metric | score |", "|---|---|", *rows, ""]
    write_text(path, before + "\n".join(lines) + "\n" + LICENCE + licence)


def _check_size(folder: Path) -> None:
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if total > MOST_BYTES:
        raise ValueError(
            f"the bundle has {total / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:.0f} are shipped; "
            "take 8 bits, or train a smaller model"
        )
    missing = [name for name in (RECORD, CONFIG, WEIGHTS, CARD) if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"the bundle lacks {', '.join(missing)}: such a model cannot be shipped")
