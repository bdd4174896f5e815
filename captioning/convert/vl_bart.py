"""Convert checkpoints of VL-BART (Cho et al., 2021) and of CIC-BART, trained from VL-BART."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from captioning.config.compose import setting
from captioning.convert.converted import Converted, KeyUse, Options
from captioning.convert.published_tensors import require, without_prefix
from captioning.models.layers.vl_bart import VISUAL, VISUAL_PREFIX, WORD_EMBEDDING_ALIASES
from captioning.runtime.files import read_json
from captioning.text.tokenizers.bart import BartTokenizer

WORDS = "model.shared.weight"
ORDER = f"{VISUAL_PREFIX}obj_order_embedding.weight"
OUTPUT_BIAS = "final_logits_bias"
POSITIONS = "model.encoder.embed_positions.weight"
FEED_FORWARD = "model.encoder.layers.0.fc1.weight"
FEATURES = f"{VISUAL_PREFIX}feat_embedding.0.weight"
NUM_RESERVED_POSITIONS = 2  # BART's first two positions are never read
HEAD_SIZE = 64  # of published BARTs
NEEDED = (
    WORDS,
    POSITIONS,
    FEED_FORWARD,
    *(
        f"{VISUAL_PREFIX}{theirs}.{name}"
        for theirs in VISUAL
        for name in (("weight",) if theirs == "img_order_embedding" else ("weight", "bias"))
    ),
)


def convert(state: Mapping[str, Tensor], options: Options) -> Converted:
    """Convert a checkpoint to ``model=cic_bart_published``.

    Raises:
        ValueError: keys differ, ``--base`` is missing, or the vocabulary has another size.
    """
    if options.base is None:
        raise ValueError(
            "give --base FOLDER, a bart-base in transformers' format, whose words and number of "
            "heads the checkpoint's are"
        )
    names = _plain_names(state)
    plain = {plain: state[name] for name, plain in names.items()}
    require(plain, NEEDED, "VL-BART with one layer norm for regions")
    tokenizer = BartTokenizer.of_bart(name=str(options.base))
    if len(tokenizer) != len(plain[WORDS]):
        raise ValueError(
            f"{options.base}: {len(tokenizer)} words with the control tokens, the checkpoint has "
            f"{len(plain[WORDS])}: give the BART that it began with"
        )
    weights = dict.fromkeys(_aliases(), plain[WORDS])
    weights["bart.final_logits_bias"] = plain.get(
        OUTPUT_BIAS, plain[WORDS].new_zeros(1, len(tokenizer))
    )
    keys = []
    for name, key in names.items():
        use = _use(name, key)
        weights |= dict.fromkeys(use.into, state[name])
        keys.append(use)
    return Converted(
        overrides=(
            "model=cic_bart_published",
            "model.pretrained=null",
            "tokenizer=bart",
            setting("tokenizer.name", options.base),
            "control=published",
            "search=beam_cic_bart",
            *_sizes(plain, options.base),
        ),
        tokenizer=tokenizer,
        weights=weights,
        feature_size=plain[FEATURES].shape[1],
        keys=tuple(keys),
    )


def _plain_names(state: Mapping[str, Tensor]) -> dict[str, str]:
    """Names of the keys without prefixes of multi-GPU training and of older code."""
    short = without_prefix(state, "module.")
    return {
        name: plain.replace("model.vis_encoder.", "model.encoder.")
        for name, plain in zip(state, short, strict=True)
    }


def _aliases() -> list[str]:
    """This project's names of the word embedding, which is one shared tensor."""
    return [f"bart.{name}" for name in (WORDS, *WORD_EMBEDDING_ALIASES) if name != ORDER]


def _use(name: str, plain: str) -> KeyUse:
    if plain in (WORDS, *WORD_EMBEDDING_ALIASES):
        if plain == WORDS:
            return KeyUse(key=name, into=tuple(_aliases()), note="one tensor")
        return KeyUse(key=name, note=f"the tensor of {WORDS} once more")
    if plain.endswith(".version"):
        return KeyUse(key=name, note="of old versions of transformers")
    if plain.startswith(VISUAL_PREFIX):
        module, _, last = plain.removeprefix(VISUAL_PREFIX).rpartition(".")
        return KeyUse(key=name, into=(f"visual.{VISUAL.get(module, module)}.{last}",))
    return KeyUse(key=name, into=(f"bart.{plain}",))


def _sizes(plain: Mapping[str, Tensor], base: Path) -> list[str]:
    config = base / "config.json"
    hidden_size = plain[WORDS].shape[1]
    heads = hidden_size // HEAD_SIZE
    if config.is_file():
        heads = read_json(config).get("encoder_attention_heads", heads)
    layers = {name.split(".")[3] for name in plain if name.startswith("model.encoder.layers.")}
    sizes = {
        "hidden_size": hidden_size,
        "num_layers": len(layers),
        "num_heads": heads,
        "intermediate_size": len(plain[FEED_FORWARD]),
        "max_positions": len(plain[POSITIONS]) - NUM_RESERVED_POSITIONS,
    }
    return [f"+model.module.{name}={size}" for name, size in sizes.items()]
