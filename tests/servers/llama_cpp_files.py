"""The colour model as llama.cpp reads it: ``python llama_cpp_files.py MODEL OUT PORT`` serves it.

A program of the environment of servers, which has `gguf` and `xllamacpp`.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from transformers import LlavaConfig, LlavaProcessor

gguf: Any = importlib.import_module("gguf")
xllamacpp: Any = importlib.import_module("xllamacpp")
CHAT = (
    "{% for m in messages %}{{ m['role'].upper() }}:{% for c in m['content'] %}"
    "{% if c['type']=='media_marker' %} {{ c['text'] }}{% else %} {{ c['text'] }}{% endif %}"
    "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
}
TEXT_BLOCK = {
    **BLOCK,
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
SIGHT_BLOCK = {
    **BLOCK,
    "self_attn.out_proj": "attn_out",
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
REST = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "embeddings.class_embedding": "v.class_embd",
    "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.position_embedding": "v.position_embd",
    "pre_layrnorm": "v.pre_ln",
    "multi_modal_projector.linear_1": "mm.0",
    "multi_modal_projector.linear_2": "mm.2",
}


def name_in_gguf(name: str) -> str | None:
    """The name of a weight of transformers; None for one that is not read."""
    is_sight = "vision" in name
    stem, _, last = name.rpartition(".")
    if name.endswith("class_embedding"):
        stem, last = name, ""
    if ".layers." in stem:
        number, _, part = stem.partition(".layers.")[2].partition(".")
        known = SIGHT_BLOCK if is_sight else TEXT_BLOCK
        return f"{'v.' if is_sight else ''}blk.{number}.{known[part]}.{last}"
    found = [end for end in REST if stem.endswith(end)]
    if not found or "post_layernorm" in stem:
        return None
    return ".".join(filter(None, (REST[max(found, key=len)], last)))


def turned(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of queries and keys in the order of llama.cpp's rotations."""
    halves = weight.reshape(num_heads, 2, -1, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write(model: Path, out: Path) -> tuple[Path, Path]:
    """The two files: text, and sight."""
    config: Any = LlavaConfig.from_pretrained(model)
    processor = LlavaProcessor.from_pretrained(model)
    text = gguf.GGUFWriter(out / "text.gguf", "llama")
    sight = gguf.GGUFWriter(out / "mmproj.gguf", "clip")
    _text_head(text, config.text_config, processor.tokenizer, model)
    _sight_head(sight, config.vision_config, config.text_config, processor.image_processor)
    heads = config.text_config.num_attention_heads
    for name, weight in load_file(model / "model.safetensors").items():
        known = name_in_gguf(name)
        if known is None:
            continue
        if known.startswith("blk.") and known.endswith(("attn_q.weight", "attn_k.weight")):
            weight = turned(weight, heads)
        to = text if not known.startswith(("v.", "mm.")) else sight
        to.add_tensor(known, np.ascontiguousarray(weight, dtype=np.float32))
    for file in (text, sight):
        file.write_header_to_file()
        file.write_kv_data_to_file()
        file.write_tensors_to_file()
        file.close()
    return out / "text.gguf", out / "mmproj.gguf"


def _text_head(file, config, tokenizer, model: Path) -> None:
    file.add_context_length(2048)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    file.add_rope_freq_base(10000.0)
    file.add_vocab_size(config.vocab_size)
    words = json.loads((model / "tokenizer.json").read_text())
    ids = {
        **words["model"]["vocab"],
        **{one["content"]: one["id"] for one in words["added_tokens"]},
    }
    special = {one["content"] for one in words["added_tokens"]}
    ordered = sorted(ids, key=ids.__getitem__)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(ordered)
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    file.add_token_types([kinds[word in special] for word in ordered])
    file.add_token_merges([" ".join(pair) for pair in words["model"]["merges"]])
    file.add_bos_token_id(tokenizer.bos_token_id)
    file.add_eos_token_id(tokenizer.eos_token_id)
    file.add_add_bos_token(True)
    file.add_chat_template(CHAT)


def _sight_head(file, config, text, photos) -> None:
    file.add_type("mmproj")
    file.add_bool("clip.has_vision_encoder", True)
    file.add_string("clip.projector_type", "mlp")
    for key, value in {
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "projection_dim": text.hidden_size,
        "attention.head_count": config.num_attention_heads,
        "block_count": config.num_hidden_layers,
    }.items():
        file.add_uint32(f"clip.vision.{key}", value)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", config.layer_norm_eps)
    # of all layers; the default leaves the last one out
    file.add_array("clip.vision.feature_layer", [config.num_hidden_layers])
    file.add_array("clip.vision.image_mean", list(photos.image_mean))
    file.add_array("clip.vision.image_std", list(photos.image_std))


if __name__ == "__main__":
    text_file, sight_file = write(Path(sys.argv[1]), Path(sys.argv[2]))
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.mmproj.path = str(text_file), str(sight_file)
    settings.model_alias = {"colours"}
    settings.port, settings.n_ctx, settings.n_parallel = int(sys.argv[3]), 8192, 4
    settings.mmproj_use_gpu, settings.cpuparams.n_threads = False, 1
    settings.cpuparams_batch.n_threads = 1
    settings.n_gpu_layers, settings.warmup, settings.use_jinja = 0, False, True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)
