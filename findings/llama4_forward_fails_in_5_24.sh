#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0, torchvision 0.29.2, on a CPU with Python 3.11.
#
# Behaviour: every forward pass of Llama4ForConditionalGeneration raises AttributeError in 5.24.0, with
# a photo and without one. Its last lines read image_outputs from the output of the language model,
# a mixture of experts, whose output class has no such field. 5.23.0 runs the same calls.
#
# Why a good engineer would not guess it: the class is one of the library's flagship models, its
# config, processor and from_pretrained work, and the text model alone (Llama4ForCausalLM) runs.
#
# Check: the text model gives logits; the whole model raises with a photo and without one.
#
# Output seen:
#   Llama4ForCausalLM: logits (1, 2, 50)
#   words alone: 'MoeCausalLMOutputWithPast' object has no attribute 'image_outputs'
#   a photo: 'MoeCausalLMOutputWithPast' object has no attribute 'image_outputs'
#
# Exit status: 0 while the behaviour holds, another number when it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet transformers==5.24.0 torch==2.15.0 torchvision==0.29.2
"$folder/bin/python" - <<'PY'
import torch
from transformers import Llama4Config, Llama4ForCausalLM, Llama4ForConditionalGeneration

vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64}
vision |= {"patch_size": 16, "intermediate_size": 128, "projector_input_dim": 32}
vision |= {"projector_output_dim": 32, "vision_output_dim": 32}
text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16}
text |= {"num_key_value_heads": 2, "intermediate_size": 48, "intermediate_size_mlp": 48}
text |= {"num_local_experts": 2, "vocab_size": 50, "pad_token_id": 1}
marks = {"boi_token_index": 3, "image_token_index": 5, "eoi_token_index": 4}
config = Llama4Config(vision_config=vision, text_config=text, **marks)

torch.manual_seed(0)
speaker = Llama4ForCausalLM(config.text_config).eval()
model = Llama4ForConditionalGeneration(config).eval()
words = torch.tensor([[7, 9]])
with torch.no_grad():
    shape = tuple(speaker(input_ids=words).logits.shape)
print("Llama4ForCausalLM: logits", shape)
assert shape == (1, 2, 50)

prompt = torch.tensor([[0, 3, 5, 5, 5, 5, 4, 9]])  # four places for the photo's states
photo = {"input_ids": prompt, "pixel_values": torch.randn(1, 3, 64, 64)}
for name, inputs in {"words alone": {"input_ids": words}, "a photo": photo}.items():
    try:
        model(**inputs)
    except AttributeError as error:
        print(f"{name}: {error}")
        assert "image_outputs" in str(error), "behaviour changed"
    else:
        raise SystemExit("behaviour changed: the forward pass runs")
PY
