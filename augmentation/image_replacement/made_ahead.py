"""Generate images before training: ``captioning augment pictures data=NAME [spread=ray]``.

Training with ``curation=replace_image`` takes them from the cache, where no machine has to draw at
an epoch's end. Settings are in ``configs/pictures.yaml``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.progress import Progress

from augmentation.base import ImageRequest, Picture
from augmentation.image_replacement.generated import GeneratedImages
from captioning.config.build import build_part
from captioning.config.ranges import Name, PositiveInt, Seed
from captioning.config.tasks import plain
from captioning.data.roster import CurationView, Roster
from captioning.spread.base import AbstractSpread, Job
from captioning.spread.local import chosen_spread
from captioning.training.rosters import read_with_steps
from captioning.training.settings import NO_STEPS, Data, DataSettings, Part, Paths

FOLDER = "parts"


class PictureWorker:
    """Generates images in any process, into the cache that all processes share.

    Args:
        values: the part of the source of pictures, plain.
        seed: seed of the run that will take them.

    Raises:
        ValueError: the image source generates no images.
    """

    def __init__(self, values: dict[str, Any], seed: int) -> None:
        # work ahead would be a second process with the same model
        alone = {"ahead": False} if "ahead" in values else {}
        source = build_part(OmegaConf.create(values), **alone)
        if not isinstance(source, GeneratedImages):
            raise ValueError(
                f"{values.get('_target_')} generates no images: choose another "
                "curation/image_source, such as stable_diffusion_1_5"
            )
        self._source, self._seed = source, seed
        source.ready()
        self.identity = source.recipe()

    def __call__(self, items: Sequence[ImageRequest]) -> list[dict[str, Any]]:
        """Return the result of each request as plain values."""
        return [
            {
                "path": picture.path and str(picture.path),
                "origin": picture.origin,
                "problem": picture.problem,
                "notes": list(picture.notes),
            }
            for picture in self._source.images(items, seed=self._seed)
        ]


def drawn_pictures(
    source: Part,
    requests: Sequence[ImageRequest],
    *,
    spread: AbstractSpread,
    seed: int,
    plugins: Sequence[str] = (),
) -> Iterator[Picture]:
    """Generate images for requests, in order.

    Args:
        source: source of pictures.
        requests: at most one a sample.
        spread: runs the generation.
        seed: the run's seed.
        plugins: see `Job`.
    """
    values = plain(source)
    generator, cache = values.get("generator"), values.get("cache")
    if not isinstance(generator, dict) or not isinstance(cache, dict):
        raise ValueError("image_source must generate images; choose another image_source")
    batch_size = generator.get("batch_size", 1)
    job = Job(
        name="pictures",
        build=partial(PictureWorker, values, seed),
        items=requests,
        unit=batch_size,
        save_every=4 * batch_size,
        settings={"source": values, "seed": seed},
        folder=Path(cache["folder"]) / FOLDER,
        plugins=plugins,
    )
    with Progress(transient=True) as bar:
        task = bar.add_task("pictures", total=len(requests))
        for records in spread.results(job):
            yield from map(_picture, records)
            bar.advance(task, len(records))


def _picture(record: dict[str, Any]) -> Picture:
    path = record["path"] and Path(record["path"])
    values = {"origin": record["origin"], "problem": record["problem"]}
    return Picture(path=path, notes=tuple(record["notes"]), **values)


def all_requests(roster: Roster) -> list[ImageRequest]:
    """Build the request for each caption's first replacement, equal to curation's request."""
    view = CurationView(roster=roster)
    requests = []
    for sample in roster.samples:
        others = (other.caption for other in view.pool(sample.image_id))
        captions = tuple(dict.fromkeys((sample.caption, *others)))
        photos = view.photos(sample.sample_id)
        requests.append(ImageRequest(sample=sample, captions=captions, photos=photos))
    return requests


def make_ahead(
    *,
    data: Data,
    paths: Paths,
    curation: Mapping[str, Part | None],
    split: Name = "train",
    first_images: PositiveInt | None = None,
    steps: Mapping[str, Part] = NO_STEPS,
    seed: Seed = 0,
    spread: Part | None = None,
    plugins: Sequence[Name] = (),
) -> dict[str, int]:
    """Generate the images for a dataset's captions.

    Args:
        data: the dataset.
        paths: folders.
        curation: ``image_source``, which makes pictures, and the ``prompt`` that it may refer to.
        split: of the dataset.
        first_images: photos read; None: all.
        steps: the data's steps.
        seed: seed of the training that takes the pictures.
        spread: runs the generation; None: this process does.
        plugins: packages that other processes import.

    Returns:
        Numbers of pictures, and of captions without one by the reason.

    Raises:
        ValueError: wrong settings or data.
        OSError: the cache cannot be written.
    """
    source = curation.get("image_source")
    if source is None:
        raise ValueError("curation/image_source is missing: choose an image source")
    read = {"first_images": first_images, "steps": steps, "seed": seed}
    roster, _ = read_with_steps(DataSettings(data=data, paths=paths, **read), split)
    where = chosen_spread(spread)
    requests = all_requests(roster)
    pictures = drawn_pictures(source, requests, spread=where, seed=seed, plugins=list(plugins))
    return dict(Counter(picture.problem or "made" for picture in pictures))
