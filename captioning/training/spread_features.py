"""Features of photos computed by many processes, and written by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from captioning.config.build import build_part
from captioning.data.features.build import Elsewhere
from captioning.data.features.extraction import Extraction, Photo, Records
from captioning.runtime.devices import by_device, chosen_device
from captioning.spread.base import Job
from captioning.spread.local import Local
from captioning.training.settings import PrepareSettings
from captioning.vision.photos import load_rgb

FOLDER = "parts"


class FeatureWorker:
    """Computes features in any process.

    Args:
        values: the config group ``features``, plain.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        chosen = OmegaConf.create(values)
        backbone = build_part(chosen.backbone)
        device = chosen_device(chosen.get("device", "auto"))
        precision = chosen.get("precision", "float32")
        self.identity = backbone.identity
        self._batch_size = chosen.get("batch_size")
        self._num_threads = chosen.get("num_workers") or torch.get_num_threads()
        self._extraction = Extraction(backbone, chosen.kind, load_rgb, device, precision)

    def __call__(self, items: Sequence[Photo]) -> Records:
        """A record ``(R, D) float16`` a photo."""
        batches = self._extraction.in_batches(items, self._batch_size, self._num_threads)
        return [record for records in batches for record in records]


def spread_features(settings: PrepareSettings, identity: str) -> Elsewhere | None:
    """What computes features as ``settings.spread`` says; None: this process itself.

    Args:
        settings: with ``features`` and ``spread``.
        identity: of the backbone that this process has built.
    """
    spread = None if settings.spread is None else build_part(settings.spread)
    if spread is None or isinstance(spread, Local):
        return None
    chosen = settings.features
    backbone = OmegaConf.to_container(chosen.backbone, resolve=True)
    values: dict[str, Any] = {"backbone": backbone, "kind": chosen.kind, **chosen.further}
    device = values.get("device", "auto")
    # At least: threads work on several batches of them; on a GPU they decode one beside another.
    at_once = by_device(chosen_device(device), processor=64, gpu=512)
    batch_size = values.get("batch_size") or 64

    def computed(photos: Sequence[Photo]) -> Iterator[Records]:
        job = Job(
            name="features",
            build=partial(FeatureWorker, values),
            items=photos,
            unit=-(-at_once // batch_size) * batch_size,
            save_every=values.get("chunk_size", 512),
            settings=values | {"identity": identity},
            folder=Path(values["folder"]) / FOLDER,
            form="arrays",
            check=partial(_check, identity),
            plugins=list(settings.plugins),
            uses_gpu=device != "cpu",
        )
        return spread.results(job)

    return computed


def _check(expected: str, identity: str) -> None:
    if identity != expected:
        raise ValueError(
            f"features: a worker has the backbone {identity}, this machine {expected}; give all "
            "machines the same weights"
        )
