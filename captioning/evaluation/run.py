"""Evaluate captions of a file, a finished run or any captioner: ``captioning evaluate``.

It writes a table with one row per caption (CSV, Parquet) and prints the scores.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console
from rich.table import Table

from captioning.config.build import build_part
from captioning.config.check.check import check_config
from captioning.config.tasks import plain
from captioning.data.json_streams import stream_records
from captioning.data.readers.own.layout import recognise
from captioning.data.readers.own.own import read_own
from captioning.data.roster import Roster
from captioning.evaluation.settings import EvaluateSettings
from captioning.metrics.bootstrap import Bootstrap
from captioning.metrics.coco import MetricResult
from captioning.metrics.evaluation import evaluate_all
from captioning.metrics.java import JavaError, find_java
from captioning.results.coco_results import ResultEntry, is_path_of, read_entries, write_captions
from captioning.results.run_folder import RunFolder
from captioning.results.versions import versions
from captioning.runtime.extras import import_extra
from captioning.runtime.files import read_json, write_atomically, write_json
from captioning.runtime.model_folder import data_folder
from captioning.training.rosters import read_roster
from captioning.training.settings import Data, DataSettings
from captioning.types import Prediction

OF_RUN = ("data", "steps")  # keys that parts of an evaluation may refer to
NAME = "per_caption"


@dataclass(frozen=True, kw_only=True)
class _Captioned:
    """Captions to be scored.

    Attributes:
        captions: one or more captions per image, the best first.
        roster: roster with the references.
        out: folder for the results.
        decoding: settings of the search; None if unknown.
    """

    captions: Mapping[str, Sequence[str]]
    roster: Roster
    out: Path
    decoding: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores of the captions of a dataset, as ``evaluate`` returns them.

    Attributes:
        folder: the folder with ``metrics.json`` and ``per_caption.csv``.
        metrics: corpus scores by name, as fractions (CIDEr-D and CIDEr up to 10).
        captions: one or more captions of each image, by image id, the best first.
        result: intervals, scores of each image, missing metrics with reasons, and settings.
        name: dataset and split.
        num_images: images of the split, of which some or all are scored.
        left_out: a line on each file that could not be written.

    Examples:
        >>> from captioning import evaluate, train
        >>> run = train("my_photos", model="updown_tiny", num_epochs=1, run_dir="my_run")
        >>> evaluated = evaluate(run.folder, split="val", metrics="fast")
        >>> sorted(evaluated.metrics)
        ['BLEU-1', 'BLEU-2', 'BLEU-3', 'BLEU-4', 'CIDEr-D', 'ROUGE-L']
        >>> len(evaluated.captions) == evaluated.num_images
        True
    """

    folder: Path
    metrics: dict[str, float]
    captions: Mapping[str, Sequence[str]] = field(repr=False)
    result: MetricResult = field(repr=False)
    name: str
    num_images: int
    left_out: Sequence[str] = field(default=(), repr=False)


def evaluate(settings: EvaluateSettings) -> Evaluation:
    """Score a results file, or the captions of a run or another captioner for a dataset.

    Writes ``metrics.json`` and a table of captions with their scores into ``settings.out``.

    Raises:
        ValueError: not exactly one of ``predictions``, ``run`` and ``model`` is given, the dataset
            is missing, or it lacks captioned images.
    """
    places = {_of_file: settings.predictions, _of_run: settings.run, _of_model: settings.captioner}
    given = [(read, place) for read, place in places.items() if place is not None]
    if len(given) != 1:
        raise ValueError(
            "give one of predictions=FILE with data=NAME, run=FOLDER, and model=FOLDER (or "
            "model=shipped) with data=NAME"
        )
    extra = {name: build_part(part) for name, part in (settings.extra_metrics or {}).items()}
    metrics, seed = settings.metrics, settings.seed or 0
    resamples = Bootstrap(resamples=settings.resamples, seed=seed) if settings.resamples else None
    [(read, place)] = given
    for metric in extra.values():
        metric.check_ready()
    found = read(place, settings)
    captions, roster, out = found.captions, found.roster, found.out
    result = evaluate_all(
        captions,
        roster,
        metrics=list(metrics.test),
        tokenizer=metrics.tokenizer,
        extra=extra,
        decoding=found.decoding,
        bootstrap=resamples,
    )
    write_json(out / "versions.json", versions())
    scores = {settings.split: result.to_dict(), "evaluated": plain(settings)}
    write_json(out / "metrics.json", scores)
    columns = caption_columns({i: group[0] for i, group in captions.items()}, result)
    return Evaluation(
        folder=out,
        metrics=result.corpus,
        captions=captions,
        result=result,
        name=roster.name,
        num_images=len(roster.rows_by_image),
        left_out=write_per_caption(out, columns),
    )


def _of_file(place: str, settings: EvaluateSettings) -> _Captioned:
    if settings.first_images is not None:
        raise ValueError("first_images is for run= and model=: a file's captions are scored all")
    out = Path(settings.out or Path(place).with_suffix(""))
    entries, split = read_entries(place), _data_of(settings).splits[settings.split].copy()
    if split.get("missing_photos") == "error":  # captions alone are read
        split.missing_photos = "keep"
    roster = build_part(split)
    leave_out = settings.missing_references == "drop"
    captions = _joined(entries, roster, _coco_names(split), leave_out=leave_out)
    return _Captioned(captions=captions, roster=roster, out=out)


def _joined(
    entries: Sequence[ResultEntry],
    roster: Roster,
    coco_names: Mapping[str, tuple[str, ...]],
    *,
    leave_out: bool = False,
) -> dict[str, list[str]]:
    """Match captions to the roster's images: by id, by COCO's number, or by file name.

    Args:
        entries: entries of the results file.
        roster: roster of the images.
        coco_names: see `_coco_names`.
        leave_out: whether to leave out entries of images without references, printing their number.

    Raises:
        ValueError: an entry names no image or several, or two entries name one image.
    """
    known = roster.rows_by_image
    if all(entry.image_id in known for entry in entries):
        return {str(entry.image_id): entry.captions for entry in entries}
    names: list[tuple[str, ...]] = []
    for entry in entries:
        of_coco = coco_names.get(entry.image_id or "", ())
        own = () if entry.is_number or entry.image_id is None else (entry.image_id,)
        same = [name for name in of_coco if name in known]
        names.append((*same, *own, *entry.names, *of_coco[1:]))
    find, captions, missing = _NamedImages(roster), dict[str, list[str]](), []
    for entry, given in zip(entries, names, strict=True):
        image_id = find(given, entry.place)
        if image_id is None:
            missing.append(entry)
        elif image_id in captions:
            raise ValueError(
                f"{entry.place}: {entry.image_id or given[0]!r} is image {image_id!r}, for which "
                "an earlier entry has captions; put several captions of an image into one entry: "
                '"captions": [...]'
            )
        else:
            captions[image_id] = entry.captions
    if missing:
        first = missing[0]
        shown = first.names[0] if first.image_id is None else first.image_id
        if leave_out and captions:
            print(
                f"left out: captions of {len(missing)} images without references, such as {shown!r}"
            )
            return captions
        raise ValueError(
            f"{first.place}: {len(missing)} images without references, such as {shown!r}, by id or "
            f"by name: {roster.name} has images such as {next(iter(known))!r}; choose the data= "
            "and split= of these captions, or set missing_references=drop to leave them out"
        )
    return captions


class _NamedImages:
    """Index of a roster's images by names of their photos: paths, file names or bare stems.

    Numbers in names may have more or fewer leading zeros.
    """

    def __init__(self, roster: Roster) -> None:
        self._ids = roster.rows_by_image.keys()
        self._by_path: dict[str, str] = {}
        self._by_name: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._by_stem: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._by_number: dict[int, list[str]] = defaultdict(list)
        for image_id, rows in roster.rows_by_image.items():
            sample = roster.samples[rows[0]]
            path = sample.image_path
            parts = Path(image_id).parts if is_path_of(sample) else path.parts
            self._by_path[str(path.resolve())] = image_id
            self._by_name[path.name].append((parts, image_id))
            self._by_stem[path.stem].append(((*parts[:-1], path.stem), image_id))
            for number in {one for one in (image_id, path.stem) if one.isdecimal()}:
                self._by_number[int(number)].append(image_id)

    def __call__(self, names: Sequence[str], place: str) -> str | None:
        """The image that the first matching name denotes.

        Raises:
            ValueError: a name matches several images.
        """
        for name in names:
            found = self._found(name)
            if len(found) > 1:
                shown = " and ".join(map(repr, sorted(found)[:2]))
                raise ValueError(
                    f"{place}: {name!r} matches {shown}: write it with its folder, or give image_id"
                )
            if found:
                return found[0]
        return None

    def _found(self, name: str) -> list[str]:
        if name in self._ids:
            return [name]
        if (exact := self._by_path.get(str(Path(name).resolve()))) is not None:
            return [exact]
        wanted = Path(name).parts
        choices = self._by_name.get(wanted[-1] if wanted else "") or self._by_stem.get(name, [])
        if not choices and name.isdecimal():
            return self._by_number.get(int(name), [])
        lengths = {
            image_id: min(len(parts), len(wanted))
            for parts, image_id in choices
            if all(a == b for a, b in zip(reversed(parts), reversed(wanted), strict=False))
        }
        return [i for i, length in lengths.items() if length == max(lengths.values())]


def _coco_names(split: DictConfig) -> dict[str, tuple[str, ...]]:
    """Number, id and file name of each image of COCO's annotations, by number and by id.

    Empty if ``data=own`` reads no such file. Exports of this project store the id as ``roster_id``.
    """
    if split.get("_target_") != f"{read_own.__module__}.{read_own.__qualname__}":
        return {}
    chosen = {"kind": split.get("layout"), "annotations": split.get("annotations")}
    layout = recognise(data_folder(split.folder), **chosen)
    if layout.kind != "coco":
        return {}
    names: dict[str, tuple[str, ...]] = {}
    for source in layout.sources:
        for record in stream_records(str(source.path), "images"):
            number, name = str(record.value.get("id")), str(record.value.get("file_name"))
            own = record.value.get("roster_id")
            called = (number, name) if own is None else (number, str(own), name)
            if names.setdefault(number, called) != called:
                return {}  # two files have the same numbers: these do not say whose they are
            if own is not None:
                names.setdefault(str(own), called)
    return names


def _of_run(place: str, settings: EvaluateSettings) -> _Captioned:
    from captioning.evaluation.predict import predict_run  # slow to import, needed here only

    predictions, roster, decoding = predict_run(
        Path(place),
        settings.data,
        split=settings.split,
        search=settings.search,
        rerank=settings.rerank,
        constraints=settings.constraints,
        detections=settings.detections,
        imported=settings.imported,
        entities=settings.entities.chosen(),
        first_images=settings.first_images,
        device=settings.device,
        precision=settings.precision,
        accept_changes=settings.accept_changes,
    )
    out = Path(settings.out or Path(place) / _folder(settings) / roster.name.replace("/", "-"))
    return _written(predictions, roster, out, decoding)


def _of_model(place: str, settings: EvaluateSettings) -> _Captioned:
    """Caption a dataset with any captioner, as ``captioning caption --model`` does."""
    from captioning.evaluation.predict import predict_photos

    of_runs = {"rerank": settings.rerank, "constraints": settings.constraints}
    of_runs |= {"detections": settings.detections, "imported": settings.imported}
    of_runs |= {"entities": settings.entities.chosen()}
    if others := [key for key, value in of_runs.items() if value]:
        raise ValueError(f"{others[0]}= is for run=FOLDER: leave it out with model=")
    data = _data_of(settings)
    out = Path(settings.out or _folder_of_model(place, settings, data))
    _check_free(out, place, data)
    photos = DataSettings(
        data=data,
        paths=settings.paths,
        seed=settings.seed or 0,
        first_images=settings.first_images,
        steps=settings.steps,
    )
    roster = read_roster(photos, settings.split)
    predictions, decoding = predict_photos(
        place,
        roster,
        search=settings.search,
        prompt=settings.prompt,
        template=settings.template,
        device=settings.device,
        precision=settings.precision,
    )
    return _written(predictions, roster, out, decoding)


def _written(
    predictions: Sequence[Sequence[Prediction]],
    roster: Roster,
    out: Path,
    decoding: dict[str, Any],
) -> _Captioned:
    write_captions(out, predictions, roster.samples)
    captions = {group[0].image_id: [p.caption for p in group] for group in predictions}
    return _Captioned(captions=captions, roster=roster, out=out, decoding=decoding)


def _folder(settings: EvaluateSettings) -> str:
    """Folder for results in the run: "evaluation", or a folder of its own for a trial."""
    return f"first{settings.first_images}" if settings.first_images else "evaluation"


def _folder_of_model(place: str, settings: EvaluateSettings, data: Data) -> Path:
    """Folder for the scores of a captioner without a run, by captioner, dataset and split."""
    model = Path(place)
    name = f"{model.parent.name}-{model.name}" if model.name.startswith("seed") else model.name
    photos = Path(data.root).name if data.root else data.name
    return Path(settings.paths.runs) / _folder(settings) / name / f"{photos}-{settings.split}"


def _check_free(out: Path, place: str, data: Data) -> None:
    """Raise an error rather than overwrite scores of another captioner or dataset."""
    path = out / "metrics.json"
    if not path.is_file():
        return
    before = read_json(path, dict).get("evaluated") or {}
    other = before.get("captioner") != place
    other |= (before.get("data") or {}).get("root") != data.root
    if other:
        raise ValueError(f"{path} holds the scores of another captioner or set: give out=FOLDER")


def settings_of(config: DictConfig) -> EvaluateSettings:
    """Settings of an evaluation, with all references to other keys resolved.

    See ``OF_RUN`` for references to the config of a run. Where a seed is requested, the run's own
    search gets it, too.

    Args:
        config: composed.

    Raises:
        ValueError: a setting is out of its range, see `captioning.config.check`.
    """
    config, seed = config.copy(), config.seed
    config.seed = 0 if seed is None else seed
    check_config(config, EvaluateSettings)
    trained = DictConfig({})
    # predict_run tells of a folder that is not a run's
    if config.run is not None and (Path(config.run) / "config.yaml").is_file():
        trained = RunFolder(Path(config.run)).config()
    borrowed = [key for key in OF_RUN if config.get(key) is None and trained.get(key) is not None]
    before = {"seed": seed} | {key: config[key] for key in borrowed if key in config}
    with open_dict(config):
        search = trained.get("search") or {}
        if seed is not None and config.get("search") is None and "seed" in search:
            config.search = OmegaConf.merge(search, {"seed": seed})
        config.update({key: trained[key] for key in borrowed})
        OmegaConf.resolve(config)
        # No other data are requested, and metrics.json has what was.
        for key in borrowed:
            del config[key]
        config.update(before)
    return EvaluateSettings.of(config)


def _data_of(settings: EvaluateSettings) -> Data:
    """Dataset of the evaluation, which must have the split."""
    data = settings.data
    if data is None:
        raise ValueError("data=NAME is missing: name the dataset with the references")
    if settings.split not in data.splits:
        splits = ", ".join(key for key in ("train", "val", "test") if key in data.splits)
        raise ValueError(f"data={data.name} has no split {settings.split!r}; it has {splits}")
    return data


def caption_columns(captions: Mapping[str, str], result: MetricResult) -> dict[str, list[Any]]:
    """Columns ``image_id``, ``caption`` and each score; None for an image without a score.

    Args:
        captions: the caption of each image.
        result: their scores.
    """
    # lone surrogates, which JSON can hold and UTF-8 cannot, become "?" as they do before scoring
    texts = [text.encode(errors="replace").decode() for text in captions.values()]
    ids = [image_id.encode(errors="replace").decode() for image_id in captions]
    rows = [result.per_image.get(image_id, {}) for image_id in captions]
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        "image_id": ids,
        "caption": texts,
        **{name: [row.get(name) for row in rows] for name in names},
    }


def write_csv(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Write columns of equal length as CSV in UTF-8 with a header; None is an empty cell."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    write_atomically(path, write)


def write_parquet(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Write columns of equal length as Parquet.

    Raises:
        ModuleNotFoundError: pyarrow is not installed; the message says how to install it.
    """
    parquet = import_extra("pyarrow.parquet", extra="arrow", purpose=path.name)
    arrow = import_extra("pyarrow", extra="arrow", purpose=path.name)
    table = arrow.table(dict(columns))
    write_atomically(path, lambda part: parquet.write_table(table, part))


def write_per_caption(folder: Path, columns: Mapping[str, list[Any]]) -> list[str]:
    """Write ``per_caption.csv`` and ``per_caption.parquet`` into a folder.

    Returns:
        What is missing and the remedy: a line if pyarrow is not installed; an old Parquet file is
            then removed.
    """
    write_csv(folder / f"{NAME}.csv", columns)
    try:
        write_parquet(folder / f"{NAME}.parquet", columns)
    except ModuleNotFoundError as error:
        (folder / f"{NAME}.parquet").unlink(missing_ok=True)
        return [f"left out: {error}"]
    return []


def show_evaluation(evaluation: Evaluation) -> None:
    """Print corpus scores with intervals, missing metrics with reasons, and the files' folder."""
    console, result = Console(), evaluation.result
    num_images = evaluation.num_images
    console.print(_table(result, evaluation.name))
    for line in _left_out(result):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"{result.settings['num_images']} of {num_images} images scored", markup=False)
    if result.settings["num_empty_candidates"]:
        console.print(f"{result.settings['num_empty_candidates']} captions are empty")
    written = evaluation.folder / "metrics.json"
    console.print(f"written: {written}", markup=False, soft_wrap=True)
    for line in evaluation.left_out:
        print(line)


def _table(result: MetricResult, title: str) -> Table:
    table = Table(title=title, caption=f"tokenizer: {result.settings['tokenizer']}")
    table.add_column("metric")
    table.add_column("score", justify="right")
    if result.intervals:
        confidence = result.settings["bootstrap"]["confidence"]
        table.add_column(f"{confidence:.0%} interval over images")
    for name, score in result.corpus.items():
        ends = result.intervals.get(name)
        table.add_row(name, f"{score:.4f}", f"{ends[0]:.4f} to {ends[1]:.4f}" if ends else "")
    for name in result.missing:
        table.add_row(name, "missing")
    return table


def _left_out(result: MetricResult) -> list[str]:
    """Lines on missing or unusual scores with their remedies, one line per reason."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in result.missing.items():
        names_by_reason.setdefault(reason, []).append(name)
    lines = [f"missing: {', '.join(names)}: {why}" for why, names in names_by_reason.items()]
    reason = result.settings.get("tokenizer_reason")
    if reason is not None:
        lines.append(
            f"captions were tokenized in Python, nearly as Java does for published scores: {reason}"
        )
    if "SPICE" in result.missing and not _has_java():
        lines.append("with Java, SPICE needs its jars, too: `captioning prepare metrics`")
    return lines


def _has_java() -> bool:
    try:
        find_java()
    except JavaError:
        return False
    return True
