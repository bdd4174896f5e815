"""Visual gain: how much a photo helps a trained captioner to predict a caption."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from PIL import Image
from torch import Tensor, nn

from captioning.config.ranges import Device, PositiveInt
from captioning.data.batches.datamodule import CaptionDataModule
from captioning.data.batches.settings import LoaderSettings, Splits
from captioning.data.roster import build_roster
from captioning.inference.captioner import Captioner
from captioning.inference.photo_batches import photo_samples
from captioning.runtime.devices import full_precision, leave
from captioning.runtime.tensor_files import weights_digest
from captioning.types import Sample

BLIND = Image.new("RGB", (64, 64), (124, 116, 104))  # the mean colour of photos of ImageNet


class VisualGainScorer:
    """Log-probability of the caption with the photo minus with a plain grey one, in nats.

    A `captioning.interfaces.PairScorer`. The difference removes what language alone predicts, so it
    measures which parts of a caption the captioner sees.

    Args:
        captioner: captioner that gives log-probabilities of captions.
        identity: identity of the captioner's weights and settings.
        batch_size: captions per batch.

    Raises:
        ValueError: the captioner reads boxes.
    """

    is_probability = False

    def __init__(self, *, captioner: Captioner, identity: str, batch_size: int = 64) -> None:
        if captioner.takes_boxes:
            raise ValueError(
                "this captioner reads boxes, which pairs of photo and caption lack: choose one "
                "that reads whole photos"
            )
        self._captioner, self._weights, self._batch_size = captioner, identity, batch_size

    @property
    def name(self) -> str:
        """See `PairScorer`."""
        return f"visual gain ({type(self._captioner.model).__name__})"

    @property
    def identity(self) -> str:
        """See `PairScorer`."""
        return f"visual gain {self._weights}"

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Scores in nats, of any sign; see `PairScorer`.

        Raises:
            ValueError: the captioner gives no log-probability of a caption.
        """
        with tempfile.TemporaryDirectory() as folder:
            opened, names = photo_samples([*photos, BLIND], None, Path(folder))
            by_name = {sample.image_id: sample for sample in opened}
            *seen, blind = (by_name[name] for name in names)
            pairs = [
                *(replace(seen[n], caption=c) for n, c in zip(photo_of, captions, strict=True)),
                *(replace(blind, caption=caption) for caption in captions),
            ]
            losses = self._losses(pairs)
        return losses[len(captions) :] - losses[: len(captions)]

    @torch.inference_mode()
    def _losses(self, pairs: Sequence[Sample]) -> Tensor:
        """``(N,)`` negative log-likelihood of each caption, in nats."""
        numbered = [replace(p, row=row, sample_id=str(row)) for row, p in enumerate(pairs)]
        roster = build_roster("pairs", numbered)
        model = self._captioner.model
        for network in _networks(self._captioner):
            network.to(self._captioner.device)
        datamodule = CaptionDataModule(
            splits=Splits(train=roster, val=roster),
            tokenizer=model.tokenizer,
            readers=self._captioner.readers,
            loader=LoaderSettings(batch_size=self._batch_size),
        )
        losses = torch.empty(len(pairs))
        for batch in datamodule.probe_dataloader():
            with full_precision():  # scores are kept
                nll = model.losses(batch.to(self._captioner.device)).nll
            if nll is None:
                raise ValueError(
                    f"{type(model).__name__} does not compute log-probabilities of captions: set "
                    "scorer.model to another captioner"
                )
            losses[batch.rows] = nll.float().cpu()
        return losses

    def release(self) -> None:
        """Move the networks off their device; the next call moves them back."""
        for network in _networks(self._captioner):
            leave(network, self._captioner.device)


@lru_cache(maxsize=1)  # what selects and what amends may share it
def build_visual_gain(
    *, model: str | None = None, batch_size: PositiveInt = 64, device: Device = "auto"
) -> VisualGainScorer:
    """Build the scorer of visual gain from a trained captioner.

    Args:
        model: folder of a run, of ``captioning export``, or of an image-to-text model of
            transformers such as BLIP; or ``OWNER/NAME@COMMIT`` of the hub. None: the shipped one.
        batch_size: captions per batch.
        device: the device of its networks.

    Raises:
        FileNotFoundError, ValueError, ConnectionError: see `Captioner.load`.
    """
    with torch.inference_mode(False), torch.random.fork_rng():  # of a training that is under way
        captioner = Captioner.load(model, device=device)
    identity = _identity(captioner)
    return VisualGainScorer(captioner=captioner, identity=identity, batch_size=batch_size)


def _identity(captioner: Captioner) -> str:
    """Hash of everything the log-probabilities depend on, 32 hex digits."""
    record: dict[str, Any] = {}
    captioner.model.on_save_checkpoint(record)  # with the tokenizer
    settings = [OmegaConf.to_yaml(captioner.config[name]) for name in ("model", "features")]
    parts = [*settings, record, *map(weights_digest, _networks(captioner))]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:32]


def _networks(captioner: Captioner) -> list[nn.Module]:
    """Networks of the scorer: the captioner's own, and the backbone that reads photos."""
    return [network for network in (captioner.model, captioner.backbone) if network is not None]
