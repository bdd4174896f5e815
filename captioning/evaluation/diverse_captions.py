"""Metrics of several captions per image of a run.

``captioning diverse-captions run=FOLDER`` generates 20, then 100 captions per image by sampling or
search. As in COS-CVAE's tables and Tables 4.5, 4.6, 4.9 and 4.10 of the CutSwap thesis, it scores
the oracle's best caption, the best by consensus, and the diversity of the best 5 by consensus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from captioning.config.ranges import Device, Name, PositiveInt, Seed
from captioning.config.tasks import recorded
from captioning.evaluation.predict import predict_run
from captioning.evaluation.settings import EvaluationPrecision, OtherData
from captioning.metrics.coco import MetricName
from captioning.metrics.evaluation import evaluate_all
from captioning.metrics.extra import Diversity, Oracle
from captioning.results.coco_results import write_candidates
from captioning.results.table_formats import markdown_lines
from captioning.results.versions import versions
from captioning.runtime.files import write_json, write_text
from captioning.training.rosters import read_roster, settings_of_run
from captioning.training.settings import Metrics, Part, Paths

FILE_NAME = "diverse.json"
ORACLE = "oracle "
ACCURACY = ("BLEU-4", "BLEU-3", "BLEU-2", "BLEU-1", "CIDEr-D", "ROUGE-L", "METEOR", "SPICE")
DIVERSITY = ("uniqueness", "novel-sentences", "novelty", "mBLEU-4", "Div-1", "Div-2", "self-CIDEr")

Scores = Mapping[str, Mapping[str, float]]  # by number of draws, then by name


def evaluate_draws(
    *,
    paths: Paths | None = None,
    data: OtherData | None = None,
    search: Part,
    rerank: Part | None = None,
    metrics: Metrics,
    run: Name,
    device: Device = "auto",
    precision: EvaluationPrecision = "32-true",
    split: Name = "test",
    numbers: Annotated[Sequence[PositiveInt], MinLen(1)] = (20, 100),
    first_images: PositiveInt | None = None,
    oracle: Annotated[Sequence[MetricName], MinLen(1)],
    num_best: PositiveInt = 5,
    seed: Seed = 0,
    out: Name | None = None,
    plugins: Sequence[Name] = (),
) -> dict[str, dict[str, float]]:
    """Generate and score captions for each number of captions per image.

    Writes ``candidates-NUMBER.json`` before scores, then ``diverse.json`` and ``diverse.md``.

    Args:
        paths: folders, only for the record.
        data: dataset that replaces the run's.
        search: search that returns several captions.
        rerank: reranks the captions; None: keep the search's order.
        metrics: metrics of the best captions.
        run: its folder.
        device: the captioner's device.
        precision: the captioner's precision.
        split: split of the data set.
        numbers: numbers of captions of each image, each generated and scored separately.
        first_images: number of images from the start of the split; None: all.
        oracle: metrics of the best captions by each metric.
        num_best: captions whose diversity is measured.
        seed: seed that ``search`` may refer to.
        out: the folder; None: in the run's.
        plugins: packages of the parts, only for the record.

    Returns:
        Scores by name for each number of captions: of the best by consensus, ``oracle ...``, and
            diversity.

    Raises:
        ValueError: the search returns one caption, or fewer captions than diversity compares.
    """
    evaluated, folder = recorded(locals(), groups=("data", "rerank")), Path(run)
    searches = {str(n): with_number(search, n, min_captions=num_best) for n in numbers}
    training = read_roster(settings_of_run(folder), "train")
    tokenizer = metrics.tokenizer
    standard = {"metrics": list(metrics.test), "tokenizer": tokenizer}
    extra = {
        "oracle": Oracle(metrics=list(oracle), tokenizer=tokenizer),
        "diversity": Diversity(tokenizer=tokenizer, max_captions=num_best, training=training),
    }
    options = {"split": split, "rerank": rerank, "first_images": first_images}
    options |= {"device": device, "precision": precision}
    scores: dict[str, dict[str, float]] = {}
    settings: dict[str, Any] = {}
    place = folder / "evaluation"
    for number, numbered in searches.items():
        groups, roster, decoding = predict_run(folder, data, search=numbered, **options)
        captions = {
            group[0].image_id: [prediction.caption for prediction in group] for group in groups
        }
        name = f"{roster.name.replace('/', '-')}-{search_name(numbered)}"
        place = Path(out or folder / "evaluation" / name)
        write_candidates(place / f"candidates-{number}.json", groups)  # scores may take an hour
        result = evaluate_all(captions, roster, extra=extra, decoding=decoding, **standard)
        scores[number], settings[number] = result.corpus, result.settings
        record = {"scores": scores, "settings": settings, "evaluated": evaluated}
        record |= by_evaluation(scores)
        write_json(place / FILE_NAME, record | {"versions": versions()})
        write_text(place / "diverse.md", "\n".join(tables({folder.name: scores})) + "\n")
    console = Console()
    # as it is written: a table of rich would cut its wide rows on a narrow terminal
    console.print((place / "diverse.md").read_text(), markup=False, soft_wrap=True)
    console.print(f"written: {place / FILE_NAME}", markup=False, soft_wrap=True)
    return scores


def by_evaluation(scores: Scores) -> dict[str, dict[str, dict[str, float]]]:
    """Scores under the same names for both evaluations: ``oracle``, then ``consensus``.

    The scores of ``consensus`` include the diversity of its best captions.
    """
    return {
        "oracle": {
            number: {
                name.removeprefix(ORACLE): value
                for name, value in values.items()
                if name.startswith(ORACLE)
            }
            for number, values in scores.items()
        },
        "consensus": {
            number: {name: value for name, value in values.items() if not name.startswith(ORACLE)}
            for number, values in scores.items()
        },
    }


def with_number(search: Part, number: int, *, min_captions: int) -> Part:
    """Search that returns ``number`` captions per image; its beam is at least as wide.

    Raises:
        ValueError: the search returns one caption, or ``number`` is below ``min_captions``.
    """
    if "num_captions" not in search:
        raise ValueError(
            "this search gives one caption: choose search=latents for a model with latents "
            "(cos_cvae), search=nucleus, search=sampling or search=beam for others"
        )
    if number < min_captions:
        raise ValueError(
            f"numbers must be at least num_best={min_captions}, the captions compared: {number}"
        )
    overrides = {"num_captions": number}
    drawn = "temperature" in search  # each draw is searched, or sampled, by itself
    if "beam_size" in search and not drawn:
        overrides["beam_size"] = max(number, search.beam_size)
    return DictConfig(OmegaConf.merge(search, overrides))


def search_name(search: Mapping[str, Any]) -> str:
    """Name of a search in tables and folders, such as ``"beam"``, from its module."""
    if search.get("top_p") is not None:
        return "nucleus"
    return search["_target_"].removesuffix(".with_settings").split(".")[-2]


def tables(runs: Mapping[str, Scores]) -> list[str]:
    """Both tables in Markdown, one row per run and number of captions.

    Args:
        runs: scores as `evaluate_draws` returns them, by the name of the row.
    """
    accuracy, diversity = [], []
    for name, scores_by_number in runs.items():
        rows = [(f"oracle of {n}", "oracle {}", scores) for n, scores in scores_by_number.items()]
        rows += [(f"consensus of {n}", "{}", scores) for n, scores in scores_by_number.items()]
        for label, form, scores in rows:
            accuracy.append([name, label, *_cells(scores.get(form.format(m)) for m in ACCURACY)])
        for number, scores in scores_by_number.items():
            diversity.append([name, number, *_cells(scores.get(metric) for metric in DIVERSITY)])
    return [
        *markdown_lines(["model", "evaluation", *ACCURACY], accuracy),
        "",
        *markdown_lines(["model", "best by consensus, of", *DIVERSITY], diversity),
    ]


def _cells(values: Iterable[float | None]) -> list[str]:
    return ["-" if v is None else f"{v:.0f}" if v > 10 else f"{v:.3f}" for v in values]
