"""Load image-to-text models of transformers and their processors from folders."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from captioning.runtime.files import read_json
from captioning.runtime.model_folder import damage_named, load_network, model_folder, refuse_damaged

FILES = ("*.json", "*.txt", "*.model", "*.jinja")
NO_HUB = "the folder of another model, or model=updown_small"
# Families of transformers' list of image-to-text models that write no captions of photos.
REFUSED = {
    "diffusion_gemma": "it denoises all tokens of a text together, so it gives no loss per token",
    "evolla": "it reads proteins instead of photos",
    "idefics": "each of its steps reads the photo again; use idefics2 or idefics3",
    "instructblipvideo": "it reads video clips of four frames; use instructblip",
    "mistral4": "it reads text only; the version of this model that reads photos is mistral3",
    "pi0": "it controls a robot and writes no text",
    "shieldgemma2": "its processor adds its own questions about safety",
    "udop": "its processor only reads the words of a page (OCR)",
}
# On the hub these have an image processor and a tokenizer, but no processor of both.
WITHOUT_PROCESSOR = ("vision-encoder-decoder",)
# One of these holds the words of a tokenizer.
OF_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model")
# These read no prompt: their decoder begins with the caption.
PHOTOS_ALONE = (*WITHOUT_PROCESSOR, "pix2struct", "pp_formulanet")
WeightType = Literal["float32", "bfloat16", "float16"]


def image_text_folder(name: str, *, weights: bool = False) -> Path:
    """Find the folder of an image-to-text model.

    Args:
        name: hub name or folder.
        weights: whether the weights must be present.

    Raises:
        FileNotFoundError: the folder, its model or its needed weights do not exist.
        ConnectionError: the hub cannot be reached.
        ValueError: ``name`` is the address of a server.
    """
    if name.lower().startswith(("http://", "https://")):
        raise ValueError(
            f"{name}: an address, but this part needs a local model; choose the part for served "
            f"models: caption_source@...=server, matching@...=server, or curation/score=graded"
        )
    files = (*FILES, "*.safetensors") if weights else FILES
    folder = model_folder(name, instead=NO_HUB, files=files)
    if weights and not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(
            f"{name}: no model.safetensors in it; other weight files may contain code, so save the "
            "model with safetensors"
        )
    return folder


@dataclass(frozen=True, kw_only=True)
class ProcessorPair:
    """Image processor and tokenizer of a model without a combined processor.

    Attributes:
        image_processor: image processor of transformers.
        tokenizer: tokenizer of transformers.
    """

    image_processor: Any
    tokenizer: Any

    def __call__(self, *, images: Sequence[Any], **options: Any) -> Any:
        """Turn photos into tensors by the image processor; these models read no prompt."""
        return self.image_processor(images, **options)

    def save_pretrained(self, folder: Path) -> None:
        """Write image processor and tokenizer in the layout of these models on the hub."""
        self.image_processor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


@lru_cache(maxsize=4)
def load_processor(folder: Path, *, captions: bool = True) -> Any:
    """Load a model's processor, set up to pad on the left, before the prompts.

    Args:
        folder: the model's folder.
        captions: whether the model must be one that can caption photos.

    Raises:
        FileNotFoundError: the folder holds no processor or no tokenizer.
        ValueError: the processor is damaged, or belongs to another kind of model.
        ModuleNotFoundError: the processor needs a package that is not installed.
    """
    if captions:
        check_family(folder, str(folder))
    transformers: Any = importlib.import_module("transformers")  # slow, and needed here only
    if (
        not (folder / "processor_config.json").is_file()
        and not (folder / "preprocessor_config.json").is_file()
    ):
        raise FileNotFoundError(
            f"{folder}: no processor_config.json or preprocessor_config.json in it; save the "
            "model's processor there: AutoProcessor.from_pretrained(NAME).save_pretrained(FOLDER)"
        )
    if not any(path for pattern in OF_TOKENIZERS for path in folder.glob(pattern)):
        raise FileNotFoundError(
            f"{folder}: no tokenizer.json in it; save the model's tokenizer there: "
            "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
        )
    try:
        if model_kind(folder) in WITHOUT_PROCESSOR:
            processor = ProcessorPair(
                image_processor=transformers.AutoImageProcessor.from_pretrained(
                    folder, local_files_only=True
                ),
                tokenizer=transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True),
            )
        else:
            processor = transformers.AutoProcessor.from_pretrained(folder, local_files_only=True)
    except ImportError as error:
        raise ModuleNotFoundError(f"{folder}: its processor needs a package: {error}") from error
    except Exception as error:  # tokenizers raises that class itself
        refuse_damaged(folder, error)
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{folder}: the processor cannot be read ({reason}): save processor and tokenizer "
            "again with AutoProcessor.from_pretrained(NAME).save_pretrained(FOLDER)"
        ) from error
    _check_kind(processor, folder)
    return processor


def _check_kind(processor: Any, folder: Path) -> None:
    """Raise an error if the processor belongs to another kind of model or lacks a tokenizer."""
    auto: Any = importlib.import_module("transformers.models.auto.processing_auto")
    kind = model_kind(folder)
    expected = auto.PROCESSOR_MAPPING_NAMES.get(kind)
    name = type(processor).__name__
    if expected is not None and name != expected:
        raise ValueError(
            f"{folder}: {name} does not fit its model of kind {kind}, which needs {expected}: save "
            "the processor of the model that has these weights"
        )
    if getattr(getattr(processor, "tokenizer", None), "backend_tokenizer", None) is None:
        raise ValueError(
            f"{folder}: {name} has no fast tokenizer (tokenizer.json); save the model with one"
        )


def check_family(folder: Path, name: str) -> None:
    """Raise an error for a model of a family that cannot caption photos.

    transformers itself would read such a folder as another family's, with a warning.

    Raises:
        ValueError: the family cannot caption photos; the message says why.
    """
    kind = model_kind(folder)
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    known: Any = importlib.import_module("transformers").CONFIG_MAPPING
    instead = "choose an image-to-text model, such as BLIP, LLaVA or Qwen-VL"
    if not kind:
        raise ValueError(
            f"{folder / 'config.json'} names no model_type, by which transformers recognises a "
            "model; fetch or save the model again"
        )
    if kind in REFUSED:
        raise ValueError(f"{name}: {kind} is not a captioner: {REFUSED[kind]}")
    if kind not in known:
        raise ValueError(
            f"{name}: the installed transformers knows no model_type {kind!r} (config.json); "
            f"raise its version, or {instead}"
        )
    if kind not in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        of_text = (
            *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
            *auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        )
        problem = "reads text and no photos" if kind in of_text else "writes no captions"
        raise ValueError(f"{name}: a model of kind {kind!r} {problem}; {instead}")


def model_kind(folder: Path) -> str:
    """Kind of the model (``model_type``), such as ``"git"``; empty if its config names none.

    Raises:
        ValueError: the config cannot be read.
    """
    path = folder / "config.json"
    with damage_named(str(folder)):
        settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(
            f"{path} holds a {type(settings).__name__}, not a model's settings; fetch or save the "
            "model again"
        )
    kind = settings.get("model_type")
    return kind if isinstance(kind, str) else ""


@contextmanager
def refuse_misfit(name: str, processor: Any, network: Any) -> Iterator[None]:
    """Turn an error of a trial run into one line that names processor and network.

    Raises:
        ValueError: the trial failed.
    """
    try:
        yield
    except (ValueError, RuntimeError, IndexError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{name}: its processor ({type(processor).__name__}) does not fit its network "
            f"({type(network).__name__}): {reason}. Copy the model's own processor into its folder"
        ) from error


def load_image_text(name: str, *, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """Load the network of an image-to-text model, in evaluation mode.

    Args:
        name: hub name, or folder with ``config.json`` and safetensors.
        dtype: dtype of the weights.
        **options: options of ``from_pretrained``.

    Raises:
        FileNotFoundError: the folder does not exist or holds no safetensors file.
        ConnectionError: the hub cannot be reached.
        ValueError: the model is of another kind, or weights are missing.
    """
    transformers: Any = importlib.import_module("transformers")  # slow, and needed here only
    folder = image_text_folder(name, weights=True)
    check_family(folder, name)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        known = transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        network = known[type(config)]
    except (KeyError, ValueError, OSError, TypeError, AttributeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{name} is not an image-to-text model known to transformers ({reason})"
        ) from error
    kind = network.__name__
    return load_network(network, folder, name=name, kind=kind, dtype=dtype, **options)
