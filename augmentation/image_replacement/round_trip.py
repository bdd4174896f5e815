"""Round-trip evaluation of generated images: ``captioning augment round-trip``.

Section 3.3 and Table 1 of Li, Lotz, Qiu and Elliott, "The Role of Data Curation in Image
Captioning": pictures are made for the captions of validation photos, a fixed captioner describes
them, and its captions are scored against the photos' own. The nearer these scores are to the scores
of captions of the real photos, the upper bound, the better the pictures. A call is one row of the
table and leaves a run folder; ``-m`` makes them all (see ``configs/round_trip.yaml``),
`captioning.results.table` puts them side by side.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from augmentation.base import AbstractImageSource, ImageRequest, Picture
from augmentation.image_replacement.made_ahead import drawn_pictures
from captioning.config.build import build_part
from captioning.config.ranges import Device, Name, PositiveInt, Seed
from captioning.config.tasks import recorded
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
from captioning.training.settings import Data, DataSettings, Metrics, Part, Paths

log = logging.getLogger(__name__)

Per = Literal["photo", "caption"]
CONFIG, PICTURES, METRICS = "config.yaml", "pictures.jsonl", "metrics.json"


def image_requests(roster: Roster, per: Per = "photo") -> dict[str, ImageRequest]:
    """Request an image of each photo's first caption, by image id.

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
    """Generate an image for each photo, by image id, or for each caption, by sample id.

    Args:
        source: makes or retrieves them; None: the photos themselves.
        roster: photos with captions.
        seed: seed of the pictures.
        per: unit that gets a picture each.
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
    """Write images with the photos' captions as a dataset that `read_jsonl` can read.

    Returns:
        The folder to which the pictures' names are relative.

    Raises:
        ValueError: there are no images to write.
    """
    files = {key: drawn.path.resolve() for key, drawn in pictures.items() if drawn.path}
    if not files:
        problems = Counter(picture.problem for picture in pictures.values())
        raise ValueError(f"no image could be generated; reasons and counts: {dict(problems)}")
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


def round_trip(
    *,
    paths: Paths,
    data: Data,
    metrics: Metrics,
    curation: Mapping[str, Part | None],
    spread: Part | None = None,
    captioner: Name | None,
    split: Name = "val",
    per: Per = "photo",
    first_images: PositiveInt | None = None,
    seed: Seed = 0,
    device: Device = "auto",
    generator: Name,
    prompt: Name,
    out: Name,
    plugins: Sequence[Name] = (),
) -> dict[str, float]:
    """Evaluate one row of the table.

    Pictures that could not be made are counted and left out of the scores.

    Args:
        paths: folders.
        data: the dataset.
        metrics: metrics of the captions.
        curation: ``image_source``, which makes pictures (without it the photos are captioned), and
            the ``prompt`` that it may refer to.
        spread: runs the generation; None: this process does.
        captioner: folder of the run that captions them.
        split: of the dataset.
        per: unit that gets a picture each.
        first_images: photos read; None: all.
        seed: seed of the pictures.
        device: device of the captioner.
        generator, prompt: names of the row.
        out: folder of the row.
        plugins: packages that other processes import.

    Returns:
        The corpus scores.

    Raises:
        ValueError: the captioner is missing, the folder has other settings, or no image exists.
        OSError: no captioner in its folder, or files that cannot be read or written.
    """
    # who makes the pictures is no setting that a row depends on
    row = {name: value for name, value in recorded(locals()).items() if name != "spread"}
    if captioner is None:
        raise ValueError("captioner is missing: give captioner=RUN_FOLDER of a trained captioner")
    folder = Path(out)
    if (folder / METRICS).is_file():
        _refuse_other(row, folder)
        return dict(read_json(folder / METRICS)[split]["corpus"])
    _check_captioner(RunFolder(Path(captioner)))
    source = curation.get("image_source")
    if source is None and per == "caption":
        raise ValueError("per=caption needs generated images; use per=photo with photos")
    where, elsewhere = chosen_spread(spread), None
    if source is not None and not isinstance(where, Local):
        elsewhere = partial(drawn_pictures, source, spread=where, seed=seed, plugins=list(plugins))
    maker = None if source is None or elsewhere else build_part(source)
    read = DataSettings(data=data, paths=paths, seed=seed, first_images=first_images)
    roster = read_roster(read, split)
    pictures = make_pictures(maker, roster, elsewhere=elsewhere, seed=seed, per=per)
    write_text(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(row)))
    write_json(folder / "versions.json", versions())
    place = write_pictures(pictures, roster, folder / PICTURES)
    shown = _data(roster.name, folder / PICTURES, place)
    predictions, seen, decoding = predict_run(Path(captioner), shown, split=split, device=device)
    captions = {group[0].image_id: [p.caption for p in group] for group in predictions}
    asked = {"metrics": list(metrics.test), "tokenizer": metrics.tokenizer}
    result = evaluate_all(captions, seen, decoding=decoding, **asked)
    write_results(folder / "predictions.json", [group[0] for group in predictions])
    counts = Counter(note for picture in pictures.values() for note in picture.notes)
    counts.update(picture.problem for picture in pictures.values() if picture.problem)
    made = {"pictures": len(captions), "photos": len(pictures), "notes": dict(counts)}
    write_json(folder / METRICS, {split: result.to_dict(), "made": made})
    log.info(f"{folder}: evaluated {made}")
    return result.corpus


def _check_captioner(run: RunFolder) -> None:
    """Raise an error if a run cannot caption, before images are generated, which takes hours."""
    run.tested_checkpoint(run.config().monitor)


def _data(name: str, pictures: Path, folder: Path) -> DictConfig:
    """Config of a dataset that reads the images for every split."""
    reader = {
        "_target_": "captioning.data.readers.jsonl.read_jsonl",
        "name": name,
        "annotations": str(pictures),
        "image_folder": str(folder),
    }
    return OmegaConf.create({"name": name, **dict.fromkeys(("train", "val", "test"), reader)})


def _refuse_other(row: Mapping[str, Any], out: Path) -> None:
    kept: Any = OmegaConf.to_container(read_folder_config(out / CONFIG), resolve=True)
    before = {"per": "photo", **kept}  # rows of earlier versions do not name it
    if before != row:
        raise ValueError(f"{out} holds results of other settings; choose another out=")
