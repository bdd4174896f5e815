"""The threshold of a space for which none is known, estimated from pairs of the data."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from PIL import Image

from augmentation.regions.proposal import draw_key
from augmentation.regions.ranking import CosineScorer, Threshold, estimated_threshold
from captioning.data.roster import Roster
from captioning.interfaces import JointEmbedder
from captioning.types import Sample
from captioning.vision.photos import load_rgb

NUM_PAIRS = 300
PHOTOS_AT_ONCE = 64  # in memory; encoders' batches are of 64 or of a divisor of it

log = logging.getLogger(__name__)


def threshold_of_data(roster: Roster, *, encoder: JointEmbedder, seed: int) -> Threshold:
    """`estimated_threshold` of drawn photos, each with its first caption.

    A photo that cannot be opened is passed over, and told in the log; the next one is drawn.

    Args:
        roster: photos with captions.
        encoder: of the space.
        seed: of the draws.

    Raises:
        ValueError: fewer than two photos can be opened.
    """
    ids = sorted(roster.rows_by_image, key=lambda image_id: draw_key(seed, "pairs", image_id))
    samples = (roster.samples[roster.rows_by_image[image_id][0]] for image_id in ids)
    remaining = islice(_opened(samples), NUM_PAIRS)
    kept, vectors = [], []
    while chunk := list(islice(remaining, PHOTOS_AT_ONCE)):
        kept += [sample for sample, _ in chunk]
        vectors.append(encoder.embed_photos([photo for _, photo in chunk]))
    return estimated_threshold(
        torch.cat(vectors) if vectors else torch.zeros(0, 1),
        [sample.caption for sample in kept],
        [sample.image_id for sample in kept],
        scorer=CosineScorer(encoder=encoder),
        seed=seed,
    )


def _opened(samples: Iterable[Sample]) -> Iterator[tuple[Sample, Image.Image]]:
    for sample in samples:
        try:
            photo = load_rgb(sample.image_path)
        except (FileNotFoundError, ValueError) as error:
            log.warning(f"the threshold is estimated without a photo: {error}")
            continue
        yield sample, photo
