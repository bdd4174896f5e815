"""Convert BLIP's checkpoints (salesforce/BLIP) to transformers' format.

Captioners (``model_base_caption_capfilt_large.pth``, ``model_large_caption.pth``) and models before
fine-tuning (``model_base.pth``, ``model_base_capfilt_large.pth``, ``model_large.pth``) without
their parts for other tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from captioning.convert.converted import ConvertedNetwork, KeyUse, Options
from captioning.convert.published_tensors import require
from captioning.vision.blip import MEAN, STD

if TYPE_CHECKING:  # transformers takes seconds to import
    from transformers import BlipConfig

IMAGE_SIZE = 384  # of the authors' captioners
SIZE_KEY = "features.backbone.image_size="
HEAD = 64  # values of an attention head in all of BERT's and ViT's sizes
VISION, TEXT = "visual_encoder.", "text_decoder."
POSITIONS, WORDS = f"{VISION}pos_embed", f"{TEXT}bert.embeddings.word_embeddings.weight"
KEYS = f"{TEXT}bert.encoder.layer.0.crossattention.self.key.weight"
TIED = {  # where both are there, the authors' loading keeps the second
    WORDS: f"{TEXT}cls.predictions.decoder.weight",
    f"{TEXT}cls.predictions.bias": f"{TEXT}cls.predictions.decoder.bias",
}
NAMES = (
    (r"cls_token$", "embeddings.class_embedding"),
    (r"pos_embed$", "embeddings.position_embedding"),
    (r"patch_embed\.proj\.", "embeddings.patch_embedding."),
    (r"blocks\.", "encoder.layers."),
    (r"\.attn\.proj\.", ".self_attn.projection."),
    (r"\.attn\.", ".self_attn."),
    (r"\.norm([12])\.", r".layer_norm\1."),
    (r"^norm\.", "post_layernorm."),
)


def convert(state: Mapping[str, Tensor], options: Options) -> ConvertedNetwork:
    """Convert a BLIP captioner to transformers' format.

    Args:
        state: the authors' tensors.
        options: the vocabulary is BERT's (uncased), as ``vocab.txt`` or its folder; the override
            ``features.backbone.image_size=N`` sets the photos' side, 384 by default.

    Raises:
        FileNotFoundError: the vocabulary does not exist.
        ValueError: the checkpoint is no captioner, or the vocabulary belongs to another model.
    """
    require(state, (POSITIONS, WORDS, KEYS, f"{VISION}norm.weight"), "a BLIP captioner")
    if any(name.startswith("text_encoder.") for name in state) and "itm_head.weight" not in state:
        raise ValueError(
            "its decoder answers questions (VQA) and attends to them, not to photos: give a "
            "checkpoint for captions or one before fine-tuning"
        )
    vocabulary = _vocabulary(options, len(state[WORDS]))
    config, side = _config(state, vocabulary), _image_size(options)
    patch = config.vision_config.patch_size
    if side % patch:
        raise ValueError(f"{SIZE_KEY}{side}: must be a multiple of the {patch} pixels of a patch")
    config.vision_config.image_size = side
    weights = {_name(key): value for key, value in state.items() if _is_used(key)}
    weights |= {_name(key): state[twin] for key, twin in TIED.items() if twin in state}
    place = _name(POSITIONS)
    weights[place] = interpolated(weights[place], side // patch)
    network = _network(config, weights)

    def save(folder: Path) -> None:
        network.save_pretrained(folder)
        _processor(vocabulary, side).save_pretrained(folder)

    keys = tuple(_use(key, state, side // patch) for key in state)
    return ConvertedNetwork(save=save, keys=keys)


def interpolated(positions: Tensor, side: int) -> Tensor:
    """Interpolate position embeddings ``(1, 1 + side * side, D)`` for another number of patches.

    The embedding of the class token stays; the patches' embeddings are resized like an image, by
    cubic interpolation.
    """
    patches = positions[:, 1:]
    old_side = isqrt(patches.shape[1])
    if old_side == side:
        return positions
    picture = patches.transpose(1, 2).unflatten(2, (old_side, old_side))
    picture = functional.interpolate(picture, (side, side), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1], picture.flatten(2).transpose(1, 2)], dim=1)


def _image_size(options: Options) -> int:
    size = IMAGE_SIZE
    for override in options.overrides:
        value = override.removeprefix(SIZE_KEY)
        if value == override or not value.isdigit():
            raise ValueError(f"convert blip takes {SIZE_KEY}N alone: got {override!r}")
        size = int(value)
    return size


def _vocabulary(options: Options, num_rows: int) -> list[str]:
    path = options.vocabulary
    if path is None:
        raise ValueError(
            "BLIP's checkpoints hold no words: give BERT's, --vocabulary FILE, the vocab.txt of "
            "bert-base-uncased"
        )
    path = path / "vocab.txt" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; --vocabulary is BERT's vocab.txt")
    words = path.read_text(encoding="utf-8").splitlines()
    missing = [word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if word not in words]
    if missing or len(words) + 2 != num_rows:
        raise ValueError(
            f"{path}: {len(words)} words, of {num_rows - 2} that the checkpoint has beside its two "
            "begin tokens; give the vocab.txt of bert-base-uncased"
        )
    return words


def _config(state: Mapping[str, Tensor], words: list[str]) -> Any:
    from transformers import BlipConfig

    hidden, width = state[WORDS].shape[1], state[KEYS].shape[1]
    text = {
        "vocab_size": len(words) + 2,
        "hidden_size": hidden,
        "encoder_hidden_size": width,
        "num_hidden_layers": _count(state, rf"{TEXT}bert\.encoder\.layer\.(\d+)\."),
        "num_attention_heads": hidden // HEAD,
        "intermediate_size": len(state[f"{TEXT}bert.encoder.layer.0.intermediate.dense.weight"]),
        "max_position_embeddings": len(state[f"{TEXT}bert.embeddings.position_embeddings.weight"]),
        "bos_token_id": len(words),  # [DEC], added behind BERT's words
        "eos_token_id": words.index("[SEP]"),
        "sep_token_id": words.index("[SEP]"),
        "pad_token_id": words.index("[PAD]"),
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }
    vision = {
        "hidden_size": width,
        "num_hidden_layers": _count(state, rf"{VISION}blocks\.(\d+)\."),
        "num_attention_heads": width // HEAD,
        "intermediate_size": len(state[f"{VISION}blocks.0.mlp.fc1.weight"]),
        "patch_size": state[f"{VISION}patch_embed.proj.weight"].shape[2],
        "layer_norm_eps": 1e-6,
    }
    return BlipConfig(text_config=text, vision_config=vision)


def _count(state: Mapping[str, Tensor], pattern: str) -> int:
    return 1 + max(int(match[1]) for key in state if (match := re.match(pattern, key)))


def _is_used(key: str) -> bool:
    return key.startswith((VISION, TEXT)) and not key.endswith(".position_ids")


def _name(key: str) -> str:
    """Name in transformers of one of the authors' tensors; decoder names are the same."""
    if not key.startswith(VISION):
        return key
    name = key.removeprefix(VISION)
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return f"vision_model.{name}"


def _use(key: str, state: Mapping[str, Tensor], side: int) -> KeyUse:
    if key.endswith(".position_ids"):
        return KeyUse(key=key, note="counts 0, 1, 2, ...")
    if not _is_used(key):
        return KeyUse(key=key, note="of another task than captions")
    twin = TIED.get(key, "")
    if twin in state and not torch.equal(state[key], state[twin]):
        return KeyUse(key=key, note=f"tied to {twin}, whose values the authors' loading keeps")
    resized = key == POSITIONS and state[key].shape[1] != 1 + side**2
    note = f"resized to {side} x {side} patches" if resized else ""
    return KeyUse(key=key, into=(_name(key),), note=note)


def _network(config: BlipConfig, weights: Mapping[str, Tensor]) -> Any:
    from transformers import BlipForConditionalGeneration

    network = BlipForConditionalGeneration(config)
    try:
        report = network.load_state_dict(dict(weights), strict=False)
    except RuntimeError as error:
        problem = str(error).splitlines()[-1].strip()
        raise ValueError(f"weights whose sizes differ from BLIP's: {problem}") from error
    missing = [key for key in report.missing_keys if key not in TIED.values()]
    if missing or report.unexpected_keys:
        raise ValueError(
            f"not a checkpoint of a BLIP captioner: missing {missing[:3]}, too many "
            f"{report.unexpected_keys[:3]}"
        )
    network.tie_weights()
    return network


def _processor(words: list[str], side: int) -> Any:
    from transformers import BertTokenizer, BlipImageProcessor, BlipProcessor

    vocabulary: Any = {word: number for number, word in enumerate(words)}
    tokenizer = BertTokenizer(vocab=vocabulary, do_lower_case=True)
    tokenizer.add_special_tokens({"bos_token": "[DEC]"})
    tokenizer.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
    size = {"height": side, "width": side}
    pictures = BlipImageProcessor(size=size, image_mean=list(MEAN), image_std=list(STD))
    return BlipProcessor(image_processor=pictures, tokenizer=tokenizer)
