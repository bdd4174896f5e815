"""SigLIP, SigLIP 2 and CLIP encoders of transformers, by folder or hub name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from captioning.config.loadable import loadable
from captioning.config.ranges import Device, PositiveInt
from captioning.runtime.devices import Precision, Resident
from captioning.runtime.files import read_json
from captioning.runtime.model_folder import load_network, model_folder
from captioning.runtime.processors import load_processor, refuse_misfit
from captioning.runtime.tensor_files import weights_digest
from captioning.text.lengths import ReadingLimit

KINDS = ("siglip", "siglip2", "clip")


class DualEncoder:
    """Encode photos and texts in one space with two encoders; a `JointEmbedder`.

    Args:
        network: network with ``get_image_features`` and ``get_text_features``.
        processor: processor of photos and texts.
        space: name of the weights; also used in score names.
        precision: precision of the network; embeddings have single precision.
        batch_size: number of photos or texts per batch.
        device: device of the network; ``"auto"`` takes a GPU if there is one.

    Attributes:
        sigmoid: scale and bias of SigLIP's match probability; None for CLIP.
    """

    def __init__(
        self,
        *,
        network: Any,
        processor: Any,
        space: str,
        precision: Precision = "auto",
        batch_size: int = 64,
        device: str = "auto",
    ) -> None:
        self.sigmoid: tuple[float, float] | None = None
        if getattr(network, "logit_bias", None) is not None:
            scale, bias = network.logit_scale.detach(), network.logit_bias.detach()
            self.sigmoid = math.exp(float(scale)), float(bias)
        self._digest = weights_digest(network)
        self._place = Resident(network, device=device, precision=precision)
        self._processor, self.space, self._batch_size = processor, space, batch_size
        # SigLIP was trained on texts padded to one length, and reads the padding without a mask.
        most = int(network.config.text_config.max_position_embeddings)
        self._limit = ReadingLimit(space, most)
        self._text_options: dict[str, Any] = {
            "padding": "max_length" if self.sigmoid else True,
            "max_length": most,
            "truncation": True,
        }

    @property
    def identity(self) -> str:
        """Name and hash of the weights, and the precision."""
        return f"{self.space.replace('/', '-')}-{self._digest}-{str(self._place.dtype)[6:]}"

    @property
    def dim(self) -> int:
        """Embedding size."""
        return int(self.embed_texts(["a"]).shape[1])

    def prepare(self, photo: Image.Image) -> Any:
        """Return the network's input, which `embed_photos` accepts instead of a photo."""
        return self._processor(images=[photo], return_tensors="pt")

    def embed_photos(self, photos: Sequence[Image.Image | Mapping[str, Tensor]]) -> Tensor:
        """Return unit vectors ``(I, D) float32`` of RGB photos of any size, on the CPU.

        Photos may be results of `prepare`.

        Raises:
            ValueError: no photos.
        """

        def prepared(batch: Sequence[Any]) -> Any:
            inputs = [i if isinstance(i, Mapping) else self.prepare(i) for i in batch]
            joined = {key: torch.cat([each[key] for each in inputs]) for key in inputs[0]}
            features: Any = type(inputs[0])  # which goes to a device as one
            return features(joined)

        return self._embed(photos, prepared, "get_image_features")

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors ``(len(texts), D) float32`` of texts, on the CPU; long texts are cut.

        Raises:
            TypeError: a string instead of a list.
            ValueError: no texts.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of strings: put a single text into a list")

        def prepared(batch: Sequence[str]) -> Any:
            inputs = self._tokens(batch)
            self._limit.look(self._reaches(inputs["input_ids"]))
            if self.sigmoid:
                inputs.pop("attention_mask", None)
            return inputs

        return self._embed(texts, prepared, "get_text_features")

    def fits(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is shorter than the maximum number of tokens."""
        return [not reaches for reaches in self._reaches(self._tokens(texts)["input_ids"])]

    def _tokens(self, texts: Sequence[str]) -> Any:
        return self._processor(text=list(texts), return_tensors="pt", **self._text_options)

    def _reaches(self, ids: Tensor) -> list[bool]:
        """Whether texts fill all token positions; the last token may be an end or padding."""
        if ids.shape[1] < self._limit.most:
            return [False] * len(ids)
        return (ids[:, -2] != self._processor.tokenizer.pad_token_id).tolist()

    def release(self) -> None:
        """Move the network to the CPU; the next call moves it back."""
        self._place.release()

    def _embed(
        self, items: Sequence[Any], prepared: Callable[[Sequence[Any]], Any], encode: str
    ) -> Tensor:
        if not items:
            raise ValueError("no photos or texts to embed: give at least one")
        parts = []
        with self._place.used() as network:
            for start in range(0, len(items), self._batch_size):
                inputs = prepared(items[start : start + self._batch_size])
                # integers keep their type
                inputs = inputs.to(self._place.device, self._place.dtype)
                output = getattr(network, encode)(**inputs)
                vectors = output if isinstance(output, Tensor) else output.pooler_output
                parts.append(vectors.float().cpu())
        return nn.functional.normalize(torch.cat(parts), dim=-1)


@loadable
@lru_cache(maxsize=1)  # what selects and what amends may share it
def build_dual_encoder(
    *,
    name: str,
    precision: Precision = "auto",
    batch_size: PositiveInt = 64,
    device: Device = "auto",
) -> DualEncoder:
    """Build a SigLIP, SigLIP 2 or CLIP of transformers, with weights from safetensors only.

    Args:
        name: folder, or hub name such as ``"google/siglip2-base-patch16-224"``.
        precision: ``"auto"``: half precision on a GPU.
        batch_size: number of photos or texts per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        FileNotFoundError: the folder or a file in it does not exist.
        ConnectionError: the hub cannot be reached.
        ValueError: weights of another architecture, or a wrong processor.
    """
    folder = model_folder(name, instead="similarity=joint_space, which needs no download")
    kind = read_json(folder / "config.json").get("model_type")
    if kind not in KINDS:
        raise ValueError(
            f"{name} holds a {kind!r} model, not one of {KINDS}; give a folder or name such as "
            "google/siglip2-base-patch16-224"
        )
    from transformers import AutoModel

    network = load_network(AutoModel, folder, name=name, kind=f"a {kind}")
    processor = load_processor(folder, captions=False)
    encoder = DualEncoder(
        network=network,
        processor=processor,
        space=Path(name).name,
        precision=precision,
        batch_size=batch_size,
        device=device,
    )
    with refuse_misfit(name, processor, network):
        encoder.embed_photos([Image.new("RGB", (32, 24), "grey")])
        encoder.embed_texts(["a photo"])
    encoder.release()
    return encoder
