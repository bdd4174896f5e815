"""CLIP encoders of open_clip by name and weights, or from a folder of open_clip or transformers."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from captioning.config.loadable import loadable
from captioning.runtime.devices import Resident, chosen_device
from captioning.runtime.extras import import_extra
from captioning.runtime.files import read_json
from captioning.runtime.model_folder import load_network, model_folder
from captioning.runtime.tensor_files import weights_digest
from captioning.text.lengths import ReadingLimit

MAX_TOKENS = 77  # of a text, marks at its ends counted, as CLIP was trained


class HubClip(nn.Module):
    """CLIP of transformers with open_clip's interface.

    Args:
        network: network with ``get_image_features`` and ``get_text_features``.
        image_size: side of the photos, in pixels.
    """

    def __init__(self, network: Any, *, image_size: int) -> None:
        super().__init__()
        self.network = network
        self.visual = SimpleNamespace(image_size=image_size)

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Return embeddings ``(B, D)`` of normalised pixels ``(B, 3, H, W)``."""
        return _vectors(self.network.get_image_features(pixel_values=pixels))

    def encode_text(self, tokens: Tensor) -> Tensor:
        """Return embeddings ``(B, D)`` of tokens ``(B, T)``; padding has no influence."""
        return _vectors(self.network.get_text_features(input_ids=tokens))


def _vectors(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.pooler_output


def load_hub_clip(folder: Path) -> dict[str, Any]:
    """Return ``model``, ``preprocess`` and ``tokenize`` for a `ClipEncoder`.

    Args:
        folder: folder with a CLIP, its tokenizer and its ``preprocessor_config.json``.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: another model, missing tensors, or non-square photos.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} has neither open_clip_config.json nor config.json; give a folder of "
            "open_clip or transformers"
        )
    kind = read_json(folder / "config.json").get("model_type")
    if kind != "clip":
        raise ValueError(
            f"{folder} holds a {kind!r} model, not a CLIP; for SigLIP set similarity=siglip"
        )
    library: Any = importlib.import_module("transformers")  # slow, and needed here only
    network = load_network(library.CLIPModel, folder, name=str(folder), kind="a CLIP")
    config = network.config
    tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    preprocess = _preprocess(folder)
    side = preprocess.transforms[1].size[0]
    if side != config.vision_config.image_size:
        raise ValueError(
            f"{folder}: photos have {side} pixels in preprocessor_config.json, but "
            f"{config.vision_config.image_size} in config.json; give the files of one model"
        )

    def tokenize(texts: Sequence[str]) -> Tensor:
        length = config.text_config.max_position_embeddings
        options = {"padding": True, "truncation": True, "max_length": length}
        return tokenizer(list(texts), return_tensors="pt", **options)["input_ids"]

    model = HubClip(network, image_size=side)
    most = config.text_config.max_position_embeddings
    return {"model": model, "preprocess": preprocess, "tokenize": tokenize, "max_tokens": most}


def _preprocess(folder: Path) -> transforms.Compose:
    """Return the preprocessing of CLIP's authors and open_clip."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        path = folder / "processor_config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no preprocessor_config.json; add the model's file")
    content = read_json(path)
    content = content.get("image_processor", content)
    short, crop = content["size"], content["crop_size"]
    short = short["shortest_edge"] if isinstance(short, dict) else short  # an older form
    sides = {crop["height"], crop["width"]} if isinstance(crop, dict) else {crop}
    if len(sides) != 1:
        raise ValueError(f"{path}: photos must be square: got {crop}")
    return transforms.Compose(
        [
            transforms.Resize(short, interpolation=InterpolationMode.BICUBIC),
            transforms.CenterCrop(sides.pop()),
            transforms.ToTensor(),
            transforms.Normalize(content["image_mean"], content["image_std"]),
        ]
    )


CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
TOKENIZER_FILES = ("*.json", "*.txt", "*.model")


class ClipEncoder:
    """Encode images and texts in the joint space of a CLIP model.

    Attributes:
        space: name of model and weights, such as ``"ViT-B-32/openai"``; also used in score names.
        preprocess: function from a photo to the model's input.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        preprocess: Callable[[Image.Image], Tensor],
        tokenize: Callable[[list[str]], Tensor],
        space: str,
        max_tokens: int = MAX_TOKENS,
        batch_size: int = 64,
        device: str | torch.device = "cpu",
    ) -> None:
        """Wrap a model; `build_clip` is the usual way.

        Args:
            model: model with ``encode_image`` and ``encode_text``.
            preprocess: function from an RGB image to ``(3, H, W) float32``.
            tokenize: function from texts to ``(B, T) int64``; long texts are truncated.
            space: name of model and weights.
            max_tokens: maximum tokens of a text; truncation is logged once.
            batch_size: number of images or texts per batch.
            device: device of the model, moved there on first use.
        """
        self._place = Resident(model, device=device, precision="float32")
        self.model: Any = self._place.network
        self.space = space
        self.preprocess, self._tokenize = preprocess, tokenize
        self._batch_size = batch_size
        self._limit = ReadingLimit(space, max_tokens)

    @property
    def identity(self) -> str:
        """Name of model and weights, with a hash of the weights."""
        return f"clip-{self.space.replace('/', '-')}-{weights_digest(self.model)}"

    @property
    def dim(self) -> int:
        """Embedding size."""
        return int(self.embed_texts([""]).shape[1])

    def prepare(self, photo: Image.Image) -> Tensor:
        """Return pixels ``(3, H, W) float32``, which `embed_photos` accepts instead of a photo."""
        return self.preprocess(photo.convert("RGB"))

    def embed_photos(self, photos: Sequence[Image.Image | Tensor]) -> Tensor:
        """Return unit vectors ``(I, size) float32`` of RGB photos of any size, on the CPU.

        Photos may be results of `prepare`.

        Raises:
            ValueError: no photos.
        """

        def prepared(batch: Sequence[Image.Image | Tensor]) -> Tensor:
            return torch.stack([p if isinstance(p, Tensor) else self.prepare(p) for p in batch])

        return self._embed(photos, prepared, "encode_image")

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return unit vectors ``(len(texts), size) float32`` of texts, on the CPU.

        Raises:
            TypeError: a string instead of a list.
            ValueError: no texts.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of strings: put a single text into a list")

        def prepared(batch: Sequence[str]) -> Tensor:
            ids = self._tokenize(list(batch))
            self._limit.look(self._reaches(ids))
            return ids

        return self._embed(texts, prepared, "encode_text")

    def fits(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is shorter than the maximum number of tokens."""
        return [not reaches for reaches in self._reaches(self._tokenize(list(texts)))]

    def _reaches(self, ids: Tensor) -> list[bool]:
        """Whether texts fill all token positions: shorter texts end with two padding tokens."""
        if ids.shape[1] < self._limit.most:
            return [False] * len(ids)
        return (ids[:, -2] != ids[:, -1]).tolist()

    def release(self) -> None:
        """Move the weights to the CPU; the next call moves them to the device again."""
        self._place.release()

    def _embed(
        self, items: Sequence[Any], prepared: Callable[[Sequence[Any]], Tensor], encode: str
    ) -> Tensor:
        if not items:
            raise ValueError("no images or texts to embed: give at least one")
        parts = []
        with self._place.used() as model:
            for start in range(0, len(items), self._batch_size):
                inputs = prepared(items[start : start + self._batch_size]).to(self._place.device)
                parts.append(getattr(model, encode)(inputs).float().cpu())
        return nn.functional.normalize(torch.cat(parts), dim=-1)


@loadable
def build_clip(
    *,
    name: str = "ViT-B-32",
    weights: str | Path | None = "openai",
    batch_size: int = 64,
    device: str | torch.device = "auto",
) -> ClipEncoder:
    """Build a CLIP encoder by name.

    Args:
        name: one of open_clip's models, ``"hf-hub:OWNER/NAME@COMMIT"``, or a folder of open_clip or
            of transformers, with weights. The latter does not need open_clip.
        weights: open_clip tag with a commit of the hub (``"openai@COMMIT"``), or a
            ``.safetensors`` or torch file; None: weights of the hub name or folder.
        batch_size: number of images or texts per batch.
        device: ``"auto"`` takes a GPU if there is one.

    Raises:
        ModuleNotFoundError: open_clip is not installed.
        FileNotFoundError: a file is missing in the folder.
        ValueError: an unknown name or tag, weights that do not match or hold code, or an invalid
            device.
        ConnectionError: the weights could not be downloaded.
    """
    device = chosen_device(device)
    if Path(name).is_dir() and not (Path(name) / CONFIG).is_file():
        parts = load_hub_clip(Path(name))
        return ClipEncoder(**parts, space=Path(name).name, batch_size=batch_size, device=device)
    open_clip = _open_clip()
    source, tag = _source(name, weights, open_clip)
    file = tag if tag is None or Path(tag).is_file() else str(_tagged(name, tag, open_clip))
    # Weights of the original CLIP need the activation used in their training.
    published = open_clip.get_pretrained_cfg(name, tag.partition("@")[0]) if tag else {}
    quick_gelu = bool(published.get("quick_gelu"))
    try:
        model, preprocess = open_clip.create_model_from_pretrained(
            source, file, force_quick_gelu=quick_gelu, weights_only=True
        )
    except Exception as error:  # open_clip wraps what the hub and the readers raise
        raise ValueError(
            f"{file or name}: unreadable weights for {name} ({error}); give a "
            ".safetensors file, or a torch file that holds only tensors"
        ) from error
    return ClipEncoder(
        model=model,
        preprocess=preprocess,
        tokenize=open_clip.get_tokenizer(source),
        max_tokens=int(getattr(model, "context_length", MAX_TOKENS)),
        space=Path(name).name if tag is None else f"{name}/{Path(tag.partition('@')[0]).stem}",
        batch_size=batch_size,
        device=device,
    )


def _source(name: str, weights: str | Path | None, open_clip: Any) -> tuple[str, str | None]:
    """Return open_clip's names of model and weights, checked before any download."""
    tag = None if weights is None else str(weights)
    if name.startswith("hf-hub:"):
        folder = model_folder(
            name.removeprefix("hf-hub:"),
            instead="similarity=joint_space, which needs no download",
            marker=CONFIG,
            files=(*TOKENIZER_FILES, WEIGHTS),
        )
        return f"local-dir:{folder}", None
    if Path(name).is_dir():
        return f"local-dir:{name}", None
    if name not in open_clip.list_models():
        near = difflib.get_close_matches(name, open_clip.list_models(), 5)
        raise ValueError(
            f"unknown CLIP model {name!r}: no folder, and no model of open_clip, such as {near}"
        )
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag is None or (tag.partition("@")[0] not in tags and not Path(tag).is_file()):
        raise ValueError(f"weights of {name} must be a file or one of {tags}: got {tag!r}")
    return name, tag


def _tagged(name: str, tag: str, open_clip: Any) -> Path:
    """Download the weights file that belongs to an open_clip tag, at a commit of the hub."""
    plain, _, commit = tag.partition("@")
    repository = str(open_clip.get_pretrained_cfg(name, plain).get("hf_hub") or "").strip("/")
    if repository.count("/") != 1:
        raise ValueError(f"weights {plain!r} of {name} are not on the hub; give weights=FILE")
    instead = f"weights=FILE (add the commit to a tag as {plain}@COMMIT)"
    folder = model_folder(
        f"{repository}@{commit}", instead=instead, marker=CONFIG, files=(WEIGHTS,)
    )
    if not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"{name}: the hub lacks {WEIGHTS} for {tag}; give weights=FILE")
    return folder / WEIGHTS


def _open_clip() -> Any:
    return import_extra("open_clip", extra="clip", purpose="CLIP")
