"""Load weights of BART and VL-BART into CIC-BART."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration

from captioning.interfaces import AbstractTokenizer
from captioning.runtime.files import read_json
from captioning.runtime.model_folder import damage_named, load_network, model_folder
from captioning.vision.backbones import read_weights

# The authors' module name -> this project's name, below ``model.encoder.visual_embedding``.
VISUAL = {
    "feat_embedding.0": "features",
    "absolute_vis_pos_embedding.0": "places",
    "img_order_embedding": "image",
    "layer_norm": "norm",
}
VISUAL_PREFIX = "model.encoder.visual_embedding."
# Other names of the word embedding.
WORD_EMBEDDING_ALIASES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    f"{VISUAL_PREFIX}obj_order_embedding.weight",
    "lm_head.weight",
)
# Tensors created at loading, or by old versions of transformers.
NOT_NEEDED = ("final_logits_bias", "model.encoder.version", "model.decoder.version")


def build_bart(
    *,
    tokenizer: AbstractTokenizer,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    intermediate_size: int,
    max_positions: int,
    dropout: float,
) -> BartForConditionalGeneration:
    """Build a BART with random weights.

    Args:
        tokenizer: tokenizer that defines the vocabulary.
        hidden_size: D.
        num_layers, num_heads, intermediate_size: sizes of the encoder, and of the decoder.
        max_positions: maximum tokens of encoder and decoder.
        dropout: dropout of states, of attention and inside feed-forward layers.
    """
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=hidden_size,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        encoder_attention_heads=num_heads,
        decoder_attention_heads=num_heads,
        encoder_ffn_dim=intermediate_size,
        decoder_ffn_dim=intermediate_size,
        max_position_embeddings=max_positions,
        **_dropouts(dropout),
        bos_token_id=tokenizer.bos_id,
        eos_token_id=tokenizer.eos_id,
        pad_token_id=tokenizer.pad_id,
        decoder_start_token_id=tokenizer.bos_id,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config)


def load_bart(name: str, *, vocabulary: int, dropout: float) -> BartForConditionalGeneration:
    """Load a transformers BART from safetensors only, with rows for the control tokens.

    Args:
        name: hub name or folder.
        vocabulary: V of the tokenizer; the model must have V tokens, or V minus control tokens.
        dropout: see `build_bart`.

    Raises:
        FileNotFoundError: the folder or its safetensors file does not exist.
        ValueError: another architecture, or another vocabulary.
        ConnectionError: the hub cannot be reached.
    """
    folder = model_folder(name, instead="a BART of your own sizes (model.pretrained=null)")
    with damage_named(name):
        kind = read_json(folder / "config.json").get("model_type")
    if kind != "bart":
        raise ValueError(f"{name} is {kind!r}, not BART; give a model such as bart-base")
    network, options = BartForConditionalGeneration, _dropouts(dropout)
    bart = load_network(network, folder, name=name, kind="a BART that writes", **options)
    vocabulary_size = bart.config.vocab_size
    if vocabulary_size not in (vocabulary, vocabulary - 200):
        raise ValueError(
            f"{name} has {vocabulary_size} tokens, but the tokenizer has {vocabulary}, of which "
            "200 are control tokens: use the tokenizer that belongs to the model"
        )
    if vocabulary_size != vocabulary:
        bart.resize_token_embeddings(vocabulary, mean_resizing=False)
    return bart


def load_vl_bart(
    path: str | Path, *, bart: BartForConditionalGeneration, visual: nn.Module
) -> None:
    """Load a checkpoint of VL-BART or CIC-BART (the authors' layout) into a model, in place.

    Args:
        path: ``.pth`` file (only a state dict is read) or ``.safetensors`` file.
        bart: model that receives all tensors except the visual embedding's.
        visual: a `captioning.models.cic_bart.VisualEmbedding`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: another kind of checkpoint, other sizes or another vocabulary.
    """
    checkpoint = _renamed(read_weights(Path(path)))
    model_tensors = {f"bart.{name}": tensor for name, tensor in bart.state_dict().items()}
    model_tensors |= {f"visual.{name}": tensor for name, tensor in visual.state_dict().items()}
    needed = {
        name
        for name in model_tensors
        if name.removeprefix("bart.") not in (*WORD_EMBEDDING_ALIASES, *NOT_NEEDED)
    }
    unmatched = sorted(needed ^ checkpoint.keys())
    if unmatched:
        problem = "lacks" if unmatched[0] in needed else "has a further"
        raise ValueError(
            f"{path} {problem} {unmatched[0]} ({len(unmatched)} such tensors): give a VL-BART "
            "whose regions have one layer norm, with the model's number of layers"
        )
    for name in sorted(needed):
        if checkpoint[name].shape != model_tensors[name].shape:
            raise ValueError(
                f"{path}: {name} has shape {tuple(checkpoint[name].shape)}, but the model has "
                f"{tuple(model_tensors[name].shape)}: choose sizes, features and tokenizer of "
                "the weights"
            )
    for name in needed:
        model_tensors[name].copy_(checkpoint[name])


def _dropouts(share: float) -> dict[str, Any]:
    return dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), share)


def _renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the checkpoint's tensors to ``bart.NAME`` and ``visual.NAME``, without aliases."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        name = name.replace("model.vis_encoder.", "model.encoder.")
        if name in WORD_EMBEDDING_ALIASES or name in NOT_NEEDED:
            continue
        if name.startswith(VISUAL_PREFIX):
            module, _, last = name.removeprefix(VISUAL_PREFIX).rpartition(".")
            renamed[f"visual.{VISUAL.get(module, module)}.{last}"] = tensor
        else:
            renamed[f"bart.{name}"] = tensor
    return renamed
