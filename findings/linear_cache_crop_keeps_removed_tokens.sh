#!/usr/bin/env bash
# transformers 5.23.0, torch 2.15.0, on a CPU with Python 3.11.
#
# Behaviour: DynamicCache.crop(-3) of a model with linear attention (Qwen 3.5) does not remove the
# last three tokens from the recurrent states. It removes them from the keys and values and from the
# states of the convolution. Later logits still depend on the removed tokens.
#
# Why a good engineer would not guess it: without recording, crop raises an error that names the
# remedy: "Call activate_past_recording before crop to be able to rollback the cache". With this
# remedy crop succeeds, and get_seq_length() returns the shorter length. The logits are wrong and
# nothing is raised or logged. The same lines are exact for a model with full attention.
#
# Check: read a prompt, read three tokens, crop them, read three others. Compare with reading the
# prompt and the three others in one pass.
#
# Output seen:
#   without recording: `crop` was called, but the current layer does not track past states. [...]
#   full attention: logits off by 0.000003 without crop, 0.000003 after crop
#   linear attention: logits off by 0.000010 without crop, 1.368533 after crop
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.23.0 torch==2.15.0
"$folder/bin/python" - <<'PY'
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4}
sizes |= {"num_attention_heads": 4, "vocab_size": 100, "initializer_range": 0.2}
linear = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2}
linear |= {"linear_num_value_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
linear["layer_types"] = ["linear_attention"] * 3 + ["full_attention"]

prompt = torch.arange(10, 19)[None]
removed = torch.tensor([[40, 41, 42]])
others = torch.tensor([[50, 51, 52]])


def new_cache(model):
    cache = DynamicCache(config=model.config)
    model(prompt, past_key_values=cache)
    return cache


@torch.no_grad()
def difference(model, crop):
    """How far the logits of the other tokens are from those of one pass."""
    whole = model(torch.cat([prompt, others], dim=1)).logits[:, -3:]
    cache = new_cache(model)
    if crop:
        cache.activate_past_recording()
        model(removed, past_key_values=cache)
        cache.crop(-3)
    assert cache.get_seq_length() == prompt.shape[1]
    return (model(others, past_key_values=cache).logits - whole).abs().max().item()


torch.manual_seed(0)
llama = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
qwen = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**sizes, **linear)).eval()
try:
    new_cache(qwen).crop(-3)
    raise SystemExit("behaviour changed: crop without recording is accepted")
except RuntimeError as error:
    print("without recording:", error)
for name, model in {"full attention": llama, "linear attention": qwen}.items():
    plain, cropped = difference(model, crop=False), difference(model, crop=True)
    print(f"{name}: logits off by {plain:.6f} without crop, {cropped:.6f} after crop")
    assert plain < 1e-3
assert difference(llama, crop=True) < 1e-3
assert cropped > 0.01, "behaviour changed"
PY
