"""BLIP scores of photo-caption pairs (Li et al., 2022, section 3.2): matching and contrast."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from captioning.config.ranges import Device, PositiveInt
from captioning.runtime.devices import Precision, Resident
from captioning.runtime.files import read_json
from captioning.runtime.model_folder import damage_named, load_network, model_folder
from captioning.runtime.processors import load_processor, refuse_misfit
from captioning.runtime.tensor_files import weights_digest
from captioning.text.lengths import ReadingLimit

MAX_TOKENS = 35  # of a caption, as BLIP was trained
Head = Literal["itm", "itc"]


class BlipMatching:
    """BLIP for retrieval that scores how well captions fit photos; a `PairScorer`.

    Args:
        network: a ``BlipForImageTextRetrieval``.
        processor: processor of photos and texts.
        space: name of the weights, used in score names.
        head: ``"itm"``: match probability by the matching head, which reads caption and
            photo together; ``"itc"``: cosine of both embeddings, which is faster.
        precision: the network's precision.
        batch_size: number of pairs per batch.
        device: device of the network.
    """

    def __init__(
        self,
        *,
        network: Any,
        processor: Any,
        space: str,
        head: Head = "itm",
        precision: Precision = "auto",
        batch_size: int = 64,
        device: str = "auto",
    ) -> None:
        if head not in ("itm", "itc"):
            raise ValueError(f"head must be itm or itc: got {head!r}")
        self._digest = weights_digest(network)
        self._place = Resident(network, device=device, precision=precision)
        self._processor, self._space, self._head = processor, space, head
        self._batch_size = batch_size
        self._limit = ReadingLimit(space, MAX_TOKENS)

    @property
    def name(self) -> str:
        """Name of the score with the weights' name; see `PairScorer`."""
        what = "probability of a match" if self.is_probability else "cosine of photo and caption"
        return f"{what} ({self._space})"

    @property
    def identity(self) -> str:
        """Cache key of scorer and weights; see `PairScorer`."""
        return f"blip-{self._head}-{self._space}-{self._digest}-{str(self._place.dtype)[6:]}"

    @property
    def is_probability(self) -> bool:
        """Whether scores are probabilities; see `PairScorer`."""
        return self._head == "itm"

    def prepare(self, photo: Image.Image) -> Tensor:
        """Return pixels ``(3, H, W) float32``, which `score_pairs` accepts instead of a photo."""
        return self._processor.image_processor(images=[photo], return_tensors="pt")["pixel_values"][
            0
        ]

    def release(self) -> None:
        """Move the network to the CPU; the next call moves it back."""
        self._place.release()

    def score_pairs(
        self, photos: Sequence[Image.Image], captions: Sequence[str], photo_of: Sequence[int]
    ) -> Tensor:
        """Return probabilities in [0, 1], or cosines in [-1, 1]; see `PairScorer`."""
        with self._place.used() as network:
            return self._scores(network, photos, captions, photo_of)

    def _scores(
        self,
        network: Any,
        photos: Sequence[Image.Image],
        captions: Sequence[str],
        photo_of: Sequence[int],
    ) -> Tensor:
        starts = self._starts(len(photos))
        states = torch.cat(
            [self._states(network, photos[k : k + self._batch_size]) for k in starts]
        )
        # Captions of similar length share a batch, to save padding.
        order = sorted(range(len(captions)), key=lambda n: len(captions[n]))
        scores = torch.empty(len(captions))
        for start in self._starts(len(order)):
            part = order[start : start + self._batch_size]
            rows = torch.tensor([photo_of[n] for n in part], device=states.device)
            texts = [captions[n] for n in part]
            scores[part] = self._judged(network, states[rows], texts).float().cpu()
        return scores

    def _starts(self, total: int) -> range:
        return range(0, total, self._batch_size)

    def _states(self, network: Any, photos: Sequence[Image.Image | Tensor]) -> Tensor:
        """Return image states ``(I, 1 + patches, D)`` of photos or of results of `prepare`."""
        pixels = torch.stack(
            [photo if isinstance(photo, Tensor) else self.prepare(photo) for photo in photos]
        ).to(self._place.device, self._place.dtype)
        return network.vision_model(pixels).last_hidden_state

    def _judged(self, network: Any, states: Tensor, captions: list[str]) -> Tensor:
        """Return scores ``(B,)`` of captions and their photos' states ``(B, 1 + patches, D)``."""
        tokens = self._processor.tokenizer(
            captions, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        ).to(states.device)
        self._limit.look((tokens["attention_mask"].sum(1) >= MAX_TOKENS).tolist())
        inputs = {"input_ids": tokens["input_ids"], "attention_mask": tokens["attention_mask"]}
        if self._head == "itm":
            mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
            text = network.text_encoder(
                **inputs, encoder_hidden_states=states, encoder_attention_mask=mask
            ).last_hidden_state[:, 0]
            return network.itm_head(text).float().softmax(-1)[:, 1]
        text = network.text_encoder(**inputs).last_hidden_state[:, 0]
        return nn.functional.cosine_similarity(
            network.vision_proj(states[:, 0]).float(), network.text_proj(text).float()
        )


@lru_cache(maxsize=1)  # what selects and what amends may share it
def build_blip_matching(
    *,
    name: str = "Salesforce/blip-itm-base-coco",
    head: Head = "itm",
    precision: Precision = "auto",
    batch_size: PositiveInt = 64,
    device: Device = "auto",
) -> BlipMatching:
    """Build a BLIP pair scorer, with weights from safetensors only.

    Args:
        name: folder or hub name of a BLIP for retrieval.
        head: see `BlipMatching`.
        precision: ``"auto"``: half precision on a GPU.
        batch_size: number of pairs per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError: the folder or a file in it does not exist.
        ConnectionError: the hub cannot be reached.
        ValueError: weights of another architecture or task, or a wrong processor.
    """
    folder = model_folder(name, instead="matching=joint_space, which needs no download")
    with damage_named(name):
        kind = read_json(folder / "config.json").get("model_type")
    if kind != "blip":
        raise ValueError(
            f"{name} is {kind!r}, not BLIP; give a BLIP for retrieval such as "
            "Salesforce/blip-itm-base-coco"
        )
    from transformers import BlipForImageTextRetrieval

    network = load_network(
        BlipForImageTextRetrieval,
        folder,
        name=name,
        kind="a BLIP with a matching head",
        hint=": is it BLIP for another task? give one for retrieval, such as "
        "Salesforce/blip-itm-base-coco",
    )
    processor = load_processor(folder)
    options: dict[str, Any] = {"head": head, "precision": precision, "device": device}
    with refuse_misfit(name, processor, network):
        scorer = BlipMatching(
            network=network,
            processor=processor,
            space=Path(name).name,
            batch_size=batch_size,
            **options,
        )
        scorer.score_pairs([Image.new("RGB", (32, 24), "grey")], ["a photo"], [0])
    scorer.release()
    return scorer
