"""Convert the checkpoints of ViECap (FeiElysia/ViECap), which contain GPT-2's weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from captioning.config.compose import setting
from captioning.convert.converted import Converted, KeyUse, Options
from captioning.convert.published_tensors import require
from captioning.text.tokenizers.sentences import SentenceTokenizer

PROJECT, LEARNED = "mapping_network.linear.weight", "mapping_network.prefix_const"
LAYERS = "mapping_network.transformer.layers."
INNER = f"{LAYERS}0.mlp.fc1.weight"
LANGUAGE_MODEL = "gpt."
NUM_HEADS = 8  # of the authors' projector, which no tensor tells
BUFFERS = (".attn.bias", ".attn.masked_bias")
NAMES = (
    (r"^gpt\.", "network."),
    (r"^mapping_network\.linear\.", "projector.project."),
    (r"^mapping_network\.prefix_const$", "projector.learned"),
    (r"^mapping_network\.transformer\.", "projector."),
    (r"\.norm1\.", ".norm_attention."),
    (r"\.attn\.to_queries\.", ".queries."),
    (r"\.attn\.to_keys_values\.", ".keys_values."),
    (r"\.attn\.project\.", ".output."),
    (r"\.norm2\.", ".norm_inner."),
    (r"\.mlp\.fc1\.", ".inner.0."),
    (r"\.mlp\.fc2\.", ".inner.2."),
)


def convert(state: Mapping[str, Tensor], options: Options) -> Converted:
    """Convert a checkpoint to a run of ``model=viecap``.

    Args:
        state: the authors' tensors.
        options: the base is GPT-2 in transformers' format, with its tokenizer; None: from the hub.
            Overrides set encoder and entities, which checkpoints do not hold.

    Raises:
        FileNotFoundError, ConnectionError: the language model does not exist.
        ValueError: keys are missing, as in a model with OPT.
    """
    words = f"{LANGUAGE_MODEL}transformer.wte.weight"
    require(state, (PROJECT, LEARNED, INNER, words), "ViECap with GPT-2")
    base = "gpt2" if options.base is None else str(options.base.resolve())
    num_learned, hidden = state[LEARNED].shape
    layers = {match[1] for key in state if (match := re.match(rf"{LAYERS}(\d+)\.", key))}
    sizes = {
        "num_projected": len(state[PROJECT]) // hidden,
        "num_learned": num_learned,
        "projector_layers": len(layers),
        "projector_heads": NUM_HEADS,
        "mlp_ratio": len(state[INNER]) / hidden,
    }
    used = {key: _name(key) for key in state if not _is_buffer(key)}
    keys = [
        KeyUse(key=key, into=(used[key],)) if key in used else KeyUse(key=key, note="a mask")
        for key in state
    ]
    return Converted(
        overrides=(
            "experiment=viecap/coco",
            setting("model.pretrained", base),
            *(f"model.module.{name}={value}" for name, value in sizes.items()),
        ),
        tokenizer=SentenceTokenizer.of_causal(name=base),
        weights={name: state[key] for key, name in used.items()},
        feature_size=state[PROJECT].shape[1],
        keys=tuple(keys),
        built=("entities",),
    )


def _is_buffer(key: str) -> bool:
    return key.startswith(LANGUAGE_MODEL) and key.endswith(BUFFERS)


def _name(key: str) -> str:
    patterns = NAMES if not key.startswith(LANGUAGE_MODEL) else NAMES[:1]
    for pattern, replacement in patterns:
        key = re.sub(pattern, replacement, key)
    return key
