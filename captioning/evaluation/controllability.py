"""Does a captioner say what it is asked to? The scores of control, and the test of other boxes.

``captioning controllability run=FOLDER`` asks for the regions and the
length of each caption of a split, scores what is said (`captioning.metrics.control`), and asks
the same photo again for the regions of another of its captions: nouns asked for first must then
be said less. It also asks for random regions and lengths
(`captioning.evaluation.random_controls`), and scores every caption against the one that it was
asked for by, as captions without control are scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from captioning.data.batches.controls import CaptionControls, FixedControls
from captioning.data.boxes import photo_size
from captioning.data.steps.added_captions import read_added_captions
from captioning.evaluation.predict import LoadedRun, load_run
from captioning.evaluation.random_controls import RandomControls
from captioning.files import write_json
from captioning.interfaces import AbstractParser
from captioning.metrics.cider import CiderStatistics
from captioning.metrics.coco import evaluate_captions
from captioning.metrics.control import (
    ControlledCaption,
    ControlScores,
    box_coverage,
    score_control,
)
from captioning.metrics.diversity import tokenized
from captioning.metrics.noun_overlap import find_nouns
from captioning.metrics.tokenizer import tokenize_python
from captioning.results.run_folder import versions
from captioning.results.significance import paired_bootstrap
from captioning.training.parts import build_part
from captioning.types import Control, Sample

SHOWN = ("IoU", "Hal", "missing", "L", "LP", "G", "sC", "D-1", "D-2", "H")


def evaluate_control(config: DictConfig) -> dict[str, Any]:
    """Caption a split by its own controls and by swapped ones; write ``control.json``.

    Returns:
        What was written: ``scores`` (`ControlScores`), ``swapped`` (see `compare_swapped`),
        ``random`` (see `RandomControls.scores`), ``standard`` (see `standard_scores`), and
        ``captions`` with what each was asked for.

    Raises:
        ValueError: no caption of the split has a grounded noun.
    """
    drawing = RandomControls(**config.random) if config.random.controls else None
    run = load_run(Path(config.run), config.get("data"), config.split, config.get("search"))
    parser = build_part(config.parser)
    made = None if config.get("made") is None else Path(config.made)
    chosen = asked_captions(run, parser, most=config.most_images, made=made)
    samples = [sample for sample, _, _ in chosen]
    controls = [control for _, control, _ in chosen]
    said = caption(run, samples, controls)
    tools = {"parser": parser, "vectors": build_part(config.word_vectors)}
    further: dict[str, Any] = {"statistics": _statistics(run)}
    if config.get("well_formedness"):
        further["well_formedness"] = build_part(config.well_formedness)
    scores = score_control(_controlled(chosen, said), **tools, **further)
    others = swapped(samples, controls)
    replaced = {n: other for n, other in enumerate(others) if other is not None}
    kept = list(replaced)
    again: dict[str, str] = {}
    result: dict[str, Any] = {"scores": scores.to_dict(), "swapped": None}
    result["random"] = drawing and _asked_at_random(run, drawing, samples, controls)
    result["standard"] = config.get("metrics") and standard_scores(samples, said, config.metrics)
    if kept:
        again = caption(run, [samples[n] for n in kept], list(replaced.values()))
        other_scores = score_control(_controlled([chosen[n] for n in kept], again), **tools)
        result["swapped"] = compare_swapped(samples, scores, other_scores, said, again)
    result["captions"] = _listed(chosen, others, said, again)
    result["evaluated"] = OmegaConf.to_container(config, resolve=True)
    name = run.roster.name.replace("/", "-") + (f"-{made.name}" if made else "")
    out = Path(config.out or Path(config.run) / "evaluation" / name)
    write_json(out / "control.json", result | {"versions": versions()})
    _show(scores, result["swapped"], name)
    _show_further(result, out)
    return result


Chosen = tuple[Sample, Control, tuple[str, ...]]


def asked_captions(
    run: LoadedRun, parser: AbstractParser, *, most: int | None = None, made: Path | None = None
) -> list[Chosen]:
    """Captions with something to ask for: a sample, its control, and the nouns of its regions.

    The nouns are the last ones of the phrases whose regions are asked for. Captions without such
    phrases are left out.

    Args:
        run: its controls are used if it has some, else those of `CaptionControls`.
        parser: finds the nouns.
        most: only the captions of the first so many images.
        made: folder of captions made of the split's photos, which are asked for in place of
            people's (CIC-BART-SSA, Tables 5 and 7).

    Raises:
        ValueError: there is nothing to ask for, or ``made`` is of other photos or boxes.
        FileNotFoundError: ``made`` holds no captions.
    """
    images = set(list(run.roster.rows_by_image)[:most])
    captions = run.roster.samples if made is None else read_added_captions(made, run.roster)
    samples = [sample for sample in captions if sample.image_id in images]
    if not samples:
        raise ValueError(f"made={made}: no caption is of a photo of {run.roster.name}; set split=")
    trained = run.datamodule.readers.get("control")
    reader = trained if isinstance(trained, CaptionControls) else CaptionControls()
    controls = reader(samples)
    phrases = [
        [
            phrase.text
            for phrase in sample.phrases
            if set(phrase.regions) & set(control.regions or ())
        ]
        for sample, control in zip(samples, controls, strict=True)
    ]
    parses = iter(parser.parse([text for texts in phrases for text in texts]))
    nouns = [
        tuple(dict.fromkeys(noun for _ in texts for noun in find_nouns(next(parses))[-1:]))
        for texts in phrases
    ]
    found = [one for one in zip(samples, controls, nouns, strict=True) if one[2]]
    if not found:
        raise ValueError(
            f"{run.roster.name}: no caption has a phrase with a region and a noun; choose data "
            "with grounded phrases, such as data=flickr8k_entities"
        )
    return found


def swapped(samples: Sequence[Sample], controls: Sequence[Control]) -> list[Control | None]:
    """For each caption its control with the regions of another caption of its photo.

    Of the first one with the smallest share of regions in common; the length asked for stays.
    None where all captions of the photo have the same regions.
    """
    by_image: dict[str, list[tuple[int, ...]]] = {}
    for sample, control in zip(samples, controls, strict=True):
        by_image.setdefault(sample.image_id, []).append(control.regions or ())
    found: list[Control | None] = []
    for sample, control in zip(samples, controls, strict=True):
        own = set(control.regions or ())
        others = [other for other in by_image[sample.image_id] if set(other) != own]
        least = min(others, key=lambda other: _shared(own, set(other)), default=None)
        found.append(None if least is None else replace(control, regions=least, verbs=()))
    return found


def _shared(one: set[int], other: set[int]) -> float:
    return len(one & other) / len(one | other)


def caption(
    run: LoadedRun, samples: Sequence[Sample], controls: Sequence[Control]
) -> dict[str, str]:
    """What the run says of each sample when it is asked for its control, by sample id."""
    module = run.datamodule
    dataset = module.dataset(samples, "eval", overrides={"control": FixedControls(controls)})
    said: dict[str, str] = {}
    for block in rounds(samples, module.loader.eval_batch_size):
        batch = dataset[block]
        found = run.model.generate(batch)
        for sample_id, image in zip(batch.sample_ids, batch.image_index.tolist(), strict=True):
            said[sample_id] = found[image].caption
    return said


def rounds(samples: Sequence[Sample], size: int) -> list[list[int]]:
    """Positions in batches of at most ``size`` without two captions of a photo.

    A captioner answers one question an image of a batch: see `captioning.models.cic_bart.CicBart`.
    """
    turns: list[list[int]] = []
    seen: dict[str, int] = {}
    for position, sample in enumerate(samples):
        turn = seen[sample.image_id] = seen.get(sample.image_id, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(position)
    return [turn[start : start + size] for turn in turns for start in range(0, len(turn), size)]


def compare_swapped(
    samples: Sequence[Sample],
    scores: ControlScores,
    other_scores: ControlScores,
    said: Mapping[str, str],
    again: Mapping[str, str],
) -> dict[str, Any]:
    """Agreement with the nouns asked for first, when these regions and when others are asked for.

    Args:
        samples: all captions.
        scores: of the matched controls.
        other_scores: of what was said for swapped controls, against the first nouns; the captions
            in it alone are compared.
        said, again: captions by sample id.

    Returns:
        ``matched`` and ``swapped`` means of ``IoU`` and ``Hal``, the share of captions ``changed``,
        and of the ``difference`` of IoU, swapped less matched, a bootstrap over images.
    """
    image_of = {sample.sample_id: sample.image_id for sample in samples}
    ids = [i for i in other_scores.per_caption if "IoU" in other_scores.per_caption[i]]
    sides = {"matched": scores.per_caption, "swapped": other_scores.per_caption}
    found: dict[str, Any] = {
        side: {name: fmean(column[i][name] for i in ids) for name in ("IoU", "Hal")}
        for side, column in sides.items()
    }
    by_image = {side: _image_means(column, ids, image_of) for side, column in sides.items()}
    difference = paired_bootstrap(
        by_image["matched"], by_image["swapped"], "IoU", generator=np.random.default_rng(0)
    )
    return found | {
        "num_captions": len(ids),
        "changed": fmean(said[i] != again[i] for i in ids),
        "difference": {
            name: getattr(difference, name) for name in ("mean", "low", "high", "p_value")
        },
    }


def _image_means(
    column: Mapping[str, Mapping[str, float]], ids: Sequence[str], image_of: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    values: dict[str, list[float]] = {}
    for i in ids:
        values.setdefault(image_of[i], []).append(column[i]["IoU"])
    return {image_id: {"IoU": fmean(found)} for image_id, found in values.items()}


def _asked_at_random(
    run: LoadedRun, drawing: RandomControls, samples: Sequence[Sample], controls: Sequence[Control]
) -> dict[str, Any]:
    drawn = drawing.draw(samples, controls)
    asked = [sample for sample, _ in drawn]
    return drawing.scores(drawn, caption(run, asked, [control for _, control in drawn]))


def standard_scores(
    samples: Sequence[Sample], said: Mapping[str, str], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """BLEU to SPICE of each caption against the one whose control it was asked for by (Table 9).

    Args:
        samples: the captions whose controls were asked for, each its own only reference.
        said: captions by sample id.
        metrics: config with the names to compute, ``test``, and the ``tokenizer``.
    """
    references = {sample.sample_id: [sample.caption] for sample in samples}
    candidates = {sample_id: said[sample_id] for sample_id in references}
    found = evaluate_captions(
        candidates, references, metrics=list(metrics["test"]), tokenizer=metrics["tokenizer"]
    )
    return {"corpus": found.corpus, "settings": found.settings}


def _controlled(chosen: Sequence[Chosen], said: Mapping[str, str]) -> list[ControlledCaption]:
    found = []
    for sample, control, nouns in chosen:
        width, height = photo_size(sample.image_path)
        boxes = [sample.regions[region].box for region in control.regions or ()]
        found.append(
            ControlledCaption(
                sample_id=sample.sample_id,
                image_id=sample.image_id,
                caption=said[sample.sample_id],
                nouns=nouns,
                num_words=control.num_words,
                level=control.level,
                coverage=box_coverage(boxes, width=width, height=height),
            )
        )
    return found


def _statistics(run: LoadedRun) -> CiderStatistics:
    """Document frequencies of the split's references."""
    groups = list(run.roster.references().values())
    rest = iter(tokenized([text for group in groups for text in group], tokenize_python))
    counted = [[next(rest) for _ in group] for group in groups]
    return CiderStatistics.count(counted, source="the references")


def _listed(
    chosen: Sequence[Chosen],
    others: Sequence[Control | None],
    said: Mapping[str, str],
    again: Mapping[str, str],
) -> list[dict[str, Any]]:
    rows = []
    for (sample, control, nouns), other in zip(chosen, others, strict=True):
        row = {"sample_id": sample.sample_id, "nouns": nouns, "regions": control.regions}
        row |= {"num_words": control.num_words, "caption": said[sample.sample_id]}
        if other is not None:
            row |= {"other_regions": other.regions, "other_caption": again[sample.sample_id]}
        rows.append(row)
    return rows


def _show(scores: ControlScores, swap: Mapping[str, Any] | None, name: str) -> None:
    console, table = Console(), Table(title=name)
    for column in ("score", "its own regions", "all that can be swapped", "swapped regions"):
        table.add_column(column)
    for score in (name for name in SHOWN if name in scores.corpus):
        both = ["", ""]
        if swap is not None and score in swap["matched"]:
            both = [f"{swap[side][score]:.4f}" for side in ("matched", "swapped")]
        table.add_row(score, f"{scores.corpus[score]:.4f}", *both)
    console.print(table)
    for missing, reason in scores.settings["missing"].items():
        console.print(f"{missing} is missing: {reason}", markup=False)
    if swap is not None:
        d = swap["difference"]
        text = f"IoU, swapped less own: {d['mean']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]"
        console.print(f"{text}, p = {d['p_value']:.4f}; changed {swap['changed']:.1%}")


def _show_further(result: Mapping[str, Any], out: Path) -> None:
    console = Console()
    named = {"random": "random controls", "standard": "against its own caption"}
    for key, name in named.items():
        if result[key]:
            values = [f"{score} {value:.4f}" for score, value in result[key]["corpus"].items()]
            console.print(f"{name}: {', '.join(values)}", markup=False, highlight=False)
            for missing, reason in result[key]["settings"]["missing"].items():
                console.print(f"{missing} is missing: {reason}", markup=False)
    console.print(f"written: {out / 'control.json'}", markup=False, soft_wrap=True)
