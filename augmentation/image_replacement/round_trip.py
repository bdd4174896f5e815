"""Round-trip evaluation of generated pictures: ``captioning augment round-trip``.

Section 3.3 and Table 1 of Li, Lotz, Qiu and Elliott, "The Role of Data Curation in Image
Captioning": pictures are made for the captions of validation photos, a fixed captioner describes
them, and its captions are scored against the photos' own. A model's pictures are as good as the
captioner's captions of them are near to those of the real photos, which are the upper bound. A
call is one row of the table and leaves a run folder; ``-m`` makes them all (see
``configs/round_trip.yaml``), `captioning.results.table` puts them side by side.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from omegaconf import DictConfig, OmegaConf

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.image_replacement.made_ahead import drawn_pictures
from captioning.config.build import build_part
from captioning.data.roster import Roster
from captioning.evaluation.predict import predict_run
from captioning.metrics.evaluation import evaluate_all
from captioning.results.coco_results import write_results
from captioning.results.folder_config import read_folder_config
from captioning.results.run_folder import RunFolder
from captioning.results.versions import versions
from captioning.runtime.files import read_json, write_json, write_lines, write_text
from captioning.spread.local import Local, chosen_spread
from captioning.training.rosters import read_roster
from captioning.training.settings import DataSettings

log = logging.getLogger(__name__)

Per = Literal["photo", "caption"]
CONFIG, PICTURES, METRICS = "config.yaml", "pictures.jsonl", "metrics.json"


def image_requests(roster: Roster, per: Per = "photo") -> dict[str, ImageRequest]:
    """A request for each photo, for a picture of its first caption, by image id.

    With ``per="caption"`` one for each caption, by sample id.
    """
    requests = {}
    for image_id, rows in roster.rows_by_image.items():
        samples = [roster.samples[row] for row in rows]
        captions = [sample.caption for sample in samples]
        for sample in samples if per == "caption" else samples[:1]:
            own_first = (sample.caption, *(c for c in captions if c != sample.caption))
            requests[sample.sample_id if per == "caption" else image_id] = ImageRequest(
                sample=sample,
                captions=own_first if per == "caption" else tuple(captions),
                photos=(sample.image_path,),
            )
    return requests


def make_pictures(
    source: AbstractImageSource | None,
    roster: Roster,
    *,
    seed: int,
    per: Per = "photo",
    elsewhere: Callable[[Sequence[ImageRequest]], Iterator[Picture]] | None = None,
) -> dict[str, Picture]:
    """A picture for each photo of a roster, by image id, or for each caption, by sample id.

    Args:
        source: makes or retrieves them; None: the photos themselves.
        roster: photos with captions.
        seed: of the pictures.
        per: what gets a picture each.
        elsewhere: other processes that make them; None: this one.
    """
    by_name = image_requests(roster, per)
    requests = list(by_name.values())
    if elsewhere is not None:
        pictures = list(elsewhere(requests))
    elif source is None:
        pictures = [Picture(path=request.photos[0], origin="photo") for request in requests]
    else:
        try:
            source.start(roster)
            pictures = source.images(requests, seed=seed)
        finally:
            source.close()
    return dict(zip(by_name, pictures, strict=True))


def write_pictures(pictures: dict[str, Picture], roster: Roster, path: Path) -> Path:
    """Write pictures with the photos' captions as a data set that `read_jsonl` reads.

    Returns:
        The folder to which the pictures' names are relative.

    Raises:
        ValueError: there is no picture at all.
    """
    files = {key: drawn.path.resolve() for key, drawn in pictures.items() if drawn.path}
    if not files:
        problems = Counter(picture.problem for picture in pictures.values())
        raise ValueError(f"no picture could be made: {dict(problems)}")
    folder = Path(os.path.commonpath([file.parent for file in files.values()]))

    def rows_of(name: str) -> Sequence[int]:
        sample = roster.by_id.get(name)  # of pictures of single captions
        return roster.rows_by_image[name if sample is None else sample.image_id]

    records = [
        {
            "image": file.relative_to(folder).as_posix(),
            "image_id": image_id,
            "captions": [roster.samples[row].caption for row in rows_of(image_id)],
            "origin": pictures[image_id].origin,
        }
        for image_id, file in files.items()
    ]
    write_lines(path, (json.dumps(record, ensure_ascii=False) for record in records))
    return folder


def round_trip(config: DictConfig) -> dict[str, float]:
    """One row of the table.

    Pictures that could not be made are counted and left out of the scores.

    Returns:
        The corpus scores.

    Raises:
        ValueError: no captioner, a folder with a row of other settings, or no picture at all.
        OSError: no captioner in its folder, or files that cannot be read or written.
    """
    if config.captioner is None:
        raise ValueError("captioner is missing: give captioner=RUN_FOLDER of a trained captioner")
    out = Path(config.out)
    if (out / METRICS).is_file():
        _refuse_other(config, out)
        return dict(read_json(out / METRICS)[config.split]["corpus"])
    _check_captioner(RunFolder(Path(config.captioner)))
    settings = config.curation.get("image_source")
    if settings is None and config.per == "caption":
        raise ValueError("per=caption is for pictures that are made; with photos use per=photo")
    spread, elsewhere = chosen_spread(config), None
    if settings is not None and not isinstance(spread, Local):
        options = {"seed": config.seed, "plugins": list(config.get("plugins") or [])}
        elsewhere = partial(drawn_pictures, settings, spread=spread, **options)
    source = None if settings is None or elsewhere else build_part(settings)
    roster = read_roster(DataSettings.of(config), config.split)
    options = {"seed": config.seed, "per": config.per}
    pictures = make_pictures(source, roster, elsewhere=elsewhere, **options)
    write_text(out / CONFIG, OmegaConf.to_yaml(_row(config), resolve=True))
    write_json(out / "versions.json", versions())
    folder = write_pictures(pictures, roster, out / PICTURES)
    data = _data(roster.name, out / PICTURES, folder)
    predictions, picture_roster, decoding = predict_run(
        Path(config.captioner), data, split=config.split, device=config.device
    )
    captions = {group[0].image_id: [p.caption for p in group] for group in predictions}
    metrics = {"metrics": list(config.metrics.test), "tokenizer": config.metrics.tokenizer}
    result = evaluate_all(captions, picture_roster, decoding=decoding, **metrics)
    write_results(out / "predictions.json", [group[0] for group in predictions])
    counts = Counter(note for picture in pictures.values() for note in picture.notes)
    counts.update(picture.problem for picture in pictures.values() if picture.problem)
    pictures_made = {"pictures": len(captions), "photos": len(pictures), "notes": dict(counts)}
    write_json(out / METRICS, {config.split: result.to_dict(), "made": pictures_made})
    log.info(f"{out}: {pictures_made}")
    return result.corpus


def _check_captioner(run: RunFolder) -> None:
    """Raise where a run cannot caption, before pictures are drawn: that may take hours."""
    run.tested_checkpoint(run.config().monitor)


def _data(name: str, pictures: Path, folder: Path) -> DictConfig:
    """A data set's config that reads the pictures for every split."""
    reader = {
        "_target_": "captioning.data.readers.jsonl.read_jsonl",
        "name": name,
        "annotations": str(pictures),
        "image_folder": str(folder),
    }
    return OmegaConf.create({"name": name, **dict.fromkeys(("train", "val", "test"), reader)})


def _row(config: DictConfig) -> DictConfig:
    """The settings that a row depends on: who makes the pictures is none of them."""
    return cast(
        "DictConfig", OmegaConf.masked_copy(config, [str(key) for key in config if key != "spread"])
    )


def _refuse_other(config: DictConfig, out: Path) -> None:
    kept: Any = OmegaConf.to_container(read_folder_config(out / CONFIG), resolve=True)
    before = {"per": "photo", **kept}  # rows of earlier versions do not name it
    if before != OmegaConf.to_container(_row(config), resolve=True):
        raise ValueError(f"{out} holds a row of other settings; choose another out=, or remove it")
