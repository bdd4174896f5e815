"""Compare two runs on the same unseen photos: ``captioning compare A B``.

Photos are identified by content, as the second run may read a cleaned copy of the first run's
dataset with other names and ids. Both runs are tested on the first run's test photos, without
photos from the training or validation of either run. All captions are scored against the same
references, so that CIDEr-D's document frequencies are the same for both runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from omegaconf import DictConfig, OmegaConf

from captioning.data.data_record import FILE_NAME, photo_keys, photos_of
from captioning.data.roster import Roster, build_roster
from captioning.evaluation.predict import predict_images
from captioning.metrics.coco import MetricResult, evaluate_captions
from captioning.results.coco_results import read_results
from captioning.results.run_folder import RunFolder
from captioning.results.runs import changed_settings
from captioning.results.significance import has_means, paired_bootstrap, pool_runs
from captioning.training.data_checks import check_opened
from captioning.training.rosters import read_roster, read_train, settings_of_run, trains_on_text
from captioning.training.settings import DataSettings
from captioning.training.start import SHIPPED

RESAMPLES = 10_000
LEADING = ("CIDEr-D", "SPICE", "METEOR", "ROUGE-L")  # the first that was scored decides
SLOW = "SPICE"  # of the runs' metrics; it is scored where it is asked for
NUM_CHANGED = 12  # photos that became better, and as many that became worse
FEW = 20  # photos, of which intervals are too narrow
SURE = 0.05

Reading = Literal["train", "val", "test"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: a run, or several seeds of a run.

    Attributes:
        name: the name as requested.
        folders: the run folders, at least one.
    """

    name: str
    folders: Sequence[Path]

    @cached_property
    def configs(self) -> list[DictConfig]:
        """Configs of the folders' runs.

        Raises:
            ValueError: the configs differ in more than the seed, or have the same seed.
        """
        configs = [RunFolder(folder).config() for folder in self.folders]
        plain: list[Any] = [OmegaConf.to_container(config, resolve=True) for config in configs]
        for folder, config in zip(self.folders[1:], plain[1:], strict=True):
            if changed := changed_settings(plain[0], config):
                key, (before, now) = next(iter(changed.items()))
                raise ValueError(
                    f"{self.folders[0]} and {folder} are not seeds of one run ({key}: {before}, "
                    f"{now}): name only folders of one run"
                )
        if len({config.seed for config in configs}) < len(configs):
            raise ValueError(f"{self.name} contains a seed twice: name each seed once")
        return configs

    @cached_property
    def test(self) -> Roster | None:
        """Test photos of the run's data, checked against its record; None without a test split."""
        settings = DataSettings.of(self.configs[0])
        if settings.data.test is None:
            return None
        roster = read_roster(settings, "test")
        for folder, own in zip(self.folders, self.configs, strict=True):
            check_opened(DataSettings.of(own), folder, {"test": roster})
        return roster


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Results of a comparison of two runs.

    Attributes:
        facts: plain values for JSON: the sentence, scores, photos that changed.
        photos: paths of the page's photos, by image id.
    """

    facts: dict[str, Any]
    photos: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class _Common:
    """Test photos of the first run that neither run has seen.

    Attributes:
        roster: captions of the photos; copies of a photo count as one.
        keys: content of each photo, by image id.
        num_test: number of photos of the first run's test, before photos are left out.
        left_out: number of test photos that each side saw, by side and split.
    """

    roster: Roster
    keys: Mapping[str, str]
    num_test: int
    left_out: Mapping[str, int]


def compare_runs(
    first: Side,
    second: Side,
    *,
    metrics: Sequence[Any] | None = None,
    device: str = "auto",
) -> Comparison:
    """Score two runs on the first run's test photos that neither run has seen.

    Args:
        first: run whose test photos and captions are used.
        second: run to compare with the first.
        metrics: names, see `captioning.metrics.coco.evaluate_captions`; None: those of the first
            run's test but `SLOW`.
        device: device for captions that the run's test did not save; ``"auto"`` takes a GPU.

    Raises:
        ValueError: no common test photos, runs of different configs on a side, or changed data.
        FileNotFoundError: data, photos or checkpoints do not exist.
    """
    common = _common(first, second)
    settings = first.configs[0].metrics
    chosen = list(metrics or [name for name in settings.test if name != SLOW])
    captions, sources = zip(
        *(_captions(side, common, device) for side in (first, second)), strict=True
    )
    references = {"original": common.roster.references()}
    if cleaned := _cleaned(second, common):
        references["cleaned"] = cleaned
    scored = {
        name: _scored(captions, texts, metrics=chosen, tokenizer=settings.tokenizer)
        for name, texts in references.items()
    }
    tables = {name: _table(results) for name, results in scored.items()}
    changed, images = _changed(scored["original"], captions, common, tables["original"]["leading"])
    facts = {
        "names": [first.name, second.name],
        "runs": sources,
        "sentences": _sentences(first, second, tables),
        "notes": _notes(first, second, common, tables),
        "num_photos": len(common.keys),
        "num_test": common.num_test,
        "left_out": dict(common.left_out),
        "scores": tables,
        "changed": changed,
        "images": images,
        "settings": _settings(first, second),
        "bootstrap": {"resamples": RESAMPLES, "confidence": 0.95, "seed": 0},
    }
    shown = [entry["image"] for group in changed for entry in group["items"]]
    rows = common.roster.rows_by_image
    return Comparison(
        facts=facts, photos={i: common.roster.samples[rows[i][0]].image_path for i in shown}
    )


def _common(first: Side, second: Side) -> _Common:
    test = first.test
    if test is None:
        raise ValueError(
            f"{first.name} has no test photos: name a run with test photos first, or train with "
            "data that have a test split"
        )
    keys = _keys(test, first.configs[0].paths.cache)
    by_key: dict[str, list[str]] = {}
    for image_id in test.rows_by_image:
        by_key.setdefault(keys[image_id], []).append(image_id)
    seen = {
        f"{side.name} {split}": _seen(side, split)
        for side in (first, second)
        for split in ("train", "val")
    }
    left_out = {place: len(by_key.keys() & known) for place, known in seen.items()}
    kept = {key: ids for key, ids in by_key.items() if not any(key in s for s in seen.values())}
    if not kept:
        told = ", ".join(f"{number} are in {place}" for place, number in left_out.items() if number)
        raise ValueError(
            f"no test photo of {first.name} is new to both runs: of {len(by_key)}, {told}. Train "
            "both on datasets with the same splits: a dataset and its exports have the same "
            "splits with one data.seed and data.held_out"
        )
    samples = [
        replace(test.samples[row], image_id=ids[0])
        for ids in kept.values()
        for image_id in ids
        for row in test.rows_by_image[image_id]
    ]
    return _Common(
        roster=build_roster(test.name, samples),
        keys={ids[0]: key for key, ids in kept.items()},
        num_test=len(by_key),
        left_out={place: number for place, number in left_out.items() if number},
    )


def _keys(roster: Roster, cache: str) -> dict[str, str]:
    """Content hash of each image's photo.

    Raises:
        FileNotFoundError: a photo does not exist.
    """
    keys = photo_keys([roster], cache)
    found: dict[str, str] = {}
    for image_id, rows in roster.rows_by_image.items():
        path = roster.samples[rows[0]].image_path
        if path not in keys:
            raise FileNotFoundError(
                f"{path}: no such photo of {roster.name}; runs are compared on photos identified "
                "by content: put the photos back"
            )
        found[image_id] = keys[path]
    return found


def _seen(side: Side, split: Reading) -> set[str]:
    """Photos that a side's runs, and the runs they started from, used in training or validation."""
    known: set[str] = set()
    waiting = [*side.folders]
    for folder in waiting:
        known |= _seen_by(folder, split)
        start = Path(str(RunFolder(folder).config().get("start_from") or ""))
        if (start / "checkpoints").is_dir() and start not in waiting:
            waiting.append(start)
    return known


def _seen_by(folder: Path, split: Reading) -> set[str]:
    """Photos that a run has seen, by its record or, for an older run, by its data."""
    if kept := photos_of(folder, split):
        return set(kept)
    settings = settings_of_run(folder)
    if split == "train" and trains_on_text(settings):
        return set()
    roster = read_train(settings)[0] if split == "train" else read_roster(settings, split)
    return set(_keys(roster, settings.paths.cache).values())


def _captions(
    side: Side, common: _Common, device: str
) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Captions of each run by image id, and the number that its test had saved."""
    captions, runs = [], []
    for folder, config in zip(side.folders, side.configs, strict=True):
        saved = _saved(side, folder, common)
        rest = [s for s in common.roster.samples if s.image_id not in saved]
        found = predict_images(folder, build_roster("rest", rest), device=device) if rest else {}
        both = saved | found
        captions.append({image_id: both[image_id] for image_id in common.keys})
        checkpoint = RunFolder(folder).tested_checkpoint(config.monitor)
        runs.append(
            {
                "folder": str(folder),
                "seed": int(config.seed),
                "checkpoint": checkpoint.name,
                "of_its_test": len(saved),
                "generated": len(found),
            }
        )
    return captions, {"name": side.name, "seeds": runs}


def _saved(side: Side, folder: Path, common: _Common) -> dict[str, str]:
    """Captions that the run's own test saved, for photos of the same content."""
    path = folder / "predictions.json"
    if not (path.is_file() and RunFolder(folder).finished() and (folder / FILE_NAME).is_file()):
        return {}
    texts, own = read_results(path), photos_of(folder, "test")
    return {
        image_id: texts[own[key]][0]
        for image_id, key in common.keys.items()
        if own.get(key) in texts
    }


def _cleaned(second: Side, common: _Common) -> dict[str, list[str]]:
    """Captions in the second run's data of the photos; empty if they equal the first run's."""
    if second.test is None:
        return {}
    by_key: dict[str, list[str]] = {}
    texts = second.test.references()
    for image_id, key in _keys(second.test, second.configs[0].paths.cache).items():
        by_key.setdefault(key, []).extend(texts[image_id])
    cleaned = {i: by_key[key] for i, key in common.keys.items() if key in by_key}
    original = common.roster.references()
    differ = any(sorted(cleaned[i]) != sorted(original[i]) for i in cleaned)
    return cleaned if differ else {}


def _scored(
    captions: Sequence[Sequence[Mapping[str, str]]],
    references: Mapping[str, Sequence[str]],
    **options: Any,
) -> list[list[MetricResult]]:
    """Scores of each side's runs, for the same images against the same references."""
    return [
        [
            evaluate_captions({i: texts[i] for i in references}, references, **options)
            for texts in of_side
        ]
        for of_side in captions
    ]


def _table(results: Sequence[Sequence[MetricResult]]) -> dict[str, Any]:
    """Means, spreads and differences of each metric."""
    first = results[0][0]
    names = [n for n in first.corpus if all(n in r.corpus for side in results for r in side)]
    rows = []
    for name in names:
        sides = [[result.corpus[name] for result in side] for side in results]
        means = [fmean(values) for values in sides]
        spreads = [stdev(values) if len(values) > 1 else None for values in sides]
        rows.append({"metric": name, "means": means, "spreads": spreads, "seeds": sides})
        if has_means(name):
            one, other = (pool_runs([result.per_image for result in s], name) for s in results)
            generator = np.random.default_rng(0)
            found = paired_bootstrap(one, other, name, generator=generator, num_resamples=RESAMPLES)
            keys = {"difference": found.mean, "low": found.low, "high": found.high}
            rows[-1] |= keys | {"p_value": found.p_value}
    compared = [row["metric"] for row in rows if "difference" in row]
    leading = next((name for name in LEADING if name in compared), None)
    if leading is None:
        raise ValueError(
            f"none of {', '.join(names) or 'the metrics'} can be compared photo by photo: give "
            f"--metrics with one of {', '.join(LEADING)}"
        )
    return {
        "rows": rows,
        "leading": leading,
        "num_photos": first.settings["num_images"],
        "tokenizer": first.settings["tokenizer"],
        "references": first.settings["references_hash"],
    }


def _leading(table: Mapping[str, Any]) -> dict[str, Any]:
    return next(row for row in table["rows"] if row["metric"] == table["leading"])


def verdict(row: Mapping[str, Any]) -> int:
    """1 if the second side is better, -1 if it is worse, 0 if the difference is not significant."""
    if row["low"] <= 0 <= row["high"] or row["p_value"] >= SURE:
        return 0
    return 1 if row["difference"] > 0 else -1


def _sentences(first: Side, second: Side, tables: Mapping[str, Any]) -> list[str]:
    """Sentences on the result against both runs' references."""
    sentences = [_sentence(first, second, tables["original"])]
    if cleaned := tables.get("cleaned"):
        told = _sentence(first, second, cleaned)
        sentences.append(f"Against the captions of {second.name}'s data, which differ: {told}")
    return sentences


def _sentence(first: Side, second: Side, table: Mapping[str, Any]) -> str:
    row = _leading(table)
    better = {
        1: f"{second.name} is better than {first.name}",
        -1: f"{second.name} is worse than {first.name}",
        0: f"no difference can be told between {first.name} and {second.name}",
    }[verdict(row)]
    numbers = [len(side.folders) for side in (first, second)]
    seeds = f"{numbers[0]} and {numbers[1]} seeds"
    if numbers[0] == numbers[1]:
        seeds = "one seed each" if numbers[0] == 1 else f"{numbers[0]} seeds each"
    values = [
        short(mean) + ("" if spread is None else f" ± {short(spread)}")
        for mean, spread in zip(row["means"], row["spreads"], strict=True)
    ]
    return (
        f"{better}: {short(row['difference'], sign=True)} {row['metric']} (95% {short(row['low'])} "
        f"to {short(row['high'])}, {table['num_photos']} photos; {seeds}: {values[0]} and "
        f"{values[1]})."
    )


def short(value: float, *, sign: bool = False) -> str:
    """Format a number with three decimals and no leading zero: ``.031``, or signed ``+.031``."""
    text = f"{abs(value):.3f}"
    mark = "-" if value < 0 and float(text) else "+" if sign and float(text) else ""
    return mark + text.removeprefix("0")


def _notes(first: Side, second: Side, common: _Common, tables: Mapping[str, Any]) -> list[str]:
    """Notes on what limits the comparison."""
    notes = []
    if gone := common.num_test - len(common.keys):
        places = ", ".join(f"{number} in {place}" for place, number in common.left_out.items())
        notes.append(
            f"{gone} of {common.num_test} test photos of {first.name} are left out, as a run has "
            f"seen them: {places}."
        )
    row = _leading(tables["original"])
    spreads = [spread for spread in row["spreads"] if spread is not None]
    if len(spreads) < 2:
        notes.append(
            "The interval covers the choice of photos, not of the seed. Train both with "
            "seed=0,1,2, and name the folders of all seeds."
        )
    elif verdict(row) and max(spreads) >= abs(row["difference"]):
        notes.append("Seeds of one run differ as much as the two runs: train more seeds.")
    if len(common.keys) < FEW:
        notes.append(f"With {len(common.keys)} photos the interval is too narrow: use more photos.")
    if "cleaned" in tables and tables["cleaned"]["num_photos"] < len(common.keys):
        number = len(common.keys) - tables["cleaned"]["num_photos"]
        notes.append(f"{number} photos are not in the test of {second.name}'s data.")
    for side in (first, second):
        start = side.configs[0].get("start_from")
        if start and start != SHIPPED and not (Path(str(start)) / "checkpoints").is_dir():
            notes.append(f"The training photos of start_from={start} of {side.name} are not known.")
    return notes


def _changed(
    results: Sequence[Sequence[MetricResult]],
    captions: Sequence[Sequence[Mapping[str, str]]],
    common: _Common,
    metric: str,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Photos whose scores rose or fell most, and the scores and captions of all photos."""
    pooled = [pool_runs([result.per_image for result in side], metric) for side in results]
    references = common.roster.references()
    images = {
        image_id: {
            "scores": [side[image_id][metric] for side in pooled],
            "captions": [[texts[image_id] for texts in side] for side in captions],
        }
        for image_id in common.keys
    }
    change = {i: entry["scores"][1] - entry["scores"][0] for i, entry in images.items()}
    order = sorted(change, key=lambda i: (-change[i], i))
    groups = {
        "better": [i for i in order[:NUM_CHANGED] if change[i] > 0],
        "worse": [i for i in order[::-1][:NUM_CHANGED] if change[i] < 0],
    }
    counts = Counter(int(np.sign(value)) for value in change.values())
    numbers = {"better": counts[1], "worse": counts[-1]}
    return [
        {
            "name": name,
            "number": numbers[name],
            "items": [
                {"image": i, **images[i], "change": change[i], "references": references[i]}
                for i in ids
            ],
        }
        for name, ids in groups.items()
    ], images


def _settings(first: Side, second: Side) -> list[list[Any]]:
    plain: list[Any] = [
        OmegaConf.to_container(side.configs[0], resolve=True) for side in (first, second)
    ]
    return [[key, *values] for key, values in changed_settings(*plain).items()]
