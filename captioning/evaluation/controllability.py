"""Controllability of a captioner: scores of control, also with swapped and random controls.

``captioning controllability run=FOLDER`` requests regions and length of each caption of a split and
scores the generated captions (`captioning.metrics.control`). Then it requests the regions of
another caption of the same photo: the nouns of the first request must become rarer. It also
requests random regions and lengths (`RandomControls`). Standard metrics compare each generated
caption with the caption whose control was requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from captioning.config.build import build_part
from captioning.config.ranges import (
    AbstractSettings,
    Device,
    Name,
    NonNegativeInt,
    PositiveInt,
    Seed,
)
from captioning.config.tasks import recorded
from captioning.data.annotated_boxes import sample_size
from captioning.data.batches.controls import CaptionControls, FixedControls, overlap
from captioning.data.steps.added_captions import read_added_captions
from captioning.data.steps.take_detections import RegionsByImage, read_all_detections
from captioning.evaluation.predict import LoadedRun, load_run
from captioning.evaluation.settings import EvaluationPrecision, OtherData
from captioning.interfaces import AbstractParser
from captioning.metrics.best_sets import best_diversity
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
from captioning.results.significance import paired_bootstrap
from captioning.results.versions import versions
from captioning.runtime.files import write_json
from captioning.training.settings import Metrics, Part, Paths
from captioning.types import Control, Region, Sample

Nouns = Literal["phrases", "labels"]
SAME_OBJECT = 0.5  # intersection over union from which a detected box is of an annotated region
# Groups that the config leaves out where nothing is chosen.
CHOSEN = ("data", "search", "well_formedness", "gruen", "metrics")
Regions = Literal["caption", "any"]
SHOWN_SCORES = ("IoU", "Hal", "missing", "L", "LP", "G", "GRUEN", "sC", "D-1", "D-2", "H")


@dataclass(frozen=True, kw_only=True)
class RandomControls(AbstractSettings):
    """Settings for drawing random controls.

    Table 8 of CIC-BART-SSA (Basioti et al., 2024) and its length error L use ten random controls
    per image (appendix C.1). The authors' code (``diverse_length``) draws a caption's regions in
    random order, and a number of words from 5 to 29.

    Attributes:
        controls: number of controls drawn for each image, at least ``best``; 0: none.
        best: number of captions compared in `best_diversity`.
        shortest, longest: range of the number of words, drawn uniformly.
        regions: ``"caption"``: the regions of one of the image's captions; ``"any"``: as many
            regions as one caption has, drawn from the regions of all the image's captions.
        seed: seed of all draws.

    Raises:
        ValueError: a setting is out of its range.
    """

    controls: NonNegativeInt = 10
    best: PositiveInt = 5
    shortest: PositiveInt = 5
    longest: PositiveInt = 29
    regions: Regions = "caption"
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not self.controls:
            return
        if not 1 <= self.best <= self.controls:
            raise ValueError(
                f"random.controls must be at least random.best, and that at least 1: got "
                f"{self.controls} and {self.best}"
            )
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                "random.shortest must be at least 1 and at most random.longest: got "
                f"{self.shortest} and {self.longest}"
            )

    def draw(
        self, samples: Sequence[Sample], controls: Sequence[Control]
    ) -> list[tuple[Sample, Control]]:
        """Draw controls for each image, each with a sample that has its own id.

        Args:
            samples: captions, several per image.
            controls: the control of each caption. Without a length, no length is drawn; verbs are
                not requested.
        """
        by_image: dict[str, list[tuple[Sample, Control]]] = {}
        for sample, control in zip(samples, controls, strict=True):
            by_image.setdefault(sample.image_id, []).append((sample, control))
        generator = np.random.default_rng(self.seed)
        drawn = []
        for image_id, candidates in by_image.items():
            all_regions = list(
                dict.fromkeys(r for _, control in candidates for r in control.regions or ())
            )
            for number in range(self.controls):
                sample, control = candidates[int(generator.integers(len(candidates)))]
                named = replace(sample, sample_id=f"{image_id} random {number}")
                drawn.append((named, self._draw_one(control, all_regions, generator)))
        return drawn

    def _draw_one(
        self, control: Control, all_regions: Sequence[int], generator: np.random.Generator
    ) -> Control:
        regions = control.regions or ()
        pool = regions if self.regions == "caption" else all_regions
        drawn = tuple(int(r) for r in generator.permutation(pool)[: len(regions)])
        num_words = int(generator.integers(self.shortest, self.longest + 1))
        has_length = control.num_words is not None
        return replace(
            control,
            regions=drawn,
            num_words=num_words if has_length else None,
            level=None,
            verbs=(),
        )

    def scores(
        self,
        drawn: Sequence[tuple[Sample, Control]],
        captions: Mapping[str, str],
        *,
        full_stops_count: bool = False,
    ) -> dict[str, Any]:
        """``D-1`` and ``D-2`` of the best captions of each image; ``L`` and ``LP`` of all captions.

        Args:
            drawn: the result of `draw`.
            captions: captions by sample id.
            full_stops_count: see `ControlledCaption`.

        Returns:
            ``corpus``, ``settings`` and ``captions``, each with its control.
        """
        groups: dict[str, list[str]] = {}
        for sample, _ in drawn:
            groups.setdefault(sample.image_id, []).append(captions[sample.sample_id])
        tokenize = None if full_stops_count else tokenize_python  # as in `score_control`
        best = best_diversity(groups, k=self.best, tokenize=tokenize)
        lengths = score_control(
            [
                ControlledCaption(
                    sample_id=sample.sample_id,
                    image_id=sample.image_id,
                    caption=captions[sample.sample_id],
                    num_words=control.num_words,
                    full_stops_count=full_stops_count,
                )
                for sample, control in drawn
            ]
        ).corpus
        corpus = {"D-1": best.corpus["Div-1"], "D-2": best.corpus["Div-2"]}
        corpus |= {name: lengths[name] for name in ("L", "LP") if name in lengths}
        return {
            "corpus": corpus,
            "settings": best.settings | {name: getattr(self, name) for name in self.known()},
            "captions": [
                {
                    "image_id": sample.image_id,
                    "regions": control.regions,
                    "num_words": control.num_words,
                    "caption": captions[sample.sample_id],
                }
                for sample, control in drawn
            ],
        }


NO_RANDOM = RandomControls(controls=0)


def evaluate_control(
    *,
    paths: Paths | None = None,
    data: OtherData | None = None,
    search: Part | None = None,
    parser: Part,
    word_vectors: Part,
    well_formedness: Part | None = None,
    gruen: Part | None = None,
    metrics: Metrics | None = None,
    run: Name,
    device: Device = "auto",
    precision: EvaluationPrecision = "32-true",
    split: Name = "test",
    standard_by_batches: PositiveInt | None = None,
    max_images: PositiveInt | None = None,
    nouns: Nouns = "phrases",
    detections: Sequence[Name] | None = None,
    exactly_five: bool = False,
    generated: Name | None = None,
    random: RandomControls = NO_RANDOM,
    out: Name | None = None,
    plugins: Sequence[Name] = (),
) -> dict[str, Any]:
    """Caption a split with its own and with swapped controls; write ``control.json``.

    Args:
        paths: folders, only for the record.
        data: dataset that replaces the run's.
        search: search that replaces the run's.
        parser: parser that finds nouns.
        word_vectors: word vectors to compare nouns.
        well_formedness, gruen: scorers of the text; None: not scored.
        metrics: metrics of each caption against the one whose control was requested; None: none.
        run: its folder.
        device: the captioner's device.
        precision: the captioner's precision.
        split: split of the data set.
        standard_by_batches: see `standard_scores`.
        max_images: number of images, from the first; None: all.
        nouns, detections: see `control_targets`.
        exactly_five: diversity is of photos with exactly five scored captions.
        generated: folder of captions whose controls are requested, see `control_targets`.
        random: settings of random controls.
        out: the folder; None: in the run's.
        plugins: packages of the parts, only for the record.

    Returns:
        The contents of the file: ``scores`` (`ControlScores`), ``swapped`` (see `compare_swapped`),
        ``random`` (see `RandomControls.scores`), ``standard`` (see `standard_scores`), and
        ``captions``, each with its control.

    Raises:
        ValueError: no caption of the split has a grounded noun.
        ModuleNotFoundError: the package of a scorer's weights is missing; nothing was captioned.
    """
    evaluated = recorded(locals(), groups=CHOSEN)
    # Before anything is captioned, as what they need may be absent.
    parts = {"parser": build_part(parser), "vectors": build_part(word_vectors)}
    chosen = {"well_formedness": well_formedness, "gruen": gruen}
    scorers = {name: build_part(part) for name, part in chosen.items() if part is not None}
    options = {"search": search, "device": device, "precision": precision}
    loaded = load_run(Path(run), data, split, **options)
    other = None if generated is None else Path(generated)
    asked = {"max_images": max_images, "generated": other, "nouns": nouns}
    targets = control_targets(loaded, parts["parser"], **asked, detections=detections)
    samples, controls, _ = zip(*targets, strict=True)
    captions = caption(loaded, samples, controls)
    options = {"statistics": _statistics(loaded), "exactly_five": exactly_five, **scorers}
    full_stops_count = _control_reader(loaded).full_stops_count
    scores = score_control(_controlled(targets, captions, full_stops_count), **parts, **options)
    result: dict[str, Any] = {"scores": scores.to_dict(), "swapped": None}
    result["random"] = _random_scores(loaded, random, targets) if random.controls else None
    result["standard"] = metrics and standard_scores(
        samples, captions, metrics, by_batches=standard_by_batches
    )
    other_controls = swapped(samples, controls)
    pairs = zip(targets, other_controls, strict=True)
    changed = [(target, control) for target, control in pairs if control is not None]
    other_captions: dict[str, str] = {}
    if changed:
        changed_targets = [target for target, _ in changed]
        changed_samples = [sample for sample, _, _ in changed_targets]
        other_captions = caption(loaded, changed_samples, [control for _, control in changed])
        other_controlled = _controlled(changed_targets, other_captions, full_stops_count)
        other_scores = score_control(other_controlled, **parts)
        result["swapped"] = compare_swapped(samples, scores, other_scores, captions, other_captions)
    result["captions"] = _listed(targets, other_controls, captions, other_captions)
    result["evaluated"] = evaluated
    name = loaded.roster.name.replace("/", "-") + (f"-{other.name}" if other else "")
    folder = Path(out or Path(run) / "evaluation" / name)
    write_json(folder / "control.json", result | {"versions": versions()})
    show_control(scores, result["swapped"], name)
    show_further(result, folder)
    return result


ControlTarget = tuple[Sample, Control, tuple[str, ...]]


def control_targets(
    run: LoadedRun,
    parser: AbstractParser,
    *,
    max_images: int | None = None,
    generated: Path | None = None,
    nouns: Nouns = "phrases",
    detections: Sequence[str | Path] | None = None,
) -> list[ControlTarget]:
    """Captions whose control can be requested: a sample, its control and its regions' nouns.

    Captions without nouns for their regions are left out.

    Args:
        run: the run; its reader of controls is used if it has one, else `CaptionControls`.
        parser: parser that finds the nouns.
        max_images: number of images, from the first, whose captions are used; None: all.
        generated: folder of captions generated for the split's photos, whose controls are requested
            in place of human captions' controls (CIC-BART-SSA, Tables 5 and 7).
        nouns: ``"phrases"``: the last ones of the phrases whose regions are requested;
            ``"labels"``: the labels of these regions, in COCO Entities the head nouns of the
            annotated chunks (CIC-BART-SSA, C.1).
        detections: files of detections for ``"labels"``: a region's label is that of the detected
            box that overlaps it most, if by `SAME_OBJECT`, as CIC-BART-SSA takes those of Faster
            R-CNN for Flickr30k Entities. None: the annotations' labels.

    Raises:
        ValueError: no caption has a control, ``generated`` is of other photos or boxes, or photos
            are in no file of detections.
        FileNotFoundError: ``generated`` holds no captions, or no such file of detections.
    """
    if detections is not None and nouns != "labels":
        raise ValueError("detections: choose nouns=labels, which alone takes their labels")
    images = set(list(run.roster.rows_by_image)[:max_images])
    pool = run.roster.samples if generated is None else read_added_captions(generated, run.roster)
    samples = [sample for sample in pool if sample.image_id in images]
    if not samples:
        raise ValueError(
            f"generated={generated}: no caption is of a photo of {run.roster.name}; set split="
        )
    controls = _control_reader(run)(samples)
    if detections is not None:
        samples = _with_detected_labels(samples, read_all_detections(detections))
    names = _labels(samples, controls) if nouns == "labels" else _heads(samples, controls, parser)
    targets = [target for target in zip(samples, controls, names, strict=True) if target[2]]
    if not targets and detections is not None:
        raise ValueError(
            f"{run.roster.name}: no detected box overlaps a region that a caption speaks of by "
            f"{SAME_OBJECT:g}: are detections={list(map(str, detections))} of these photos?"
        )
    if not targets:
        raise ValueError(
            f"{run.roster.name}: no caption has a phrase with a region and a noun; choose data "
            "with grounded phrases, such as data=flickr8k_entities"
        )
    return targets


def _with_detected_labels(samples: Sequence[Sample], detected: RegionsByImage) -> list[Sample]:
    """Replace regions' labels by the labels of detected boxes; empty where no box overlaps.

    Raises:
        ValueError: a photo is not among the detections.
    """
    missing = dict.fromkeys(s.image_id for s in samples if s.image_id not in detected)
    if missing:
        raise ValueError(
            f"the files of detections lack {len(missing)} photos, such as {next(iter(missing))}: "
            "run captioning find-objects on this split and add its file to detections"
        )
    regions: dict[tuple[str, tuple[Region, ...]], tuple[Region, ...]] = {}
    for sample in samples:
        key = (sample.image_id, sample.regions)
        if key not in regions:
            regions[key] = _relabelled(sample.regions, detected[sample.image_id])
    return [replace(s, regions=regions[s.image_id, s.regions]) for s in samples]


def _relabelled(regions: Sequence[Region], detected: Sequence[Region]) -> tuple[Region, ...]:
    if not regions or not detected:
        return tuple(replace(region, label="") for region in regions)
    boxes = [np.array([r.box for r in some], dtype=np.float64) for some in (regions, detected)]
    overlaps = overlap(*boxes)
    best, enough = overlaps.argmax(1), overlaps.max(1) >= SAME_OBJECT
    return tuple(
        replace(region, label=detected[number].label if is_same else "")
        for region, number, is_same in zip(regions, best, enough, strict=True)
    )


def _labels(samples: Sequence[Sample], controls: Sequence[Control]) -> list[tuple[str, ...]]:
    """Labels of the requested regions."""
    return [
        tuple(dict.fromkeys(filter(None, (sample.regions[n].label for n in control.regions or ()))))
        for sample, control in zip(samples, controls, strict=True)
    ]


def _heads(
    samples: Sequence[Sample], controls: Sequence[Control], parser: AbstractParser
) -> list[tuple[str, ...]]:
    """Last nouns of the phrases whose regions are requested."""
    phrases = [
        [
            phrase.text
            for phrase in sample.phrases
            if set(phrase.regions) & set(control.regions or ())
        ]
        for sample, control in zip(samples, controls, strict=True)
    ]
    parses = iter(parser.parse([text for texts in phrases for text in texts]))
    return [
        tuple(dict.fromkeys(noun for _ in texts for noun in find_nouns(next(parses))[-1:]))
        for texts in phrases
    ]


def _control_reader(run: LoadedRun) -> CaptionControls:
    """Reader of controls that the run was trained with, or the default reader."""
    trained = run.datamodule.readers.get("control")
    return trained if isinstance(trained, CaptionControls) else CaptionControls()


def swapped(samples: Sequence[Sample], controls: Sequence[Control]) -> list[Control | None]:
    """For each caption, its control with the regions of another caption of its photo.

    The other caption is the first with the smallest share of regions in common; the requested
    length stays. None if all captions of the photo have the same regions.
    """
    by_image: dict[str, list[tuple[int, ...]]] = {}
    for sample, control in zip(samples, controls, strict=True):
        by_image.setdefault(sample.image_id, []).append(control.regions or ())
    result: list[Control | None] = []
    for sample, control in zip(samples, controls, strict=True):
        regions = set(control.regions or ())
        other_regions = [other for other in by_image[sample.image_id] if set(other) != regions]
        farthest = min(other_regions, key=lambda other: _overlap(regions, set(other)), default=None)
        result.append(None if farthest is None else replace(control, regions=farthest, verbs=()))
    return result


def _overlap(regions: set[int], other_regions: set[int]) -> float:
    return len(regions & other_regions) / len(regions | other_regions)


def caption(
    run: LoadedRun, samples: Sequence[Sample], controls: Sequence[Control]
) -> dict[str, str]:
    """Let the run caption each sample with its control; captions by sample id."""
    module = run.datamodule
    trained = module.readers.get("control")
    overlap = trained.min_overlap if isinstance(trained, CaptionControls) else 0.5
    reader = FixedControls(controls, min_overlap=overlap)
    dataset = module.dataset(samples, "eval", overrides={"control": reader})
    captions: dict[str, str] = {}
    with run.computing():
        for block in rounds(samples, module.loader.eval_batch_size):
            batch = dataset[block].to(run.model.device)
            predictions = run.model.generate(batch)
            for sample_id, image in zip(batch.sample_ids, batch.image_index.tolist(), strict=True):
                captions[sample_id] = predictions[image].caption
    return captions


def rounds(samples: Sequence[Sample], size: int) -> list[list[int]]:
    """Positions in batches of at most ``size`` that contain no photo twice.

    A captioner takes one control per image in a batch: see `captioning.models.cic_bart.CicBart`.
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
    captions: Mapping[str, str],
    other_captions: Mapping[str, str],
) -> dict[str, Any]:
    """Agreement with the first request's nouns, for the first controls and for swapped controls.

    Args:
        samples: all captions.
        scores: scores of the matched controls.
        other_scores: scores of the captions for swapped controls, against the nouns of the first
            request; only captions with such a score are compared.
        captions, other_captions: captions by sample id.

    Returns:
        ``matched`` and ``swapped`` means of ``IoU`` and ``Hal``, the share of captions ``changed``,
        and a bootstrap over images of the ``difference`` of IoU, swapped minus matched.
    """
    image_of = {sample.sample_id: sample.image_id for sample in samples}
    ids = [i for i in other_scores.per_caption if "IoU" in other_scores.per_caption[i]]
    sides = {"matched": scores.per_caption, "swapped": other_scores.per_caption}
    means: dict[str, Any] = {
        side: {name: fmean(column[i][name] for i in ids) for name in ("IoU", "Hal")}
        for side, column in sides.items()
    }
    by_image = {side: _image_means(column, ids, image_of) for side, column in sides.items()}
    difference = paired_bootstrap(
        by_image["matched"], by_image["swapped"], "IoU", generator=np.random.default_rng(0)
    )
    return means | {
        "num_captions": len(ids),
        "changed": fmean(captions[i] != other_captions[i] for i in ids),
        "difference": {
            name: getattr(difference, name) for name in ("mean", "low", "high", "p_value")
        },
    }


def _image_means(
    column: Mapping[str, Mapping[str, float]], ids: Sequence[str], image_of: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    values: dict[str, list[float]] = {}
    for sample_id in ids:
        values.setdefault(image_of[sample_id], []).append(column[sample_id]["IoU"])
    return {image_id: {"IoU": fmean(scores)} for image_id, scores in values.items()}


def _random_scores(
    run: LoadedRun, drawing: RandomControls, targets: Sequence[ControlTarget]
) -> dict[str, Any]:
    drawn = drawing.draw(
        [sample for sample, _, _ in targets], [control for _, control, _ in targets]
    )
    captions = caption(run, [sample for sample, _ in drawn], [control for _, control in drawn])
    full_stops_count = _control_reader(run).full_stops_count
    return drawing.scores(drawn, captions, full_stops_count=full_stops_count)


def standard_scores(
    samples: Sequence[Sample],
    captions: Mapping[str, str],
    metrics: Metrics,
    *,
    by_batches: int | None = None,
) -> dict[str, Any]:
    """Standard metrics of each caption against the caption whose control was requested (Table 9).

    Args:
        samples: the captions whose controls were requested; each is the only reference.
        captions: captions by sample id.
        metrics: metrics, of which those in ``test`` are computed.
        by_batches: number of captions that are also scored at once, as if they were all: the means
            over such batches are ``by_batches``, which the authors print. Document frequencies and
            brevity are then a batch's. Batches are drawn at random, as the authors' sampler does:
            in order a batch has all captions of few photos, whose common words weigh little.
    """
    scores = _standard(samples, captions, metrics)
    if by_batches is None:
        return scores
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0)).tolist()
    mixed = [samples[position] for position in order]
    batches = [
        _standard(mixed[start : start + by_batches], captions, metrics)["corpus"]
        for start in range(0, len(mixed), by_batches)
    ]
    means = {name: fmean(batch[name] for batch in batches) for name in scores["corpus"]}
    return scores | {"by_batches": means}


def _standard(
    samples: Sequence[Sample], captions: Mapping[str, str], metrics: Metrics
) -> dict[str, Any]:
    references = {sample.sample_id: [sample.caption] for sample in samples}
    candidates = {sample_id: captions[sample_id] for sample_id in references}
    result = evaluate_captions(
        candidates, references, metrics=list(metrics.test), tokenizer=metrics.tokenizer
    )
    return {"corpus": result.corpus, "settings": result.settings}


def _controlled(
    targets: Sequence[ControlTarget], captions: Mapping[str, str], full_stops_count: bool
) -> list[ControlledCaption]:
    controlled = []
    for sample, control, nouns in targets:
        width, height = sample_size(sample)
        boxes = [sample.regions[region].box for region in control.regions or ()]
        controlled.append(
            ControlledCaption(
                sample_id=sample.sample_id,
                image_id=sample.image_id,
                caption=captions[sample.sample_id],
                nouns=nouns,
                num_words=control.num_words,
                full_stops_count=full_stops_count,
                level=control.level,
                coverage=box_coverage(boxes, width=width, height=height),
            )
        )
    return controlled


def _statistics(run: LoadedRun) -> CiderStatistics:
    """Document frequencies of the split's references."""
    groups = list(run.roster.references().values())
    rest = iter(tokenized([text for group in groups for text in group], tokenize_python))
    counted = [[next(rest) for _ in group] for group in groups]
    return CiderStatistics.count(counted, source="the references")


def _listed(
    targets: Sequence[ControlTarget],
    other_controls: Sequence[Control | None],
    captions: Mapping[str, str],
    other_captions: Mapping[str, str],
) -> list[dict[str, Any]]:
    rows = []
    for (sample, control, nouns), other in zip(targets, other_controls, strict=True):
        row = {"sample_id": sample.sample_id, "nouns": nouns, "regions": control.regions}
        row |= {"num_words": control.num_words, "caption": captions[sample.sample_id]}
        if other is not None:
            row |= {
                "other_regions": other.regions,
                "other_caption": other_captions[sample.sample_id],
            }
        rows.append(row)
    return rows


SHOWN_SCORES += ("H (GRUEN)",)


def show_control(scores: ControlScores, swap: Mapping[str, Any] | None, name: str) -> None:
    """Print the scores of control, and beside them the scores with swapped controls."""
    console, table = Console(), Table(title=name)
    for column in ("score", "its own regions", "all that can be swapped", "swapped regions"):
        table.add_column(column)
    for score in (name for name in SHOWN_SCORES if name in scores.corpus):
        both = ["", ""]
        if swap is not None and score in swap["matched"]:
            both = [f"{swap[side][score]:.4f}" for side in ("matched", "swapped")]
        table.add_row(score, f"{scores.corpus[score]:.4f}", *both)
    console.print(table)
    for missing, reason in scores.settings["missing"].items():
        console.print(f"{missing} is missing: {reason}", markup=False)
    if swap is not None:
        difference = swap["difference"]
        mean, low, high = (difference[key] for key in ("mean", "low", "high"))
        text = f"IoU, swapped less own: {mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        console.print(f"{text}, p = {difference['p_value']:.4f}; changed {swap['changed']:.1%}")


def show_further(result: Mapping[str, Any], out: Path) -> None:
    """Print scores with random controls and standard metrics, and the location of the file."""
    console = Console()
    named = {"random": "random controls", "standard": "against its own caption"}
    for key, name in named.items():
        if result[key]:
            values = [f"{score} {value:.4f}" for score, value in result[key]["corpus"].items()]
            console.print(f"{name}: {', '.join(values)}", markup=False, highlight=False)
            for missing, reason in result[key]["settings"]["missing"].items():
                console.print(f"{missing} is missing: {reason}", markup=False)
    console.print(f"written: {out / 'control.json'}", markup=False, soft_wrap=True)
