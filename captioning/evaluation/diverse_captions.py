"""Tables of several captions an image, of a run.

``captioning diverse-captions run=FOLDER`` makes 20, then 100 captions of each
image, drawn or the likeliest ones, and scores them as COS-CVAE's tables and Tables 4.5, 4.6, 4.9
and 4.10 of the CutSwap thesis do: the oracle's best of them, the best by consensus, and the
diversity of the best 5 by consensus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from captioning.evaluation.predict import predict_run
from captioning.metrics.evaluation import evaluate_all
from captioning.metrics.extra import Diversity, Oracle
from captioning.results.coco_results import write_candidates
from captioning.results.table_formats import markdown_lines
from captioning.results.versions import versions
from captioning.runtime.files import write_json, write_text
from captioning.training.rosters import read_roster, settings_of_run

FILE_NAME = "diverse.json"
ORACLE = "oracle "
ACCURACY = ("BLEU-4", "BLEU-3", "BLEU-2", "BLEU-1", "CIDEr-D", "ROUGE-L", "METEOR", "SPICE")
DIVERSITY = ("uniqueness", "novel-sentences", "novelty", "mBLEU-4", "Div-1", "Div-2", "self-CIDEr")

Scores = Mapping[str, Mapping[str, float]]  # by number of draws, then by name


def evaluate_draws(config: DictConfig) -> dict[str, dict[str, float]]:
    """Caption and score, for each number of captions.

    Writes ``candidates-NUMBER.json`` before scores, then ``diverse.json`` and ``diverse.md``.

    Returns:
        By number of captions, the scores by name: those of the best by consensus, ``oracle ...``,
        and of diversity.

    Raises:
        ValueError: a search of one caption, or fewer captions than diversity looks at.
    """
    folder = Path(config.run)
    searches = {
        str(n): with_number(config.search, n, min_captions=config.num_best) for n in config.numbers
    }
    training = read_roster(settings_of_run(folder), "train")
    tokenizer, best = config.metrics.tokenizer, config.num_best
    standard = {"metrics": list(config.metrics.test), "tokenizer": tokenizer}
    extra = {
        "oracle": Oracle(metrics=list(config.oracle), tokenizer=tokenizer),
        "diversity": Diversity(tokenizer=tokenizer, max_captions=best, training=training),
    }
    scores: dict[str, dict[str, float]] = {}
    settings: dict[str, Any] = {}
    out = folder / "evaluation"
    for number, search in searches.items():
        options = {"split": config.split, "search": search, "rerank": config.rerank}
        options |= {key: config[key] for key in ("first_images", "device", "precision")}
        groups, roster, decoding = predict_run(folder, config.get("data"), **options)
        captions = {
            group[0].image_id: [prediction.caption for prediction in group] for group in groups
        }
        name = f"{roster.name.replace('/', '-')}-{search_name(search)}"
        out = Path(config.out or folder / "evaluation" / name)
        write_candidates(out / f"candidates-{number}.json", groups)  # scores may take an hour
        result = evaluate_all(captions, roster, extra=extra, decoding=decoding, **standard)
        scores[number], settings[number] = result.corpus, result.settings
        resolved = OmegaConf.to_container(config, resolve=True)
        record = {"scores": scores, "settings": settings, "evaluated": resolved}
        record |= by_evaluation(scores)
        write_json(out / FILE_NAME, record | {"versions": versions()})
        write_text(out / "diverse.md", "\n".join(tables({folder.name: scores})) + "\n")
    console = Console()
    # as it is written: a table of rich would cut its wide rows on a narrow terminal
    console.print((out / "diverse.md").read_text(), markup=False, soft_wrap=True)
    console.print(f"written: {out / FILE_NAME}", markup=False, soft_wrap=True)
    return scores


def by_evaluation(scores: Scores) -> dict[str, dict[str, dict[str, float]]]:
    """Scores under the same names for both evaluations: ``oracle``, then ``consensus``.

    Those of consensus hold the diversity of its best captions.
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


def with_number(search: DictConfig, number: int, *, min_captions: int) -> DictConfig:
    """A search that gives ``number`` captions an image; a beam is at least as wide.

    Raises:
        ValueError: it gives one caption, or ``number`` is below ``min_captions``.
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
    """What a search is called in tables and folders, such as ``"beam"``: its module."""
    if search.get("top_p") is not None:
        return "nucleus"
    return search["_target_"].removesuffix(".with_settings").split(".")[-2]


def tables(runs: Mapping[str, Scores]) -> list[str]:
    """Both tables in Markdown, a row a run and number of draws.

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
